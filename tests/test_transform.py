"""Transforms obey the laws of maps: identity, order, inverse, interpolation and its edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from pirate.grid import Grid
from pirate.transform import Affine, Displacement, Transform, frame, interpolated


def turned_grid(shape, seed=0):
    rng = np.random.default_rng(seed)
    affine = np.eye(4)
    affine[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0] * (1.0, 1.5, 2.0)
    affine[:3, 3] = rng.normal(size=3)
    return Grid(shape, affine)


def random_affine(seed=0):
    rng = np.random.default_rng(seed)
    matrix = np.eye(4)
    matrix[:3] += 0.1 * rng.normal(size=(3, 4))
    return Affine(matrix)


def random_displacement(shape, seed=0):
    field = np.random.default_rng(seed).normal(size=(len(shape), *shape))
    return Displacement(turned_grid(shape, seed), field.astype(np.float32))


POINTS = np.random.default_rng(1).normal(scale=5, size=(20, 3))


def test_no_part_is_the_identity():
    np.testing.assert_array_equal(Transform().map(POINTS), POINTS)


def test_an_affine_and_its_inverse_cancel():
    affine = random_affine()
    np.testing.assert_allclose(Transform((affine, affine.inverse())).map(POINTS), POINTS, atol=1e-12)


def test_parts_are_applied_in_order():
    first, second = random_affine(1), random_displacement((5, 6, 7))
    chain = Transform((first, second))
    np.testing.assert_array_equal(chain.map(POINTS), second.map(first.map(POINTS)))
    assert np.abs(chain.map(POINTS) - Transform((second, first)).map(POINTS)).max() > 0.01


def test_then_is_composition_and_keeps_the_outer_names():
    one = Transform((random_affine(1),), source="a", target="b")
    two = Transform((random_affine(2),), source="b", target="c")
    both = one.then(two)
    np.testing.assert_array_equal(both.map(POINTS), two.map(one.map(POINTS)))
    assert (both.source, both.target) == ("a", "c")
    with pytest.raises(ValueError, match="'b' cannot be followed by one from 'a'"):
        one.then(one)


@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
def test_a_constant_field_shifts_along_the_array_axes(shape):
    grid = turned_grid(shape)
    step = np.array([1.5, -2.0, 0.5])[: len(shape)]
    field = np.broadcast_to(step.reshape(-1, *[1] * len(shape)), (len(shape), *shape))
    inside = grid.to_world(np.random.default_rng(0).uniform(0, np.array(shape) - 1, size=(30, len(shape))))
    np.testing.assert_allclose(Displacement(grid, field).map(inside), inside + grid.axes @ step, atol=1e-9)


def test_on_a_plane_the_distance_from_it_is_kept():
    displacement = random_displacement((6, 7))
    normal = frame(displacement.grid)[:3, 2]
    point = displacement.grid.to_world([[2.3, 4.1]])
    moved = displacement.map(np.concatenate([point, point + 3 * normal]))
    np.testing.assert_allclose(moved[1] - moved[0], 3 * normal, atol=1e-9)


@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
def test_interpolation_equals_scipy(shape):
    rng = np.random.default_rng(0)
    field = rng.normal(size=(len(shape), *shape)).astype(np.float32)
    voxel = rng.uniform(0, np.array(shape) - 1, size=(50, len(shape)))
    expected = [map_coordinates(channel.astype(np.float64), voxel.T, order=1) for channel in field]
    np.testing.assert_allclose(interpolated(field, voxel), np.stack(expected, -1), atol=1e-6)


@pytest.mark.parametrize(
    ("position", "expected"), [(-0.51, 0), (-0.5, 3), (-0.2, 3), (0, 3), (0.5, 4), (1.49, 5), (1.5, 0)]
)
def test_half_a_voxel_outside_reads_the_border_and_beyond_is_zero(position, expected):
    field = np.zeros((2, 2, 3), np.float32)
    field[0] = [[3], [5]]
    assert interpolated(field, np.array([[position, 1.0]]))[0, 0] == pytest.approx(expected)


def test_an_axis_of_one_voxel_is_read():
    assert interpolated(np.full((3, 1, 4, 4), 2, np.float32), np.array([[0.3, 1.0, 1.0]]))[0, 0] == 2


@pytest.mark.parametrize("own_grid", [True, False])
def test_a_dense_field_equals_the_chain_at_every_voxel(own_grid):
    first = random_displacement((5, 6, 7))
    chain = Transform((first, random_affine(3)))
    grid = first.grid if own_grid else turned_grid((4, 5, 3), seed=2)
    dense = chain.on(grid)
    voxel = np.indices(grid.shape).reshape(3, -1).T
    world = grid.to_world(voxel)
    np.testing.assert_allclose(dense.map(world), chain.map(world), atol=1e-5)


def test_a_transform_that_leaves_the_plane_has_no_field_on_it():
    plane = turned_grid((5, 6))
    lift = np.eye(4)
    lift[:3, 3] = frame(plane)[:3, 2]
    with pytest.raises(ValueError, match="leaves the plane"):
        Transform((Affine(lift),)).on(plane)


@pytest.mark.parametrize(
    "matrix", [np.eye(3), np.full((4, 4), np.nan), np.diag([1.0, 1, 1, 2]), np.diag([1.0, 1, 0, 1])]
)
def test_what_is_no_affine_is_refused(matrix):
    with pytest.raises(ValueError, match="affine"):
        Affine(matrix)


def test_a_field_must_fill_its_grid():
    with pytest.raises(ValueError, match=r"a field on \(5, 6\) is \(2, 5, 6\)"):
        Displacement(turned_grid((5, 6)), np.zeros((3, 5, 6), np.float32))


def test_points_have_three_coordinates():
    with pytest.raises(ValueError, match=r"\(N, 3\)"):
        Transform().map(np.zeros((4, 2)))
