"""Local correlation: box sums, MONAI as oracle, flat windows."""

import naive_energies as naive
import pytest
import torch
from monai.losses import LocalNormalizedCrossCorrelationLoss

from pirate.energies import LocalCorrelation
from pirate.energies.local import box_sum
from pirate.errors import InputError


def pair(shape, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    fixed, noise = torch.rand(2, batch, 1, *shape, generator=generator, dtype=torch.float64)
    return fixed, 0.5 * fixed + 0.5 * noise


@pytest.mark.parametrize("shape", [(10, 13), (5, 7, 9)])
@pytest.mark.parametrize("window", [1, 3, 5, 7, 9, 11, 21])
def test_box_sum_equals_a_convolution_with_ones(window, shape):
    x = torch.randn(2, 1, *shape, dtype=torch.float64)
    d = len(shape)
    convolve = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[d]
    expected = convolve(x, torch.ones(1, 1, *[window] * d, dtype=torch.float64), padding=window // 2)
    torch.testing.assert_close(box_sum(x, window), expected, rtol=1e-12, atol=1e-11)


def test_box_sum_of_a_unit_impulse_and_its_symmetry():
    x, y = torch.randn(2, 1, 1, 6, 7, dtype=torch.float64)
    torch.testing.assert_close((box_sum(x, 5) * y).sum(), (x * box_sum(y, 5)).sum(), rtol=1e-12, atol=1e-12)
    impulse = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    impulse[..., 4, 4] = 1
    assert box_sum(impulse, 3).sum() == 9
    assert (box_sum(impulse, 3)[..., 3:6, 3:6] == 1).all()


@pytest.mark.parametrize("shape", [(14, 17), (9, 10, 11)])
@pytest.mark.parametrize("window", [3, 5, 9, 21])
def test_squared_local_correlation_equals_monai(window, shape):
    """MONAI returns minus the mean; its smooth_dr bounds each variance from below, no epsilon is added."""
    fixed, warped = pair(shape)
    warped.requires_grad_()
    oracle = LocalNormalizedCrossCorrelationLoss(len(shape), window, smooth_dr=1e-12)(warped, fixed)
    (slope,) = torch.autograd.grad(oracle, warped)
    energy = LocalCorrelation(fixed, window=window, squared=True, epsilon=1e-18)
    value, gradient = energy.value_and_gradient(warped.detach())
    torch.testing.assert_close(value[0], 1 + oracle.detach(), rtol=1e-9, atol=0)
    torch.testing.assert_close(gradient, slope, rtol=1e-7, atol=1e-9 * float(slope.abs().max()))


@pytest.mark.parametrize("level", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("squared", [True, False])
def test_flat_windows_count_as_zero(squared, level):
    """Half of each image is flat: only windows that see contrast in both contribute."""
    fixed, warped = pair((12, 40))
    fixed[..., :20] = level
    warped[..., :20] = level
    value, gradient = LocalCorrelation(fixed, window=3, squared=squared).value_and_gradient(warped)
    assert torch.isfinite(gradient).all()
    interior = gradient[..., 2:-2, 2:17]  # sees flat windows only
    if squared:
        assert (interior == 0).all()
    else:  # the cross term's slope is f minus its window mean: nothing but rounding
        assert interior.abs().max() <= 1e-12 * max(level, 1.0)
    expected = naive.local_correlation(fixed, warped, window=3, squared=squared)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("squared", [True, False])
def test_flat_fixed_under_contrast_gives_zero_even_at_large_intensity(squared):
    """Rounding in the variance of a flat window must not pose as correlation."""
    _, warped = pair((12, 40))
    fixed = torch.full_like(warped, 12345.678)
    fixed[..., 39] = 12346.0  # contrast in the last column alone
    ones = torch.ones_like(fixed)
    value, gradient = LocalCorrelation(fixed, ones, window=3, squared=squared).value_and_gradient(
        1e4 * warped
    )
    near = LocalCorrelation(fixed[..., 36:], ones[..., 36:], window=3, squared=squared)
    v, _ = near.value_and_gradient(1e4 * warped[..., 36:])
    torch.testing.assert_close((1 - value) * 40, (1 - v) * 4, rtol=1e-6, atol=1e-9)
    assert (gradient[..., :36] == 0).all()


def test_windows_outside_the_mask_do_not_count():
    fixed, warped = pair((10, 12))
    mask = torch.zeros_like(fixed)
    mask[..., 2:8, 3:9] = 1
    whole = LocalCorrelation(fixed, mask, window=5).value_and_gradient(warped)
    cut = (..., slice(2, 8), slice(3, 9))
    part = LocalCorrelation(fixed[cut], mask[cut], window=5).value_and_gradient(warped[cut])
    torch.testing.assert_close(whole[0], part[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(whole[1][cut], part[1], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("window", [-1, 0, 1, 2, 8])
def test_a_window_without_a_centre_is_refused(window):
    fixed, _ = pair((5, 6))
    with pytest.raises(InputError, match=f"^window: the window has {window} voxels; expected an odd number"):
        LocalCorrelation(fixed, window=window)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_an_epsilon_that_is_not_positive_is_refused(epsilon):
    fixed, _ = pair((5, 6))
    with pytest.raises(InputError, match=r"^epsilon: "):
        LocalCorrelation(fixed, epsilon=epsilon)
