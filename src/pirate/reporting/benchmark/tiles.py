"""Pictures of many methods side by side on one slide, each with a name above and a number below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pirate.benchmark.entries import Entry
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.stage import Stage
from pirate.reporting.canvas import contours
from pirate.reporting.display import Array

HEAD, FOOT = 0.28, 0.27  # inches, of the texts above and below a picture
TOP, BOTTOM, EDGE, GAP = 1.0, 0.1, 0.2, 0.14
TALLEST = 2.9  # inches, of a picture: few of them do not grow for ever
BAR = 1.05  # inches, of a colour bar
GREYS = "gray"


class Tiles:
    """Equal cells in rows that fill a slide as well as they can.

    Args:
        title: of the whole.
        note: faint line below it.
        count: number of cells.
        ratio: height of a cell's picture over its width.
        bar: leave room for a colour bar on the right.
    """

    def __init__(self, title: str, note: str, count: int, ratio: float, bar: bool = False) -> None:
        right = BAR if bar else 0.0
        self.columns, self.width = _arranged(count, ratio, style.SLIDE[0] - 2 * EDGE - right)
        self.height = self.width * ratio
        self.rows = math.ceil(count / self.columns)
        wide = max(2 * EDGE + self.columns * (self.width + GAP) - GAP + right, 9.0)
        high = TOP + BOTTOM + self.rows * (HEAD + self.height + FOOT)
        self.figure = style.sheet(wide, high, title, note)
        self._left = (wide - right - self.columns * (self.width + GAP) + GAP) / 2
        self._high = high
        self._bar = wide - right

    def _corner(self, cell: int) -> tuple[float, float]:
        row, column = divmod(cell, self.columns)
        left = self._left + column * (self.width + GAP)
        return left, self._high - TOP - (row + 1) * (HEAD + self.height + FOOT) + FOOT

    def axes(self, cell: int, start: float = 0.0, width: float = 1.0) -> Any:
        """Empty axes in a cell, from `start` and over `width` of its picture's width."""
        left, bottom = self._corner(cell)
        axes = style.box(self.figure, left + start * self.width, bottom, width * self.width, self.height)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes

    def head(self, cell: int, text: str, entry: Entry | None = None) -> None:
        """Write a name above a cell; ours in bold and in our colour."""
        left, bottom = self._corner(cell)
        colour, weight = (style.colour_of(entry), style.weight_of(entry)) if entry else (style.INK, "normal")
        self._text(
            left + self.width / 2, bottom + self.height + 0.05, text, colour, style.TEXT, weight, "bottom"
        )

    def foot(self, cell: int, text: str, colour: str = style.INK) -> None:
        """Write below a cell."""
        left, bottom = self._corner(cell)
        self._text(left + self.width / 2, bottom - 0.04, text, colour, style.SMALL, "normal", "top")

    def _text(self, x: float, y: float, text: str, colour: str, size: float, weight: str, va: str) -> None:
        wide, high = self.figure.get_size_inches()
        written = self.figure.text(
            x / wide, y / high, text, color=colour, fontsize=size, fontweight=weight, ha="center", va=va,
            parse_math=False,
        )  # fmt: skip
        extent = written.get_window_extent(self.figure.canvas.get_renderer()).width / style.DPI
        if extent > self.width + GAP / 2:
            written.set_fontsize(size * (self.width + GAP / 2) / extent)

    def bar(self, image: Any, label: str, ticks: Sequence[float], names: Sequence[str]) -> None:
        """Draw the colour bar of an image that was shown."""
        height = min(0.62 * (self._high - TOP), 4.0)
        axes = style.box(self.figure, self._bar + 0.05, (self._high - TOP - height) / 2, 0.17, height)
        drawn = self.figure.colorbar(image, cax=axes)
        drawn.set_ticks(list(ticks), labels=list(names))
        drawn.set_label(label, color=style.INK, fontsize=style.SMALL)
        drawn.outline.set_visible(False)
        axes.tick_params(colors=style.INK, labelsize=style.SMALL, length=2)


def _arranged(count: int, ratio: float, room: float) -> tuple[int, float]:
    """Number of columns and width of a cell, inches, for the largest cells that fit a slide; few rows before many."""
    best = (1, 0.0)
    for columns in range(1, count + 1):
        rows = math.ceil(count / columns)
        tall = min((style.SLIDE[1] - TOP - BOTTOM) / rows - HEAD - FOOT, TALLEST)
        width = min((room - GAP * (columns - 1)) / columns, tall / ratio)
        if width > best[1] - 1e-9:
            best = columns, width
    rows = math.ceil(count / best[0])
    return math.ceil(count / rows), best[1]  # rows of equal length where that is possible


def show_grey(axes: Any, stage: Stage, plane: Array, white: float = 1.1) -> None:
    """Draw a plane (vertical, horizontal), 0 to 1, in grey; coordinates of the axes are mm."""
    width, height = stage.size
    axes.imshow(
        plane, origin="lower", extent=(0, width, 0, height), cmap=GREYS, vmin=0, vmax=white,
        interpolation="bilinear", aspect="auto",
    )  # fmt: skip
    axes.set(xlim=(0, width), ylim=(0, height))


def outlines(stage: Stage, plane: Array) -> list[tuple[int, list[Array]]]:
    """For each label in a plane (vertical, horizontal) its outline: lines (N, 2), mm."""
    step = np.array(stage.spacing)
    padded = np.pad(plane, 1)
    found = []
    for label in np.unique(plane):
        if label != 0:
            lines = contours((padded == label).astype(np.float64), [0.5])
            found.append((int(label), [(line - 0.5) * step for line in lines]))
    return found


def draw_lines(
    axes: Any,
    lines: Sequence[Array],
    colour: str,
    width: float,
    dash: str | tuple[int, tuple[int, ...]] = "-",
) -> None:
    """Draw lines (N, 2), mm, of a width in points."""
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(list(lines), colors=colour, linewidths=width, linestyles=dash, capstyle="round"), autolim=False
    )  # fmt: skip


def frame(axes: Any, region: tuple[float, float, float, float], colour: str, width: float = 1.4) -> None:
    """Draw a rectangle: left, right, lower, upper, mm."""
    from matplotlib.patches import Rectangle

    left, right, bottom, top = region
    axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, ec=colour, lw=width))
