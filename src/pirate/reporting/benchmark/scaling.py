"""Seconds and memory against the size of the images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.benchmark.entries import Entry
from pirate.benchmark.timing import Size
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.axes import plain_log
from pirate.reporting.display import Array

SIZE = 13.0, 5.9
HEIGHT = 3.9


def series(sizes: Sequence[Size], name: str) -> dict[str, tuple[Array, Array]]:
    """For each entry voxels (n,) and seconds or MB (n,) of the sizes that have a positive number, smallest first."""
    found: dict[str, list[tuple[float, float]]] = {}
    for size in sizes:
        value = float(getattr(size, name))
        if not size.error and np.isfinite(value) and value > 0:
            found.setdefault(size.entry, []).append((float(size.voxels), value))
    return {key: (np.array(sorted(v))[:, 0], np.array(sorted(v))[:, 1]) for key, v in found.items()}


def slope(voxels: Array, values: Array) -> float:
    """Exponent b of ``value = a voxels^b`` by least squares of the logarithms; not a number for one size."""
    if len(np.unique(voxels)) < 2:
        return float("nan")
    return float(np.polyfit(np.log(voxels), np.log(values), 1)[0])


def scaling(path: Path, sizes: Sequence[Size], entries: Sequence[Entry], title: str) -> Path:
    """Two graphs, both axes logarithmic; the exponent of each line stands beside its name."""
    figure = style.sheet(*SIZE, title, "exponent b of a × voxels^b, fitted to each line, in the legend")
    for i, (name, label) in enumerate((("seconds", "seconds"), ("peak_mb", "peak memory, MB"))):
        axes = style.box(figure, 0.85 + i * 6.45, 0.75, 5.35, HEIGHT)
        style.dress(axes)
        _lines(axes, series(sizes, name), entries)
        axes.set_title(label, fontsize=style.TEXT, color=style.INK, loc="left")
        axes.set_xlabel("voxels")
    return style.save(figure, path)


def _lines(axes: Any, found: dict[str, tuple[Array, Array]], entries: Sequence[Entry]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    shown = [entry for entry in entries if entry.key in found]
    for i, (entry, colour) in enumerate(zip(shown, style.curve_colours(shown), strict=True)):
        voxels, values = found[entry.key]
        b = slope(voxels, values)
        told = style.name_of(entry) + (f"  b = {b:.2f}" if np.isfinite(b) else "")
        axes.plot(
            voxels, values, color=colour, linestyle=style.DASHES[i % len(style.DASHES)],
            marker=style.marker_of(entry), markersize=6.5, linewidth=1.8, label=told,
        )  # fmt: skip
    every = np.concatenate([np.stack(v) for v in found.values()], 1) if found else np.ones((2, 1))
    for axis, numbers, extra in ((axes.xaxis, every[0], 1.35), (axes.yaxis, every[1], 1.6)):
        low, high = float(numbers.min()) / extra, float(numbers.max()) * extra
        (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low, high)
        plain_log(axis, low, high)
    axes.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK, loc="best")
