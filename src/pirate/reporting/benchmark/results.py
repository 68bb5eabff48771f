"""Every pair of every method: overlap and folding side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.reporting.benchmark import boxes, style
from pirate.reporting.benchmark.axes import FoldAxis
from pirate.reporting.benchmark.scores import Score
from pirate.reporting.display import Array

DICE = 5.3  # inches


def results(path: Path, found: Sequence[Score], start: Array, title: str) -> Path:
    """Boxes of Dice for each method, best mean on top, every pair a point; folds in percent beside it.

    Args:
        path: of the picture.
        found: methods that have Dice.
        start: (n,), Dice of the pairs before registration.
        title: of the picture.
    """
    order = sorted(found, key=lambda s: -s.mean("dice"))
    started = len(start) > 0
    width, height = style.SLIDE[0], boxes.TOP + boxes.BOTTOM + boxes.LINE * max(len(order) + started, 4)
    marks = style.legend([s.entry for s in order])
    note = " · ".join(filter(None, ["a point is one pair; box: quartiles; white diamond: mean", marks]))
    figure = style.sheet(width, height, title, note)
    inner = height - boxes.TOP - boxes.BOTTOM
    dice = style.box(figure, boxes.NAMES, boxes.BOTTOM, DICE, inner)
    for line, score in enumerate(order):
        boxes.distribution(dice, line, score.values("dice"), score.entry)
        missing = f" ({len(score.rows)} of {score.asked})" if score.failed else ""
        boxes.beside(dice, line, f"{score.mean('dice'):.3f}{missing}")
    if started:
        boxes.distribution(dice, len(order), start, None)
        boxes.beside(dice, len(order), f"{start.mean():.3f}")
        dice.axvline(float(start.mean()), color=style.BEFORE, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    dice.set_xlabel("DSC; mean on the right")
    boxes.name_lines(dice, [s.entry for s in order], started)
    left = boxes.NAMES + DICE + (1.4 if any(s.failed for s in order) else 0.8)
    folds = style.box(figure, left, boxes.BOTTOM, width - left - 0.25, inner)
    boxes.name_lines(folds, [s.entry for s in order], started, names=False)
    _folds(folds, order)
    return style.save(figure, path)


def _folds(axes: Any, order: Sequence[Score]) -> None:
    """Percent of folded voxels of each pair, and their mean."""
    scale = FoldAxis(np.concatenate([s.values("folds") for s in order]) if order else np.zeros(0), 0.2)
    for line, score in enumerate(order):
        values = score.values("folds")
        if len(values):
            colour = style.colour_of(score.entry)
            boxes.points(axes, line, scale.place(values), colour)
            boxes.diamond(axes, line, float(scale.place(float(values.mean()))), colour)
    scale.dress(axes)
    axes.set_xlabel("folded voxels, % (negative JD)")
