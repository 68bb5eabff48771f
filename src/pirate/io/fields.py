"""Displacement fields as NIfTI files, the way ITK, ANTs, SimpleITK and nitransforms read them.

A file is (X, Y, Z, 1, 3), float32, intent 1007 (VECTOR), on the fixed grid, components in LPS mm. An axial
plane is (X, Y, 1, 1, 2); any other plane is a volume of two equal slices, (X, Y, 2, 1, 3).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.grid import Array, Grid
from pirate.io.files import check_sha256
from pirate.io.geometry import LPS
from pirate.io.nifti import Nifti, load_verified, placed, save
from pirate.transform import Displacement, frame

VECTOR = 1007
"""NIfTI intent of a vector image; its components are LPS mm by ITK's convention."""

DISPLACEMENT = 1006
"""NIfTI intent of displacements; its components are RAS mm, and ITK turns them to LPS on reading."""


def write_field(path: Path, displacement: Displacement) -> None:
    """Write a displacement to .nii or .nii.gz in this module's form, whole or not at all."""
    displacement = itk_form(displacement)
    grid = displacement.grid
    millimetres = lps_millimetres(displacement)  # (d, *shape)
    volume = (*grid.shape, 1)[:3]
    vectors = np.moveaxis(millimetres, 0, -1).reshape(*volume, 1, grid.ndim)
    save(path, vector_image(vectors, grid, VECTOR))


def read_field(path: Path, memory_limit: int | None = None, sha256: str | None = None) -> Displacement:
    """Read a displacement field as ITK does: components LPS mm under intent 1007, RAS mm under intent 1006.

    A volume of one slice, or two equal ones, whose vectors lie in the slice is a field on a plane. Where
    the file's `sha256` is known, any other file is refused.
    """
    image, found = load_verified(path, memory_limit)
    check_sha256(path, found, sha256)
    return field_of(path, image)


def field_of(path: Path, image: Nifti) -> Displacement:
    """Return the displacement held by the verified `image`; `path` is what a refusal calls it."""
    shape = image.shape
    planar = len(shape) == 5 and shape[4] == 2 and shape[2] == 1
    if len(shape) != 5 or shape[3] != 1 or not (shape[4] == 3 or planar):
        raise reject(
            path,
            f"its shape is {shape}",
            "a displacement field, (X, Y, Z, 1, 3) or (X, Y, 1, 1, 2)",
            "Give the warp written by pirate, ANTs or ITK, or bring it to that form with `pirate convert`.",
        )
    intent = int(image.header["intent_code"])
    if intent not in (VECTOR, DISPLACEMENT):
        raise reject(
            path,
            f"its NIfTI intent is {intent}",
            "1007 (vectors, LPS mm) or 1006 (displacements, RAS mm)",
            "If it is an ITK displacement field, set intent 1007 in its header.",
        )
    grid = Grid(image.shape[:3], image.affine)
    millimetres = np.moveaxis(finite_values(path, image)[:, :, :, 0, :], -1, 0)
    basis = LPS[:3, :3] if intent == VECTOR else np.eye(3)
    if planar:
        return _planar(path, grid, basis, millimetres[..., 0])
    return flattened(Displacement(grid, voxel_units(basis @ grid.axes, millimetres)))


def finite_values(path: Path, image: Nifti) -> NDArray[np.float32]:
    """Return the file's values as float32, its own shape and unit; NaN and infinity are refused."""
    values = np.asarray(image.dataobj, dtype=np.float32)
    if not np.isfinite(values).all():
        raise reject(
            path,
            "it holds NaN or infinite displacements",
            "finite numbers",
            "Run the registration again; the field is damaged.",
        )
    return values


def vector_image(vectors: NDArray[np.float32], grid: Grid, intent: int) -> Nifti:
    """Return `vectors` (X, Y, Z, ...) as NIfTI on `grid` with an intent code."""
    image = placed(vectors, grid.affine)
    image.header["intent_code"] = intent
    return image


def lps_millimetres(displacement: Displacement) -> NDArray[np.float32]:
    """Return the field in LPS mm, (d, *shape); in two dimensions the components of an axial plane."""
    d = displacement.grid.ndim
    axes = (LPS[:3, :3] @ displacement.grid.axes)[:d].astype(np.float32)
    return np.tensordot(axes, displacement.field, axes=1)


def voxel_units(axes: Array, millimetres: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors (d, *shape) in mm as voxels, (d, *shape); `axes` (d, d) are the steps of one voxel."""
    return np.tensordot(np.linalg.inv(axes).astype(np.float32), millimetres, axes=1)


def is_axial(grid: Grid) -> bool:
    """Whether no array axis of `grid` has a part along the world's z, so that ITK's x and y say it all."""
    return bool((np.abs(grid.axes[2]) <= 1e-6 * np.asarray(grid.spacing)).all())


def itk_form(displacement: Displacement) -> Displacement:
    """Return a field that ITK takes for what it is: one on an axial plane, or on two slices or more.

    ITK takes a vector file of one slice for an axial plane and forgets how it is turned. Such a slice is
    doubled; a plane that is not axial, or that was a slice of a volume, becomes the first of two equal slices.
    """
    grid, field = displacement.grid, displacement.field
    if grid.ndim == 2 and (grid.slice_axis is not None or not is_axial(grid)):
        affine = frame(grid).copy()
        affine[:3, 2] *= np.linalg.norm(grid.affine[:3, 2])
        field = np.stack([*field, np.zeros_like(field[0])])[..., None]
        grid = Grid((*grid.shape, 1), affine)
    if grid.shape[2:] == (1,):
        return Displacement(Grid((*grid.shape[:2], 2), grid.affine), np.repeat(field, 2, axis=3))
    return displacement


def flattened(displacement: Displacement) -> Displacement:
    """Return a field on one slice, or two equal ones, as a field on that plane if its vectors lie in it."""
    grid, field = displacement.grid, displacement.field
    if grid.ndim == 2 or grid.shape[2] > 2 or not np.array_equal(field[..., 0], field[..., -1]):
        return displacement
    rounding = 1e-4 + 1e-5 * float(np.abs(field).max(initial=0.0))  # voxels
    if float(np.abs(field[2]).max()) > rounding:
        return displacement
    return Displacement(Grid(grid.shape[:2], grid.affine), field[:2, ..., 0])


def _planar(path: Path, grid: Grid, basis: Array, millimetres: NDArray[np.float32]) -> Displacement:
    plane = Grid(grid.shape[:2], grid.affine)
    if not is_axial(plane):
        raise reject(
            path,
            "it has two components but its plane is not axial",
            "three components for any plane that leaves x and y",
            "Write the field as a volume, (X, Y, Z, 1, 3).",
        )
    return Displacement(plane, voxel_units((basis @ plane.axes)[:2], millimetres))
