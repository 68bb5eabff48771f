"""Fields as a corpus keeps them: at its resolution, rounded to two bytes a number, without folds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.evaluation.folding import folding
from pirate.ops.jacobian import mark_folds
from pirate.ops.repair import repair
from pirate.ops.resample import half_shape, resize_field

MOST_FOLDS = 2.0
"""Percent of voxels: a field that folds at more of them is dropped, at fewer it is mended."""

CLEARANCES = (0.05, 0.1, 0.2)
"""Determinants to which folds are raised, one after the other, until none is left after rounding."""

LARGEST = 512.0
"""Voxels: a longer displacement is no example of anything."""


@dataclass(frozen=True, eq=False)
class Unfolded:
    """A field as it is stored, and what it took."""

    voxels: Tensor
    """(1, d, *shape), int16: displacement in units of `step`; folds nowhere unless `dropped`."""
    step: float
    """Voxels: a power of 2, the smallest with which the longest component fits."""
    folds_percent: float
    mended_voxels: int = 0
    dropped: str = ""

    @property
    def field(self) -> Tensor:
        """(1, d, *shape), float32, voxels."""
        return restored(self.voxels, self.step)


def rounded(field: Tensor) -> tuple[Tensor, float]:
    """The field (1, d, *shape), voxels, as int16 multiples of a power of 2, and that power, voxels."""
    largest = max(float(field.abs().max()), 2.0**-10)
    step = 2.0 ** math.ceil(math.log2(largest / 32767))
    return torch.round(field.double() / step).clamp(-32768, 32767).to(torch.int16), step


def restored(voxels: Tensor, step: float) -> Tensor:
    """What `rounded` gave, back in voxels, float32, exactly."""
    return voxels.float() * step


def coarse_shape(shape: Sequence[int], resolution: int) -> tuple[int, ...]:
    """Shape of the grid halved until every `resolution`-th voxel is left."""
    shape = tuple(shape)
    for _ in range(resolution.bit_length() - 1):
        shape = half_shape(shape)
    return shape


def downsampled(field: Tensor, resolution: int) -> Tensor:
    """The field (1, d, *shape) on the grid of `coarse_shape`, in voxels of that grid."""
    shape = coarse_shape(field.shape[2:], resolution)
    return field if shape == tuple(field.shape[2:]) else resize_field(field, shape)


def unfolded(field: Tensor) -> Unfolded:
    """Round (1, d, *shape), voxels, to two bytes and mend its folds; drop it if it folds a lot or is not finite.

    A fold is a determinant <= 0 by central or forward differences, or a simplex of a cell turned over, of the
    rounded numbers.
    """
    if not bool(torch.isfinite(field).all()) or float(field.abs().max()) > LARGEST:
        nothing = torch.zeros_like(field, dtype=torch.int16)
        return Unfolded(nothing, 1.0, 0.0, 0, "it is not finite, or far larger than the image")
    folds = folding(field)["folds_percent"]
    voxels, step = rounded(field)
    if folds > MOST_FOLDS:
        return Unfolded(voxels, step, folds, 0, f"{folds:.2f} % of its voxels fold")
    if mark_folds(restored(voxels, step))[0] == 0:
        return Unfolded(voxels, step, folds)
    for clearance in CLEARANCES:
        mended = repair(field.float(), epsilon=clearance)
        voxels, step = rounded(mended.field)
        if mark_folds(restored(voxels, step))[0] == 0:
            return Unfolded(voxels, step, folds, mended.changed_voxels)
    return Unfolded(voxels, step, folds, mended.changed_voxels, "its folds could not be mended")
