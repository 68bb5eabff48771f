"""One look for every picture of a benchmark: white ground, few colours that the colour-blind can tell apart.

Colour says whose a method is, the marker what kind of method, hatching or a hollow marker that labels were used.
matplotlib is imported when something is drawn; its global state is never touched.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from pirate.benchmark.entries import Entry
from pirate.io.atomic import write_bytes
from pirate.reporting.shades import rgb

INK, FAINT, LATTICE, GROUND = "#1f2328", "#6b7280", "#e5e7eb", "#ffffff"
OURS, RIVAL, BEFORE = "#c1440e", "#31688e", "#8a8a8a"
FOLD = "#e4002b"
"""Of folded voxels, and of nothing else."""

OWN = {"default": OURS, "pirate-plus": "#7a3b8f", "pirate": "#b07d00", "p+s": "#2a9d6f"}
"""Of curves of ours; each method has the same in every picture."""

LINES = ("#31688e", "#56b4e9", "#4b5563", "#117733", "#88a0b8")
"""Of curves of rivals; neighbours also differ in brightness, and each curve has a dash of its own."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)), (0, (3, 3)))

DPI = 160
TITLE, TEXT, SMALL = 15.0, 12.0, 10.5  # points; on a slide of 13.3 inches, legible at half size
SLIDE = 13.33, 7.5  # inches
LETTERS = 12.0  # of the note on an inch
DAGGER = "†"
SUPERVISED = f"{DAGGER} learned from labels"


@dataclass(frozen=True)
class Figure:
    """A picture that was drawn.

    Args:
        path: of the PNG.
        title: the name of the exhibit.
        caption: what is seen, in sentences.
    """

    path: Path
    title: str
    caption: str


def sheet(width: float, height: float, title: str, note: str = "") -> Any:
    """An empty matplotlib figure, inches, with its title and faint lines below it in the upper left corner."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    figure = Sheet(figsize=(width, height), dpi=DPI, facecolor=GROUND)
    FigureCanvasAgg(figure)
    left = 0.2 / width
    figure.text(
        left,
        1 - 0.16 / height,
        title,
        fontsize=TITLE,
        color=INK,
        fontweight="bold",
        va="top",
        parse_math=False,
    )
    lines = textwrap.fill(note, int(LETTERS * (width - 0.4)))
    figure.text(
        left,
        1 - 0.5 / height,
        lines,
        fontsize=SMALL,
        color=FAINT,
        va="top",
        linespacing=1.25,
        parse_math=False,
    )
    return figure


def box(figure: Any, left: float, bottom: float, width: float, height: float) -> Any:
    """Axes at a place of a figure, inches from its lower left corner."""
    wide, high = figure.get_size_inches()
    return figure.add_axes((left / wide, bottom / high, width / wide, height / high))


def dress(axes: Any, lattice: str = "both") -> None:
    """Plain axes: two faint lines, light lattice behind, readable marks."""
    axes.set_facecolor(GROUND)
    axes.set_axisbelow(True)
    if lattice:
        axes.grid(True, axis=lattice, color=LATTICE, linewidth=0.8)
    axes.tick_params(colors=INK, labelsize=SMALL, length=3, color=FAINT)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_edgecolor(FAINT)
    axes.xaxis.label.set(color=INK, fontsize=TEXT)
    axes.yaxis.label.set(color=INK, fontsize=TEXT)


def save(figure: Any, path: Path, few_colours: bool = False) -> Path:
    """Write a PNG, whole or not at all; `few_colours` keeps 256, for pictures made of images."""
    from PIL import Image as Picture

    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    picture = Picture.fromarray(np.ascontiguousarray(pixels))
    content = BytesIO()
    (_reduced(picture) if few_colours else picture).save(content, format="PNG", compress_level=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content.getvalue())
    return path


def _reduced(picture: Any) -> Any:
    """256 colours: the inks exactly, which few pixels may have, the others chosen from every second pixel."""
    from PIL import Image as Picture

    inks = np.stack([rgb(c) for c in (GROUND, INK, FAINT, OURS, RIVAL, FOLD)])
    pixels = np.asarray(picture)
    count = 256 - len(inks)
    thin = Picture.fromarray(np.ascontiguousarray(pixels[::2, ::2]))
    chosen = (thin.quantize(count, dither=Picture.Dither.NONE).getpalette() or [])[: 3 * count]
    palette = Picture.new("P", (1, 1))
    colours = [*inks.ravel().tolist(), *chosen]
    palette.putpalette(colours)
    index = np.array(picture.quantize(palette=palette, dither=Picture.Dither.NONE))
    for i, ink in enumerate(inks):  # the library finds near colours, not equal ones
        index[(pixels == ink).all(-1)] = i
    reduced = Picture.fromarray(index, mode="P")
    reduced.putpalette(colours)
    return reduced


def colour_of(entry: Entry) -> str:
    """Ours or a rival's."""
    return OURS if entry.ours else RIVAL


def curve_colours(entries: Sequence[Entry]) -> list[str]:
    """A colour for the curve of each entry."""
    rivals = itertools.cycle(LINES)
    return [OWN.get(e.key, OURS) if e.ours else next(rivals) for e in entries]


def marker_of(entry: Entry) -> str:
    """A disc is ours, a triangle a trained network, a square an iterative rival."""
    return "o" if entry.ours else "^" if entry.trained else "s"


def name_of(entry: Entry) -> str:
    """The title as plain text, with a dagger if labels were used."""
    plain = entry.title.replace("`", "").strip() or entry.key
    return f"{plain.replace('(supervised)', '').strip()} {DAGGER}" if entry.supervised else plain


def weight_of(entry: Entry) -> str:
    """Ours stand out by weight as well."""
    return "bold" if entry.ours else "normal"


def legend(entries: Sequence[Entry]) -> str:
    """What the marks mean, as far as `entries` need it."""
    parts = ["bold: this package"] if any(e.ours for e in entries) else []
    parts += [SUPERVISED] if any(e.supervised for e in entries) else []
    return " · ".join(parts)


def percent(value: float) -> str:
    """A percentage as read, not as computed: 0, 0.0012, 0.12, 1.2, 12."""
    if value == 0:
        return "0 %"
    if not np.isfinite(value):
        return "–"
    digits = max(0, 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{min(digits, 5)}f} %"


def seconds_name(value: float) -> str:
    """Seconds with two digits that matter."""
    if not np.isfinite(value):
        return "–"
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.1f} s" if value >= 1 else f"{value:.2g} s"
