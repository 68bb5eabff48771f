"""Overlap against time and against folding: one point for each method."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.axes import FoldAxis, plain_log
from pirate.reporting.benchmark.names import Name, write_column, write_names
from pirate.reporting.benchmark.scores import Score
from pirate.reporting.display import Array

SIZE = 11.6, 6.4  # inches
AREA = 0.95, 0.8, 10.4, 4.6
STRIP = 0.36
"""Width of the strip of methods that do not fold, of the whole."""

_DODGE = 0.045  # of the height: a marker
SPAN = 0.13
"""Dice lower than this below the best, and below the start, is written at the lower edge instead of drawn to scale."""


def against_time(path: Path, found: Sequence[Score], start: float, title: str) -> Path:
    """Mean Dice against median seconds; a hollow marker folds, its share is written below the name."""
    shown = [s for s in found if np.isfinite(s.seconds) and s.seconds > 0]
    figure, axes = _page(title, legend(shown))
    seconds = np.array([s.seconds for s in shown])
    low, high = float(seconds.min()) / 2.2, float(seconds.max()) * 3.0
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    plain_log(axes.xaxis, low, high)
    axes.set_xlabel("seconds for a pair, median (logarithmic)")
    points, names = _points(axes, seconds, shown, start)
    told = [
        Name(n.entry, n.text, "\n".join(filter(None, [_folds(s), n.more])))
        for n, s in zip(names, shown, strict=True)
    ]
    write_names(axes, points, told)
    return style.save(figure, path)


def against_folds(path: Path, found: Sequence[Score], start: float, title: str, note: str = "") -> Path:
    """Mean Dice against mean percentage of folded voxels, logarithmic, none at all in a strip of its own.

    Args:
        path: of the picture.
        found: methods that have Dice.
        start: mean Dice before registration; not a number if unknown.
        title: of the picture.
        note: below it; by default what the markers mean.
    """
    shown = [s for s in found if len(s.values("folds"))]
    figure, axes = _page(title, note or legend(shown))
    folds = np.array([s.mean("folds") for s in shown])
    scale = FoldAxis(folds, STRIP)
    scale.dress(axes)
    axes.set_xlabel("folded voxels, mean % (negative JD; logarithmic)")
    dice = floored(np.array([s.mean("dice") for s in shown]), start)
    x = scale.place(folds)
    x[folds <= 0] += aside(dice[folds <= 0], _DODGE * float(np.ptp(dice))) * 0.011 * np.ptp(axes.get_xlim())
    points, names = _points(axes, x, shown, start)
    none, some = np.flatnonzero(folds <= 0), np.flatnonzero(folds > 0)
    taken = write_column(axes, points[none], [names[i] for i in none])
    write_names(axes, points[some], [names[i] for i in some], taken)
    return style.save(figure, path)


def aside(values: Array, near: float) -> Array:
    """(n,) steps to the side, 0, 1 or -1, that part markers of `values` (n,) which would cover each other."""
    steps = np.zeros(len(values))
    order = np.argsort(values, kind="stable")
    for i, j in itertools.pairwise(order):
        if values[j] - values[i] < near:
            steps[j] = {0.0: 1.0, 1.0: -1.0, -1.0: 0.0}[float(steps[i])]
    return steps


def legend(shown: Sequence[Score]) -> str:
    """What the markers mean, as far as they occur."""
    rivals = [s.entry for s in shown if not s.entry.ours]
    parts = ["disc: this package"] if any(s.entry.ours for s in shown) else []
    parts += ["square: iterative rival"] if any(not e.trained for e in rivals) else []
    parts += ["triangle: trained network"] if any(e.trained for e in rivals) else []
    parts += [style.SUPERVISED] if any(s.entry.supervised for s in shown) else []
    parts += ["hollow: folds"] if any(s.mean("folds") > 0 for s in shown) else []
    return " · ".join(parts)


def _page(title: str, note: str) -> tuple[Any, Any]:
    figure = style.sheet(*SIZE, title, note)
    axes = style.box(figure, *AREA)
    style.dress(axes)
    axes.set_ylabel("mean DSC")
    return figure, axes


def floored(dice: Array, start: float) -> Array:
    """Dice (n,), but those far below the best and below the start lie at one edge: a failure squeezes no one."""
    low = float(dice.max()) - SPAN
    return np.maximum(dice, min(low, start) if np.isfinite(start) else low)


def _points(axes: Any, x: Array, shown: Sequence[Score], start: float) -> tuple[Array, list[Name]]:
    """Draw the markers; return where they are (n, 2), and what to write beside them."""
    true = np.array([s.mean("dice") for s in shown])
    y = floored(true, start)
    height = max(float(np.ptp(y)), 0.01)
    axes.set_ylim(float(y.min()) - 0.13 * height, float(y.max()) + 0.12 * height)
    if np.isfinite(start) and axes.get_ylim()[0] < start:
        axes.axhline(start, color=style.BEFORE, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.text(
            0.995, start, "before registration", transform=axes.get_yaxis_transform(), ha="right", va="bottom",
            fontsize=style.SMALL, color=style.FAINT,
        )  # fmt: skip
    below = true < y - 1e-9
    for score, left, up, low in zip(shown, x, y, below, strict=True):
        _marker(axes, (float(left), float(up)), score, bool(low))
    names = [
        Name(s.entry, style.name_of(s.entry) + _part(s), f"DSC {t:.3f}" if low else "")
        for s, t, low in zip(shown, true, below, strict=True)
    ]
    return np.stack([x, y], 1), names


def _marker(axes: Any, at: tuple[float, float], score: Score, low: bool) -> None:
    """Filled if nothing folds, hatched if labels were used; an arrow down if it lies below the picture."""
    colour = style.colour_of(score.entry)
    shape = "v" if low else style.marker_of(score.entry)
    folds = score.mean("folds") > 0
    axes.scatter(*at, s=105, marker=shape, color="white" if folds else colour, linewidths=0, zorder=3)
    if score.entry.supervised:
        lines = colour if folds else "white"
        axes.scatter(*at, s=100, marker=shape, facecolors="none", edgecolors=lines, hatch="/////", zorder=3)
    axes.scatter(*at, s=105, marker=shape, facecolors="none", edgecolors=colour, linewidths=1.9, zorder=4)


def _folds(score: Score) -> str:
    folds = score.mean("folds")
    return f"folds {style.percent(folds)}" if folds > 0 else ""


def _part(score: Score) -> str:
    """How many pairs, if not all."""
    return f" ({len(score.rows)} of {score.asked} pairs)" if score.failed else ""
