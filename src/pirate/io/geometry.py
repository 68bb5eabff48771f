"""Where the voxels of a NIfTI file lie: the affine it means, in RAS mm, and the laws an affine must keep."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject

Array = NDArray[np.float64]
Form = Literal["sform", "qform"]


class Fields(Protocol):
    """NIfTI header fields by name."""

    def __getitem__(self, name: str) -> Any: ...


LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""(4, 4): RAS mm to LPS mm, and back; ITK's files are LPS, everything inside is RAS."""

NOTE_MM = 0.01
REFUSE_MM = 5.0
SMALLEST_EDGE = 1e-6  # mm, along each axis: a nanometre, below anything that light or electrons resolve
LARGEST_CONDITION = 1e4
FARTHEST_MM = 1e9
_UNITS = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}  # NIfTI code: mm per unit
_NAMES = {1: "metres", 3: "microns"}
_FIX = "Correct the header, for example with nibabel or fslorient."


def world(header: Fields, shape: tuple[int, ...], path: Path, prefer: Form | None) -> tuple[Array, list[str]]:
    """Return the affine a NIfTI header means, voxel index to RAS mm, and sentences about repairs.

    The sform is used if its code is positive, else the qform, else the voxel sizes alone.

    Args:
        header: NIfTI-1 or NIfTI-2 fields by name.
        shape: voxels along the three spatial axes.
        path: for messages.
        prefer: which of two contradicting affines to believe; a header with one of them has no choice.
    """
    notes: list[str] = []
    scale = _millimetres(header, notes)
    valid: list[Form] = [form for form in ("sform", "qform") if header[f"{form}_code"] > 0]
    if prefer in valid:
        valid = [prefer]
    affines = [_affine(form, header, shape, path, notes) for form in valid]
    if not affines:
        affines = [np.diag([*_spacing(header, shape, path, notes), 1.0])]
        notes.append(
            "the header has neither sform nor qform: axes taken as right, anterior, superior from origin 0"
        )
    for affine in affines:
        affine[:3] *= scale
        check_affine(affine, path)
    if len(affines) == 2:
        _compare(affines[0], affines[1], shape, path, notes)
    return affines[0], notes


def check_affine(affine: Array, path: Path) -> None:
    """Refuse an affine (4, 4), voxel index to mm, that places no lattice in the world."""
    if not np.abs(affine).max() <= FARTHEST_MM:  # also false for NaN
        finding = f"the affine holds NaN, infinity or numbers beyond {FARTHEST_MM:g}"
        raise reject(path, finding, "finite positions in mm", _FIX)
    if (affine[3] != (0, 0, 0, 1)).any():
        finding = f"the affine's last row is {', '.join(f'{v:g}' for v in affine[3])}"
        raise reject(path, finding, "0, 0, 0, 1", "Give voxel index to RAS mm, one row for each coordinate.")
    edge = float(np.linalg.norm(affine[:3, :3], axis=0).min())
    if not edge > SMALLEST_EDGE:
        finding = f"the affine gives a voxel an edge of {edge:.3g} mm"
        raise reject(path, finding, f"more than {SMALLEST_EDGE:g} mm", _FIX)
    condition = np.linalg.cond(affine[:3, :3])
    if condition >= LARGEST_CONDITION:
        finding = f"the affine is nearly singular (condition {condition:.3g})"
        raise reject(path, finding, f"a condition below {LARGEST_CONDITION:.0f}", _FIX)


def corner_distance(first: Array, second: Array, shape: tuple[int, ...]) -> float:
    """Return the largest distance in mm between the corners of a volume under two affines (4, 4)."""
    corners = np.array([[*corner, 1.0] for corner in product(*[(0, n - 1) for n in shape])])
    difference = (corners @ (first - second).T)[:, :3]
    return float(np.linalg.norm(difference, axis=1).max())


