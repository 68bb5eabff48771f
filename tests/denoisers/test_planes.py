"""Laws of the corrector that looks at a volume plane by plane."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.denoisers.test_corrector import scene
from torch import Tensor

from pirate.denoisers.learned import load_denoiser
from pirate.denoisers.planes import AS_TRAINED, PlaneCorrector, View, between, coronal
from pirate.io.weights import Card, save_weights

SHAPE = (18, 20, 14)
TURNS = [(p, s) for p in permutations(range(3)) for s in product((1, -1), repeat=3)]
"""All 48 ways an array can lie along the axes of the world: array axis a along world axis p[a], by the sign s[a]."""


def axes_of(order: tuple[int, ...], signs: tuple[int, ...]) -> np.ndarray:
    axes = np.zeros((3, 3))
    for array, (world, sign) in enumerate(zip(order, signs, strict=True)):
        axes[world, array] = sign
    return axes


def awake(every: int = 1, across: float = 1.5) -> PlaneCorrector:
    torch.manual_seed(2)
    network = PlaneCorrector(3, 4, 2, across=across, every=every)
    torch.nn.init.normal_(network.within.outlet.weight, std=0.3)
    return network.eval().requires_grad_(False)


def test_the_planes_of_the_training_are_seen_as_they_are() -> None:
    assert coronal(AS_TRAINED) == View((0, 1, 2), (False, False))
    # RAS: right, front, up; a plane's first axis runs to the left, its second down
    assert coronal(np.eye(3)) == View((0, 2, 1), (True, True))


def test_a_tilted_grid_goes_with_the_closest_axes(oblique) -> None:  # type: ignore[no-untyped-def]
    grid = oblique(SHAPE)
    assert coronal(grid.axes) == coronal(np.eye(3))
    assert coronal(1.7 * grid.axes) == coronal(grid.axes)


@pytest.mark.parametrize(("order", "signs"), TURNS)
def test_there_and_back(order: tuple[int, ...], signs: tuple[int, ...]) -> None:
    view = coronal(axes_of(order, signs))
    field, image, _ = scene(SHAPE)
    assert torch.equal(view.volume(view.planes(image)), image)
    back = view.field_volume(view.field_planes(field))
    expected = field.clone()
    expected[:, view.axes[2]] = 0
    assert torch.equal(back, expected)


@pytest.mark.parametrize(("order", "signs"), TURNS)
def test_the_same_volume_in_another_array(order: tuple[int, ...], signs: tuple[int, ...]) -> None:
    """The correction of a place in the world does not depend on how the array runs through it.

    That is so if every plane is seen; else a reversed array begins with another plane.
    """
    network = awake()
    field, fixed, warped = scene(SHAPE)
    expected = network.correction(field, fixed, warped)  # as trained: left, down, front
    # the as-trained array's axis that runs along world axis w, and its sign
    along = {int(np.argmax(np.abs(AS_TRAINED[:, a]))): a for a in range(3)}
    took = [along[world] for world in order]
    flips = [s != np.sign(AS_TRAINED[w, t]) for w, s, t in zip(order, signs, took, strict=True)]
    reverse = [2 + a for a, flip in enumerate(flips) if flip]

    def image_there(x: Tensor) -> Tensor:
        return x.permute(0, 1, *(2 + t for t in took)).flip(reverse).contiguous()

    def field_there(x: Tensor) -> Tensor:
        sign = torch.tensor([-1.0 if flip else 1.0 for flip in flips]).view(1, 3, 1, 1, 1)
        return (image_there(x)[:, took] * sign).contiguous()

    turned = network.facing(axes_of(order, signs))
    found = turned.correction(field_there(field), image_there(fixed), image_there(warped))
    assert float(expected.abs().max()) > 0.05
    torch.testing.assert_close(found, field_there(expected), rtol=0, atol=2e-6)


def test_nothing_moves_across() -> None:
    field, fixed, warped = scene(SHAPE)
    r = awake(every=3).correction(field, fixed, warped)
    assert r.shape == field.shape
    assert not r[:, 2].any()
    assert r[:, :2].any()


def test_starts_as_the_identity() -> None:
    field, fixed, warped = scene(SHAPE)
    with torch.no_grad():
        found = PlaneCorrector(3, 4, 2)(field, 0.5, fixed, warped)
    torch.testing.assert_close(found, field, rtol=0, atol=2e-6)


def test_a_single_plane_is_what_the_network_says_of_it() -> None:
    """Without a Gaussian across, and seeing every plane, nothing is added to the 2-D corrector."""
    network = awake(across=0.0)
    field, fixed, warped = scene(SHAPE)
    r = network.correction(field, fixed, warped)
    alone = network.within.correction(field[..., 5][:, :2], fixed[..., 5], warped[..., 5])
    torch.testing.assert_close(r[0, :2, ..., 5], alone[0], rtol=0, atol=1e-6)


def test_thick_planes_are_all_seen() -> None:
    """Distances across are in mm: planes 3 mm apart are as every third one of 1 mm."""
    network = awake(every=3, across=1.5)
    assert (network.on((1.0, 1.0, 1.0)).every, network.on((1.0, 1.0, 1.0)).across) == (3, 1.5)
    thick = network.on((1.0, 1.0, 3.0))
    assert (thick.every, thick.across) == (1, 0.5)
    assert network.facing(np.eye(3)).on((1.0, 3.0, 1.0)).every == 1  # across is the second axis there
    assert network.every == 3
    field, fixed, warped = scene((18, 20, 13))
    fine = network.correction(field, fixed, warped)
    coarse = thick.correction(*(x[..., ::3].contiguous() for x in (field, fixed, warped)))
    torch.testing.assert_close(fine[..., ::3], coarse, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("every", "planes"), [(1, 5), (2, 9), (2, 10), (3, 13), (3, 14), (3, 15), (4, 1)])
def test_planes_between_are_interpolated(every: int, planes: int) -> None:
    line = torch.arange(planes, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 2, 3, 4)
    found = between(line[::every], every, planes)
    assert found.shape == line.shape
    last = (planes - 1) // every * every
    torch.testing.assert_close(found, line.clamp_max(last))


@pytest.mark.parametrize(
    "bad", [{"ndim": 2}, {"every": 0}, {"every": 2.5}, {"across": -1.0}, {"across": 17.0}]
)
def test_what_cannot_be_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"is 3|is 1 to 16"):
        PlaneCorrector(**bad)  # type: ignore[arg-type]


def test_from_a_weight_file(tmp_path: Path) -> None:
    network = awake(every=3, across=2.0)
    card = Card(
        "correction of fields by anatomy (supervised)", network.architecture(), 3, 0.0, 1000.0, 1, "made", True,
        "2026-11-18", {}, "0",
    )  # fmt: skip
    save_weights(tmp_path / "w.safetensors", network.state_dict(), card)
    found = load_denoiser(tmp_path / "w.safetensors", 3)
    assert isinstance(found.network, PlaneCorrector)
    assert found.wants_images
    field, fixed, warped = scene(SHAPE)
    assert torch.equal(found(field, 0.5, fixed, warped), network(field, 0.5, fixed, warped))
