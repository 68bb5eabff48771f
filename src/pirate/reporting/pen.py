"""Text, lines and arrays drawn on a Pillow picture; coordinates in pixels from the upper left corner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pirate.reporting.display import Array

POINT = 100 / 72  # pixels
FINER = 5  # lines are drawn so many times larger and then reduced, which smooths their edges
_PLAIN, _BOLD = "DejaVuSans.ttf", "DejaVuSans-Bold.ttf"  # of matplotlib, which is not imported for them

Point = tuple[float, float]


def text(
    picture: Any,
    at: Point,
    words: str,
    colour: str,
    size: float,
    anchor: str,
    bold: bool = False,
    rim: str | None = None,
) -> None:
    """Write `words` of `size` points; `anchor` says what of them lies `at` the point, in Pillow's two letters."""
    from PIL import ImageDraw

    ImageDraw.Draw(picture).text(
        at, words, fill=colour, font=_font(size, bold), anchor=anchor,
        stroke_width=0 if rim is None else 1, stroke_fill=rim,
    )  # fmt: skip


def upward(picture: Any, at: Point, words: str, colour: str, size: float) -> None:
    """Write `words` turned to run upward, their middle `at` the point."""
    from PIL import Image as Picture

    width, height = round(length(words, size)) + 4, round(2 * size * POINT)
    level = Picture.new("L", (width, height))
    text(level, (width / 2, height / 2), words, "white", size, "mm")
    turned = level.transpose(Picture.Transpose.ROTATE_90)
    picture.paste(colour, (round(at[0] - height / 2), round(at[1] - width / 2)), turned)


def length(words: str, size: float) -> float:
    """Pixels that `words` of `size` points are long."""
    return float(_font(size, False).getlength(words))


@lru_cache(maxsize=32)
def _font(size: float, bold: bool) -> Any:
    from PIL import ImageFont

    found = find_spec("matplotlib")
    folders = [] if found is None else found.submodule_search_locations or []
    for folder in folders:
        path = Path(folder) / "mpl-data" / "fonts" / "ttf" / (_BOLD if bold else _PLAIN)
        if path.is_file():
            return ImageFont.truetype(path, size * POINT, layout_engine=ImageFont.Layout.BASIC)
    return ImageFont.load_default(size * POINT)


def rule(picture: Any, start: Point, end: Point, colour: str, width: int = 1) -> None:
    """Draw a level or upright line, sharp to the pixel."""
    from PIL import ImageDraw

    ends = [(round(x), round(y)) for x, y in (start, end)]
    ImageDraw.Draw(picture).line(ends, fill=colour, width=width)


def frame(picture: Any, box: tuple[float, float, float, float], colour: str) -> None:
    """Draw a rectangle: left, upper, right, lower."""
    from PIL import ImageDraw

    ImageDraw.Draw(picture).rectangle([round(edge) for edge in box], outline=colour)


def strokes(
    picture: Any, box: tuple[int, int, int, int], lines: Sequence[Array], colour: str, width: float
) -> None:
    """Draw smooth lines, (N, 2) each, pixels from the upper left corner of `box`, which cuts them; width in points."""
    from PIL import Image as Picture
    from PIL import ImageDraw

    left, top, right, bottom = box
    large = Picture.new("L", ((right - left) * FINER, (bottom - top) * FINER))
    draw = ImageDraw.Draw(large)
    for line in lines:
        draw.line((line * FINER).ravel().tolist(), fill=255, width=math.ceil(width * POINT * FINER))
    picture.paste(colour, (left, top), large.reduce(FINER))


def dots(picture: Any, centres: Sequence[Point], colour: str, size: float) -> None:
    """Draw discs of `size` points."""
    from PIL import Image as Picture
    from PIL import ImageDraw

    half = round(size * POINT / 2)
    large = Picture.new("L", (2 * half * FINER, 2 * half * FINER))
    ImageDraw.Draw(large).ellipse((0, 0, 2 * half * FINER - 1, 2 * half * FINER - 1), fill=255)
    disc = large.reduce(FINER)
    for x, y in centres:
        picture.paste(colour, (round(x) - half, round(y) - half), disc)


def resized(plane: Array, size: tuple[int, int], smooth: bool) -> Array:
    """A plane (rows, columns) as float32 in `size` (columns, rows); between its pixels linear, or the nearest."""
    from PIL import Image as Picture

    how = Picture.Resampling.BILINEAR if smooth else Picture.Resampling.NEAREST
    return np.asarray(Picture.fromarray(np.ascontiguousarray(plane, dtype=np.float32)).resize(size, how))


def paste(picture: Any, colours: Array, corner: tuple[int, int], opacity: Array | None = None) -> None:
    """Lay `colours` (rows, columns, 3), uint8, at an upper left corner; `opacity` (rows, columns) from 0 to 1."""
    from PIL import Image as Picture

    mask = None if opacity is None else Picture.fromarray(np.round(255 * opacity).astype(np.uint8))
    picture.paste(Picture.fromarray(np.ascontiguousarray(colours)), corner, mask)
