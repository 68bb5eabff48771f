"""Names beside points, none over another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pirate.benchmark.entries import Entry
from pirate.reporting.benchmark import style
from pirate.reporting.display import Array

Box = tuple[float, float, float, float]
"""Left, lower, right and upper edge, pixels."""


@dataclass(frozen=True)
class Name:
    """What is written beside a point: the method's name, and a smaller second line or nothing."""

    entry: Entry
    text: str
    more: str = ""


def write_names(axes: Any, points: Array, names: Sequence[Name], fixed: Sequence[Box] = ()) -> None:
    """Write each name beside its point where nothing is in the way, a thin line to it if that is far.

    Args:
        axes: with final limits.
        points: (n, 2), data coordinates.
        names: one for each.
        fixed: further places that are taken, pixels.
    """
    texts = [_written(axes, name) for name in names]
    renderer = axes.get_figure().canvas.get_renderer()
    sizes = [(e.width + 4, e.height + 2) for e in (t.get_window_extent(renderer) for t in texts)]
    anchors = [(float(x), float(y)) for x, y in axes.transData.transform(points.reshape(-1, 2))]
    area = axes.get_window_extent(renderer)
    radius = 0.075 * style.DPI
    found = places(anchors, sizes, (area.x0, area.y0, area.x1, area.y1), radius, fixed)
    for text, box, anchor in zip(texts, found, anchors, strict=True):
        text.set_position((box[0] + 2, box[1] + 1))
        near = min(max(anchor[0], box[0]), box[2]), min(max(anchor[1], box[1]), box[3])
        if math.dist(near, anchor) > 2.3 * radius:
            _line(axes, anchor, near)


def write_column(axes: Any, points: Array, names: Sequence[Name]) -> list[Box]:
    """Write the names of points that stand above each other in a column on their right, with lines to them.

    Returns:
        where they are, pixels.
    """
    texts = [_written(axes, name) for name in names]
    renderer = axes.get_figure().canvas.get_renderer()
    area = axes.get_window_extent(renderer)
    anchors = axes.transData.transform(points.reshape(-1, 2))
    heights = [t.get_window_extent(renderer).height for t in texts]
    room = max(heights, default=0.0) + 3
    order = np.argsort(anchors[:, 1], kind="stable")
    middles = spread(anchors[order, 1], room, area.y0 + room / 2, area.y1 - room / 2)
    x = float(anchors[:, 0].max(initial=0.0)) + 0.38 * style.DPI
    taken = []
    for i, y in zip(order, middles, strict=True):
        texts[i].set_position((x, y - heights[i] / 2))
        _line(axes, (float(anchors[i, 0]), float(anchors[i, 1])), (x - 4, y))
        wide = texts[i].get_window_extent(renderer).width
        taken.append((x, y - room / 2, x + wide, y + room / 2))
    return taken


def spread(at: Array, room: float, low: float, high: float) -> list[float]:
    """Places nearest to sorted `at` (n,), at least `room` apart, between `low` and `high` if they fit; any one unit.

    With ``y_i = z_i + i room`` that is: z not decreasing and nearest to ``at_i - i room``, whose answer is the mean
    of neighbours that are in the wrong order.
    """
    groups: list[tuple[float, int]] = []
    for i, value in enumerate(at):
        mean, count = float(value) - i * room, 1
        while groups and groups[-1][0] > mean:
            other, more = groups.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        groups.append((mean, count))
    z = [mean for mean, count in groups for _ in range(count)]
    last = high - (len(z) - 1) * room
    return [max(min(value, last), low) + i * room for i, value in enumerate(z)]


def _written(axes: Any, name: Name) -> Any:
    return axes.text(
        0, 0, f"{name.text}\n{name.more}" if name.more else name.text, fontsize=style.SMALL,
        color=style.colour_of(name.entry), fontweight=style.weight_of(name.entry), transform=None, linespacing=1.05,
        zorder=5, va="bottom", parse_math=False,
    )  # fmt: skip


def _line(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """A thin line between two places, pixels."""
    back = axes.transData.inverted()
    (x0, y0), (x1, y1) = back.transform(start), back.transform(end)
    axes.plot([x0, x1], [y0, y1], color=style.FAINT, linewidth=0.7, zorder=2)


def places(
    anchors: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    area: Box,
    radius: float,
    fixed: Sequence[Box] = (),
) -> list[Box]:
    """Boxes for texts of `sizes` near their `anchors`: inside `area`, over no anchor and no other box if possible.

    All in pixels; those with the most neighbours choose first. Of the free places the nearest is taken, to the right
    before the left; if none is free, the one that covers least.
    """
    dots = [(x - radius, y - radius, x + radius, y + radius) for x, y in anchors]
    crowd = [sum(math.dist(a, b) < 12 * radius for b in anchors) for a in anchors]
    placed: dict[int, Box] = {}
    for i in sorted(range(len(anchors)), key=lambda k: -crowd[k]):
        options = [b for b in _around(anchors[i], sizes[i], radius) if _within(b, area)]
        taken = [*placed.values(), *dots, *fixed]
        free = next((b for b in options if not any(_covered(b, other) for other in taken)), None)
        if free is None:
            options = options or list(_around(anchors[i], sizes[i], radius))
            free = min(options, key=lambda b: sum(_covered(b, other) for other in taken))
        placed[i] = free
    return [placed[i] for i in range(len(anchors))]


def _around(anchor: tuple[float, float], size: tuple[float, float], radius: float) -> list[Box]:
    """Places for a box on growing rings around a point, on the right first."""
    (x, y), (w, h) = anchor, size
    found = []
    for ring in (1.25, 2.0, 3.0, 4.5, 6.5, 9.0, 12.0):
        for angle in (0, 40, -40, 75, -75, 105, -105, 140, -140, 180):
            dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            cx = x + dx * ring * radius + (w / 2 if dx > 0.3 else -w / 2 if dx < -0.3 else 0)
            cy = y + dy * (ring * radius + h / 2)
            found.append((cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2))
    return found


def _within(box: Box, area: Box) -> bool:
    return box[0] >= area[0] and box[1] >= area[1] and box[2] <= area[2] and box[3] <= area[3]


def _covered(a: Box, b: Box) -> float:
    """Area that two boxes share."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return wide * high if wide > 0 and high > 0 else 0.0
