from __future__ import annotations

import numpy as np
import pytest

from pirate.errors import reject
from pirate.grid import Grid
from pirate.image import Image


def oblique(shape: tuple[int, ...]) -> Grid:
    rotation, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))
    affine = np.eye(4)
    affine[:3, :3] = rotation @ np.diag([1.0, 2.0, 3.0])
    affine[:3, 3] = [10, -20, 30]
    return Grid(shape, affine)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 6)])
def test_world_and_voxel_are_inverse_to_each_other(shape: tuple[int, ...]) -> None:
    grid = oblique(shape)
    voxels = np.random.default_rng(0).uniform(-3, 9, (20, len(shape)))
    np.testing.assert_allclose(grid.to_voxel(grid.to_world(voxels)), voxels, atol=1e-12)


def test_a_plane_drops_the_distance_from_it() -> None:
    grid = oblique((4, 5))
    point = grid.to_world([1.0, 2.0])
    np.testing.assert_allclose(grid.to_voxel(point + 7 * grid.affine[:3, 2]), [1.0, 2.0], atol=1e-12)


def test_spacing_is_the_length_of_a_voxel_step() -> None:
    np.testing.assert_allclose(oblique((4, 5, 6)).spacing, [1, 2, 3])


def test_a_resized_grid_keeps_its_corners() -> None:
    grid = oblique((5, 9, 7))
    half = grid.resized((3, 5, 4))
    np.testing.assert_allclose(half.to_world([2, 4, 3]), grid.to_world([4, 8, 6]))
    np.testing.assert_allclose(half.to_world([0, 0, 0]), grid.to_world([0, 0, 0]))


def test_equality_hash_and_same_space() -> None:
    a, b = oblique((4, 5, 6)), oblique((4, 5, 6))
    assert a == b
    assert hash(a) == hash(b)
    assert a != oblique((4, 5, 7))
    moved = a.affine.copy()
    moved[0, 3] += 0.5
    assert not a.same_space(Grid(a.shape, moved))
    assert a.same_space(Grid(a.shape, moved), tolerance=0.6)
    assert not a.same_space(oblique((4, 5, 7)))


@pytest.mark.parametrize("shape", [(4,), (4, 5, 6, 7), (0, 4)])
def test_a_grid_has_two_or_three_axes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two or three axes"):
        Grid(shape, np.eye(4))


@pytest.mark.parametrize("affine", [np.zeros((4, 4)), np.full((4, 4), np.nan), np.eye(3)])
def test_a_grid_needs_an_invertible_affine(affine: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite, invertible"):
        Grid((4, 4), affine)


@pytest.mark.parametrize("row", [(0, 0, 0, 2), (0, 0, 0.1, 1), (1e-9, 0, 0, 1)])
def test_the_last_row_of_an_affine_is_fixed(row: tuple[float, ...]) -> None:
    affine = np.eye(4)
    affine[3] = row
    with pytest.raises(ValueError, match="last row"):
        Grid((4, 4), affine)


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_what_is_invertible_does_not_depend_on_the_size_of_a_voxel(scale: float) -> None:
    assert Grid((4, 4, 4), np.diag([scale, scale, 20 * scale, 1])).spacing[0] == pytest.approx(scale)
    flat = np.eye(4)
    flat[:3, 1] = flat[:3, 0]
    flat[:3] *= scale
    with pytest.raises(ValueError, match="invertible"):
        Grid((4, 4, 4), flat)


def test_voxels_must_fill_the_grid() -> None:
    with pytest.raises(ValueError, match="do not fill the grid"):
        Image(np.zeros((4, 4)), Grid((4, 5), np.eye(4)))
    assert Image(np.zeros((4, 5), np.int16), Grid((4, 5), np.eye(4))).is_integer


def test_a_refusal_names_file_finding_expectation_and_remedy_and_cannot_forge_a_line() -> None:
    sentence = str(reject("a\nb\x1b[31m.nii", "is empty", "a NIfTI file", "Fetch it again."))
    assert sentence == "a\\nb\\x1b[31m.nii: is empty; expected a NIfTI file. Fetch it again."
