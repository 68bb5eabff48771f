import math

import pytest
import torch

from pirate.denoisers import Gaussian, Identity
from pirate.ops.smooth import gaussian


@pytest.mark.parametrize("shape", [(9, 8), (7, 8, 9)])
def test_the_gaussian_is_that_of_ops_with_width_times_sigma(shape):
    field = torch.randn(2, len(shape), *shape)
    torch.testing.assert_close(Gaussian(1.5)(field, 0.6), gaussian(field, 0.9))


@pytest.mark.parametrize("shape", [(9, 8), (7, 8, 9)])
def test_a_translation_is_kept(shape):
    field = torch.ones(1, len(shape), *shape) * torch.arange(1.0, 1 + len(shape)).reshape(
        -1, *[1] * len(shape)
    )
    torch.testing.assert_close(Gaussian()(field, 1.2), field)


def test_noise_is_reduced_by_the_norm_of_the_kernel():
    noise = torch.randn(1, 2, 200, 200, generator=torch.Generator().manual_seed(0))
    # the sum of squares of a Gaussian kernel is 1 / (2 sigma sqrt(pi)) per axis
    assert float(Gaussian()(noise, 1.5).std()) == pytest.approx(1 / (2 * 1.5 * math.sqrt(math.pi)), rel=0.05)


@pytest.mark.parametrize("sigma", [0.0, 1e-300, 1e-3])
def test_no_noise_means_no_change(sigma):
    field = torch.randn(1, 2, 6, 6)
    assert torch.equal(Gaussian()(field, sigma), field)


def test_a_kernel_just_below_the_narrowest_is_the_identity_anyway():
    field = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(gaussian(field, 0.0499), field, atol=1e-15, rtol=0)


@pytest.mark.parametrize("width", [-1.0, math.nan, math.inf])
def test_a_width_without_meaning_is_refused(width):
    with pytest.raises(ValueError, match="width"):
        Gaussian(width)


@pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf])
def test_a_sigma_without_meaning_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma"):
        Gaussian()(torch.zeros(1, 2, 4, 4), sigma)


def test_the_identity_returns_its_argument():
    field = torch.randn(1, 3, 4, 4, 4)
    assert Identity()(field, 3.0) is field
