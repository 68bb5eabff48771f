"""How the networks were trained: losses, and the evaluations that PIRATE+ needs for a fixed point."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.axes import plain_log, thousands
from pirate.reporting.display import Array

History = Sequence[Mapping[str, float]]
HISTORY = "history.csv"
PANEL = 3.95, 2.45  # inches
ACROSS = 3
WIDE = 8.0  # times the smallest: from there on a scale is logarithmic


def read_history(folder: Path) -> list[dict[str, float]]:
    """Rows of a training's ``history.csv``, numbers only; empty if there is none that can be read."""
    try:
        text = (folder / HISTORY).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    rows = []
    for cells in csv.DictReader(text.splitlines()):
        row = {name: float(value) for name, value in cells.items() if name and _is_number(value)}
        if "step" in row:
            rows.append(row)
    return rows


def _is_number(text: object) -> bool:
    try:
        return math.isfinite(float(str(text)))
    except ValueError:
        return False


def column(history: History, name: str) -> tuple[Array, Array]:
    """Steps (n,) and values (n,), without unit, of the rows that have them."""
    rows = [(row["step"], row[name]) for row in history if name in row]
    steps, values = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    return steps, values


def losses(path: Path, histories: Mapping[str, History], title: str) -> Path:
    """A graph for each training: loss of the steps between two validations, and of the validations, lowest marked."""
    count = len(histories)
    across = min(ACROSS, count)
    down = math.ceil(count / across)
    width, height = max(across * (PANEL[0] + 0.35) + 0.3, 6.5), 1.05 + down * (PANEL[1] + 1.0)
    figure = style.sheet(width, height, title, "ring: lowest validation loss, whose weights are used")
    for i, (name, history) in enumerate(histories.items()):
        row, place = divmod(i, across)
        left, bottom = 0.75 + place * (PANEL[0] + 0.35), height - 1.25 - (row + 1) * (PANEL[1] + 1.0) + 0.85
        axes = style.box(figure, left, bottom, PANEL[0] - 0.65, PANEL[1])
        _loss(axes, history, name)
        if i == 0:
            axes.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK, loc="upper right")
    return style.save(figure, path)


def _loss(axes: Any, history: History, name: str) -> None:
    style.dress(axes)
    seen = [np.zeros(0)]
    for key, label, colour, dash in (
        ("loss", "training", style.BEFORE, "-"), ("validation_loss", "validation", style.RIVAL, "-"),
    ):  # fmt: skip
        steps, values = column(history, key)
        axes.plot(
            steps,
            values,
            dash,
            color=colour,
            linewidth=1.9,
            label=label,
            marker="o",
            markersize=0 if len(steps) > 40 else 3,
        )
        seen.append(values)
    steps, values = column(history, "validation_loss")
    told = name
    if len(values):
        best = int(values.argmin())
        axes.scatter(
            steps[best], values[best], s=90, facecolors="none", edgecolors=style.INK, linewidths=1.5, zorder=4
        )
        told = f"{name}\n{values[best]:.4g} at step {int(steps[best]):,}"  # a line each: names may be long
    every = np.concatenate(seen)
    if len(every):
        _limits(axes, every, float(values[0]) if len(values) else float(every[0]))
    axes.set_title(told, fontsize=style.TEXT, color=style.INK, loc="left", parse_math=False)
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda value, _: thousands(value))


def _limits(axes: Any, every: Array, first: float) -> None:
    """Room for nearly all losses and for the first one: a single spike leaves the picture."""
    low, high = float(every.min()), max(float(np.quantile(every, 0.95)), first)
    if low > 0 and high > 20 * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
        plain_log(axes.yaxis, low / 1.2, high * 1.2)
    elif high > low:
        axes.set_ylim(low - 0.07 * (high - low), high + 0.07 * (high - low))


def nfe(path: Path, histories: Mapping[str, History], title: str) -> Path:
    """Evaluations of the operator until the fixed point rests, and the residual reached, along the training."""
    figure = style.sheet(
        13.0, 5.4, title, "training pairs: mean since the last mark; validation: held-out pairs"
    )
    columns = ("nfe", "evaluations (NFE) for a fixed point"), ("residual", "smallest residual reached")
    for i, (key, name) in enumerate(columns):
        axes = style.box(figure, 0.85 + i * 6.45, 0.75, 5.35, 3.35)
        style.dress(axes)
        values = _nfe_lines(axes, histories, key)
        if len(values) and values.min() > 0 and values.max() > WIDE * values.min():
            axes.set_yscale("log")
            plain_log(axes.yaxis, float(values.min()) / 1.3, float(values.max()) * 1.3)
        elif len(values):
            axes.set_ylim(0, 1.25 * float(values.max()))
        axes.set_title(name, fontsize=style.TEXT, color=style.INK, loc="left")
        axes.set_xlabel("training step")
        if i == 0:
            axes.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK, loc="best")
    return style.save(figure, path)


def _nfe_lines(axes: Any, histories: Mapping[str, History], key: str) -> Array:
    every = [np.zeros(0)]
    for i, (name, history) in enumerate(histories.items()):
        for prefix, dash, filled in (("", "--", False), ("validation_", "-", True)):
            steps, values = column(history, prefix + key)
            if not len(values):
                continue
            colour = (style.OWN["pirate-plus"], *style.LINES)[i % 6]
            label = f"{name}, {'validation' if prefix else 'training'}"
            axes.plot(
                steps, values, color=colour, linestyle=dash, marker="o", markersize=6, linewidth=2, label=label,
                markerfacecolor=colour if filled else "white",
            )  # fmt: skip
            every.append(values)
    return np.concatenate(every)
