"""Numbers about a finished registration, and what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pirate.evaluation.folding import folding
from pirate.evaluation.overlap import dice, mean_dice
from pirate.image import Image
from pirate.ops.repair import Repair
from pirate.registration.apply import apply, apply_labels
from pirate.registration.inputs import common_labels
from pirate.registration.pair import Pair
from pirate.solvers.solution import Solution, Status
from pirate.transform import Transform

UNRELATED = 0.75
"""One minus the correlation: above it after the registration the images hardly match anywhere."""

LISTED = 20
"""At most so many folded voxels are listed by their indices."""

FOLDS_LIMIT_PERCENT = 1.0
"""A field that folds more than this is flagged."""


def measure(
    pair: Pair, solution: Solution, mended: Repair, inverse_error: Tensor, forward: Transform
) -> dict[str, Any]:
    """Numbers for ``metrics.json``: folding, repair, inverse error, the field's size, overlap."""
    length = mended.field.square().sum(1).sqrt_()
    last = solution.trace[-1]
    metrics: dict[str, Any] = {
        **folding(mended.field),
        "repaired_voxels": mended.changed_voxels,
        "repair_largest_change_voxels": mended.largest_change,
        "folded_voxels": len(mended.remaining),
        "first_folded_voxels": mended.remaining[:LISTED].tolist(),
        "displacement_max_voxels": float(length.max()),
        "displacement_mean_voxels": float(length.double().mean()),
        **_inverse_error(inverse_error),
        "residual": last.residual,
        "residual_per_step": last.residual_per_step,
    }
    if pair.fixed_labels is not None and pair.moving_labels is not None:
        metrics |= overlap(pair.fixed_labels, pair.moving_labels, Transform(()), forward)
    return {name: None if _infinite(value) else value for name, value in metrics.items()}


def _infinite(value: Any) -> bool:
    """Whether a number is one that JSON cannot hold: after a divergence there are such."""
    return isinstance(value, float) and not math.isfinite(value)


def _inverse_error(error: Tensor) -> dict[str, float]:
    n = error.numel()
    ranks = {"median": n // 2, "p999": min(n - 1, int(0.999 * n)), "max": n - 1}
    placed = np.partition(error.flatten().cpu().numpy(), sorted(ranks.values()))
    return {f"inverse_error_{name}_voxels": float(placed[rank]) for name, rank in ranks.items()}


def label_scores(
    fixed: Image, moving: Image, start: Transform, forward: Transform
) -> tuple[dict[str, dict[int, float]], NDArray[Any]]:
    """Dice of each label that both maps hold, and the warped labels (nearest) on the fixed grid.

    A label that the warp loses scores 0. Dice is taken before (nearest), after (nearest), and after by the
    linear vote.
    """
    common = common_labels(fixed, moving)
    before = apply(moving, start, fixed.grid, "nearest").data
    after, vote = apply_labels(moving, forward, fixed.grid)
    maps = {"dice_before": before, "dice": after.data, "dice_vote": vote.data}
    return {name: dice(fixed.data, warped, common) for name, warped in maps.items()}, after.data


def overlap(fixed: Image, moving: Image, start: Transform, forward: Transform) -> dict[str, Any]:
    """Mean Dice over the labels that both maps hold, and Dice of each (nearest)."""
    scores, _ = label_scores(fixed, moving, start, forward)
    result: dict[str, Any] = {name: mean_dice(by) for name, by in scores.items()}
    result["dice_per_label"] = {str(label): value for label, value in scores["dice"].items()}
    return result


def judge(status: Status, metrics: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences about what should make a user look twice."""
    flags = []
    if status is Status.DIVERGED:
        flags.append(f"the iteration diverged: {status.value}.")
    after, before = metrics["penalty_after"], metrics["penalty_before"]
    if metrics["identical"]:
        flags.append("the images are identical already; there is nothing to align.")
    elif after is not None and metrics["penalty"] == "global" and after > UNRELATED:
        flags.append("the images still have little in common; check that their headers place them together.")
    elif after is None or after > before:
        flags.append("the images are not more alike after the registration than before it.")
    if (metrics["folds_percent"] or 0) > FOLDS_LIMIT_PERCENT:
        flags.append(f"{metrics['folds_percent']:.2f} % of the voxels fold, above {FOLDS_LIMIT_PERCENT:g} %.")
    return tuple(flags)
