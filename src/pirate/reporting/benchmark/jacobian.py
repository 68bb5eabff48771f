"""Where a field shrinks, where it grows, and where it folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pirate.benchmark.kept import Kept
from pirate.ops.jacobian import determinant
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.stage import Stage
from pirate.reporting.benchmark.tiles import Tiles
from pirate.reporting.display import Array
from pirate.reporting.shades import ramp, rgb

LIMIT = float(np.log(4))
"""Logarithm of the largest change of volume that has a shade of its own."""

SHADES = ("#123a7a", "#2b62b4", "#6f9fd8", "#b9d2ee", "#f6f6f4", "#ecd9a0", "#cfa93c", "#97741a", "#5c4408")
"""Blue to gold through white: neither end looks like the red of a fold, whatever eyes one has."""

LEAST = 2.2  # points: a folded voxel is not smaller than this
TICKS = {-LIMIT: "≤ 1/4", -LIMIT / 2: "1/2", 0.0: "1", LIMIT / 2: "2", LIMIT: "≥ 4"}


def jacobians(path: Path, stage: Stage, kept: Sequence[Kept], title: str) -> Path:
    """Logarithm of the Jacobian determinant for each method; folded voxels in red, their number below."""
    width, height = stage.size
    note = f"{stage.words} · above 1: larger in the moving image · red: folded"
    tiles = Tiles(title, note, len(kept), height / width, bar=True)
    shown = None
    for i, one in enumerate(kept):
        values = determinants(stage, one.field)
        shown = map_of(tiles.axes(i), stage, values)
        tiles.head(i, style.name_of(one.entry), one.entry)
        folded = int((values <= 0).sum())
        colour = style.FOLD if one.row.folds > 0 or folded else style.INK
        tiles.foot(i, told(folded, one.row.folds, stage.view.index is not None), colour)
    tiles.bar(shown, "determinant", list(TICKS), list(TICKS.values()))
    return style.save(tiles.figure, path)


def told(folded: int, percent: float, volume: bool) -> str:
    """Number of folded voxels in the plane and their share of the whole image."""
    if percent == 0 and not folded:
        return "no folds"
    where = " here" if volume else ""
    return f"{folded:,} folded{where}, {style.percent(percent)}"


def determinants(stage: Stage, field: Array) -> Array:
    """Determinant of ``x + field(x)`` in the plane, (vertical, horizontal); field (d, *shape), voxels."""
    slab, inner, thin = stage.display.slab(field, stage.view)
    tensor = torch.from_numpy(np.ascontiguousarray(slab, dtype=np.float32))[None]
    return thin.plane(determinant(tensor)[0].numpy(), inner)


def map_of(axes: Any, stage: Stage, values: Array) -> Any:
    """Draw determinants (vertical, horizontal); returns the image for a colour bar."""
    from matplotlib.colors import ListedColormap

    width, height = stage.size
    folds = ~(values > 0)
    logs = np.log(np.where(folds, 1.0, values))
    shown = axes.imshow(
        logs, origin="lower", extent=(0, width, 0, height), cmap=ListedColormap(ramp(SHADES, 65) / 255.0),
        vmin=-LIMIT, vmax=LIMIT, interpolation="nearest", aspect="auto",
    )  # fmt: skip
    red = np.zeros((*folds.shape, 4))
    red[folds] = [*rgb(style.FOLD) / 255.0, 1.0]
    axes.imshow(red, origin="lower", extent=(0, width, 0, height), interpolation="nearest", aspect="auto")
    points = axes.get_window_extent().width / style.DPI * 72 * stage.spacing[0] / width  # of a voxel
    if points < LEAST:
        up, across = np.nonzero(folds)
        at = (across + 0.5) * stage.spacing[0], (up + 0.5) * stage.spacing[1]
        axes.scatter(*at, s=LEAST**2, marker="s", color=style.FOLD, linewidths=0)
    axes.set(xlim=(0, width), ylim=(0, height))
    for spine in axes.spines.values():
        spine.set(visible=True, edgecolor=style.LATTICE)
    return shown
