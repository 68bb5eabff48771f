"""Distributions of many methods below each other: every value a point, quartiles as a box, the mean a diamond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pirate.benchmark.entries import Entry
from pirate.reporting.benchmark import style
from pirate.reporting.display import Array

LINE = 0.43  # inches for a method
SPREAD = 0.23  # of a line, over which points are strewn
NAMES, TOP, BOTTOM = 2.95, 1.0, 0.8  # inches
START = "before registration"


def distribution(axes: Any, line: int, values: Array, entry: Entry | None) -> None:
    """Draw values (n,) on a line; without an entry they are those before registration."""
    colour = style.BEFORE if entry is None else style.colour_of(entry)
    points(axes, line, values, colour)
    if len(values) > 2:
        hatch = "////" if entry is not None and entry.supervised else None
        axes.boxplot(
            values, positions=[line], orientation="horizontal", widths=0.5, showfliers=False, whis=(5, 95),
            patch_artist=True, manage_ticks=False, zorder=3,
            boxprops={"facecolor": f"{colour}38", "edgecolor": colour, "linewidth": 1.3, "hatch": hatch},
            medianprops={"color": colour, "linewidth": 2.2},
            whiskerprops={"color": colour, "linewidth": 1.1}, capprops={"color": colour, "linewidth": 1.1},
        )  # fmt: skip
    diamond(axes, line, float(np.mean(values)), colour)


def points(axes: Any, line: int, x: Array, colour: str) -> None:
    """Strew a point for each of x (n,) around a line."""
    axes.scatter(x, line + SPREAD * strewn(len(x)), s=12, color=colour, alpha=0.35, linewidths=0, zorder=2)


def diamond(axes: Any, line: int, x: float, colour: str) -> None:
    """Mark a mean."""
    axes.scatter(x, line, s=44, marker="D", facecolors="white", edgecolors=colour, linewidths=1.3, zorder=4)


def strewn(count: int) -> Array:
    """(count,) numbers from -1 to 1 that keep neighbours apart; the same every time."""
    return 2 * ((np.arange(count) * 0.6180339887498949) % 1) - 1


def beside(axes: Any, line: int, text: str) -> None:
    """Write to the right of a line."""
    axes.text(
        1.01,
        line,
        text,
        transform=axes.get_yaxis_transform(),
        fontsize=style.SMALL,
        va="center",
        color=style.INK,
    )


def name_lines(axes: Any, entries: Sequence[Entry], started: bool, names: bool = True) -> None:
    """Give the lines their names, the first on top, and room; the last is the start if it is `started`."""
    style.dress(axes, "x")
    lines = len(entries) + started
    axes.set_ylim(lines - 0.4, -0.6)
    axes.set_yticks(
        range(lines), [*map(style.name_of, entries), *[START] * started] if names else [""] * lines
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for text in axes.get_yticklabels():
        text.set_fontsize(style.TEXT)
        text.set_parse_math(False)
    for text, entry in zip(axes.get_yticklabels(), entries, strict=False):
        text.set(color=style.colour_of(entry), fontweight=style.weight_of(entry))
    _fit(axes)


def _fit(axes: Any) -> None:
    """Make names smaller that would leave the picture."""
    figure = axes.get_figure()
    renderer = figure.canvas.get_renderer()
    room = axes.get_window_extent(renderer).x0 - 0.25 * style.DPI
    for text in axes.get_yticklabels():
        wide = text.get_window_extent(renderer).width
        if text.get_text() and wide > room:
            text.set_fontsize(text.get_fontsize() * room / wide)
