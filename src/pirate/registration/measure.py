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
from pirate.ops.compose import Inverse
from pirate.ops.repair import Repair
from pirate.registration.apply import apply, apply_labels
from pirate.registration.inputs import common_labels
from pirate.registration.pair import Pair
from pirate.solvers.solution import Solution, Status
from pirate.transform import Transform, interpolated

UNRELATED = 0.75
"""One minus the correlation: above it after the registration the images hardly match anywhere."""

TRIPS = 100_000
"""At about so many voxels at most, a lattice of them, the way there and back is measured: more would take memory."""

LISTED = 20
"""At most so many folded voxels are listed by their indices."""

FOLDS_LIMIT_PERCENT = 1.0
"""A field that folds more than this is flagged."""


def measure(
    pair: Pair, solution: Solution, mended: Repair, inverse: Inverse, forward: Transform
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
        **_ranked("inverse_error", inverse.error.flatten().cpu().numpy()),
        **_ranked("round_trip", round_trip(mended.field, inverse.field)),
        "residual": last.residual,
        "residual_per_step": last.residual_per_step,
    }
    if pair.fixed_labels is not None and pair.moving_labels is not None:
        metrics |= overlap(pair.fixed_labels, pair.moving_labels, Transform(()), forward)
    return {name: None if _infinite(value) else value for name, value in metrics.items()}


def _infinite(value: Any) -> bool:
    """Whether a number is one that JSON cannot hold: after a divergence there are such."""
    return isinstance(value, float) and not math.isfinite(value)


def round_trip(field: Tensor, inverse: Tensor) -> NDArray[np.float64]:
    """``|u(x) + v(x + u(x))|`` at voxels x that u does not carry out of the image, (n,), voxels; 0 if none stays.

    The inverse error is what is left of the equation that v was made to solve, at the voxels of v. Here v is
    interpolated between them: this is what a point suffers that goes there and back. Of large images a lattice of
    about `TRIPS` voxels is taken.

    Args:
        field: u, (1, d, *shape), voxels.
        inverse: v, likewise.
    """
    u, v = (x[0].cpu().numpy() for x in (field, inverse))
    every = (slice(None, None, math.ceil((u[0].size / TRIPS) ** (1 / len(u)))),) * len(u)
    x = np.stack(
        np.meshgrid(*(np.arange(n)[s] for n, s in zip(u.shape[1:], every, strict=True)), indexing="ij"), -1
    )
    there = u[(slice(None), *every)].reshape(len(u), -1).T.astype(np.float64)
    landed = x.reshape(-1, len(u)) + there
    stays = ((landed >= 0) & (landed <= np.asarray(u.shape[1:]) - 1)).all(1)
    back = interpolated(v, landed[stays])
    error = np.linalg.norm(there[stays] + back, axis=1)
    return error if error.size else np.zeros(1)


def _ranked(name: str, error: NDArray[Any]) -> dict[str, float]:
    n = error.size
    ranks = {"median": n // 2, "p999": min(n - 1, int(0.999 * n)), "max": n - 1}
    placed = np.partition(error, sorted(ranks.values()))
    return {f"{name}_{rank}_voxels": float(placed[index]) for rank, index in ranks.items()}


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
