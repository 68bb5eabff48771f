"""Overlap of label maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject

Labels = NDArray[np.integer[Any]]


def dice(
    fixed_labels: Labels, warped_labels: Labels, labels: Iterable[int] | None = None
) -> dict[int, float]:
    """Dice overlap of every label: ``2 |A and B| / (|A| + |B|)``.

    Args:
        fixed_labels: any shape, integers.
        warped_labels: the same shape, integers.
        labels: which to report, NaN where a label is in neither map. By default those present in BOTH
            maps, without the background 0: a structure that one of the maps lacks is left out, not counted
            as 0.

    Returns:
        label to overlap in [0, 1], in ascending order of the labels by default.
    """
    check_labels(fixed_labels, warped_labels)
    values_a, index_a, count_a = _coded(fixed_labels)
    values_b, index_b, count_b = _coded(warped_labels)
    joint = np.bincount(index_a * len(values_b) + index_b, minlength=len(values_a) * len(values_b))
    joint = joint.reshape(len(values_a), len(values_b))
    row = {int(v): i for i, v in enumerate(values_a)}
    column = {int(v): i for i, v in enumerate(values_b)}
    wanted = [v for v in row if v in column and v != 0] if labels is None else [int(v) for v in labels]
    result = {}
    for value in wanted:
        i, j = row.get(value), column.get(value)
        total = (count_a[i] if i is not None else 0) + (count_b[j] if j is not None else 0)
        both = joint[i, j] if i is not None and j is not None else 0
        result[value] = float(2 * both / total) if total else float("nan")
    return result


def mean_dice(overlaps: Mapping[int, float]) -> float:
    """Mean of what `dice` returns, every label weighing the same; NaNs are left out, NaN if none is left."""
    finite = [v for v in overlaps.values() if not np.isnan(v)]
    return float(np.mean(finite)) if finite else float("nan")


def check_labels(fixed_labels: Labels, warped_labels: Labels) -> None:
    """Refuse label maps of different shapes, or that are not integers."""
    if fixed_labels.shape != warped_labels.shape:
        raise reject(
            "labels",
            f"shapes {fixed_labels.shape} and {warped_labels.shape}",
            "label maps on one grid",
            "Warp the moving labels onto the fixed grid first.",
        )
    for name, array in (("fixed labels", fixed_labels), ("warped labels", warped_labels)):
        if not np.issubdtype(array.dtype, np.integer):
            raise reject(
                name, f"type {array.dtype}", "integers", "Warp labels by nearest neighbour or by vote."
            )


def _coded(labels: Labels) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Values present, index of each voxel's value (N,), and voxels of each value; exact for any integers."""
    flat = labels.reshape(-1)
    low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
    if high - low >= 65536:
        values, index, counts = np.unique(flat, return_inverse=True, return_counts=True)
        return values, index.reshape(-1).astype(np.int64), counts.astype(np.int64)
    shifted = flat.astype(np.int64) - low
    counts = np.bincount(shifted, minlength=high - low + 1)
    present = np.flatnonzero(counts)
    position = np.zeros(high - low + 1, dtype=np.int64)
    position[present] = np.arange(len(present))
    return present + low, position[shifted], counts[present]
