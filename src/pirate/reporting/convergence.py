"""How an iteration came to rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pirate.reporting.canvas import FAINT, GROUND, INK, ORANGE, Sheet
from pirate.solvers.solution import Record


def convergence(path: Path, trace: Sequence[Record]) -> Path:
    """Energy, residual and residual per step against the iteration; dotted lines where a level starts.

    A level starts where the index of a record does not follow that of the one before.
    """
    starts = [i for i, (a, b) in enumerate(pairwise(trace), 1) if b.t <= a.t]
    levels = "dotted: start of a resolution level, whose energies are not comparable"
    rest = "a residual falls with the step; the residual divided by the step shows whether the field rests"
    sheet = Sheet("Convergence", levels if starts else rest, [11.4], [3.2])
    sheet.panels[0][0].remove()
    series = (
        ("energy", [r.energy for r in trace], "linear"),
        ("residual  |T(x) - x| / |T(x)|", [r.residual for r in trace], "log"),
        ("residual / step size", [r.residual_per_step for r in trace], "log"),
    )
    for column, (name, values, scale) in enumerate(series):
        panel = sheet.figure.add_axes((0.05 + 0.325 * column, 0.13, 0.275, 0.6), facecolor=GROUND)
        y = np.asarray(values, dtype=np.float64)
        y = np.where(np.isfinite(y) & ((y > 0) | (scale == "linear")), y, np.nan)
        for start, stop in zip([0, *starts], [*starts, len(y)], strict=True):
            alone = "o" if stop - start == 1 else ""
            panel.plot(np.arange(start, stop) + 1, y[start:stop], color=ORANGE, linewidth=1.6, marker=alone)
        if scale == "log" and np.isfinite(y).any():
            _logarithmic(panel, float(np.nanmax(y) / np.nanmin(y)))
        for start in starts:
            panel.axvline(start + 0.5, color=FAINT, linewidth=0.9, linestyle=":")
        _graph(panel, name)
    return sheet.save(path)


def _logarithmic(panel: Any, ratio: float) -> None:
    """Scale an axis whose values span `ratio`, with plain numbers at 1, 2, 5 or at powers of ten."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if ratio < 100 else (1,)))
    panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _graph(panel: Any, name: str) -> None:
    panel.set_title(name, color=INK, fontsize=11)
    panel.set_xlabel("iteration", color=INK, fontsize=10)
    panel.tick_params(colors=FAINT, labelsize=9, which="both")
    panel.grid(True, color="#2a3038", linewidth=0.6)
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_edgecolor(FAINT)
