"""Gaussian smoothing: mass, symmetry, scipy, separability."""

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pirate.ops.smooth import gaussian, gaussian_taps


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 20), st.floats(1, 5))
def test_taps_are_a_symmetric_distribution_cut_at_truncate(sigma, truncate):
    taps = gaussian_taps(sigma, truncate)
    assert len(taps) == 2 * max(1, int(np.ceil(truncate * sigma))) + 1
    assert sum(taps) == pytest.approx(1, abs=1e-12)
    assert taps == taps[::-1]
    assert max(taps) == taps[len(taps) // 2]


@pytest.mark.parametrize("shape", [(9, 12), (6, 7, 8)])
@pytest.mark.parametrize("sigma", [0.5, 1.5, 4.0])
def test_equals_scipy_with_the_same_radius(shape, sigma):
    x = noise(1, 1, *shape)
    radius = len(gaussian_taps(sigma)) // 2
    expected = scipy.ndimage.gaussian_filter(x[0, 0].numpy(), sigma, mode="nearest", radius=radius)
    torch.testing.assert_close(gaussian(x, sigma)[0, 0], torch.from_numpy(expected), rtol=0, atol=1e-12)


def test_a_constant_stays_and_zero_sigma_leaves_an_axis_alone():
    constant = torch.full((2, 3, 5, 6), 3.5, dtype=torch.float64)
    torch.testing.assert_close(gaussian(constant, 2.0), constant, rtol=1e-14, atol=0)
    x = noise(1, 2, 6, 7)
    assert (gaussian(x, 0) == x).all()
    along = gaussian(x, (0.0, 1.2))
    for row in range(6):
        torch.testing.assert_close(along[:, :, row : row + 1], gaussian(x[:, :, row : row + 1], (0.0, 1.2)))
    torch.testing.assert_close(gaussian(gaussian(x, (0.9, 0.0)), (0.0, 1.2)), gaussian(x, (0.9, 1.2)))


def test_symmetric_where_the_border_is_not_reached():
    x, y = torch.zeros(2, 1, 1, 20, 22, dtype=torch.float64)
    x[..., 5:-5, 5:-5] = noise(1, 1, 10, 12)
    y[..., 5:-5, 5:-5] = noise(1, 1, 10, 12, seed=1)
    torch.testing.assert_close(
        (gaussian(x, 1.3) * y).sum(), (x * gaussian(y, 1.3)).sum(), rtol=0, atol=1e-10
    )  # radius 4 < 5
    torch.testing.assert_close(gaussian(x, 1.3).sum(), x.sum(), rtol=0, atol=1e-10)


def test_the_width_is_sigma():
    impulse = torch.zeros(1, 1, 1, 61, dtype=torch.float64)
    impulse[..., 30] = 1
    answer = gaussian(impulse, (0.0, 4.0), truncate=6).flatten()
    offset = torch.arange(61, dtype=torch.float64) - 30
    assert float((answer * offset**2).sum()) == pytest.approx(16, rel=1e-6)


def test_differentiable():
    x = noise(1, 1, 4, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: gaussian(v, 0.8), (x,))
