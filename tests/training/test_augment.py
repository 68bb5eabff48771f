import itertools

import pytest
import torch

from pirate.ops.warp import warp
from pirate.training.augment import Symmetry, crop, scaled


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def all_symmetries(ndim):
    for order in itertools.permutations(range(ndim)):
        for flips in itertools.product((False, True), repeat=ndim):
            yield Symmetry(order, flips)


def pair(ndim):
    shape = (9, 7, 6)[:ndim]
    image = torch.rand(1, 2, *shape, generator=generator(1))
    return image, torch.randn(1, ndim, *shape, generator=generator(2))


@pytest.mark.parametrize("ndim", [2, 3])
def test_every_symmetry_commutes_with_warping(ndim):
    image, field = pair(ndim)
    for symmetry in all_symmetries(ndim):
        expected = symmetry.of_image(warp(image, field))
        found = warp(symmetry.of_image(image), symmetry.of_field(field))
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_law_can_fail(ndim):
    image, field = pair(ndim)
    flip = Symmetry(tuple(range(ndim)), (True, *[False] * (ndim - 1)))
    turned = flip.of_image(field)  # the components left as they were
    assert not torch.allclose(
        warp(flip.of_image(image), turned), flip.of_image(warp(image, field)), atol=1e-3
    )


def test_a_flip_turns_one_component_and_a_permutation_exchanges_them():
    field = torch.zeros(2, 3, 4)
    field[0, 1, 2], field[1, 1, 2] = 5.0, 7.0
    flipped = Symmetry((0, 1), (True, False)).of_field(field)
    assert flipped[:, 1, 2].tolist() == [-5.0, 7.0]
    exchanged = Symmetry((1, 0), (False, False)).of_field(field)
    assert exchanged.shape == (2, 4, 3)
    assert exchanged[:, 2, 1].tolist() == [7.0, 5.0]


@pytest.mark.parametrize("ndim", [2, 3])
def test_random_symmetries_are_all_of_them_and_repeat_with_the_seed(ndim):
    drawn = [Symmetry.random(ndim, generator(s)) for s in range(600)]
    assert set(drawn) == set(all_symmetries(ndim))
    assert drawn[:5] == [Symmetry.random(ndim, generator(s)) for s in range(5)]


def test_the_source_shape_becomes_the_shape():
    for symmetry in all_symmetries(3):
        source = torch.zeros(symmetry.source_shape((2, 3, 4)))
        assert symmetry.of_image(source).shape == (2, 3, 4)


@pytest.mark.parametrize("ndim", [2, 3])
def test_scaling_scales_the_change_of_a_ramp(ndim):
    shape = (12, 11, 10)[:ndim]
    image = sum(
        (a + 1) * torch.arange(float(n)).reshape([-1 if b == a else 1 for b in range(ndim)])
        for a, n in enumerate(shape)
    )[None, None]
    field = 0.4 * torch.rand(1, ndim, *shape, generator=generator()) - 0.2
    larger = scaled(field, 2.0, 3.0, generator(4))
    factor = float((larger / field).mean())
    assert 2 <= factor <= 3
    inside = (..., *[slice(1, -1)] * ndim)
    torch.testing.assert_close(
        (warp(image, larger) - image)[inside],
        factor * (warp(image, field) - image)[inside],
        atol=1e-4,
        rtol=0,
    )


def test_the_factor_is_uniform_in_its_logarithm():
    one = torch.ones(1)
    logs = torch.tensor([float(scaled(one, 0.5, 2.0, generator(s)).log2()) for s in range(800)])
    assert logs.min() >= -1
    assert logs.max() <= 1
    assert abs(float(logs.mean())) < 0.08
    assert abs(float(logs.std()) - 2 / 12**0.5) < 0.04


def test_a_crop_is_a_part_and_every_place_comes_up():
    field = torch.arange(30.0).reshape(1, 5, 6)
    corners = {float(crop(field, (3, 4), generator(s))[0, 0, 0]) for s in range(200)}
    assert corners == {6.0 * i + j for i in range(3) for j in range(3)}
    part = crop(field, (3, 4), generator())
    start = int(part[0, 0, 0])
    assert torch.equal(part, field[:, start // 6 : start // 6 + 3, start % 6 : start % 6 + 4])


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="permutes its axes"):
        Symmetry((0, 0), (False, False))
    with pytest.raises(ValueError, match="permutes its axes"):
        Symmetry((0, 1), (False,))
    with pytest.raises(ValueError, match="0 < low <= high"):
        scaled(torch.ones(1), 2.0, 1.0, generator())
    with pytest.raises(ValueError, match="no part of 7 voxels in 6 along axis 1"):
        crop(torch.zeros(1, 5, 6), (5, 7), generator())
