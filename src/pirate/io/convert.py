"""The same deformation in the forms of other tools.

========  ==========================================================================================
``itk``   (X, Y, Z, 1, 3), LPS mm, intent 1007: ANTs, SimpleITK, Slicer (`pirate.io.fields`)
``h5``    ITK composite: field and affine kept apart (`pirate.io.composite`)
``fsl``   (X, Y, Z, 3), mm, intent 2006: a relative, pull-back warp between FSL coordinates, for applywarp
``l2r``   (X, Y, Z, 3), voxels along the array axes, named ``disp_*.nii.gz``: Learn2Reg
========  ==========================================================================================

FSL's coordinates of an image are voxel index times voxel size, with the first axis counted from its other
end when the voxel-to-world matrix has a positive determinant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pirate.errors import UsageError, reject
from pirate.grid import Array, Grid
from pirate.io.composite import write_composite
from pirate.io.fields import field_of, finite_values, vector_image, write_field
from pirate.io.nifti import Nifti, load_verified, save
from pirate.io.transforms import read_transform, recorded_grid
from pirate.transform import Displacement, Transform

Format = Literal["itk", "fsl", "l2r", "h5"]

_FNIRT_DISPLACEMENT = 2006
_FNIRT_COEFFICIENTS = (2007, 2008, 2009, 2016)
_FSL_NEEDS = "an FSL warp leads to the moving image's coordinates"


def convert(
    source: Path,
    target: Path,
    to: Format,
    *,
    fixed: Grid | None = None,
    moving: Grid | None = None,
    source_format: Format | None = None,
) -> None:
    """Write the transform in `source` to `target` in another form.

    Args:
        source: any transform that `read_transform` takes, an FSL relative warp, or a Learn2Reg field.
        target: the file to write.
        to: its form, see the table of this module.
        fixed: geometry of the fixed image; needed to read ``l2r``, and to write a field where `source`
            does not begin with one.
        moving: geometry of the moving image; needed to read ``fsl``, and to write ``fsl`` and ``l2r`` unless
            `source` is the folder of a registration, which records it.
        source_format: the form of `source`, where neither its header nor its name says it.
    """
    source, target = Path(source), Path(target)
    transform = _read(source, fixed, moving, source_format)
    if to == "h5":
        write_composite(target, transform)
        return
    displacement = _dense(source, transform, fixed)
    if to == "itk":
        write_field(target, displacement)
        return
    if moving is None and source.is_dir():
        moving = recorded_grid(source, "moving")
    if to == "fsl":
        write_fsl(target, displacement, _needed(moving, "moving", _FSL_NEEDS))
    else:
        reason = "a Learn2Reg field counts voxels of both images, which must lie on one grid"
        write_l2r(target, displacement, _needed(moving, "moving", reason))


def write_fsl(path: Path, displacement: Displacement, moving: Grid) -> None:
    """Write a displacement as FSL's relative warp: ``w(x) = F_moving(M^-1 A (x + u(x))) - F_fixed(x)``, mm.

    x is a fixed voxel, u the field in voxels, A and M the voxel-to-world matrices of fixed and moving, F the
    voxel-to-FSL matrices.
    """
    grid = displacement.grid
    _three_dimensional(path, grid, moving)
    to_moving = fsl_matrix(moving) @ np.linalg.inv(moving.affine) @ grid.affine
    warp = _affine_map(to_moving, displacement.field) - _affine_map(
        fsl_matrix(grid), np.zeros_like(displacement.field)
    )
    vectors = np.moveaxis(warp, 0, -1).astype(np.float32)
    save(path, vector_image(vectors, grid, _FNIRT_DISPLACEMENT))


def read_fsl(path: Path, moving: Grid, image: Nifti | None = None) -> Displacement:
    """Read FSL's relative warp: ``u(x) = A^-1 M F_moving^-1 (F_fixed(x) + w(x)) - x``, see `write_fsl`."""
    image = load_verified(path)[0] if image is None else image
    warp = _four_dimensional(path, image)
    if int(image.header["intent_code"]) in _FNIRT_COEFFICIENTS:
        raise reject(
            path,
            "it holds FNIRT's spline coefficients",
            "a warp field",
            "Expand it first: fnirtfileutils --in=coefficients --ref=fixed --out=warp.",
        )
    grid = Grid(image.shape[:3], image.affine)
    _three_dimensional(path, grid, moving)
    if _is_absolute(warp, grid):
        raise reject(
            path,
            "its vectors are absolute positions",
            "a relative warp",
            "Convert it first: convertwarp --abs --relout --warp1=warp --ref=fixed --out=relative.",
        )
    to_fixed = np.linalg.inv(grid.affine) @ moving.affine @ np.linalg.inv(fsl_matrix(moving))
    start = _affine_map(fsl_matrix(grid), np.zeros_like(warp))  # FSL coordinates of each fixed voxel
    linear, offset = to_fixed[:3, :3], to_fixed[:3, 3].reshape(3, 1, 1, 1)
    field = np.tensordot(linear, start + warp, axes=1) + offset - np.indices(grid.shape)
    return Displacement(grid, field.astype(np.float32))