def quaternion_affine(header: Fields, spacing: Array, path: Path) -> Array:
    """Return the qform (4, 4) in the header's unit: ``x = R(b, c, d) diag(spacing) (i, j, q k) + offset``.

    With a^2 = 1 - b^2 - c^2 - d^2 and q = -1 if pixdim[0] is negative, else 1 (nifti1.h, method 2).
    """
    b, c, d = (float(header[f"quatern_{axis}"]) for axis in "bcd")
    offset = [float(header[f"qoffset_{axis}"]) for axis in "xyz"]
    side = float(header["pixdim"][0])
    square = b * b + c * c + d * d
    if not np.isfinite([square, side, *offset]).all():
        raise reject(
            path, "the qform holds NaN or infinity", "finite numbers", _FIX + " Or pass --prefer sform."
        )
    if square > 1.001:
        finding = f"the qform is no rotation (b^2 + c^2 + d^2 = {square:.4g})"
        raise reject(path, finding, "at most 1", _FIX + " Or pass --prefer sform.")
    half_turn = square > 1 - 1e-7  # then a is lost in rounding
    b, c, d = np.array([b, c, d]) / (np.sqrt(square) if half_turn else 1.0)
    a = 0.0 if half_turn else np.sqrt(1 - square)
    rotation = np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ]
    )
    affine = np.eye(4)
    affine[:3, :3] = rotation * spacing * [1, 1, -1 if side < 0 else 1]
    affine[:3, 3] = offset
    return affine


def _affine(form: Form, header: Fields, shape: tuple[int, ...], path: Path, notes: list[str]) -> Array:
    if form == "qform":
        return quaternion_affine(header, _spacing(header, shape, path, notes), path)
    affine = np.eye(4)
    affine[:3] = [header["srow_x"], header["srow_y"], header["srow_z"]]
    return _thickened(affine, shape, notes)


def _thickened(affine: Array, shape: tuple[int, ...], notes: list[str]) -> Array:
    """Give a single slice a thickness of one voxel if the header gives it none: it moves no voxel."""
    flat = [axis for axis in range(3) if shape[axis] == 1 and not affine[:3, axis].any()]
    if len(flat) == 1 and np.isfinite(affine).all():
        first, second = (affine[:3, axis] for axis in range(3) if axis != flat[0])
        normal = np.cross(first, second)
        affine[:3, flat[0]] = normal / max(np.sqrt(np.linalg.norm(normal)), 1e-30)
        notes.append("the header gives the slice no thickness: the in-plane voxel size was taken")
    return affine


def _spacing(header: Fields, shape: tuple[int, ...], path: Path, notes: list[str]) -> Array:
    """Return the three voxel sizes, positive; a missing one is 1 where there is a single voxel."""
    spacing = np.array(header["pixdim"][1:4], dtype=np.float64)
    for axis in range(3):
        if shape[axis] == 1 and not abs(spacing[axis]) > 0:
            spacing[axis] = 1.0
    if not np.isfinite(spacing).all() or (spacing == 0).any():
        finding = f"the voxel sizes (pixdim) are {', '.join(f'{s:g}' for s in spacing)}"
        raise reject(path, finding, "finite sizes above zero", _FIX)
    if (spacing < 0).any():
        notes.append("a voxel size (pixdim) is negative: its magnitude was taken")
    return np.abs(spacing)


def _millimetres(header: Fields, notes: list[str]) -> float:
    """Return how many mm one spatial unit of the header is."""
    code = int(header["xyzt_units"]) & 7
    if code in _NAMES:
        notes.append(f"the header is in {_NAMES[code]}: converted to mm")
    if code not in _UNITS:
        notes.append(f"the header has the unknown spatial unit {code}: mm assumed")
    return _UNITS.get(code, 1.0)


def _compare(sform: Array, qform: Array, shape: tuple[int, ...], path: Path, notes: list[str]) -> None:
    distance = corner_distance(sform, qform, shape)
    if distance > REFUSE_MM:
        finding = f"sform and qform place a corner {distance:.3g} mm apart"
        remedy = "Say which one is right with --prefer sform or --prefer qform."
        raise reject(path, finding, f"at most {REFUSE_MM:g} mm", remedy)
    if distance > NOTE_MM:
        notes.append(f"sform and qform place a corner {distance:.3g} mm apart: the sform was used")
