"""Dice against seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS, PEER, INK, FAINT = "#c1440e", "#31688e", "#222222", "#8a8a8a"
Box = tuple[float, float, float, float]  # left, bottom, right, top; pixels


@dataclass(frozen=True)
class Point:
    """A method: mean registration seconds, mean Dice, and whether it has every pair."""

    name: str
    seconds: float
    dice: float
    ours: bool
    pairs: int
    total: int

    @property
    def label(self) -> str:
        """Name, and how many pairs if not all."""
        return self.name if self.pairs == self.total else f"{self.name} ({self.pairs} of {self.total} pairs)"


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes share area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def place(
    anchors: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    radius: float,
) -> list[Box]:
    """A box for each label, beside its point, inside the frame, clear of every point and of each other.

    Args:
        anchors: centre of each point, pixels.
        sizes: width and height of each label, pixels.
        frame: where labels may be.
        radius: of a point, pixels.

    Returns:
        The first free place for each, tried near to far around the point; the nearest if none is free.
    """
    dots = [(x - radius, y - radius, x + radius, y + radius) for x, y in anchors]
    placed: list[Box] = []
    for (x, y), (w, h) in zip(anchors, sizes, strict=True):
        choices = []
        for gap in (1.5 * radius, 3 * radius, 5 * radius, 8 * radius, 12 * radius):
            for left, bottom in (
                (x + gap, y - h / 2), (x - gap - w, y - h / 2), (x - w / 2, y + gap), (x - w / 2, y - gap - h),
                (x + gap, y + gap), (x + gap, y - gap - h), (x - gap - w, y + gap), (x - gap - w, y - gap - h),
            ):  # fmt: skip
                choices.append((left, bottom, left + w, bottom + h))
        inside = [
            c
            for c in choices
            if c[0] >= frame[0] and c[1] >= frame[1] and c[2] <= frame[2] and c[3] <= frame[3]
        ]
        free = [c for c in inside if not any(overlap(c, other) for other in [*dots, *placed])]
        placed.append((free or inside or choices)[0])
    return placed


def draw(path: Path, points: Sequence[Point], title: str) -> None:
    """Write the picture (PNG): ours in one colour, peers in another, hollow where pairs are missing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.1, 0.125, 0.87, 0.78))
    for p in points:
        colour = OURS if p.ours else PEER
        face = colour if p.pairs == p.total else "white"
        marker = "o" if p.ours else "s"
        axes.scatter(
            p.seconds, p.dice, s=70, c=face, edgecolors=colour, linewidths=1.6, marker=marker, zorder=3
        )
    _dress(axes, points, title)
    canvas.draw()
    _name(axes, canvas.get_renderer(), points)
    figure.savefig(path, dpi=120)


def _dress(axes: Any, points: Sequence[Point], title: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log")
    seconds, dice = [p.seconds for p in points], [p.dice for p in points]
    low, high = min(seconds) / 1.8, max(seconds) * 1.8
    margin = max(0.12 * (max(dice) - min(dice)), 0.004)
    axes.set_xlim(low, high)
    axes.set_ylim(min(dice) - margin, max(dice) + margin)
    ticks = [m * 10.0**e for e in range(-2, 5) for m in (1, 2, 5)]
    axes.xaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("registration time, seconds (logarithmic)", color=INK, fontsize=11)
    axes.set_ylabel("mean Dice, nearest neighbour", color=INK, fontsize=11)
    axes.set_title(title, color=INK, fontsize=11, loc="left")
    axes.grid(True, color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=10)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_edgecolor(FAINT)


def _name(axes: Any, renderer: Any, points: Sequence[Point]) -> None:
    """Write the names where they are free, with a thin line where the name is far from its point."""
    texts = [
        axes.text(
            0, 0, p.label, fontsize=10.5, color=OURS if p.ours else PEER,
            fontweight="bold" if p.ours else "normal", transform=None, zorder=4,
        )
        for p in points
    ]  # fmt: skip
    sizes = [(box.width + 2, box.height + 2) for box in (t.get_window_extent(renderer) for t in texts)]
    anchors = [tuple(axes.transData.transform((p.seconds, p.dice))) for p in points]
    frame = axes.get_window_extent(renderer)
    radius = 9.0
    boxes = place(anchors, sizes, (frame.x0, frame.y0, frame.x1, frame.y1), radius)
    back = axes.transData.inverted()
    for text, box, (x, y) in zip(texts, boxes, anchors, strict=True):
        text.set_position((box[0] + 1, box[1] + 1))
        text.set_verticalalignment("bottom")
        near = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
        if ((near[0] - x) ** 2 + (near[1] - y) ** 2) ** 0.5 > 2.2 * radius:
            (x0, y0), (x1, y1) = back.transform((x, y)), back.transform(near)
            axes.plot([x0, x1], [y0, y1], color=FAINT, linewidth=0.7, zorder=2)