def write_l2r(path: Path, displacement: Displacement, moving: Grid) -> None:
    """Write a displacement as Learn2Reg does, in voxels; both images must be on one grid."""
    grid = displacement.grid
    if not grid.same_space(moving):
        raise reject(
            path,
            "the fixed and the moving image lie on different grids",
            "one grid, because a Learn2Reg field counts voxels of both",
            "Resample the moving image onto the fixed grid first, and give that image with --moving.",
        )
    _three_dimensional(path, grid, grid)
    if not path.name.startswith("disp_"):
        raise UsageError(
            f"{path}: Learn2Reg fields are named disp_<fixed>_<moving>.nii.gz; choose such a name."
        )
    save(path, vector_image(np.moveaxis(displacement.field, 0, -1), grid, 0))


def read_l2r(path: Path, fixed: Grid, image: Nifti | None = None) -> Displacement:
    """Read a Learn2Reg field; its own header is not trusted for geometry, `fixed` is."""
    image = load_verified(path)[0] if image is None else image
    field = _four_dimensional(path, image)
    if fixed.shape != field.shape[1:]:
        raise reject(
            path,
            f"it has {field.shape[1:]} voxels",
            f"the {fixed.shape} of the fixed image",
            "Give the fixed image of this field; enlarge a half-resolution field first.",
        )
    return Displacement(fixed, field)


def fsl_matrix(grid: Grid) -> Array:
    """(4, 4): voxel index to FSL's coordinates, mm."""
    matrix = np.diag([*grid.spacing, 1.0])
    if np.linalg.det(grid.affine) > 0:
        matrix[0, 0] = -grid.spacing[0]
        matrix[0, 3] = (grid.shape[0] - 1) * grid.spacing[0]
    return matrix


def _read(source: Path, fixed: Grid | None, moving: Grid | None, form: Format | None) -> Transform:
    if source.is_dir() or not source.name.lower().endswith((".nii", ".nii.gz")):
        return read_transform(source)
    image, _ = load_verified(source)
    form = _form(source, image) if form is None else form
    if form == "fsl":
        grid = _needed(moving, "moving", _FSL_NEEDS)
        return Transform((read_fsl(source, grid, image),))
    if form == "l2r":
        grid = _needed(fixed, "fixed", "a Learn2Reg field does not say where it lies")
        return Transform((read_l2r(source, grid, image),))
    return Transform((field_of(source, image),))


def _form(path: Path, image: Nifti) -> Format:
    intent = int(image.header["intent_code"])
    if len(image.shape) != 4:
        return "itk"
    if intent == _FNIRT_DISPLACEMENT or intent in _FNIRT_COEFFICIENTS:
        return "fsl"
    if path.name.startswith("disp_"):
        return "l2r"
    raise reject(
        path,
        f"a field of shape {image.shape} may be FSL's or Learn2Reg's",
        "intent 2006 or a name that begins with disp_",
        "Say which with the source format, fsl or l2r.",
    )


def _dense(source: Path, transform: Transform, fixed: Grid | None) -> Displacement:
    """Return the whole transform as one field on the fixed grid."""
    first = transform.parts[0] if transform.parts else None
    if fixed is None:
        fixed = first.grid if isinstance(first, Displacement) else None
    grid = _needed(fixed, "fixed", "the transform does not begin with a field that says where to sample it")
    if isinstance(first, Displacement) and len(transform.parts) == 1 and first.grid.same_space(grid):
        return first
    try:
        return transform.on(grid)
    except ValueError as error:
        raise reject(
            source, str(error), "a transform within the plane", "Keep it as a composite (.h5)."
        ) from error


def _needed(grid: Grid | None, name: str, reason: str) -> Grid:
    if grid is None:
        raise UsageError(f"The {name} image is needed: {reason}; give it with --{name}.")
    return grid


def _three_dimensional(path: Path, fixed: Grid, moving: Grid) -> None:
    if (fixed.ndim, moving.ndim) != (3, 3):
        raise reject(
            path, "the field or an image is a plane", "volumes", "Use the itk or h5 form for planes."
        )


def _four_dimensional(path: Path, image: Nifti) -> NDArray[np.float32]:
    """Return the file's vectors, (3, X, Y, Z), its own unit."""
    if len(image.shape) != 4 or image.shape[3] != 3:
        raise reject(path, f"its shape is {image.shape}", "(X, Y, Z, 3)", "Give a warp field, not an image.")
    return np.moveaxis(finite_values(path, image), -1, 0)


def _affine_map(matrix: Array, field: NDArray[np.float32]) -> Array:
    """``matrix @ (x + field(x), 1)`` at every voxel x, (3, X, Y, Z)."""
    positions = np.indices(field.shape[1:]) + field
    return np.tensordot(matrix[:3, :3], positions, axes=1) + matrix[:3, 3].reshape(3, 1, 1, 1)


def _is_absolute(warp: NDArray[np.float32], grid: Grid) -> bool:
    """Whether the vectors grow along each axis as FSL's own coordinates do, by 1/2 to 3/2 mm per mm."""
    step = np.diag(fsl_matrix(grid))  # mm per voxel, with sign
    growth = [float(np.diff(warp[a], axis=a).mean()) / step[a] for a in range(3) if grid.shape[a] > 1]
    return bool(growth) and all(0.5 < g < 1.5 for g in growth)
