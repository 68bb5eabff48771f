"""Laws of sampling: identity, translation, linearity, borders, thin axes, exact slopes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pirate.ops.compose import compose
from pirate.ops.warp import identity, sample, warp, warp_with_gradient

SHAPES = [(7, 8), (5, 6, 7)]


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def constant(shape, vector, dtype=torch.float64):
    return torch.tensor(vector, dtype=dtype).view(1, -1, *[1] * len(shape)).expand(1, -1, *shape).clone()


def test_identity_is_the_voxel_index():
    grid = identity(torch.zeros(1, 3, 2, 3, 4))
    assert grid.shape == (1, 3, 2, 3, 4)
    assert grid[0, :, 1, 2, 3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_zero_field_changes_nothing(shape, padding, interpolation, dtype, tolerance):
    image = noise(2, 3, *shape, dtype=dtype)
    still = torch.zeros(2, len(shape), *shape, dtype=dtype)
    torch.testing.assert_close(warp(image, still, interpolation, padding), image, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("step", [-2, 1, 3])
@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_a_whole_step_is_a_shift_with_the_border_repeated_or_zero(shape, step, interpolation):
    image = noise(1, 2, *shape)
    for axis in range(len(shape)):
        field = constant(shape, [step if a == axis else 0 for a in range(len(shape))])
        n = shape[axis]
        source = torch.arange(n) + step
        shifted = image.index_select(axis + 2, source.clamp(0, n - 1))
        torch.testing.assert_close(warp(image, field, interpolation, "border"), shifted, rtol=0, atol=1e-10)
        inside = ((source >= 0) & (source < n)).double().view(-1, *[1] * (len(shape) - axis - 1))
        torch.testing.assert_close(warp(image, field, interpolation), shifted * inside, rtol=0, atol=1e-10)


def test_channel_c_moves_along_axis_c():
    image = torch.zeros(1, 1, 5, 6, 7, dtype=torch.float64)
    image[0, 0, 1, 2, 3] = 1
    moved = warp(image, constant((5, 6, 7), [-2, 1, 3]))
    assert moved.nonzero().tolist() == [[0, 0, 3, 1, 0]]


@pytest.mark.parametrize("shape", SHAPES)
def test_linear_interpolation_reproduces_a_linear_image(shape):
    d = len(shape)
    field = 0.9 * noise(1, d, *shape).tanh()
    grid = identity(field)
    slope = torch.arange(1.0, d + 1, dtype=torch.float64).view(1, -1, *[1] * d)
    image = 4 + (slope * grid).sum(1, keepdim=True)
    inner = (..., *[slice(1, -1)] * d)
    expected = 4 + (slope * (grid + field)).sum(1, keepdim=True)
    torch.testing.assert_close(warp(image, field)[inner], expected[inner], rtol=0, atol=1e-10)


def test_outside_zeros_fade_within_one_voxel_and_the_border_stays():
    image = torch.full((1, 1, 4, 4), 8.0, dtype=torch.float64)
    for beyond, share in ((0.25, 0.75), (0.5, 0.5), (1.0, 0.0), (2.5, 0.0)):
        positions = torch.tensor([[3 + beyond], [1.0]], dtype=torch.float64).view(1, 2, 1, 1)
        assert float(sample(image, positions)) == pytest.approx(8 * share, abs=1e-12)
        assert float(sample(image, positions, padding="border")) == pytest.approx(8)


def test_nearest_returns_only_values_of_the_image_at_the_nearest_voxel():
    labels = torch.arange(30.0, dtype=torch.float64).view(1, 1, 5, 6)
    field = 0.45 * noise(1, 2, 5, 6).tanh()
    torch.testing.assert_close(warp(labels, field, "nearest", "border"), labels, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(1, 6), (5, 1), (4, 1, 5), (1, 1, 3)])
@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_an_axis_of_one_voxel_has_an_outside_too(shape, interpolation):
    """As a slice of a stack whose neighbours are zeros (or copies)."""
    image = noise(1, 2, *shape)
    field = 0.8 * noise(1, len(shape), *shape, seed=1)
    for padding, copies in (("zeros", 0), ("border", 1)):
        thick, thick_field = image, field
        offset = torch.zeros(len(shape), dtype=torch.float64)
        for axis, n in enumerate(shape):
            if n == 1:
                around = thick * copies
                thick = torch.cat([around, around, thick, around, around], axis + 2)
                offset[axis] = 2
        positions = identity(thick_field) + thick_field + offset.view(1, -1, *[1] * len(shape))
        expected = sample(thick, positions, interpolation, padding)
        torch.testing.assert_close(warp(image, field, interpolation, padding), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_warping_twice_by_whole_steps_is_warping_by_the_composition(shape):
    image = noise(1, 1, *shape)
    first, second = constant(shape, [1, -1, 2][: len(shape)]), constant(shape, [-2, 1, 1][: len(shape)])
    twice = warp(warp(image, first, padding="border"), second, padding="border")
    once = warp(image, compose(first, second), padding="border")
    inner = (..., *[slice(3, -3)] * len(shape))
    torch.testing.assert_close(twice[inner], once[inner], rtol=0, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-5, 5), st.floats(-5, 5))
def test_warp_is_linear_in_the_image(seed, a, b):
    x, y = noise(2, 1, 1, 5, 6, seed=seed)
    field = 2 * noise(1, 2, 5, 6, seed=seed + 1)
    torch.testing.assert_close(
        warp(a * x + b * y, field), a * warp(x, field) + b * warp(y, field), rtol=0, atol=1e-10
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["zeros", "border"]))
def test_a_warped_image_stays_within_its_range(seed, padding):
    image = noise(1, 1, 5, 6, seed=seed)
    warped = warp(image, 4 * noise(1, 2, 5, 6, seed=seed + 1), padding=padding)
    low, high = float(image.min()), float(image.max())
    if padding == "zeros":
        low, high = min(low, 0), max(high, 0)
    assert low - 1e-12 <= float(warped.min())
    assert float(warped.max()) <= high + 1e-12


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 3)])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_warp_is_differentiable(shape, padding):
    image = noise(1, 2, *shape).requires_grad_()
    field = (0.7 * noise(1, len(shape), *shape, seed=2)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda i, f: warp(i, f, padding=padding), (image, field), eps=1e-7, atol=1e-6
    )


@pytest.mark.parametrize("shape", [*SHAPES, (1, 9), (4, 1, 5)])
@pytest.mark.parametrize("reach", [0.5, 3.0, 30.0])
def test_warp_with_gradient_equals_grid_sample_and_its_autograd(shape, reach):
    """Also around and far outside the border, where zeros fade in, and along axes of one voxel."""
    image = noise(2, 1, *shape)
    field = (reach * noise(2, len(shape), *shape, seed=4)).requires_grad_()
    expected = warp(image, field)
    (slope,) = torch.autograd.grad(expected.sum(), field)
    warped, gradient = warp_with_gradient(image, field)
    torch.testing.assert_close(warped, expected.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient, slope, rtol=0, atol=1e-9)
    assert not warped.requires_grad
    assert not gradient.requires_grad


def test_warp_with_gradient_is_exact_on_voxels_and_points_to_the_next():
    image = noise(1, 1, 6, 7, dtype=torch.float32)
    warped, gradient = warp_with_gradient(image, torch.zeros(1, 2, 6, 7))
    assert (warped == image).all()
    following = torch.cat([image[..., 1:, :], torch.zeros(1, 1, 1, 7)], 2)
    torch.testing.assert_close(gradient[:, :1], following - image, rtol=0, atol=1e-6)


def test_warp_with_gradient_passes_on_what_is_not_a_number_and_reads_zero_at_infinity():
    image = noise(1, 1, 4, 5)
    field = torch.zeros(1, 2, 4, 5, dtype=torch.float64)
    field[0, 0, 1, 1] = float("nan")
    field[0, 1, 2, 2] = float("inf")
    field[0, 1, 3, 3] = -float("inf")
    warped, gradient = warp_with_gradient(image, field)
    assert torch.isnan(warped).nonzero().tolist() == [[0, 0, 1, 1]]
    for point in ((2, 2), (3, 3)):
        assert warped[0, 0][point] == 0
        assert (gradient[(0, slice(None), *point)] == 0).all()
