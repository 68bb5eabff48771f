"""Warped images with the outlines of their structures, and a region enlarged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.benchmark.kept import Kept
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.stage import Stage
from pirate.reporting.benchmark.tiles import Tiles, draw_lines, frame, outlines, show_grey
from pirate.reporting.display import Array
from pirate.reporting.intensity import Shown

FRAME = "#ffd400"
"""Of the enlarged region."""

TRUTH, FOUND = "#ffffff", "#ff7f2a"
"""Outlines of the fixed labels, and of the warped ones."""

PALETTE = (
    "#66ccee",
    "#ee6677",
    "#ccbb44",
    "#44bb77",
    "#ee88cc",
    "#ffaa55",
    "#88aaff",
    "#bbbbbb",
    "#ddddaa",
    "#cc88ff",
)
SPACE = 0.02  # between the whole and the enlarged part, of a cell's width


def warped(path: Path, stage: Stage, kept: Sequence[Kept], title: str) -> Path:
    """Fixed image, moving image, and what each method made of it: whole, and enlarged where methods err most.

    On the left, outlines of the labels of the image that is shown; on the right those of the fixed image (white) and
    of the image shown (orange) together.
    """
    width, height = stage.size
    cell = width + height  # a whole plane and a square as high
    labelled = stage.labels is not None
    note = stage.words + (
        " · enlarged: white, structures of the fixed image; orange, warped" if labelled else ""
    )
    tiles = Tiles(title, note, 2 + len(kept), height / cell / (1 + SPACE))
    share = width / cell / (1 + SPACE)
    row = kept[0].row
    _cell(tiles, 0, share, stage, stage.fixed, stage.labels, truth=False)
    tiles.head(0, "fixed")
    moved = None if stage.moving_labels is None else stage.plane(stage.moving_labels)
    _cell(tiles, 1, share, stage, stage.moving, moved)
    tiles.head(1, "moving, before")
    tiles.foot(1, _first(row.dice_before, row.tre_before, row.similarity_before), style.FAINT)
    for i, one in enumerate(kept, 2):
        labels = None if one.warped_labels is None else stage.plane(one.warped_labels)
        _cell(tiles, i, share, stage, Shown.of(one.warped), labels)
        tiles.head(i, style.name_of(one.entry), one.entry)
        tiles.foot(i, told(one))
    return style.save(tiles.figure, path, few_colours=True)


def told(one: Kept) -> str:
    """Landmark error, else Dice, else correlation of a method on the pair; and its folds."""
    row = one.row
    return f"{_first(row.dice, row.tre, row.similarity_after)} · folds {style.percent(row.folds)}"


def _first(dice: float, tre: float, similarity: float) -> str:
    """The first number that there is; tre in mm."""
    if np.isfinite(tre):
        return f"TRE {tre:.2f} mm"
    return f"Dice {dice:.3f}" if np.isfinite(dice) else f"correlation {similarity:.3f}"


def _cell(
    tiles: Tiles,
    cell: int,
    share: float,
    stage: Stage,
    image: Shown,
    labels: Array | None,
    truth: bool = True,
) -> None:
    """One method: the whole plane, and beside it the region."""
    plane = stage.grey(image)
    whole = tiles.axes(cell, 0, share)
    show_grey(whole, stage, plane)
    lines = [] if labels is None else outlines(stage, labels)
    for label, parts in lines:
        draw_lines(whole, parts, PALETTE[label % len(PALETTE)], 0.5)
    frame(whole, stage.region, FRAME)
    part = tiles.axes(cell, share + SPACE, 1 - share - SPACE)
    show_grey(part, stage, plane)
    if truth and stage.labels is not None:
        _both(part, stage, lines)
    else:
        draw_lines(part, [line for _, parts in lines for line in parts], TRUTH, 0.9)
    left, right, bottom, top = stage.region
    part.set(xlim=(left, right), ylim=(bottom, top))
    frame(part, stage.region, FRAME, 2.2)


def _both(axes: Any, stage: Stage, lines: Sequence[tuple[int, list[Array]]]) -> None:
    """The fixed outlines below, the warped ones above."""
    if stage.labels is None:
        return
    fixed = [line for _, parts in outlines(stage, stage.labels) for line in parts]
    draw_lines(axes, fixed, TRUTH, 0.9)
    draw_lines(axes, [line for _, parts in lines for line in parts], FOUND, 0.9)
