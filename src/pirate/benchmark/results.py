"""Rows of a benchmark as tables need them: by entry and pair, as means, as cells, and which cell is best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pirate.benchmark.cases import subjects_of
from pirate.benchmark.entries import START, Entry
from pirate.benchmark.rows import Row
from pirate.benchmark.timing import Timing
from pirate.evaluation.statistics import bootstrap

COLUMNS = {
    "DSC [95 %]": ("dice", ".4f", 1), "DSC": ("dice", ".4f", 1), "HD95 mm": ("hd95", ".2f", -1),
    "TRE mm": ("tre", ".2f", -1), "similarity": ("similarity_after", ".4f", 0), "neg. JD %": ("folds", "fold", -1),
    "NDV %": ("ndv", "fold", -1), "SDlogJ": ("sdlogj", ".3f", 0), "seconds": ("seconds", "time", -1),
}  # fmt: skip
"""Heading to the name in a row, the format, and whether more (1) or less (-1) is better (0: it depends)."""

RANKED_BY = ("tre", "dice", "similarity_after")
"""What methods are compared by, the first that there is: landmarks, placed one by one, tell more than the overlap of
labels, and labels more than intensities."""


@dataclass(frozen=True, eq=False)
class Results:
    """What tables are made from.

    Args:
        track: its name.
        pairs: names of all pairs, in order.
        entries: what was compared.
        rows: all.
        timings: each entry alone.
        ablation_pairs: so many first pairs count in the tables other than the main one.
        training: entry to minutes and MB of its training; NaN where unknown.
    """

    track: str
    pairs: tuple[str, ...]
    entries: tuple[Entry, ...]
    rows: tuple[Row, ...]
    timings: tuple[Timing, ...] = ()
    ablation_pairs: int = 0
    training: Mapping[str, tuple[float, float]] | None = None

    def good(self, key: str, pairs: Sequence[str] | None = None) -> dict[str, Row]:
        """Rows of an entry by pair, failures left out."""
        among = set(self.pairs if pairs is None else pairs)
        return {r.pair: r for r in self.rows if r.entry == key and not r.error and r.pair in among}

    def error(self, key: str) -> str:
        """Why an entry has no numbers, or not all of them; empty if it has."""
        return next((r.error for r in self.rows if r.entry == key and r.error), "")

    def entry(self, key: str) -> Entry | None:
        """By key, if it was compared."""
        return next((e for e in self.entries if e.key == key), None)

    def timing(self, key: str) -> Timing | None:
        """Of an entry alone."""
        return next((t for t in self.timings if t.entry == key and t.seconds), None)


def shown(results: Results, entry: Entry, good: Mapping[str, Row], column: str) -> str:
    """One cell."""
    mean = value(results, entry, good, column)
    if column == "DSC [95 %]" and len(good) > 1 and math.isfinite(mean):
        return f"{bootstrap([r.dice for r in good.values()], [subjects_of(p) for p in good]):.4f}"
    return form(mean, COLUMNS[column][1])


def value(results: Results, entry: Entry, good: Mapping[str, Row], column: str) -> float:
    """Mean of a column over the pairs; of seconds the median, of the entries alone if that was measured."""
    if not good:
        return math.nan
    if column == "seconds":
        timing = results.timing(entry.key)
        if timing is not None:
            return timing.median
        same = {t.threads for t in results.timings} <= {r.threads for r in good.values()}
        return (
            float(np.median([r.seconds for r in good.values()])) if same and entry.key != START else math.nan
        )
    values = [getattr(r, COLUMNS[column][0]) for r in good.values()]
    finite = [v for v in values if math.isfinite(v)]
    return float(np.mean(finite)) if finite else math.nan


def bold(
    results: Results, entries: Sequence[Entry], heading: Sequence[str], measure_pairs: Sequence[str]
) -> frozenset[tuple[int, int]]:
    """The best cell of each column in which one is better than all others.

    The start, supervised methods, those that lack pairs, and second mentions of one entry do not compete.
    """
    found = set()
    able = []
    for i, entry in enumerate(entries):
        good = results.good(entry.key, measure_pairs)
        first = entry.key not in {e.key for e in entries[:i]}
        if first and entry.key != START and not entry.supervised and len(good) == len(measure_pairs):
            able.append((i, entry, good))
    for column, name in enumerate(heading):
        better = COLUMNS[name][2] if name in COLUMNS else 0
        scores = {i: better * value(results, e, good, name) for i, e, good in able} if better else {}
        scores = {i: s for i, s in scores.items() if math.isfinite(s)}
        best = [i for i, s in scores.items() if s == max(scores.values())]
        if len(scores) > 1 and len(best) == 1:
            found.add((best[0], column))
    return frozenset(found)


def titled(results: Results, entry: Entry, title: str | None = None) -> str:
    """The title; of an entry without any number also why."""
    why = "" if results.good(entry.key) else results.error(entry.key)
    return (title or entry.title) + (f" ({why.rstrip('.')})" if why else "")


def count(good: Mapping[str, Row], pairs: Sequence[str]) -> str:
    """How many pairs there are, and of how many if not of all."""
    return f"{len(good)}" if len(good) == len(pairs) else f"{len(good)} of {len(pairs)}"


def form(value: float, kind: str) -> str:
    """A number as a table shows it; a share that is not exactly 0 never reads as 0."""
    if not math.isfinite(value):
        return "-"
    if kind == "fold":
        return "0" if value == 0 else f"{value:.4f}" if value >= 5e-5 else f"{value:.0e}"
    if kind == "time":
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{value:{kind}}"
