"""How the paper's iteration comes to rest, and what is left of the error meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pirate.benchmark.kept import Kept
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.axes import plain_log
from pirate.reporting.benchmark.stage import Stage
from pirate.reporting.benchmark.tiles import show_grey
from pirate.reporting.display import Array
from pirate.reporting.intensity import Shown

KEYS = ("pirate-plus", "pirate", "p+s")
"""The entries whose iteration is shown."""

MOST = 5  # maps in a row
LIMIT = 0.5  # largest difference that has a shade of its own
GRAPH = 3.9, 2.35  # inches
LEFT, TOP, GAP = 5.4, 1.0, 0.1  # of the maps
CAPTION, HEADING = 0.26, 0.3


def traced(kept: Sequence[Kept]) -> list[Kept]:
    """Those whose iteration was recorded, PIRATE+ first."""
    known = {k.entry.key: k for k in kept if len(k.trace) > 1}
    return [known[key] for key in KEYS if key in known]


def convergence(path: Path, stage: Stage, kept: Sequence[Kept], title: str) -> Path:
    """Residual divided by the step and data term at every iteration; beside them |fixed - warped| on the way."""
    rows = [k for k in kept if k.snapshots]
    width, height = style.SLIDE if rows else (6.4, style.SLIDE[1])
    figure = style.sheet(
        width, height, title, f"{stage.words} · error maps: |fixed − warped|" if rows else ""
    )
    columns = (3, "residual / step size", True), (1, "data term g", False)
    for i, (column, name, logarithmic) in enumerate(columns):
        axes = style.box(figure, 0.85, height - TOP - 0.25 - GRAPH[1] - i * (GRAPH[1] + 0.85), *GRAPH)
        _curves(axes, kept, column, logarithmic)
        axes.set_title(name, fontsize=style.TEXT, color=style.INK, loc="left")
        axes.set_xlabel("iteration")
        if i == 0:
            axes.legend(frameon=False, fontsize=style.TEXT, labelcolor=style.INK, loc="upper right")
    if rows:
        _all_maps(figure, stage, rows)
    return style.save(figure, path, few_colours=True)


def _curves(axes: Any, kept: Sequence[Kept], column: int, logarithmic: bool) -> None:
    """One line for each method; `column` is that of the trace."""
    style.dress(axes)
    seen = [np.zeros(0)]
    for i, one in enumerate(kept):
        t, values = one.trace[:, 0], one.trace[:, column]
        good = np.isfinite(values) & ((values > 0) | (not logarithmic))
        axes.plot(
            t[good], values[good], color=style.OWN[one.entry.key], linestyle=style.DASHES[i], linewidth=2,
            label=style.name_of(one.entry),
        )  # fmt: skip
        seen.append(values[good])
    axes.margins(x=0.01)
    every = np.concatenate(seen)
    if logarithmic and len(every):
        axes.set_yscale("log")
        low, high = float(every.min()) / 1.2, float(every.max()) * 1.2
        axes.set_ylim(low, high)
        plain_log(axes.yaxis, low, high)


def frames(stage: Stage, one: Kept) -> dict[int, Array]:
    """Warped images (*shape) by iteration: the start, those taken on the way, the result."""
    end = int(one.trace[-1, 0]) + 1
    return {0: stage.moving.image, **{t: s for t, s in one.snapshots.items() if 0 < t < end}, end: one.warped}


def chosen(snapshots: Sequence[int]) -> list[int]:
    """At most `MOST` of the iterations, the first and the last among them."""
    order = sorted(snapshots)
    if len(order) <= MOST:
        return order
    return [order[round(i * (len(order) - 1) / (MOST - 1))] for i in range(MOST)]


def _all_maps(figure: Any, stage: Stage, rows: Sequence[Kept]) -> None:
    """A row of error maps for each method and one colour bar."""
    wide, high = figure.get_size_inches()
    ratio = stage.size[1] / stage.size[0]
    columns = max(len(chosen(list(frames(stage, k)))) for k in rows)
    down = (high - TOP - 0.1) / len(rows)
    width = min((wide - LEFT - 1.15) / columns - GAP, (down - CAPTION - HEADING) / ratio, 2.2)
    down = width * ratio + CAPTION + HEADING
    left = LEFT + (wide - LEFT - 1.15 - columns * (width + GAP)) / 2
    top = high - TOP - (high - TOP - 0.1 - len(rows) * down) / 2
    shown = None
    for row, one in enumerate(rows):
        place = left, top - (row + 1) * down + CAPTION, width, width * ratio
        shown = _maps(figure, stage, one, place)
    middle = top - len(rows) * down / 2
    axes = style.box(figure, left + columns * (width + GAP) + 0.1, middle - 1.2, 0.15, 2.4)
    bar = figure.colorbar(shown, cax=axes)
    bar.set_ticks([0, LIMIT / 2, LIMIT], labels=["0", f"{LIMIT / 2:g}", f"≥ {LIMIT:g}"])
    bar.set_label("share of bright tissue", color=style.INK, fontsize=style.SMALL)
    bar.outline.set_visible(False)
    axes.tick_params(colors=style.INK, labelsize=style.SMALL, length=2)


def _maps(figure: Any, stage: Stage, one: Kept, place: tuple[float, float, float, float]) -> Any:
    """A row of error maps, iteration and mean error below each; returns an image for the colour bar."""
    left, bottom, width, height = place
    wide, high = figure.get_size_inches()
    target = stage.grey(stage.fixed)
    inside = stage.plane(stage.fixed.foreground())
    figure.text(
        left / wide, (bottom + height + 0.05) / high, style.name_of(one.entry), fontsize=style.TEXT, va="bottom",
        color=style.OWN[one.entry.key], fontweight="bold", parse_math=False,
    )  # fmt: skip
    shown = None
    taken = frames(stage, one)
    for i, t in enumerate(chosen(list(taken))):
        error = difference(stage, taken[t], target)
        axes = style.box(figure, left + i * (width + GAP), bottom, width, height)
        show_grey(axes, stage, error)
        shown = axes.images[0]
        shown.set(cmap="magma", clim=(0, LIMIT))
        axes.axis("off")
        x = (left + i * (width + GAP) + width / 2) / wide
        told = f"t = {t}: {error[inside].mean():.3f}"
        figure.text(
            x, (bottom - 0.03) / high, told, fontsize=style.SMALL, ha="center", va="top", color=style.INK
        )
    return shown


def difference(stage: Stage, image: Array, target: Array) -> Array:
    """|fixed - warped| in the plane, (vertical, horizontal), as share of the brightness of each; image (*shape)."""
    return np.asarray(np.abs(stage.grey(Shown.of(image)) - target))
