"""Overlap of label maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject

Labels = NDArray[np.integer[Any]]

_FEW = 256  # labels in a row that are all counted, whether they occur or not
_PIECE = 1 << 18  # places counted at a time, so that they stay in the cache
_MANY = 65536  # labels in a row that are found by counting, more of them by sorting


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
    values_a, values_b, joint = _joint(fixed_labels.reshape(-1), warped_labels.reshape(-1))
    count_a, count_b = joint.sum(1), joint.sum(0)
    row = {value: i for i, value in enumerate(values_a)}
    column = {value: i for i, value in enumerate(values_b)}
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


def _joint(a: Labels, b: Labels) -> tuple[list[int], list[int], NDArray[np.int64]]:
    """Values of a, values of b, and how many of the N places hold each pair of them; exact for any integers."""
    values_a, code_a = _code(a)
    values_b, code_b = _code(b)
    shape = len(values_a), len(values_b)
    joint = np.zeros(shape[0] * shape[1], dtype=np.int64)
    for start in range(0, a.size, _PIECE):
        piece = slice(start, start + _PIECE)
        joint += np.bincount(code_a(a[piece]) * shape[1] + code_b(b[piece]), minlength=joint.size)
    joint = joint.reshape(shape)
    rows, columns = np.flatnonzero(joint.any(1)), np.flatnonzero(joint.any(0))
    return [values_a[i] for i in rows], [values_b[j] for j in columns], joint[np.ix_(rows, columns)]


def _code(labels: Labels) -> tuple[Sequence[int], Callable[[Labels], NDArray[np.int64]]]:
    """Values in ascending order, with the gaps between them if they are few, and what finds labels among them."""
    low, high = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
    first = labels.dtype.type(low)
    if high - low >= _MANY:
        values = np.unique(labels)
        return values.tolist(), lambda part: np.searchsorted(values, part)
    if high - low < _FEW:
        return range(low, high + 1), lambda part: (part - first).astype(np.int64)
    present = np.flatnonzero(np.bincount((labels - first).astype(np.int64)))
    position = np.zeros(high - low + 1, dtype=np.int64)
    position[present] = np.arange(len(present))
    return [low + i for i in present.tolist()], lambda part: position[part - first]
