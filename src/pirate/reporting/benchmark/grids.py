"""The lattice of the moving image, warped by each method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.benchmark.kept import Kept
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.stage import Stage
from pirate.reporting.benchmark.tiles import Tiles, draw_lines, show_grey
from pirate.reporting.canvas import contours
from pirate.reporting.display import Array

PITCH = 26
"""Lines along the longer side of a plane."""

THROUGH = "#0b3c5d"


def grids(path: Path, stage: Stage, kept: Sequence[Kept], title: str) -> Path:
    """Lines where ``x + field(x)`` is constant, over the faint fixed image; the roughness below each."""
    width, height = stage.size
    note = f"{stage.words} · the straight lattice of the moving image, warped"
    tiles = Tiles(title, note, len(kept), height / width)
    for i, one in enumerate(kept):
        lattice(tiles.axes(i), stage, one.field)
        tiles.head(i, style.name_of(one.entry), one.entry)
        tiles.foot(i, roughness(one))
    return style.save(tiles.figure, path, few_colours=True)


def roughness(one: Kept) -> str:
    """How unevenly the field changes volume."""
    return f"SDlogJ {one.row.sdlogj:.3f}" if np.isfinite(one.row.sdlogj) else ""


def lattice(axes: Any, stage: Stage, field: Array) -> None:
    """Draw the warped lattice of a field (d, *shape), voxels."""
    show_grey(axes, stage, 0.8 + 0.2 * stage.grey(stage.fixed).clip(0, 1), 1.0)
    draw_lines(axes, lattice_lines(stage, field), THROUGH, 0.6)


def lattice_lines(stage: Stage, field: Array) -> list[Array]:
    """Lines (N, 2), mm, along which one in-plane part of ``x + field(x)`` is constant; field (d, *shape), voxels."""
    step = np.array(stage.spacing)
    pitch = max(stage.size) / PITCH
    found: list[Array] = []
    for part, extent in zip(stage.display.positions_mm(field, stage.view), stage.size, strict=True):
        levels = list(np.arange(-6 * pitch, extent + 6 * pitch, pitch) + pitch / 2)
        found += [(line + 0.5) * step for line in contours(part, levels)]
    return found
