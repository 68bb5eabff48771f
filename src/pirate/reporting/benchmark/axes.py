"""Logarithmic axes with plain numbers, and one that has a place for zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pirate.reporting.benchmark import style
from pirate.reporting.display import Array
from pirate.reporting.graph import steps


class FoldAxis:
    """Percent of folded voxels on a logarithmic scale, with a strip on the left for none at all.

    Args:
        values: percent, all that will be shown; zeros stand in the strip.
        strip: width of the strip, of the width of the axis.
    """

    def __init__(self, values: Array, strip: float = 0.13) -> None:
        positive = values[(values > 0) & np.isfinite(values)]
        low, high = (float(positive.min()), float(positive.max())) if len(positive) else (0.01, 1.0)
        self.low = math.floor(math.log10(low) + 1e-9)
        self.high = max(math.ceil(math.log10(high) - 1e-9), self.low + 1)
        self.any = bool(len(positive))
        self.edge = self.low - 0.1  # between the strip and the rest
        self.left = self.edge - (self.high + 0.12 - self.edge) * strip / (1 - strip)
        self.zero = self.left + (self.edge - self.left) * min(0.5, 0.07 / strip)

    def place(self, values: Array | float) -> Array:
        """Coordinates of percentages."""
        x = np.asarray(values, dtype=np.float64)
        return np.where(x > 0, np.log10(np.where(x > 0, x, 1.0)), self.zero)

    def dress(self, axes: Any) -> None:
        """Set limits and marks; a dotted line parts zero from the rest."""
        if not self.any:
            axes.set_xlim(self.left, self.edge)
            axes.set_xticks([self.zero], ["0"])
            return
        axes.set_xlim(self.left, self.high + 0.12)
        decades = list(range(self.low, self.high + 1))
        shown = decades[:: max(1, math.ceil(len(decades) / 5))]
        axes.set_xticks([self.zero, *shown], ["0", *(f"{10.0**d:g}" for d in shown)])
        axes.axvline(self.edge, color=style.FAINT, linewidth=1, linestyle=(0, (1, 2)))


def plain_log(axis: Any, low: float, high: float) -> None:
    """Few round marks, written as plain numbers, on a logarithmic matplotlib axis from `low` to `high`."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ticks = log_marks(low, high)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([thousands(t) for t in ticks])


def log_marks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`: each decade; 1, 2 and 5 of it; or steps of one size over a short range."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        ticks = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
        if len(ticks) >= 3:
            return ticks
    marks, _ = steps(low, high)
    return list(marks[:: math.ceil(len(marks) / 5)])


def thousands(value: float) -> str:
    """A number of an axis: 0.02, 5, 200, 20k, 5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (size if letter != 'k' else 1e3):g}{letter}"
    return f"{value:g}"
