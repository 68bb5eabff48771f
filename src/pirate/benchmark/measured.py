"""Everything that a page is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pirate.benchmark.elapsed import Spent
from pirate.benchmark.entries import Entry
from pirate.benchmark.kept import Exhibit
from pirate.benchmark.rows import Row
from pirate.benchmark.tables import Table
from pirate.benchmark.timing import Size, Timing
from pirate.benchmark.tracks import Track


@dataclass(frozen=True, eq=False)
class Measured:
    """A benchmark that has been run, wholly or in part.

    Args:
        track: what it was run on.
        entries: what was compared, in the order of the tables.
        rows: one for each entry and pair that there is.
        timings: each entry alone.
        tables: as `comparisons.tables` makes them.
        exhibits: the pairs that are shown.
        training: method to the folder of its training, with history.csv and curves.png.
        scaling: seconds and memory over sizes.
        machine: what it ran on: name to text.
        ablation_pairs: so many first pairs are those of the ablation.
        command: makes it again.
        spent: how long it took; None where nobody has counted.
    """

    track: Track
    entries: tuple[Entry, ...]
    rows: tuple[Row, ...]
    timings: tuple[Timing, ...]
    tables: tuple[Table, ...]
    exhibits: tuple[Exhibit, ...]
    training: Mapping[str, Path] = field(default_factory=dict)
    scaling: tuple[Size, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    ablation_pairs: int = 0
    command: str = ""
    spent: Spent | None = None

    def of(self, entry: str) -> dict[str, Row]:
        """The rows of an entry by pair, failures left out."""
        return {row.pair: row for row in self.rows if row.entry == entry and not row.error}

    def entry(self, key: str) -> Entry | None:
        """The entry with this key, if it was compared."""
        return next((e for e in self.entries if e.key == key), None)
