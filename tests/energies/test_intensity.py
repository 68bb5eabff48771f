"""Local correlation: the intensity term, and windows that hardly count."""

from __future__ import annotations

import pytest
import torch

from pirate import kernels
from pirate.energies.local import LocalCorrelation
from pirate.errors import InputError
from pirate.ops.warp import warp


def test_a_mask_that_fades_to_nothing_leaves_numbers() -> None:
    """Weights down to the smallest positive number: windows of such weight count for nothing, in both twins."""
    torch.manual_seed(0)
    fixed, moving = torch.rand(2, 1, 1, 16, 17, 18)
    mask = torch.zeros_like(fixed)
    mask[..., :6] = 1
    mask[..., 6:] = torch.logspace(-1, -44, 12)
    term = LocalCorrelation(fixed, mask, window=5, intensity=10.0)
    field = 0.3 * torch.randn(1, 3, 16, 17, 18)
    value, force = term.force(moving, field)
    with kernels.disabled():
        expected, slope = term.force(moving, field)
    assert bool(torch.isfinite(force).all())
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    assert (force - slope).abs().max() < 1e-4 * slope.abs().max()


@pytest.mark.parametrize("shape", [(20, 23), (12, 14, 17)])
def test_the_intensity_term_is_the_mean_squared_difference_off_the_background(
    shape: tuple[int, ...],
) -> None:
    torch.manual_seed(1)
    fixed, moving = torch.rand(2, 1, 1, *shape)
    fixed[..., :4] = 0
    field = 0.4 * torch.randn(1, len(shape), *shape)
    plain, full = LocalCorrelation(fixed, window=5), LocalCorrelation(fixed, window=5, intensity=3.0)
    warped = warp(moving, field)
    expected = 3 * ((warped - fixed).double().square() * (fixed != 0)).mean()
    value = full.force(moving, field)[0] - plain.force(moving, field)[0]
    assert float(value) == pytest.approx(float(expected), rel=1e-4)
    with kernels.disabled():
        twin = full.force(moving, field)
    value, force = full.force(moving, field)
    torch.testing.assert_close(value, twin[0], rtol=1e-6, atol=0)
    assert (force - twin[1]).abs().max() < 1e-5 * twin[1].abs().max()


def test_the_gradient_of_the_whole_is_that_of_finite_differences() -> None:
    torch.manual_seed(2)
    fixed, warped = torch.rand(2, 1, 1, 9, 10, 8, dtype=torch.float64)
    fixed[..., :3] = 0
    term = LocalCorrelation(fixed, window=3, intensity=7.0)
    step = 1e-6
    direction = torch.randn_like(warped)
    ahead, behind = (term.value_and_gradient(warped + s * direction)[0] for s in (step, -step))
    slope = (term.value_and_gradient(warped)[1] * direction).sum()
    assert float((ahead - behind) / (2 * step)) == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_without_meaning_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="a number from 0"):
        LocalCorrelation(torch.rand(1, 1, 8, 8), intensity=weight)
