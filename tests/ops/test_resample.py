"""Resolution: corners stay, linear maps stay linear maps, adjoints."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pirate.ops.resample import (
    half_resolution,
    half_shape,
    resize,
    resize_adjoint,
    resize_field,
    resize_field_adjoint,
    unit_change,
)
from pirate.ops.warp import identity

AXES = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=2, max_size=3)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_half_shape():
    assert half_shape((160, 192, 224)) == (80, 96, 112)
    assert half_shape((7, 3, 2)) == (4, 2, 2)
    assert half_shape((1, 9)) == (1, 5)


def test_unit_change_counts_steps_between_voxels():
    assert unit_change((5, 3), (9, 2)) == [2.0, 0.5]
    assert unit_change((1, 4), (6, 4)) == [1.0, 1.0]


@settings(max_examples=60, deadline=None)
@given(AXES, st.integers(0, 10**6))
def test_resize_adjoint_identity(axes, seed):
    source, target = zip(*axes, strict=True)
    x, y = noise(2, 2, *source, seed=seed), noise(2, 2, *target, seed=seed + 1)
    left, right = (resize(x, target) * y).sum(), (x * resize_adjoint(y, source)).sum()
    torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(AXES, st.integers(0, 10**6))
def test_resize_field_adjoint_identity(axes, seed):
    source, target = zip(*axes, strict=True)
    d = len(axes)
    x, y = noise(1, d, *source, seed=seed), noise(1, d, *target, seed=seed + 1)
    left, right = (resize_field(x, target) * y).sum(), (x * resize_field_adjoint(y, source)).sum()
    torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("source", "target"), [((5, 6), (9, 4)), ((4, 5, 6), (8, 3, 11)), ((3, 3, 3), (7, 7, 2))]
)
def test_resize_equals_torch_with_aligned_corners(source, target):
    x = noise(2, 3, *source)
    mode = {2: "bilinear", 3: "trilinear"}[len(source)]
    expected = F.interpolate(x, target, mode=mode, align_corners=True)
    torch.testing.assert_close(resize(x, target), expected, rtol=0, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(AXES, st.integers(0, 10**6))
def test_corner_values_stay_and_a_constant_stays(axes, seed):
    source, target = zip(*[(max(s, 2), max(t, 2)) for s, t in axes], strict=True)
    x = noise(1, 1, *source, seed=seed)
    y = resize(x, target)
    torch.testing.assert_close(y.flatten()[[0, -1]], x.flatten()[[0, -1]], rtol=0, atol=1e-12)
    constant = torch.full((1, 1, *source), 7.25, dtype=torch.float64)
    assert (resize(constant, target) == 7.25).all()


@pytest.mark.parametrize(
    ("shape", "target"), [((9, 12), (5, 6)), ((5, 6, 7), (9, 12, 14)), ((6, 8), (11, 3))]
)
def test_a_linear_map_is_the_same_map_at_any_resolution(shape, target):
    """Corner-relative positions q = x / (n - 1): q -> A q + b must not depend on the grid."""
    d = len(shape)
    matrix, shift = 0.3 * noise(d, d), 0.2 * noise(d, seed=1)

    def linear(grid_shape):
        like = torch.zeros(1, d, *grid_shape, dtype=torch.float64)
        extent = torch.tensor([n - 1 for n in grid_shape], dtype=torch.float64).view(1, -1, *[1] * d)
        q = identity(like) / extent
        moved = torch.einsum("ab,nb...->na...", matrix, q) + shift.view(1, -1, *[1] * d)
        return moved * extent

    torch.testing.assert_close(resize_field(linear(shape), target), linear(target), rtol=0, atol=1e-10)


def test_half_resolution_has_the_half_shape_and_the_new_unit():
    field = torch.ones(1, 3, 9, 8, 1, dtype=torch.float64)
    half = half_resolution(field)
    assert half.shape == (1, 3, 5, 4, 1)
    assert half[0, :, 0, 0, 0].tolist() == pytest.approx([4 / 8, 3 / 7, 1.0])


def test_doubling_and_halving_again_returns_the_field():
    field = noise(2, 3, 4, 5, 6)
    finer = resize_field(field, (7, 9, 11))
    torch.testing.assert_close(resize_field(finer, (4, 5, 6)), field, rtol=0, atol=1e-12)


@pytest.mark.parametrize("target", [(5, 3), (2, 7)])
def test_resizing_is_differentiable(target):
    x = noise(1, 2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: resize_field(v, target), (x,))
    y = noise(1, 2, *target).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: resize_field_adjoint(v, (3, 4)), (y,))
