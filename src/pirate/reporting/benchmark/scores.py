"""The rows of a benchmark gathered for each method."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pirate.benchmark.cases import subjects_of
from pirate.benchmark.entries import START, Entry
from pirate.benchmark.measured import Measured
from pirate.benchmark.rows import Row
from pirate.evaluation.statistics import Interval, bootstrap
from pirate.reporting.display import Array


@dataclass(frozen=True, eq=False)
class Score:
    """What one method reached.

    Args:
        entry: the method.
        rows: of the pairs on which it gave a result.
        failed: pairs on which it did not, or was not run.
        error: of the first on which it failed.
        asked: pairs there are for it.
        seconds: median of a pair; if any method was measured alone on the machine, then only so, else not a number.
    """

    entry: Entry
    rows: tuple[Row, ...]
    failed: int
    error: str
    asked: int
    seconds: float

    def values(self, name: str) -> Array:
        """One column, (n,), in the unit of the row; values that are not finite are left out."""
        column = np.array([getattr(row, name) for row in self.rows], dtype=np.float64)
        return np.asarray(column[np.isfinite(column)])

    def mean(self, name: str) -> float:
        """Mean of a column, in its unit; not a number without values."""
        values = self.values(name)
        return float(values.mean()) if len(values) else float("nan")

    def interval(self, name: str) -> Interval:
        """Mean and 95 % interval of a column, in its unit."""
        return bootstrap([getattr(row, name) for row in self.rows], [subjects_of(r.pair) for r in self.rows])

    def above(self, other: Score, name: str = "dice") -> Interval:
        """Mean and 95 % interval of this method's value minus the other's, on the pairs that both have."""
        theirs = {row.pair: getattr(row, name) for row in other.rows}
        own = [r for r in self.rows if r.pair in theirs]
        gains = [getattr(r, name) - theirs[r.pair] for r in own]
        return bootstrap(gains, [subjects_of(r.pair) for r in own])

    def shared(self, other: Score, name: str = "dice") -> int:
        """Number of pairs on which both have a finite value."""
        theirs = {row.pair for row in other.rows if np.isfinite(getattr(row, name))}
        return sum(np.isfinite(getattr(row, name)) and row.pair in theirs for row in self.rows)


def scores(measured: Measured, groups: Collection[str] = ("main",)) -> list[Score]:
    """One for each method of these groups that was run, in the order of the entries; also where all failed.

    The start is no method: see `before`.
    """
    alone = {timing.entry: float(timing.median) for timing in measured.timings if timing.seconds}
    found = []
    for entry in measured.entries:
        rows = [row for row in measured.rows if row.entry == entry.key]
        if entry.group not in groups or entry.key == START or not rows:
            continue
        bad = [row for row in rows if row.error]
        good = tuple(row for row in rows if not row.error)
        first = bad[0].error if bad else ""
        counts = not alone or measured.track.all_cores  # there every registration has the machine to itself
        meanwhile = float(np.median([row.seconds for row in good])) if good and counts else float("nan")
        asked = max(len(rows), len(measured.track.pairs) if entry.group == "main" else 0)
        seconds = alone.get(entry.key, meanwhile)
        found.append(Score(entry, good, asked - len(good), first, asked, seconds))
    return found


def having(found: Sequence[Score], name: str) -> list[Score]:
    """Those with at least one finite value of a column."""
    return [score for score in found if len(score.values(name))]


def pairs_of(found: Sequence[Score]) -> set[str]:
    """The pairs that any of the methods has."""
    return {row.pair for score in found for row in score.rows}


def on_pairs(found: Sequence[Score], pairs: Collection[str]) -> list[Score]:
    """The same methods on some of the pairs; those that have none of them are left out."""
    narrowed = [
        dataclasses.replace(
            score, rows=tuple(row for row in score.rows if row.pair in pairs), asked=len(pairs)
        )
        for score in found
    ]
    return [dataclasses.replace(s, failed=len(pairs) - len(s.rows)) for s in narrowed if s.rows]


def before(measured: Measured, name: str, pairs: Collection[str] | None = None) -> Array:
    """A column that describes the start, one finite value for each pair (or of `pairs` alone), in its unit."""
    values: dict[str, float] = {}
    for row in measured.rows:
        value = float(getattr(row, name))
        if np.isfinite(value) and (pairs is None or row.pair in pairs):
            values.setdefault(row.pair, value)
    return np.array(list(values.values()), dtype=np.float64)
