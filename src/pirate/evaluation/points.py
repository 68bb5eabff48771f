"""Errors of mapped points, and of a field against a known one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pirate.errors import reject

Field = NDArray[np.floating[Any]]


def point_error_mm(fixed_points: ArrayLike, mapped_points: ArrayLike) -> dict[str, float]:
    """Target registration error: distances between corresponding points.

    Args:
        fixed_points: (N, 3), RAS mm (or (N, 2) in a plane), N at least 1.
        mapped_points: the same shape: where the transform takes the partners of `fixed_points`, or they it.

    Returns:
        mean, sd (of the population), median, p90 and max, mm.
    """
    a, b = np.asarray(fixed_points, dtype=np.float64), np.asarray(mapped_points, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or len(a) == 0:
        raise reject(
            "points",
            f"shapes {a.shape} and {b.shape}",
            "two lists (N, 3) of the same length",
            "Pair the points.",
        )
    return _summary(np.linalg.norm(a - b, axis=1))


def endpoint_error(
    field: Field, truth: Field, spacing_mm: Sequence[float], mask: NDArray[np.bool_] | None = None
) -> dict[str, float]:
    """Length of the difference between two fields.

    Args:
        field: (d, *shape), voxels.
        truth: (d, *shape), voxels.
        spacing_mm: voxel size along each array axis, mm.
        mask: (*shape), where to measure; everywhere by default.

    Returns:
        mean, sd, median, p90 and max in voxels (``mean_voxels``, ...) and in mm (``mean_mm``, ...).
    """
    if field.shape != truth.shape or len(spacing_mm) != field.shape[0]:
        raise reject(
            "fields",
            f"shapes {field.shape} and {truth.shape}, {len(spacing_mm)} voxel sizes",
            "two fields (d, *shape) on one grid and d voxel sizes",
            "Resample one of them first.",
        )
    inside = np.ones(field.shape[1:], dtype=bool) if mask is None else mask.astype(bool)
    if inside.shape != field.shape[1:] or not inside.any():
        raise reject(
            "mask", f"shape {inside.shape}, {inside.sum()} voxels", "a region of the grid", "Check the mask."
        )
    difference = (field[:, inside] - truth[:, inside]).astype(np.float64)
    in_mm = difference * np.asarray(spacing_mm, dtype=np.float64)[:, None]
    result = {f"{k}_voxels": v for k, v in _summary(np.linalg.norm(difference, axis=0)).items()}
    return result | {f"{k}_mm": v for k, v in _summary(np.linalg.norm(in_mm, axis=0)).items()}


def _summary(lengths: NDArray[np.float64]) -> dict[str, float]:
    return {
        "mean": float(lengths.mean()),
        "sd": float(lengths.std()),
        "median": float(np.median(lengths)),
        "p90": float(np.percentile(lengths, 90)),
        "max": float(lengths.max()),
    }
