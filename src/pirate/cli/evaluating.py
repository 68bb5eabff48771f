"""``pirate evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
import typer

from pirate.cli.applying import refuse_overwrite, warn_outside
from pirate.errors import UsageError, reject
from pirate.evaluation.folding import folding
from pirate.evaluation.points import point_error_mm
from pirate.evaluation.surface import surface_distances
from pirate.image import Image
from pirate.io import nifti
from pirate.io.atomic import write_json
from pirate.io.points import Space, read_points
from pirate.io.transforms import read_transform
from pirate.registration.apply import apply_points
from pirate.registration.measure import label_scores
from pirate.transform import Displacement, Transform

COLUMNS = ("dice_before", "dice", "dice_vote", "hd95_mm", "assd_mm")
"""What is measured of each label."""


def run(
    transform: Path, fixed_labels: Path | None, moving_labels: Path | None, fixed_points: Path | None,
    moving_points: Path | None, space: str, out: Path | None, force: bool,
) -> None:  # fmt: skip
    """Measure what can be measured from what was given, print it, write it if asked."""
    if out is not None:
        refuse_overwrite(out, force)
    for a, b, what in ((fixed_labels, moving_labels, "labels"), (fixed_points, moving_points, "points")):
        if (a is None) != (b is None):
            raise UsageError(f"give both --fixed-{what} and --moving-{what}, or neither.")
    forward = read_transform(transform)
    metrics: dict[str, Any] = {}
    field = next((p for p in forward.parts if isinstance(p, Displacement)), None)
    if fixed_labels is not None and moving_labels is not None:
        metrics["labels"] = overlap(
            nifti.read_labels(fixed_labels), nifti.read_labels(moving_labels), forward
        )
    if fixed_points is not None and moving_points is not None:
        metrics["points_mm"] = _points(fixed_points, moving_points, space, forward)
    if field is not None:
        metrics |= folding(torch.from_numpy(field.field)[None])
        _say_folding(metrics)
    if not metrics:
        raise UsageError("nothing to measure: the transform is an affine; give labels or points.")
    if "labels" in metrics:
        _say_overlap(metrics["labels"])
    if "points_mm" in metrics:
        _say_points(metrics["points_mm"])
    if out is not None:
        write_json(out, metrics)


def overlap(fixed: Image, moving: Image, forward: Transform) -> dict[str, Any]:
    """Dice before and after (nearest, vote), HD95 and ASSD in mm, of each label in both and on average.

    A label that the warp loses has Dice 0 and no distance.
    """
    scores, warped = label_scores(fixed, moving, Transform(()), forward)
    distance = surface_distances(fixed.data, warped, fixed.grid.spacing)
    rows: dict[str, dict[str, float | None]] = {}
    for label in scores["dice"]:
        found = distance.get(label)
        rows[str(label)] = {
            **{name: by[label] for name, by in scores.items()},
            "hd95_mm": None if found is None else found.hd95_mm,
            "assd_mm": None if found is None else found.assd_mm,
        }
    mean = {name: _mean([row[name] for row in rows.values()]) for name in COLUMNS}
    return {"mean": mean, "per_label": rows, "labels_measured": "in both label maps"}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _points(fixed: Path, moving: Path, space: str, forward: Transform) -> dict[str, Any]:
    if space not in get_args(Space) or space == "voxel":
        raise UsageError(f"--space {space}: expected ras or lps.")
    a, b = (read_points(path, space) for path in (fixed, moving))  # type: ignore[arg-type]
    if len(a.world) != len(b.world):
        raise reject(
            moving,
            f"has {len(b.world)} points",
            f"the {len(a.world)} points of {fixed}",
            "Give matching lists.",
        )
    warn_outside(a.world, forward)
    return {
        "before": point_error_mm(b.world, a.world),
        "after": point_error_mm(b.world, apply_points(a.world, forward)),
    }


def _say_folding(m: dict[str, Any]) -> None:
    typer.echo(
        f"folded voxels {m['folds_percent']:.4f} % (central), {m['folds_forward_percent']:.4f} % (forward), "
        f"NDV {m['ndv_percent']:.4f} %, SDlogJ {m['sd_log_jacobian']:.4f}, "
        f"smallest determinant {m['min_determinant']:.3f}"
    )


def _say_overlap(labels: dict[str, Any]) -> None:
    typer.echo(f"{'label':>8} {'Dice before':>12} {'Dice':>8} {'vote':>8} {'HD95 mm':>8} {'ASSD mm':>8}")
    for name, row in [*labels["per_label"].items(), ("mean", labels["mean"])]:
        cells = [row[column] for column in COLUMNS]
        text = ["-" if c is None else f"{c:.4f}" if i < 3 else f"{c:.2f}" for i, c in enumerate(cells)]
        typer.echo(f"{name:>8} {text[0]:>12} " + " ".join(f"{t:>8}" for t in text[1:]))


def _say_points(points: dict[str, Any]) -> None:
    before, after = points["before"], points["after"]
    typer.echo(
        f"landmark error {before['mean']:.2f} -> {after['mean']:.2f} mm on average, "
        f"{before['median']:.2f} -> {after['median']:.2f} mm median"
    )
