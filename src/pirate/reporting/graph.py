"""A plain graph of numbers against 1, 2, 3, ... on a sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pirate.reporting import pen
from pirate.reporting.canvas import FAINT, INK, ORANGE
from pirate.reporting.display import Array

LATTICE = "#2a3038"
MARGIN = 0.05  # of the range, on both sides
DASH = 3.3  # pixels from one dot of a dotted line to the next


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` (their logarithms if `logarithmic`) over some pixels, and the marks on them."""

    low: float
    high: float
    logarithmic: bool
    marks: tuple[float, ...]
    names: tuple[str, ...]
    lesser: tuple[float, ...] = ()

    @classmethod
    def over(cls, values: Array, logarithmic: bool = False) -> Axis:
        """Around finite `values` (positive if logarithmic), with a margin; 0 to 1 without any."""
        if not len(values):
            values = np.array([0.1, 1.0]) if logarithmic else np.array([0.0, 1.0])
        scaled = np.log10(values) if logarithmic else values
        low, high = float(scaled.min()), float(scaled.max())
        if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
            wide = 0.5 if logarithmic else 0.05 * abs(low) or 0.05
            low, high = low - wide, high + wide
        low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
        if not logarithmic:
            marks, names = steps(low, high)
            return cls(low, high, False, marks, names)
        factors = (1, 2, 5) if high - low < 2.2 else (1,)  # 2.2: hundredfold and the margins
        decades = range(math.floor(low), math.ceil(high) + 1)
        marks = _within([f * 10.0**d for d in decades for f in factors], low, high)
        if len(marks) < 2:
            return cls(low, high, True, *steps(10.0**low, 10.0**high))
        lesser = _within([f * 10.0**d for d in decades for f in range(1, 10)], low, high)
        return cls(low, high, True, marks, tuple(f"{mark:g}" for mark in marks), lesser)

    def place(self, values: Array | float) -> Array:
        """Where values lie: 0 at the low end, 1 at the high end."""
        scaled = np.log10(values) if self.logarithmic else np.asarray(values, dtype=np.float64)
        return (scaled - self.low) / (self.high - self.low)


def steps(low: float, high: float) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Five to ten round numbers between two, and their names, all with as many decimals."""
    rough = (high - low) / 9
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * (1 - 1e-9))
    marks = tuple(i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))
    decimals = next((n for n in range(7) if abs(round(step, n) - step) < 1e-9 * step), None)
    if decimals is None or high >= 1e6:
        return marks, tuple(f"{mark:.3g}" for mark in marks)
    return marks, tuple(f"{mark:.{decimals}f}" for mark in marks)


def _within(marks: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    return tuple(mark for mark in marks if low <= math.log10(mark) <= high)


def graph(
    picture: Any,
    box: tuple[int, int, int, int],
    name: str,
    values: Array,
    starts: Sequence[int],
    logarithmic: bool,
) -> None:
    """Draw `values` (N,) against 1 to N.

    Args:
        picture: to draw on.
        box: left, upper, right and lower edge of the graph, pixels; what is written beside it lies outside.
        name: what the values are.
        values: not a number where there is nothing to draw.
        starts: indices at which the line begins anew; a dotted line stands before each.
        logarithmic: the scale of the values, which are then positive.
    """
    across = Axis.over(np.arange(1, len(values) + 1, dtype=np.float64))
    up = Axis.over(values[np.isfinite(values)], logarithmic)
    frame(picture, box, across, up)
    left, top, right, bottom = box
    x = across.place(np.arange(1, len(values) + 1)) * (right - left)
    y = (1 - up.place(values)) * (bottom - top)
    for start in starts:
        _dotted(picture, left + float(across.place(start + 0.5)) * (right - left), top, bottom)
    lines: list[Array] = []
    alone: list[Array] = []
    for piece in np.split(np.arange(len(values)), list(starts)):
        for run in _runs(piece[np.isfinite(values[piece])]):
            points = np.stack([x[run], y[run]], 1)
            (lines if len(run) > 1 else alone).append(points)
    pen.strokes(picture, box, lines, ORANGE, 1.6)
    pen.dots(picture, [(left + point[0, 0], top + point[0, 1]) for point in alone], ORANGE, 6)
    pen.text(picture, ((left + right) / 2, top - 9), name, INK, 11, "ms")
    pen.text(picture, ((left + right) / 2, bottom + 39), "iteration", INK, 10, "ms")


def _runs(index: Array) -> list[Array]:
    """Runs of neighbouring indices."""
    return [run for run in np.split(index, np.flatnonzero(np.diff(index) > 1) + 1) if len(run)]


def frame(picture: Any, box: tuple[int, int, int, int], across: Axis, up: Axis) -> None:
    """Both axes with their marks, and the lattice behind."""
    left, top, right, bottom = box
    columns = [left + float(across.place(mark)) * (right - left) for mark in across.marks]
    rows = [bottom - float(up.place(mark)) * (bottom - top) for mark in up.marks]
    for x in columns:
        pen.rule(picture, (x, top), (x, bottom), LATTICE)
        pen.rule(picture, (x, bottom), (x, bottom + 5), FAINT)
    for y in rows:
        pen.rule(picture, (left, y), (right, y), LATTICE)
        pen.rule(picture, (left - 5, y), (left, y), FAINT)
    for mark in up.lesser:
        y = bottom - float(up.place(mark)) * (bottom - top)
        pen.rule(picture, (left - 3, y), (left, y), FAINT)
    pen.rule(picture, (left, top), (left, bottom), FAINT)
    pen.rule(picture, (left, bottom), (right, bottom), FAINT)
    for x, label in zip(columns, across.names, strict=True):
        pen.text(picture, (x, bottom + 19), label, FAINT, 9, "ms")
    for y, label in zip(rows, up.names, strict=True):
        pen.text(picture, (left - 10, y), label, FAINT, 9, "rm")


def _dotted(picture: Any, x: float, top: int, bottom: int) -> None:
    for y in np.arange(top, bottom, DASH):
        pen.rule(picture, (x, float(y)), (x, float(y)), FAINT)
