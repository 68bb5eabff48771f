"""Applying a transform: identity, shifts, exact labels, votes, and points that go where the image goes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, map_coordinates

from pirate.errors import UsageError
from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.compose import invert
from pirate.ops.warp import warp
from pirate.registration import apply as apply_module
from pirate.registration.apply import apply, apply_labels, apply_points
from pirate.registration.readers import elected
from pirate.transform import Affine, Displacement, Transform

SHAPES = [(9, 10), (7, 8, 9)]


def turned_grid(shape, seed=0):
    rng = np.random.default_rng(seed)
    affine = np.eye(4)
    affine[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0] * (1.0, 1.5, 2.0)
    affine[:3, 3] = 50 * rng.normal(size=3)
    return Grid(shape, affine)


def smooth_field(grid, seed=0, size=1.5):
    rng = np.random.default_rng(seed)
    noise = np.stack([gaussian_filter(rng.normal(size=grid.shape), 1.5) for _ in range(grid.ndim)])
    return Displacement(grid, (size * noise / np.abs(noise).max()).astype(np.float32))


def shift(grid, *voxels):
    matrix = np.eye(4)
    matrix[:3, 3] = grid.axes @ voxels
    return Transform((Affine(matrix),))


def about_centre(grid, seed=0):
    """An affine near the identity that keeps the middle of `grid`, and for a plane the plane."""
    rng = np.random.default_rng(seed)
    linear = np.eye(4)
    linear[: grid.ndim, : grid.ndim] += 0.05 * rng.normal(size=(grid.ndim, grid.ndim))
    basis = np.eye(4)
    basis[:3, :3] = np.linalg.qr(grid.affine[:3, :3])[0]
    basis[:3, 3] = grid.to_world((np.array(grid.shape) - 1) / 2)
    matrix = basis @ linear @ np.linalg.inv(basis)
    matrix[3] = 0, 0, 0, 1
    return Affine(matrix)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("interpolation", ["linear", "nearest", "vote"])
def test_the_identity_returns_the_image(shape, interpolation):
    grid = turned_grid(shape)
    labels = np.random.default_rng(0).integers(0, 5, size=shape).astype(np.int16)
    result = apply(Image(labels, grid), Transform(), grid, interpolation)
    np.testing.assert_allclose(result.data, labels, atol=1e-4)
    assert result.data.dtype == (np.float32 if interpolation == "linear" else np.int16)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_field_on_the_reference_grid_is_the_warp(shape):
    grid = turned_grid(shape)
    image = Image(np.random.default_rng(0).random(shape, dtype=np.float32), grid)
    displacement = smooth_field(grid)
    field = torch.from_numpy(displacement.field)[None]
    expected = warp(torch.from_numpy(image.data)[None, None], field, padding="border")[0, 0].numpy()
    inside = apply(Image(np.ones(shape, np.float32), grid), Transform((displacement,)), grid).data == 1
    assert inside.mean() > 0.5
    np.testing.assert_allclose(
        apply(image, Transform((displacement,)), grid).data[inside], expected[inside], atol=1e-6
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("own", [True, False])
def test_every_route_equals_the_map_of_points(shape, own):
    """Fields on the reference grid and on another, affines between them, against Transform.map and scipy."""
    reference = turned_grid(shape)
    near = reference.affine.copy()
    near[:3, 3] += reference.axes @ np.full(len(shape), 0.3)
    other = Grid(tuple(n + 1 for n in shape), near)
    image = Image(np.random.default_rng(1).random(other.shape, dtype=np.float32), other)
    affine = about_centre(reference)
    parts = (
        (smooth_field(reference), affine, smooth_field(other, 1)) if own else (affine, smooth_field(other, 1))
    )
    index = np.indices(shape).reshape(len(shape), -1).T
    position = other.to_voxel(Transform(parts).map(reference.to_world(index)))
    inside = ((position > -0.49) & (position < np.array(other.shape) - 0.51)).all(-1)
    outside = ((position < -0.51) | (position > np.array(other.shape) - 0.49)).any(-1)
    result = apply(image, Transform(parts), reference).data.ravel()
    expected = map_coordinates(image.data.astype(np.float64), position.T, order=1, mode="nearest")
    np.testing.assert_allclose(result[inside], expected[inside], atol=1e-4)
    assert (result[outside] == 0).all()
    assert inside.mean() > 0.4


def test_slabs_do_not_show(monkeypatch):
    grid = turned_grid((9, 8, 7))
    image = Image(np.random.default_rng(0).random(grid.shape, dtype=np.float32), grid)
    transform = Transform((about_centre(grid), smooth_field(grid)))
    whole = apply(image, transform, grid).data
    monkeypatch.setattr(apply_module, "_SLAB_VOXELS", 100)
    np.testing.assert_array_equal(apply(image, transform, grid).data, whole)


@pytest.mark.parametrize(("position", "expected"), [(-0.6, 0), (-0.4, 3), (0.5, 4), (1.4, 5), (1.6, 0)])
def test_the_border_reaches_half_a_voxel(position, expected):
    image = Image(np.array([[3, 3, 3], [5, 5, 5]], np.float32), Grid((2, 3), np.eye(4)))
    reference = Grid((1, 1), np.eye(4))
    assert apply(image, shift(reference, position, 1), reference).data[0, 0] == pytest.approx(expected)


BIG = {
    "int32": 2**24 + 1,
    "int64": 2**53 + 1,
    "uint64": 2**64 - 1,
    "uint32": 2**32 - 1,
    "uint8": 255,
    "int16": 300,
}


@pytest.mark.parametrize("interpolation", ["nearest", "vote"])
@pytest.mark.parametrize("dtype", BIG)
def test_labels_are_exact_to_the_last_bit(dtype, interpolation):
    grid = turned_grid((6, 7, 8))
    labels = np.zeros(grid.shape, dtype)
    labels[2:5, 2:5, 2:5] = BIG[dtype]
    labels[2:5, 2:5, 5:7] = BIG[dtype] - 1
    result = apply(Image(labels, grid), shift(grid, 1, 0, -1), grid, interpolation)
    assert result.data.dtype == labels.dtype
    expected = np.zeros_like(labels)
    expected[:-1, :, 1:] = labels[1:, :, :-1]
    np.testing.assert_array_equal(result.data, expected)


def test_nearest_rounds_halves_up():
    image = Image(np.array([[1, 1], [2, 2], [3, 3]], np.int32), Grid((3, 2), np.eye(4)))
    reference = Grid((3, 2), np.eye(4))
    np.testing.assert_array_equal(
        apply(image, shift(reference, 0.5, 0), reference, "nearest").data[:2, 0], [2, 3]
    )


def counted(labels, position):
    """The vote of one position, counted plainly."""
    low = np.floor(position).astype(int)
    votes: dict[int, float] = {}
    for corner in itertools.product((0, 1), repeat=len(position)):
        weight = np.prod([f if c else 1 - f for f, c in zip(position - low, corner, strict=True)])
        label = int(labels[tuple(np.clip(low + corner, 0, np.array(labels.shape) - 1))])
        votes[label] = votes.get(label, 0.0) + weight
    return votes


@pytest.mark.parametrize("shape", [(30, 31), (14, 15, 16)])
def test_a_vote_is_the_largest_sum_of_weights(shape):
    grid = Grid(shape, np.eye(4))
    labels = np.random.default_rng(0).integers(0, 4, size=tuple(n // 2 + 1 for n in shape))
    for axis in range(len(shape)):
        labels = labels.repeat(2, axis)
    labels = labels[tuple(slice(n) for n in shape)].astype(np.int32)
    displacement = smooth_field(grid, size=2.0)
    result = apply(Image(labels, grid), Transform((displacement,)), grid, "vote").data
    for index in np.ndindex(*shape):
        position = np.array(index) + displacement.field[(slice(None), *index)].astype(np.float64)
        if not ((position > -0.49) & (position < np.array(shape) - 0.51)).all():
            continue
        votes = counted(labels, position)
        assert votes[int(result[index])] >= max(votes.values()) - 1e-4


def brute_vote(labels, position):
    """All corners of the cell around a position (d,), every label counted; the smallest of the largest."""
    last = np.array(labels.shape) - 1
    at = np.clip(position, 0, last)
    low = at.astype(int)
    candidates, weights = [], []
    for corner in itertools.product((0, 1), repeat=len(position)):
        share = at - low
        candidates.append(torch.tensor([int(labels[tuple(np.minimum(low + corner, last))])]))
        weights.append(torch.tensor([np.prod(np.where(corner, share, 1 - share))], dtype=torch.float64))
    return int(elected(candidates, weights))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int64])
@pytest.mark.parametrize("shape", [(21, 22), (9, 10, 11), (3, 12, 1)])
def test_labels_on_random_fields_are_what_plain_counting_gives(shape, dtype):
    """Noise for labels and a wild field: ties, borders, positions outside, cells of up to 2^d labels."""
    rng = np.random.default_rng(3)
    grid = Grid(shape, np.eye(4))
    labels = rng.integers(0, 4, size=shape).astype(dtype) * np.array(30, dtype)
    field = rng.choice([0.0, 0.25, 0.5, -0.5, 1.0], size=(len(shape), *shape)) + rng.normal(
        size=(len(shape), *shape)
    ) * rng.choice([0.0, 1.5], size=shape)
    displacement = Displacement(grid, field.astype(np.float32))
    nearest, vote = apply_labels(Image(labels, grid), Transform((displacement,)), grid)
    known = 0
    for index in np.ndindex(*shape):
        move = displacement.field[(slice(None), *index)]
        position = (np.array(index, np.float32) + move).astype(np.float32)
        inside = ((position >= -0.5) & (position < np.array(shape) - 0.5)).all()
        known += inside
        rounded = np.clip(np.floor(position + np.float32(0.5)).astype(int), 0, np.array(shape) - 1)
        assert nearest.data[index] == (labels[tuple(rounded)] if inside else 0)
        assert vote.data[index] == (brute_vote(labels, position.astype(np.float64)) if inside else 0)
    assert 0.2 < known / labels.size < 1


@pytest.mark.parametrize("shape", SHAPES)
def test_labels_in_one_go_are_those_of_two(shape):
    grid = turned_grid(shape)
    labels = Image(np.random.default_rng(0).integers(0, 3, size=shape).astype(np.uint16), grid, name="map")
    transform = Transform((smooth_field(grid), about_centre(grid)))
    both = apply_labels(labels, transform, grid)
    for found, interpolation in zip(both, ("nearest", "vote"), strict=True):
        alone = apply(labels, transform, grid, interpolation)
        np.testing.assert_array_equal(found.data, alone.data)
        assert (found.data.dtype, found.name) == (alone.data.dtype, "map")


def test_the_identity_on_one_grid_is_a_copy():
    image = Image(np.random.default_rng(0).random((5, 6, 7), dtype=np.float32), turned_grid((5, 6, 7)))
    result = apply(image, Transform(), image.grid)
    np.testing.assert_array_equal(result.data, image.data)
    assert not np.shares_memory(result.data, image.data)


def test_labels_of_the_other_byte_order_are_read():
    grid = turned_grid((4, 5, 6))
    labels = np.random.default_rng(0).integers(0, 70000, size=grid.shape).astype(">u4")
    result = apply(Image(labels, grid), shift(grid, 0, 0, 1), grid, "nearest").data
    np.testing.assert_array_equal(result[..., :-1], labels[..., 1:])


@pytest.mark.parametrize("pair", [(7, 3), (3, 7), (0, 5), (-2, 1)])
def test_a_tie_goes_to_the_smaller_label(pair):
    image = Image(np.array([[pair[0]] * 2, [pair[1]] * 2], np.int32), Grid((2, 2), np.eye(4)))
    reference = Grid((1, 1), np.eye(4))
    assert apply(image, shift(reference, 0.5, 0.5), reference, "vote").data[0, 0] == min(pair)


def test_a_tie_of_unsigned_labels_goes_to_the_smaller_one():
    image = Image(np.array([[2**63 + 5] * 2, [2**63 - 5] * 2], np.uint64), Grid((2, 2), np.eye(4)))
    reference = Grid((1, 1), np.eye(4))
    assert apply(image, shift(reference, 0.5, 0.5), reference, "vote").data[0, 0] == 2**63 - 5


@pytest.mark.parametrize("shape", [(40, 44), (28, 30, 32)])
def test_the_centroid_of_a_warped_label_is_the_warped_centroid(shape):
    """Points go from moving to fixed by the INVERSE of the transform that brings the image there."""
    grid = turned_grid(shape)
    drift = np.array([2.0, -1.5, 1.0], np.float32)[: len(shape)].reshape(-1, *[1] * len(shape))
    wave = np.sin(2 * np.pi * np.indices(shape) / 60).astype(
        np.float32
    )  # long against the label: it stays a ball
    field = torch.from_numpy(np.ascontiguousarray(0.8 * wave[::-1] + drift))
    inverse = Displacement(grid, invert(field[None]).field[0].numpy())
    affine = about_centre(grid, 2)
    there = Transform((Displacement(grid, field.numpy()), affine))
    back = Transform((affine.inverse(), inverse))
    offset = np.indices(shape).T - (np.array(shape) / 2 + 2)
    labels = ((offset**2).sum(-1).T <= 5**2).astype(np.int32) * 9
    centroid = grid.to_world(np.argwhere(labels == 9).mean(0)[None])
    moved = apply_points(centroid, back)
    assert np.linalg.norm(moved - centroid) > 1
    share = apply(Image((labels == 9).astype(np.float32), grid), there, grid).data.astype(np.float64)
    seen = (np.indices(shape) * share).reshape(len(shape), -1).sum(1) / share.sum()
    np.testing.assert_allclose(grid.to_world(seen[None]), moved, atol=0.1)
    assert (
        np.linalg.norm(grid.to_world(seen[None]) - apply_points(centroid, there)) > 2
    )  # the wrong direction
    for interpolation in ("nearest", "vote"):  # whole voxels: a shift is rounded
        warped = apply(Image(labels, grid), there, grid, interpolation).data
        assert np.abs(np.argwhere(warped == 9).mean(0) - grid.to_voxel(moved)[0]).max() <= 0.55


def test_a_vote_needs_integers():
    grid = Grid((3, 3), np.eye(4))
    with pytest.raises(UsageError, match="integer labels"):
        apply(Image(np.zeros((3, 3), np.float32), grid), Transform(), grid, "vote")


def test_a_plane_does_not_become_a_volume():
    image = Image(np.zeros((3, 3), np.float32), Grid((3, 3), np.eye(4)))
    with pytest.raises(UsageError, match="2 dimensions, the reference 3"):
        apply(image, Transform(), Grid((3, 3, 3), np.eye(4)))
