"""The numbers of a row, by the same code for every method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.benchmark.cases import Case
from pirate.benchmark.entries import START
from pirate.benchmark.kept import Held
from pirate.benchmark.rows import Row
from pirate.evaluation.overlap import dice, mean_dice
from pirate.evaluation.points import point_error_mm
from pirate.evaluation.surface import surface_distances
from pirate.registration.apply import apply
from pirate.registration.inputs import common_labels
from pirate.registration.result import Registration
from pirate.transform import Affine, Transform

_FROM_METRICS = {
    "folds": "folds_percent", "folds_forward": "folds_forward_percent", "ndv": "ndv_percent",
    "sdlogj": "sd_log_jacobian", "inverse_error": "inverse_error_p999_voxels",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Judged:
    """What a transform does to a pair.

    Args:
        dice: mean over the labels that both maps hold; NaN without labels.
        tre: mean distance of the landmarks, mm; NaN without.
        similarity: Pearson's correlation of the fixed and the warped image.
        warped: (*shape), the moving image on the fixed grid, its own unit.
        labels: (*shape), by nearest neighbour, or None.
    """

    dice: float
    tre: float
    similarity: float
    warped: NDArray[np.float32]
    labels: NDArray[Any] | None


def judged(case: Case, forward: Transform, warped: NDArray[np.float32] | None = None) -> Judged:
    """Measure a transform (fixed to moving world, RAS mm); `warped` (*shape), any unit, if it is there already."""
    if warped is None:
        warped = apply(case.moving, forward, case.fixed.grid, outside=float(case.moving.data.min())).data
    labels, overlap, error = None, math.nan, math.nan
    if case.fixed_labels is not None and case.moving_labels is not None:
        labels = apply(case.moving_labels, forward, case.fixed.grid, "nearest").data
        common = common_labels(case.fixed_labels, case.moving_labels)
        overlap = mean_dice(dice(case.fixed_labels.data, labels, common))
    if case.fixed_points is not None and case.moving_points is not None:
        error = point_error_mm(case.moving_points, forward.map(case.fixed_points))["mean"]
    return Judged(overlap, error, correlation(case.fixed.data, warped), warped, labels)


def numbers(case: Case, result: Registration, start: Affine | None) -> tuple[dict[str, Any], Judged]:
    """The numbers of a row about a finished registration, and what they were taken from."""
    before, now = judged(case, begin(start)), judged(case, result.forward, result.warped.data)
    found: dict[str, Any] = {name: number(result.metrics[metric]) for name, metric in _FROM_METRICS.items()}
    return found | {
        "dice_before": before.dice, "dice": now.dice, "hd95": hd95(case, now.labels), "tre_before": before.tre,
        "tre": now.tre, "similarity_before": before.similarity, "similarity_after": now.similarity,
    }, now  # fmt: skip


def started(case: Case, start: Affine | None) -> tuple[Row, Held]:
    """The row of the start itself, to which no method has been applied, and what is shown of it."""
    found = judged(case, begin(start))
    row = Row(
        START, case.name, dice_before=found.dice, dice=found.dice, hd95=hd95(case, found.labels), folds=0.0,
        folds_forward=0.0, ndv=0.0, sdlogj=0.0, inverse_error=0.0, tre_before=found.tre, tre=found.tre,
        similarity_before=found.similarity, similarity_after=found.similarity, seconds=0.0,
    )  # fmt: skip
    field = begin(start).on(case.fixed.grid).field
    return row, Held(field, found.warped, found.labels, np.zeros((0, 4)), {})


def begin(start: Affine | None) -> Transform:
    """The transform before any method."""
    return Transform(() if start is None else (start,))


def hd95(case: Case, labels: NDArray[Any] | None) -> float:
    """Mean over the labels of the 95th percentile of surface distances, mm; `labels` are (*shape), warped."""
    if labels is None or case.fixed_labels is None or case.moving_labels is None:
        return math.nan
    common = common_labels(case.fixed_labels, case.moving_labels)
    found = surface_distances(case.fixed_labels.data, labels, case.fixed.grid.spacing, common)
    return float(np.mean([d.hd95_mm for d in found.values()])) if found else math.nan


def correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Pearson's, of two images (*shape) of any unit; NaN where one is constant."""
    x, y = (v.ravel().astype(np.float64) for v in (a, b))
    x, y = x - x.mean(), y - y.mean()
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / size if size > 0 else math.nan


def number(value: object) -> float:
    """A metric as a number; what could not be told is NaN."""
    return float(value) if isinstance(value, int | float) else math.nan
