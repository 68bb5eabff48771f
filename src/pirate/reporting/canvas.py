"""Sheets of equally scaled panels on a dark ground, saved as small PNG files. Matplotlib loads when used."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from pirate.io.atomic import write_bytes
from pirate.reporting.display import Array, Display, View

GROUND, INK, FAINT = "#000000", "#f2f2f0", "#9aa4af"
ORANGE, BLUE, LOUD = "#ffb000", "#56b4e9", "#00ff66"
INKS = (INK, FAINT, ORANGE, BLUE, LOUD)
DPI = 100
LARGE = 300_000  # bytes


class Sheet:
    """Panels in rows and columns, all at one scale, with a title and room for a colour bar.

    Args:
        title: one line.
        note: one faint line below it.
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
        from matplotlib.figure import Figure

        gap, left, right, top, bottom = 0.06, 0.45, 1.1 if bar else 0.15, 1.12, 0.15
        inner = width_inch - left - right - gap * (len(widths) - 1)
        scale = inner / sum(widths)
        tallest = 9.0
        scale = min(scale, (tallest - top - bottom) / sum(heights))
        width_inch = left + right + gap * (len(widths) - 1) + scale * sum(widths)
        width_inch, slack = max(width_inch, 7.0), max(0.0, 7.0 - width_inch) / 2
        height_inch = top + bottom + gap * (len(heights) - 1) + scale * sum(heights)
        self.figure = Figure(figsize=(width_inch, height_inch), dpi=DPI, facecolor=GROUND)
        self.panels: list[list[Any]] = []
        y = height_inch - top
        for row, height in enumerate(heights):
            y -= height * scale + (gap if row else 0)
            x, line = left + slack, []
            for width in widths:
                place = (
                    x / width_inch,
                    y / height_inch,
                    width * scale / width_inch,
                    height * scale / height_inch,
                )
                line.append(self.figure.add_axes(place, facecolor=GROUND))
                line[-1].axis("off")
                x += width * scale + gap
            self.panels.append(line)
        self._bar = (
            (x + 0.12) / width_inch,
            (bottom + 0.1 * height_inch) / height_inch,
            0.16 / width_inch,
            0.7,
        )
        note = textwrap.fill(note, int((width_inch - left) * 15.5))
        text: dict[str, Any] = {"ha": "left", "va": "top", "color": INK}
        self.figure.text(left / width_inch, 1 - 0.14 / height_inch, title, fontsize=16, weight="bold", **text)
        self.figure.text(
            left / width_inch, 1 - 0.47 / height_inch, note, fontsize=9.5, **{**text, "color": FAINT}
        )

    def head(self, row: int, column: int, text: str) -> None:
        """Write above a panel."""
        self.panels[row][column].text(
            0.5, 1.02, text, transform=self.panels[row][column].transAxes, ha="center", va="bottom",
            color=INK, fontsize=12,
        )  # fmt: skip

    def side(self, row: int, text: str) -> None:
        """Write on the left of a row."""
        self.panels[row][0].text(
            -0.02, 0.5, text, transform=self.panels[row][0].transAxes, ha="right", va="center",
            color=INK, fontsize=12, rotation=90,
        )  # fmt: skip

    def bar(
        self, mappable: Any, label: str, ticks: Sequence[float] | None = None, names: Sequence[str] = ()
    ) -> None:
        """Draw the colour bar of `mappable`."""
        place = self.figure.add_axes(self._bar)
        drawn = self.figure.colorbar(mappable, cax=place, ticks=ticks)
        if names:
            drawn.ax.set_yticklabels(names)
        drawn.set_label(label, color=INK, fontsize=11)
        drawn.ax.tick_params(colors=INK, labelsize=10)
        drawn.outline.set_edgecolor(FAINT)

    def save(self, path: Path) -> Path:
        """Write a PNG of 256 colours if more would make it large, whole or not at all."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image as Picture

        canvas: Any = FigureCanvasAgg(self.figure)
        canvas.draw()
        picture = Picture.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        whole = BytesIO()
        picture.save(whole, format="PNG")
        if whole.tell() > LARGE:
            fewer = BytesIO()
            _few_colours(picture).save(fewer, format="PNG")
            whole = fewer if fewer.tell() < 0.7 * whole.tell() else whole
        write_bytes(path, whole.getvalue())
        return path


def _few_colours(picture: Any) -> Any:
    """Reduce a picture to 256 colours; a strip of the inks, cut off again, keeps lines and text."""
    from PIL import Image as Picture

    strip = 8
    taller = Picture.new("RGB", (picture.width, picture.height + strip * len(INKS)))
    taller.paste(picture, (0, 0))
    for row, ink in enumerate(INKS):
        taller.paste(
            ink, (0, picture.height + strip * row, picture.width, picture.height + strip * (row + 1))
        )
    return taller.quantize(256, dither=Picture.Dither.NONE).crop((0, 0, picture.width, picture.height))


def show(
    panel: Any,
    plane: Array,
    display: Display,
    view: View,
    cmap: Any = "gray",
    limits: tuple[float, float] = (0, 1),
) -> Any:
    """Draw a plane (vertical, horizontal), or its RGBA (vertical, horizontal, 4), on axes in mm."""
    width, height = display.size_mm(view)
    drawn = panel.imshow(
        plane, cmap=cmap, vmin=limits[0], vmax=limits[1], origin="lower", extent=(0, width, 0, height),
        interpolation="bilinear" if plane.ndim == 2 else "nearest", aspect="auto",
    )  # fmt: skip
    panel.set_xlim(0, width)
    panel.set_ylim(0, height)
    return drawn


def letters(panel: Any, display: Display, view: View) -> None:
    """Write L, R, A, P, S, I at the edges of an image."""
    from matplotlib.patheffects import withStroke

    width, height = display.size_mm(view)
    places = ((1.0, height / 2, "left", "center"), (width - 1.0, height / 2, "right", "center"),
              (width / 2, 0.5, "center", "bottom"), (width / 2, height - 0.5, "center", "top"))  # fmt: skip
    for letter, (x, y, horizontal, vertical) in zip(display.letters(view), places, strict=True):
        drawn = panel.text(x, y, letter, ha=horizontal, va=vertical, color=INK, fontsize=9, zorder=9)
        drawn.set_path_effects([withStroke(linewidth=2, foreground=GROUND)])  # legible on bright tissue too


def outline(
    panel: Any, plane: Array, level: float, display: Display, view: View, colour: str, width: float
) -> None:
    """Draw the contour of a plane at `level`, in mm."""
    if not plane.min() < level < plane.max():
        return
    rise, run = display.size_mm(view)[1] / plane.shape[0], display.size_mm(view)[0] / plane.shape[1]
    x, y = (np.arange(plane.shape[1]) + 0.5) * run, (np.arange(plane.shape[0]) + 0.5) * rise
    panel.contour(x, y, plane, levels=[level], colors=[colour], linewidths=width)
