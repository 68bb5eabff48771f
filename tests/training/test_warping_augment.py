"""Changes of labelled subjects: mirrors, deformations, intensities."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import blobs

from pirate.ops.jacobian import mark_folds
from pirate.training.warping_augment import (
    changed_intensities,
    deformed,
    flip_field,
    mirror_partners,
    mirrored,
    random_diffeomorphism,
)

SHAPES = [(40, 36), (26, 24, 22)]


def sides(shape: tuple[int, ...]) -> torch.Tensor:
    """Two structures on each side and one in the middle: 1 and 3 left, 2 and 5 right, 4 in the middle."""
    labels = torch.zeros(shape, dtype=torch.int16)
    n = shape[0]
    labels[2:6, 4:9], labels[n - 6 : n - 2, 4:9] = 1, 2
    labels[3:7, 12:16], labels[n - 7 : n - 3, 12:16] = 3, 5
    labels[n // 2 - 2 : n // 2 + 2, 8:12] = 4
    return labels


@pytest.mark.parametrize("shape", SHAPES)
def test_partners_are_found(shape: tuple[int, ...]) -> None:
    maps = [sides(shape), sides(shape).roll(1, 0), sides(shape).roll(1, 1)]
    assert mirror_partners(maps) == {1: 2, 2: 1, 3: 5, 5: 3, 4: 4}
    assert mirror_partners([torch.zeros(shape, dtype=torch.int16)]) == {}


def test_a_label_without_partner_stays() -> None:
    labels = sides((40, 36))
    labels[labels == 5] = 0
    assert mirror_partners([labels])[3] == 3


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mirror_twice_is_none(shape: tuple[int, ...]) -> None:
    labels = sides(shape)
    partners = mirror_partners([labels])
    image = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    once = mirrored(image, labels, partners)
    assert torch.equal(once[1], labels)  # symmetric anatomy: left became right and is called so
    assert not torch.equal(once[0], image)
    twice = mirrored(*once, partners)
    assert torch.equal(twice[0], image)
    assert torch.equal(twice[1], labels)
    field = torch.randn(1, len(shape), *shape)
    assert torch.equal(flip_field(flip_field(field, 0), 0), field)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_diffeomorphisms_do_not_fold(shape: tuple[int, ...]) -> None:
    for seed in range(3):
        field = random_diffeomorphism(shape, 3.0, torch.Generator().manual_seed(seed))
        assert mark_folds(field)[0] == 0
        assert 1.0 < float(field.abs().max()) < 6.0


@pytest.mark.parametrize("shape", SHAPES)
def test_labels_follow_their_image(shape: tuple[int, ...]) -> None:
    labels = (torch.from_numpy(blobs(shape)) > 0.5).to(torch.int16)
    field = random_diffeomorphism(shape, 3.0, torch.Generator().manual_seed(0))
    image, moved = deformed(labels[None].float(), labels, field)
    apart = int(((image[0] > 0.5) != moved.bool()).sum())
    assert apart < 0.5 * int((moved != labels).sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_intensities_change_and_the_background_does_not(shape: tuple[int, ...]) -> None:
    image = torch.from_numpy(blobs(shape))[None].clamp_min(0)
    image[image < 0.05] = 0
    changed = changed_intensities(image, torch.Generator().manual_seed(1))
    assert bool((changed[image == 0] == 0).all())
    assert bool((changed >= 0).all())
    shown = image > 0
    assert 0.02 < float((changed - image)[shown].abs().mean()) < 0.5
    assert float(torch.corrcoef(torch.stack([changed[shown], image[shown]]))[0, 1]) > 0.8
    torch.testing.assert_close(changed_intensities(image, torch.Generator().manual_seed(1), 0.0), image)
    assert torch.equal(changed, changed_intensities(image, torch.Generator().manual_seed(1)))
