"""Sheets of equally scaled panels on a dark ground, saved as small PNG files. Pillow loads when used."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from pirate.io.atomic import write_bytes
from pirate.reporting import pen
from pirate.reporting.display import Array, Display, View
from pirate.reporting.shades import coloured

GROUND, INK, FAINT = "#000000", "#f2f2f0", "#9aa4af"
ORANGE, BLUE, LOUD = "#ffb000", "#56b4e9", "#00ff66"
INKS = (INK, FAINT, ORANGE, BLUE, LOUD)
DPI = 100
THINNED = 2  # every so many pixels, along both axes, choose the colours of the file


@dataclass(frozen=True)
class Panel:
    """A rectangle of a sheet, in pixels from the sheet's upper left corner, and its scale, pixels for a mm."""

    left: float
    top: float
    width: float
    height: float
    scale: float

    def box(self, display: Display, view: View) -> tuple[int, int, int, int]:
        """Left, upper, right and lower pixel of a view in the middle of the panel."""
        width, height = (size * self.scale for size in display.size_mm(view))
        left, top = self.left + (self.width - width) / 2, self.top + (self.height - height) / 2
        return round(left), round(top), round(left + width), round(top + height)


class Sheet:
    """Panels in rows and columns, all at one scale, with a title and room for a colour bar.

    Args:
        title: one line.
        note: faint lines below it.
        widths: of the columns, mm.
        heights: of the rows, mm.
        bar: leave room for a colour bar on the right.
        width_inch: of the whole sheet.
    """

    def __init__(
        self,
        title: str,
        note: str,
        widths: Sequence[float],
        heights: Sequence[float],
        bar: bool = False,
        width_inch: float = 12.0,
    ) -> None:
        from PIL import Image as Picture

        gap, left, right, top, bottom = 0.06, 0.45, 1.1 if bar else 0.15, 1.12, 0.15
        inner = width_inch - left - right - gap * (len(widths) - 1)
        tallest = 9.0
        scale = min(inner / sum(widths), (tallest - top - bottom) / sum(heights))
        width_inch = left + right + gap * (len(widths) - 1) + scale * sum(widths)
        width_inch, slack = max(width_inch, 7.0), max(0.0, 7.0 - width_inch) / 2
        height_inch = top + bottom + gap * (len(heights) - 1) + scale * sum(heights)
        self.picture: Any = Picture.new("RGB", (int(width_inch * DPI), int(height_inch * DPI)), GROUND)
        self.panels: list[list[Panel]] = []
        y = top
        for height in heights:
            x, line = left + slack, []
            for width in widths:
                line.append(Panel(x * DPI, y * DPI, width * scale * DPI, height * scale * DPI, scale * DPI))
                x += width * scale + gap
            y += height * scale + gap
            self.panels.append(line)
        self._bar = (
            (x + 0.12) * DPI,
            (0.2 * height_inch - bottom) * DPI,
            0.16 * DPI,
            0.7 * height_inch * DPI,
        )
        lines = textwrap.wrap(note, int((width_inch - left) * 15.5))
        pen.text(self.picture, (left * DPI, 30), title, INK, 16, "ls", bold=True)
        for row, words in enumerate(lines):
            pen.text(self.picture, (left * DPI, 57 + 16 * row), words, FAINT, 9.5, "ls")

    def head(self, row: int, column: int, text: str) -> None:
        """Write above a panel."""
        panel = self.panels[row][column]
        at = panel.left + panel.width / 2, panel.top - 0.02 * panel.height - 4
        pen.text(self.picture, at, text, INK, 12, "ms")

    def side(self, row: int, text: str) -> None:
        """Write on the left of a row."""
        panel = self.panels[row][0]
        at = panel.left - 0.02 * panel.width - 8, panel.top + panel.height / 2
        pen.upward(self.picture, at, text, INK, 12)

    def bar(
        self,
        shades: Array,
        limits: tuple[float, float],
        label: str,
        ticks: Sequence[float],
        names: Sequence[str],
    ) -> None:
        """Draw a colour bar: `shades` (N, 3) over `limits`, with `names` at the values `ticks`."""
        left, top, width, height = self._bar
        ramp = np.linspace(limits[1], limits[0], round(height))[:, None].repeat(round(width), 1)
        pen.paste(self.picture, coloured(ramp, shades, limits), (round(left), round(top)))
        right = left + width
        pen.frame(self.picture, (left, top, right, top + height), FAINT)
        for tick, name in zip(ticks, names, strict=True):
            y = top + height * (limits[1] - tick) / (limits[1] - limits[0])
            pen.rule(self.picture, (right + 1, y), (right + 5, y), INK)
            pen.text(self.picture, (right + 10, y), name, INK, 10, "lm")
        widest = max(pen.length(name, 10) for name in names)
        pen.upward(self.picture, (right + 22 + widest, top + height / 2), label, INK, 11)

    def save(self, path: Path) -> Path:
        """Write a PNG of 256 colours, whole or not at all."""
        content = BytesIO()
        _few_colours(self.picture).save(content, format="PNG")
        write_bytes(path, content.getvalue())
        return path


