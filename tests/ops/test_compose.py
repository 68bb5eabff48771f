"""Fields as maps: composition, inverse and exponential, with the accuracy they state."""

import itertools

import pytest
import torch

from pirate.ops.compose import compose, exponential, invert
from pirate.ops.jacobian import determinant, folding_ratio
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity, warp

SHAPES = [(32, 34), (18, 19, 20)]


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def smooth_field(shape, largest, sigma=3.0, seed=0):
    field = gaussian(noise(1, len(shape), *shape, seed=seed), sigma)
    return field * (largest / field.abs().max())


def bump_field(shape, largest):
    """A smooth field that dies out towards the border; it never leaves the grid."""
    d = len(shape)
    grid = identity(torch.zeros(1, d, *shape, dtype=torch.float64))
    window = torch.ones(1, 1, *shape, dtype=torch.float64)
    for axis, n in enumerate(shape):
        window = window * torch.sin(torch.pi * grid[:, axis : axis + 1] / (n - 1)) ** 2
    direction = torch.tensor([1.0, -0.8, 0.6][:d], dtype=torch.float64).view(1, -1, *[1] * d)
    return largest * window * direction


def constant(shape, vector):
    return (
        torch.tensor(vector, dtype=torch.float64).view(1, -1, *[1] * len(shape)).expand(1, -1, *shape).clone()
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_composing_with_the_identity_changes_nothing(shape):
    field = smooth_field(shape, 2.0)
    still = torch.zeros_like(field)
    torch.testing.assert_close(compose(field, still), field, rtol=0, atol=1e-10)
    torch.testing.assert_close(compose(still, field), field, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_translations_add(shape):
    d = len(shape)
    a, b = constant(shape, [1.3, -0.4, 2.2][:d]), constant(shape, [-5.1, 0.7, 0.1][:d])
    torch.testing.assert_close(compose(a, b), a + b, rtol=0, atol=1e-10)


def test_composition_of_linear_maps_is_the_product_with_inner_first():
    shape = (15, 15)
    grid = identity(torch.zeros(1, 2, *shape, dtype=torch.float64)) - 7
    a = torch.tensor([[0.0, 0.1], [0.05, 0.02]], dtype=torch.float64)
    b = torch.tensor([[0.02, -0.1], [0.2, 0.0]], dtype=torch.float64)
    one = torch.eye(2, dtype=torch.float64)

    def linear(matrix):
        return torch.einsum("ab,nb...->na...", matrix, grid)

    expected = linear((one + a) @ (one + b) - one)
    inner = (..., slice(3, -3), slice(3, -3))
    torch.testing.assert_close(compose(linear(a), linear(b))[inner], expected[inner], rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_warping_by_a_composition_is_warping_twice_up_to_interpolation(shape):
    outer, inner_field = bump_field(shape, 1.5), -0.5 * bump_field(shape, 1.5).flip(1)
    grid = identity(outer)
    image = torch.sin(grid / 4).prod(1, keepdim=True)
    twice = warp(warp(image, outer), inner_field)
    once = warp(image, compose(outer, inner_field))
    inside = (..., *[slice(3, -3)] * len(shape))
    # two linear interpolations instead of one: h^2/8 times the curvature 1/16 for each axis, twice
    assert (twice - once)[inside].abs().max() < len(shape) * 2 / 8 / 16
    assert (twice - image)[inside].abs().max() > 0.1


def test_compose_is_differentiable():
    a, b = 0.6 * noise(2, 1, 2, 4, 5)
    assert torch.autograd.gradcheck(compose, (a.requires_grad_(), b.requires_grad_()), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("largest", [1.0, 3.0])
def test_the_inverse_of_a_smooth_field_undoes_it_from_both_sides(shape, largest):
    field = smooth_field(shape, largest)
    assert (determinant(field) > 0).all()
    inverse = invert(field, iterations=50, tolerance=1e-6)
    assert float(inverse.error.max()) < 1e-6  # at the border too: the field continues there
    inside = (..., *[slice(5, -5)] * len(shape))
    assert compose(field, inverse.field)[inside].abs().max() < 1e-6
    # the other side re-interpolates the inverse, which is not piecewise linear on the grid
    assert compose(inverse.field, field)[inside].abs().max() < 0.06 * largest


@pytest.mark.parametrize("shape", SHAPES)
def test_the_inverse_of_a_translation_is_the_opposite_translation(shape):
    field = constant(shape, [6.0, -2.5, 1.25][: len(shape)])
    inverse = invert(field)
    torch.testing.assert_close(inverse.field, -field, rtol=0, atol=1e-10)


def test_the_reported_error_is_the_error():
    field = smooth_field((24, 25), 3.0)
    for iterations in (0, 1, 3, 20):
        inverse = invert(field, iterations, tolerance=0.0)
        left = inverse.field + warp(field, inverse.field, padding="border")
        torch.testing.assert_close(inverse.error, left.norm(dim=1), rtol=0, atol=1e-12)


def test_more_iterations_never_make_it_worse():
    field = smooth_field((24, 25), 5.0)
    errors = [invert(field, n, tolerance=0.0).error for n in (0, 2, 5, 10, 40)]
    for coarse, fine in itertools.pairwise(errors):
        assert (fine <= coarse).all()


def test_a_folded_field_reports_a_large_error_and_stays_finite():
    field = smooth_field((20, 21), 30.0)
    assert folding_ratio(field).item() > 0
    inverse = invert(field, iterations=100)
    assert torch.isfinite(inverse.field).all()
    assert inverse.error.max() > 1


def test_where_three_points_meet_the_inverse_can_return_to_one_of_them_only():
    """Rows 8 and on are thrown back by 5: a right inverse exists (error 0), a left inverse cannot."""
    field = torch.zeros(1, 2, 20, 21, dtype=torch.float64)
    field[:, 0, 8:] = -5.0
    inverse = invert(field)
    assert inverse.error.max() == 0
    assert compose(inverse.field, field).abs().max() > 1


def test_a_field_that_is_not_finite_ends_the_iteration_with_that_error():
    field = torch.zeros(1, 2, 5, 6, dtype=torch.float64)
    field[0, 0, 2, 2] = float("nan")
    inverse = invert(field)
    assert torch.isnan(inverse.error[0, 2, 2])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_exponential_of_a_constant_is_that_translation(shape):
    velocity = constant(shape, [3.3, -1.2, 0.4][: len(shape)])
    torch.testing.assert_close(exponential(velocity), velocity, rtol=0, atol=1e-10)
    assert (exponential(torch.zeros_like(velocity)) == 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_exponential_of_the_opposite_is_the_inverse(shape):
    velocity = bump_field(shape, 2.0)
    there, back = exponential(velocity), exponential(-velocity)
    assert compose(there, back).abs().max() < 0.12  # voxels, of displacements up to 2.8
    assert compose(back, there).abs().max() < 0.12
    there, back = exponential(velocity, 9), exponential(-velocity, 9)
    assert compose(there, back).abs().max() < 0.04  # what linear interpolation leaves
    assert (there + velocity).abs().max() > 1


def test_the_exponential_of_a_linear_velocity_is_the_matrix_exponential():
    shape = (41, 41)
    grid = identity(torch.zeros(1, 2, *shape, dtype=torch.float64)) - 20
    matrix = torch.tensor([[0.05, -0.2], [0.15, -0.1]], dtype=torch.float64)
    velocity = torch.einsum("ab,nb...->na...", matrix, grid)
    expected = torch.einsum("ab,nb...->na...", torch.matrix_exp(matrix) - torch.eye(2), grid)
    inner = (..., slice(10, -10), slice(10, -10))
    errors = [(exponential(velocity, n) - expected)[inner].abs().max() for n in (4, 6, 8, 10)]
    for coarse, fine in itertools.pairwise(errors):
        assert 3.5 < float(coarse / fine) < 4.5  # first order in the first step, which is a quarter as long
    assert errors[-1] < 1e-3


def test_the_default_first_step_is_at_most_a_quarter_voxel():
    velocity = bump_field((16, 17), 3.0)
    largest = float(velocity.abs().max())
    for scale in (0.1, 0.25 / largest, 1.0, 4.0):
        needed = next(n for n in range(20) if largest * scale / 2**n <= 0.25 + 1e-12)
        torch.testing.assert_close(
            exponential(scale * velocity), exponential(scale * velocity, needed), rtol=0, atol=0
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_the_exponential_does_not_fold_where_its_velocity_as_a_field_does(shape):
    velocity = bump_field(shape, 14.0)
    assert (determinant(velocity) <= 0).any()
    assert (determinant(exponential(velocity)) > 0).all()


def test_the_exponential_is_differentiable():
    velocity = (0.4 * noise(1, 2, 4, 5)).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: exponential(v, 2), (velocity,), eps=1e-7, atol=1e-6)
