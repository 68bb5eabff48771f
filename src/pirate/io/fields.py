"""Displacement fields as NIfTI files, the way ITK, ANTs, SimpleITK and nitransforms read them.

A file is (X, Y, Z, 1, 3), float32, intent 1007 (VECTOR), on the fixed grid, components in LPS mm. An axial
plane is (X, Y, 1, 1, 2); any other plane is a volume of one slice, (X, Y, 1, 1, 3).
"""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.grid import Array, Grid
from pirate.io.nifti import load_verified, save
from pirate.transform import Displacement, frame

LPS = np.diag([-1.0, -1.0, 1.0])
"""(3, 3): RAS mm to LPS mm, and back."""

VECTOR = 1007
"""NIfTI intent of a vector image; its components are LPS mm by ITK's convention."""

DISPLACEMENT = 1006
"""NIfTI intent of displacements; its components are RAS mm, and ITK turns them to LPS on reading."""

_SHEAR_MM = 0.05  # how far qform and sform may part before ITK's preference between them matters


def write_field(path: Path, displacement: Displacement) -> None:
    """Write a displacement in the form of this module's first paragraph; the file appears whole or not at all."""
    grid = displacement.grid
    if grid.ndim == 2 and not is_axial(grid):
        displacement = as_volume(displacement)
        grid = displacement.grid
    millimetres = lps_millimetres(displacement)  # (d, *shape)
    volume = (*grid.shape, 1)[:3]
    vectors = np.moveaxis(millimetres, 0, -1).reshape(*volume, 1, grid.ndim)
    save(path, vector_image(vectors, grid, VECTOR))


def read_field(path: Path, memory_limit: int | None = None) -> Displacement:
    """Read a displacement field as ITK does: components LPS mm under intent 1007, RAS mm under intent 1006.

    A volume of one slice whose vectors lie in the slice is a field on a plane.
    """
    image, _ = load_verified(path, memory_limit)
    return field_of(path, image)


def field_of(path: Path, image: nib.Nifti1Image) -> Displacement:
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
    grid = placed_grid(path, image)
    millimetres = np.moveaxis(finite_values(path, image)[:, :, :, 0, :], -1, 0)
    if intent == VECTOR:
        millimetres = millimetres * np.array([-1, -1, 1][: len(millimetres)], np.float32).reshape(-1, 1, 1, 1)
    return _planar(path, grid, millimetres) if planar else _voxels(grid, millimetres)


def placed_grid(path: Path, image: nib.Nifti1Image) -> Grid:
    """Return the (X, Y, Z) grid of a field file; one that is not placed in the world is refused."""
    if int(image.header["sform_code"]) <= 0 and int(image.header["qform_code"]) <= 0:
        raise reject(
            path,
            "neither its sform nor its qform is set",
            "a field that is placed in the world",
            "Copy the geometry of the fixed image into its header.",
        )
    return Grid(image.shape[:3], image.affine)


def finite_values(path: Path, image: nib.Nifti1Image) -> NDArray[np.float32]:
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


def vector_image(vectors: NDArray[np.float32], grid: Grid, intent: int) -> nib.Nifti1Image:
    """Return `vectors` (X, Y, Z, ...) as NIfTI-1 on `grid`, mm, sform and qform code 1.

    A qform cannot say shear. Where it would put a corner elsewhere than the sform it is left out, so that ITK
    refuses the file instead of reading it in the wrong place.
    """
    image = nib.Nifti1Image(vectors, grid.affine)
    image.header.set_intent(intent, allow_unknown=True)
    image.header.set_xyzt_units("mm")
    image.set_sform(grid.affine, code=1)
    image.set_qform(grid.affine, code=1)
    upright = Grid(grid.shape, image.get_qform())
    if not upright.same_space(grid, tolerance=_SHEAR_MM):
        image.set_qform(None, code=0)
    return image


def lps_millimetres(displacement: Displacement) -> NDArray[np.float32]:
    """Return the field in LPS mm, (d, *shape); in two dimensions the components of an axial plane."""
    d = displacement.grid.ndim
    axes = (LPS @ displacement.grid.axes)[:d].astype(np.float32)
    return np.tensordot(axes, displacement.field, axes=1)


def voxel_units(axes: Array, millimetres: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the field (d, *shape) in voxels, given the world steps `axes` (d, d) and vectors (d, *shape) in mm."""
    return np.tensordot(np.linalg.inv(axes).astype(np.float32), millimetres, axes=1)


def is_axial(grid: Grid) -> bool:
    """Whether no array axis of `grid` has a part along the world's z, so that ITK's x and y say it all."""
    return bool((np.abs(grid.axes[2]) <= 1e-6 * np.asarray(grid.spacing)).all())


def as_volume(displacement: Displacement) -> Displacement:
    """Return a field on a plane as a field on a volume of one slice, perpendicular to it."""
    plane = displacement.grid
    affine = frame(plane).copy()
    affine[:3, 2] *= np.linalg.norm(plane.affine[:3, 2])
    field = np.zeros((3, *plane.shape, 1), np.float32)
    field[:2, ..., 0] = displacement.field
    return Displacement(Grid((*plane.shape, 1), affine), field)


def _planar(path: Path, grid: Grid, millimetres: NDArray[np.float32]) -> Displacement:
    plane = Grid(grid.shape[:2], grid.affine)
    if not is_axial(plane):
        raise reject(
            path,
            "it has two components but its plane is not axial",
            "three components for any plane that leaves x and y",
            "Write the field as a volume of one slice, (X, Y, 1, 1, 3).",
        )
    return Displacement(plane, voxel_units(plane.axes[:2], millimetres[..., 0]))


def _voxels(grid: Grid, millimetres: NDArray[np.float32]) -> Displacement:
    field = voxel_units(grid.axes, millimetres)
    scale = 1e-4 + 1e-5 * float(np.abs(field).max(initial=0.0))
    if grid.shape[2] == 1 and float(np.abs(field[2]).max()) <= scale:
        return Displacement(Grid(grid.shape[:2], grid.affine), field[:2, ..., 0])
    return Displacement(grid, field)