def _few_colours(picture: Any) -> Any:
    """Reduce a picture to 256 colours, chosen from a thinned copy; a strip of the inks keeps lines and text."""
    from PIL import Image as Picture

    thin = Picture.fromarray(np.ascontiguousarray(np.asarray(picture)[::THINNED, ::THINNED]))
    strip = 8
    taller = Picture.new("RGB", (thin.width, thin.height + strip * len(INKS)))
    taller.paste(thin, (0, 0))
    for row, ink in enumerate(INKS):
        taller.paste(ink, (0, thin.height + strip * row, thin.width, thin.height + strip * (row + 1)))
    palette = taller.quantize(256, dither=Picture.Dither.NONE)
    return picture.quantize(palette=palette, dither=Picture.Dither.NONE)


def show(
    sheet: Sheet,
    panel: Panel,
    plane: Array,
    display: Display,
    view: View,
    shades: Array,
    limits: tuple[float, float] = (0, 1),
    smooth: bool = True,
) -> None:
    """Draw a plane (vertical, horizontal) in `shades` (N, 3) over `limits`; nothing where it is not a number."""
    left, top, right, bottom = panel.box(display, view)
    values = pen.resized(plane[::-1], (right - left, bottom - top), smooth)
    pen.paste(sheet.picture, coloured(values, shades, limits), (left, top), np.isfinite(values))


def overlay(
    sheet: Sheet,
    panel: Panel,
    mask: Array,
    colours: Array,
    display: Display,
    view: View,
    opacity: float = 1.0,
) -> None:
    """Lay `colours`, (vertical, horizontal, 3) or one (3,), uint8, where `mask` (vertical, horizontal), bool, holds."""
    left, top, right, bottom = panel.box(display, view)
    size = right - left, bottom - top
    covered = pen.resized(mask[::-1].astype(np.float32), size, smooth=False) * np.float32(opacity)
    spread = np.broadcast_to(colours, (*mask.shape, 3))[::-1].astype(np.float32)
    parts = [pen.resized(spread[..., c], size, smooth=False) for c in range(3)]
    pen.paste(sheet.picture, np.stack(parts, -1).astype(np.uint8), (left, top), covered)


def letters(sheet: Sheet, panel: Panel, display: Display, view: View) -> None:
    """Write L, R, A, P, S, I at the edges of an image, with a dark rim: legible on bright tissue too."""
    left, top, right, bottom = panel.box(display, view)
    x, y = (left + right) / 2, (top + bottom) / 2
    places = ((left + 1 * panel.scale, y, "lm"), (right - 1 * panel.scale, y, "rm"),
              (x, bottom - 4, "mb"), (x, top + 4, "mt"))  # fmt: skip
    for letter, (at_x, at_y, anchor) in zip(display.letters(view), places, strict=True):
        pen.text(sheet.picture, (at_x, at_y), letter, INK, 9, anchor, rim=GROUND)


def draw_lines(
    sheet: Sheet, panel: Panel, lines: Sequence[Array], shape: tuple[int, int], display: Display, view: View,
    colour: str, width: float,
) -> None:  # fmt: skip
    """Draw lines, (N, 2) each: column and row in a plane of `shape`, at the centres of its voxels; width in points."""
    left, top, right, bottom = panel.box(display, view)
    run, rise = (right - left) / shape[1], (bottom - top) / shape[0]
    placed = [np.stack([(line[:, 0] + 0.5) * run, (shape[0] - line[:, 1] - 0.5) * rise], 1) for line in lines]
    pen.strokes(sheet.picture, (left, top, right, bottom), placed, colour, width)


def contours(plane: Array, levels: Sequence[float]) -> list[Array]:
    """Lines (N, 2), column and row, along which a plane (vertical, horizontal) has one of the values `levels`."""
    from contourpy import LineType, contour_generator

    generator = contour_generator(z=plane, line_type=LineType.Separate)
    return [np.asarray(line) for level in levels for line in generator.lines(level)]
