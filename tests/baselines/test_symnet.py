"""SYMNet: the authors' size, that both warps invert each other, loss."""

from __future__ import annotations

import pytest
import torch
from tests.baselines.pairs import SHAPES, pair, smooth_noise, stirred
from torch import Tensor

from pirate.baselines.losses import midway, orientation
from pirate.baselines.symnet import SYMNet, SYMNetLoss, meet
from pirate.energies.local import LocalCorrelation
from pirate.ops.compose import compose
from pirate.ops.warp import warp


class Given(SYMNet):
    """The same velocities whatever the images."""

    def __init__(self, velocities: tuple[Tensor, Tensor]) -> None:
        super().__init__(velocities[0].shape[1], width=1)
        self.velocities = velocities

    def forward(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, Tensor]:
        return self.velocities


def test_the_network_has_the_authors_size() -> None:
    """Their weight file for OASIS says about 0.87 million."""
    assert sum(p.numel() for p in SYMNet(3, width=7).parameters()) == 862_351


@pytest.mark.parametrize("shape", [(48, 52), (24, 26, 28)])
def test_forward_and_backward_invert_each_other(shape: tuple[int, ...]) -> None:
    """Stated error: 0.15 voxels inside for smooth velocities of 4 voxels, which move voxels by more than 4."""
    velocities = smooth_noise(shape, 4.0, 1, 4.0), smooth_noise(shape, 4.0, 2, 4.0)
    there, back = Given(velocities).fields(*pair(shape))
    assert back is not None
    assert float(there.abs().max()) > 4
    inside = (slice(None), slice(None), *[slice(8, n - 8) for n in shape])
    for a, b in ((there, back), (back, there)):
        assert float(compose(a, b)[inside].abs().max()) < 0.15


@pytest.mark.parametrize("shape", SHAPES)
def test_the_fields_bring_the_images_to_the_middle_and_beyond(shape: tuple[int, ...]) -> None:
    """M o h_M read at exp(-v_F) is M o field: the two ways to the fixed image agree up to interpolation."""
    _, moving = pair(shape)
    way = meet((smooth_noise(shape, 2.0, 1), smooth_noise(shape, 2.0, 2)), 7)
    back = meet((-smooth_noise(shape, 2.0, 2), -smooth_noise(shape, 2.0, 1)), 7).halves[0]
    through = warp(warp(moving, way.halves[0]), back)
    assert float((through - warp(moving, way.field)).abs().mean()) < 0.02


def test_swapping_the_velocities_swaps_the_fields() -> None:
    first, second = smooth_noise((30, 26), 3.0, 1), smooth_noise((30, 26), 3.0, 2)
    one, other = meet((first, second), 7), meet((second, first), 7)
    torch.testing.assert_close(one.field, other.inverse)
    torch.testing.assert_close(one.inverse, other.field)


@pytest.mark.parametrize("shape", SHAPES)
def test_velocities_stay_within_reach(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = stirred(SYMNet(len(shape), width=2, reach=3.0), 5.0)
    with torch.no_grad():
        for velocity in network(*pair(shape)):
            assert velocity.shape == (1, len(shape), *shape)
            assert 1 < float(velocity.abs().max()) <= 3
        still = SYMNet(len(shape), width=2).fields(*pair(shape))
    assert float(still.field.abs().max()) < 0.1


def test_the_orientation_loss_by_hand() -> None:
    """One pixel pushed past its neighbour along axis 0: of 3 x 3 cells one has the determinant -1."""
    field = torch.zeros(1, 2, 4, 4)
    assert float(orientation(field)) == 0
    field[0, 0, 1, 1] = 2.0  # forward: 1 + 2 = 3 before, 1 - 2 = -1 behind it
    assert float(orientation(field)) == pytest.approx(1 / 9)


def test_the_loss_by_hand() -> None:
    """Opposite translations of half a voxel: no slopes, no folds, halves of equal length; the rest is correlation."""
    shape = (24, 20)
    fixed, moving = pair(shape)
    ones = torch.zeros(1, 2, *shape)
    ones[:, 0] = 0.5
    scored = SYMNetLoss(window=5)(Given((ones, -ones)), fixed, moving)
    field = 2 * ones
    g = [
        float(LocalCorrelation(warp(fixed, -ones), window=5).value(moving, ones)),
        float(LocalCorrelation(fixed, window=5).value(moving, field)),
        float(LocalCorrelation(moving, window=5).value(fixed, -field)),
    ]
    assert float(scored.value) == pytest.approx(sum(g), rel=1e-4)
    assert scored.terms["magnitude"] == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(scored.field, field)
    uneven = SYMNetLoss(window=5, magnitude=7.0)(Given((ones, -3 * ones)), fixed, moving)
    assert uneven.terms["magnitude"] == pytest.approx(0.5, rel=1e-5)  # mean |h|: 0.25 and 0.75


def test_the_gradient_is_that_of_the_loss() -> None:
    torch.manual_seed(0)
    network, loss, images = SYMNet(2, width=2, squarings=3), SYMNetLoss(), pair((20, 24), 2)
    stirred(network, 0.02)
    weight = network.heads[0].weight
    (slope,) = torch.autograd.grad(loss(network, *images).value, weight)  # type: ignore[arg-type]
    values = []
    for h in (-2e-3, 2e-3):
        with torch.no_grad():
            weight.add_(h * slope / slope.norm())  # type: ignore[operator, union-attr]
            values.append(float(loss(network, *images).value))
            weight.sub_(h * slope / slope.norm())  # type: ignore[operator, union-attr]
    assert (values[1] - values[0]) / 4e-3 == pytest.approx(float(slope.norm()), rel=0.05)


def test_midway_has_the_derivative_of_both_images() -> None:
    shape = (18, 16)
    images = pair(shape)
    fields = tuple((0.3 * smooth_noise(shape, 1.0, k) + 0.4).requires_grad_() for k in (1, 2))
    value = midway(images, fields, 5)  # type: ignore[arg-type]
    slopes = torch.autograd.grad(value.sum(), fields)
    for k in (0, 1):
        change = smooth_noise(shape, 1.0, 7)
        ends = []
        for h in (-2e-3, 2e-3):
            moved = [f.detach() + (h * change if j == k else 0) for j, f in enumerate(fields)]
            ends.append(float(midway(images, tuple(moved), 5)))  # type: ignore[arg-type]
        assert (ends[1] - ends[0]) / 4e-3 == pytest.approx(float((slopes[k] * change).sum()), rel=0.05)


@pytest.mark.parametrize("arguments", [{"width": 0}, {"squarings": 99}, {"reach": 0.0}, {"ndim": 1}])
def test_networks_that_cannot_be_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not "):
        SYMNet(**({"ndim": 2} | arguments))  # type: ignore[arg-type]
