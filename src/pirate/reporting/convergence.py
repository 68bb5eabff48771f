"""How an iteration came to rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from pirate.reporting.canvas import Sheet
from pirate.reporting.graph import graph
from pirate.solvers.solution import Record


def convergence(path: Path, trace: Sequence[Record]) -> Path:
    """Energy, residual and residual per step against the iteration; dotted lines where a level starts.

    A level starts where the index of a record does not follow that of the one before. A rival that tells its data
    term only gets that graph alone.
    """
    starts = [i for i, (a, b) in enumerate(pairwise(trace), 1) if b.t <= a.t]
    levels = "dotted: start of a resolution level, whose energies are not comparable"
    rest = "a residual falls with the step; the residual divided by the step shows whether the field rests"
    alone = all(math.isnan(r.residual) for r in trace)
    plain = "the data term as the method itself tells it, all resolution levels in a row"
    subtitle = plain if alone else levels if starts else rest
    sheet = Sheet("Convergence", subtitle, [11.4], [3.2])
    width, height = sheet.picture.size
    series = (
        ("energy", [r.energy for r in trace], False),
        ("residual  |T(x) - x| / |T(x)|", [r.residual for r in trace], True),
        ("residual / step size", [r.residual_per_step for r in trace], True),
    )
    for column, (name, values, logarithmic) in enumerate(series[:1] if alone else series):
        y = np.asarray(values, dtype=np.float64)
        y = np.where(np.isfinite(y) & ((y > 0) | (not logarithmic)), y, np.nan)
        left = round((0.05 + 0.325 * column) * width)
        right = left + round((0.9 if alone else 0.275) * width)
        box = left, round(0.27 * height), right, round(0.87 * height)
        graph(sheet.picture, box, name, y, starts, logarithmic)
    return sheet.save(path)
