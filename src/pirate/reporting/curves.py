"""How a training went: its losses, the length of the gradient and the learning rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.reporting import pen
from pirate.reporting.canvas import BLUE, FAINT, GROUND, INK, ORANGE, Sheet
from pirate.reporting.display import Array
from pirate.reporting.graph import Axis, frame

DIM = "#553e0a"
"""Of the single steps, behind their running mean."""

BINS = 600
"""Points, lowest and highest by turns, that stand for all steps: more would not be seen."""

SHARE = 1 / 50
"""Of the steps that one running mean covers."""

Box = tuple[int, int, int, int]


def curves(
    path: Path, losses: Sequence[float], history: Sequence[Mapping[str, float]], title: str = "Training"
) -> Path:
    """Draw a training as a PNG for a page or a slide.

    Args:
        path: of the picture.
        losses: of every step, no unit.
        history: rows with step and validation_loss; gradient_norm and learning_rate where there are any.
        title: one line.
    """
    lowest = min(history, key=lambda row: row["validation_loss"])
    note = f"{len(losses):,} steps; lowest validation loss {lowest['validation_loss']:.4g}"
    sheet = Sheet(title, f"{note} after step {int(lowest['step']):,}", [11.4], [4.3])
    width, height = sheet.picture.size
    top, bottom, middle = round(0.2 * height), round(0.89 * height), round(0.545 * height)
    _losses(sheet.picture, (round(0.065 * width), top, round(0.66 * width), bottom), losses, history)
    left, right = round(0.74 * width), round(0.985 * width)
    last = max(len(losses), 1)
    _small(sheet.picture, (left, top, right, middle - 42), "gradient norm", history, last)
    _small(sheet.picture, (left, middle + 24, right, bottom), "learning rate", history, last)
    return sheet.save(path)


def _losses(picture: Any, box: Box, losses: Sequence[float], history: Sequence[Mapping[str, float]]) -> None:
    """Every step, their running mean, and the validations with the lowest one marked."""
    steps = np.array([row["step"] for row in history], dtype=np.float64)
    checks = np.array([row["validation_loss"] for row in history], dtype=np.float64)
    each = np.asarray(losses, dtype=np.float64)
    mean = running_mean(each, max(1, round(SHARE * len(each))))
    seen = np.concatenate([mean, checks, np.quantile(each, [0.02, 0.98]) if len(each) else []])
    up = Axis.over(seen, logarithmic=bool((seen > 0).all() and (each > 0).all()))
    across = Axis.over(np.array([0.0, max(len(each), 1)]))
    frame(picture, box, across, up)
    for x, y, colour, thick in (
        (*extremes(each), DIM, 1.0),
        (np.arange(1, len(each) + 1), mean, ORANGE, 2.0),
        (steps, checks, BLUE, 2.0),
    ):
        pen.strokes(picture, box, [_placed(box, across, up, x, y)], colour, thick)
    left, top, right, bottom = box
    points = [(left + x, top + y) for x, y in _placed(box, across, up, steps, checks).tolist()]
    best = int(checks.argmin())
    pen.dots(picture, points, BLUE, 4)
    pen.dots(picture, [points[best]], INK, 8)
    pen.dots(picture, [points[best]], BLUE, 5)
    pen.text(
        picture, (points[best][0], points[best][1] - 14), f"{checks[best]:.3g}", INK, 11, "ms", rim=GROUND
    )
    pen.text(picture, (left, top - 16), "loss", INK, 12, "lm")
    pen.text(picture, ((left + right) / 2, bottom + 41), "step", INK, 10, "ms")
    names = ("training, every step", DIM), ("training, running mean", ORANGE), ("validation", BLUE)
    _legend(picture, right, top - 16, names)


def _legend(picture: Any, right: int, y: int, entries: Sequence[tuple[str, str]]) -> None:
    """Names of the lines beside pieces of them, in one row above the graph, where no curve can reach them."""
    x = float(right)
    for name, colour in entries:
        pen.text(picture, (x, y), name, INK, 10.5, "rm")
        x -= pen.length(name, 10.5) + 8
        pen.rule(picture, (x - 22, y), (x, y), colour, 3)
        x -= 44


def _small(picture: Any, box: Box, name: str, history: Sequence[Mapping[str, float]], last: int) -> None:
    """A number of the history against the step; a gradient's on a logarithmic scale."""
    key = name.replace(" ", "_")
    rows = [(row["step"], row[key]) for row in history if key in row]
    x, y = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    up = Axis.over(y, logarithmic=key == "gradient_norm" and bool((y > 0).all()))
    across = Axis.over(np.array([0.0, last]))
    frame(picture, box, _thinned(across), _thinned(up))
    points = _placed(box, across, up, x, y)
    pen.strokes(picture, box, [points] if len(x) > 1 else [], FAINT, 1.8)
    pen.dots(picture, [(box[0] + x, box[1] + y) for x, y in points.tolist()] if len(x) == 1 else [], FAINT, 5)
    pen.text(picture, (box[0], box[1] - 16), name, INK, 11, "lm")


def _thinned(axis: Axis) -> Axis:
    """Every second or third mark: a small graph has no room for more than five."""
    every = math.ceil(len(axis.marks) / 5)
    return Axis(axis.low, axis.high, axis.logarithmic, axis.marks[::every], axis.names[::every], axis.lesser)


def _placed(box: Box, across: Axis, up: Axis, x: Array, y: Array) -> Array:
    """Points (N, 2), pixels from the upper left corner of `box`; values a logarithm cannot take lie below."""
    left, top, right, bottom = box
    return np.stack([across.place(x) * (right - left), (1 - up.place(y)) * (bottom - top)], 1)


def running_mean(values: Array, window: int) -> Array:
    """Mean of `values` (N,) over `window` neighbours around each; fewer at the ends. No unit."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    low, high = np.maximum(index - (window - 1) // 2, 0), np.minimum(index + window // 2 + 1, len(values))
    return np.asarray((sums[high] - sums[low]) / np.maximum(high - low, 1))


def extremes(values: Array) -> tuple[Array, Array]:
    """Steps (from 1) and values of a line through the lowest and the highest of every few of `values` (N,)."""
    chunks = np.array_split(np.arange(len(values)), max(1, min(BINS, len(values) // 2)))
    index = np.array(
        [f(values[c]) + c[0] for c in chunks if len(c) for f in (np.argmin, np.argmax)], dtype=np.int64
    )
    index = np.sort(index)
    return index + 1, values[index]
