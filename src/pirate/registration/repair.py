"""Repairing another tool's warp: the smallest change after which it folds nowhere, and what that did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.energies.local import LocalCorrelation
from pirate.energies.similarity import GlobalCorrelation
from pirate.errors import UsageError
from pirate.evaluation.folding import folding
from pirate.image import Image
from pirate.io.fields import lps_millimetres, voxel_units
from pirate.io.geometry import LPS
from pirate.ops.jacobian import mark_folds
from pirate.ops.repair import ROUNDS, repair
from pirate.registration.apply import apply
from pirate.registration.inputs import unit_range
from pirate.transform import Displacement, Part, Transform

WINDOW = 5
"""Side of the local correlation's window, voxels."""


@dataclass(frozen=True, eq=False)
class FieldRepair:
    """What became of one displacement field."""

    before: dict[str, float]
    """`pirate.evaluation.folding.folding` of the field as it was given."""
    after: dict[str, float]
    """The same of the field as it is written."""
    voxels: int
    """Of the whole grid."""
    changed_voxels: int
    largest_change_mm: float
    rounds: int
    remaining: NDArray[np.int64]
    """(n, d), voxel indices at which the written field still folds."""


@dataclass(frozen=True, eq=False)
class Repaired:
    """A transform whose fields fold nowhere, and what became of each."""

    transform: Transform
    fields: tuple[FieldRepair, ...]

    @property
    def remaining(self) -> int:
        """Voxels that still fold."""
        return sum(len(field.remaining) for field in self.fields)


def repair_transform(transform: Transform, rounds: int = ROUNDS) -> Repaired:
    """Repair every displacement field of a transform; affines stay as they are.

    A field is repaired in voxels of its own grid, where the determinant does not depend on how the grid is
    turned or mirrored in the world. What is counted afterwards are the numbers of the file: LPS mm, rounded
    to float32, and back.

    Args:
        transform: any; one without a field is refused.
        rounds: see `pirate.ops.repair.repair`.
    """
    parts: list[Part] = []
    found: list[FieldRepair] = []
    for part in transform.parts:
        if isinstance(part, Displacement):
            part, report = _repaired(part, rounds)
            found.append(report)
        parts.append(part)
    if not found:
        raise UsageError("the transform has no displacement field: an affine does not fold.")
    return Repaired(Transform(tuple(parts), transform.source, transform.target), tuple(found))


def _repaired(given: Displacement, rounds: int) -> tuple[Displacement, FieldRepair]:
    field = torch.from_numpy(np.ascontiguousarray(given.field))[None]
    result = repair(field, rounds=rounds)
    if result.rounds == 0:
        before = folding(field)
        nothing = np.zeros((0, given.grid.ndim), np.int64)
        return given, FieldRepair(before, before, given.grid.voxels, 0, 0.0, 0, nothing)
    repaired = Displacement(given.grid, result.field[0].numpy())
    written = _as_written(repaired)
    remaining = mark_folds(written)[1].nonzero().numpy()
    return repaired, FieldRepair(
        folding(field),
        folding(written),
        given.grid.voxels,
        result.changed_voxels,
        _largest_mm(given, repaired),
        result.rounds,
        remaining,
    )


def _as_written(displacement: Displacement) -> Tensor:
    """The field (1, d, *shape), voxels, as it comes back from a file in LPS mm."""
    d = displacement.grid.ndim
    if d == 2:  # an oblique plane is written with three components; in the plane nothing is lost
        return torch.from_numpy(displacement.field)[None]
    axes = LPS[:3, :3] @ displacement.grid.axes
    return torch.from_numpy(voxel_units(axes, lps_millimetres(displacement)))[None].contiguous()


def _largest_mm(before: Displacement, after: Displacement) -> float:
    """Longest difference of two fields on one grid, mm."""
    largest = 0.0
    for a, b in zip(np.moveaxis(before.field, 1, 0), np.moveaxis(after.field, 1, 0), strict=True):
        if not np.array_equal(a, b):  # plane by plane: most are untouched
            step = np.tensordot(before.grid.axes, b.astype(np.float64) - a, axes=1)
            largest = max(largest, float(np.linalg.norm(step, axis=0).max()))
    return largest


def similarity(fixed: Image, moving: Image, transform: Transform) -> dict[str, float]:
    """How alike fixed and warped are: correlation, and mean local correlation in windows of 5 voxels.

    Args:
        fixed: stays.
        moving: is warped onto the fixed grid.
        transform: fixed world to moving world, RAS mm.

    Returns:
        correlation, in [-1, 1]; local_correlation, in [-1, 1], the mean over all windows, 0 in a flat one.
    """
    warped = apply(moving, transform, fixed.grid, outside=float(moving.data.min()))
    a, b = (_tensor(unit_range(image.data)) for image in (fixed, warped))
    with torch.no_grad():
        whole, _ = GlobalCorrelation(a).value_and_gradient(b)
        local, _ = LocalCorrelation(a, window=WINDOW, squared=False).value_and_gradient(b)
    return {"correlation": 1 - float(whole), "local_correlation": 1 - float(local)}


def _tensor(data: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(data))[None, None]
