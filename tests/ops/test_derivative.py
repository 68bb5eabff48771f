"""Differences: adjoint identities, exactness on polynomials, borders."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pirate.ops.derivative import (
    central_difference,
    central_difference_adjoint,
    forward_difference,
    forward_difference_adjoint,
)
from pirate.ops.warp import identity

PAIRS = {
    "forward": (forward_difference, forward_difference_adjoint),
    "central": (central_difference, central_difference_adjoint),
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=3), st.integers(0, 10**6), st.sampled_from(sorted(PAIRS))
)
def test_adjoint_identity(shape, seed, name):
    difference, adjoint = PAIRS[name]
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, 2, 3, *shape, generator=generator, dtype=torch.float64)
    for axis in range(len(shape)):
        left, right = (difference(x, axis) * y).sum(), (x * adjoint(y, axis)).sum()
        torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shape", [(6, 7), (4, 5, 6)])
def test_the_slope_of_a_ramp_is_exact_along_its_own_axis_only(name, shape):
    grid = identity(torch.zeros(1, len(shape), *shape, dtype=torch.float64))
    difference, _ = PAIRS[name]
    for axis in range(len(shape)):
        for channel in range(len(shape)):
            slope = difference(3 * grid, axis)[:, channel]
            if name == "forward":
                slope = slope.narrow(1 + axis, 0, shape[axis] - 1)
            assert (slope == (3 if axis == channel else 0)).all()


def test_central_difference_is_exact_on_squares_inside():
    x = torch.arange(8, dtype=torch.float64).view(1, 1, 8, 1).square()
    slope = central_difference(x, 0).flatten()
    assert slope.tolist() == [1, 2, 4, 6, 8, 10, 12, 13]  # one-sided at both ends


def test_forward_difference_is_zero_at_the_last_voxel():
    x = torch.tensor([1.0, 4.0, 9.0]).view(1, 1, 1, 3)
    assert forward_difference(x, 1).flatten().tolist() == [3, 5, 0]
    assert forward_difference_adjoint(x, 1).flatten().tolist() == [-1, -3, 4]


@pytest.mark.parametrize("name", PAIRS)
def test_one_and_two_voxels(name):
    difference, adjoint = PAIRS[name]
    single = torch.ones(1, 1, 1, 3)
    assert (difference(single, 0) == 0).all()
    assert (adjoint(single, 0) == 0).all()
    two = torch.tensor([2.0, 5.0]).view(1, 1, 2, 1)
    assert difference(two, 0).flatten().tolist() == ([3, 0] if name == "forward" else [3, 3])


@pytest.mark.parametrize("name", PAIRS)
def test_differentiable(name):
    x = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    difference, adjoint = PAIRS[name]
    assert torch.autograd.gradcheck(lambda v: difference(v, 0), (x,))
    y = torch.randn(1, 2, 4, 3, dtype=torch.float64)
    (slope,) = torch.autograd.grad((difference(x, 1) * y).sum(), x)
    torch.testing.assert_close(slope, adjoint(y, 1), rtol=0, atol=1e-12)
