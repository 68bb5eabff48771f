"""What is to be run: pairs, entries, how many at a time; and what must be the same when a run goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pirate.benchmark.entries import REFERENCE, START, Entry
from pirate.benchmark.machine import cores, described, threads_allowed
from pirate.benchmark.tracks import Track
from pirate.errors import OutputError, printable, reject
from pirate.io.atomic import sha256_of, write_json

RECORD = "benchmark.json"
LARGE = 1_000_000
"""Voxels of a volume of which fewer pairs and entries are kept."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One benchmark.

    Args:
        track: the pairs.
        entries: what is compared.
        out: folder for everything.
        threads: of each registration.
        jobs: registrations at a time.
        ablation_pairs: so many first pairs for the entries that are not of the main table.
        weights: method to the file of its weights.
        why_not: method to why there are none.
        timed_pairs: pairs on which an entry is measured alone.
        command: makes it again.
    """

    track: Track
    entries: tuple[Entry, ...]
    out: Path
    threads: int
    jobs: int
    ablation_pairs: int
    weights: Mapping[str, Path] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    timed_pairs: int = 3
    command: str = ""

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """Of the pairs' content."""
        return tuple(case.digest for case in self.track.cases)

    @cached_property
    def entry_digests(self) -> dict[str, str]:
        """Of the entries, by key."""
        return {e.key: e.digest(self.track.ndim, self.weights.get(e.base)) for e in self.entries}

    def made_from(self, entry: Entry, pair: int, more: str = "") -> str:
        """What a row depends on."""
        facts = (
            f"{self.digests[pair]} {self.entry_digests[entry.key]} {self.track.affine} {self.threads} {more}"
        )
        return hashlib.sha256(facts.encode()).hexdigest()[:16]

    @cached_property
    def wanted(self) -> dict[tuple[str, str], str]:
        """(entry, pair) to what its row must be made from, for every row that can be of use."""
        return {
            (e.key, name): self.made_from(e, i)
            for e in self.entries
            for i, name in enumerate(self.track.pairs)
        }

    def pairs_of(self, entry: Entry) -> range:
        """The pairs on which an entry counts."""
        every = len(self.track.pairs)
        some = every if entry.group == "main" else self.ablation_pairs
        return range(min(some, self.track.few.get(entry.key, every), every))

    def obstacle(self, entry: Entry) -> str:
        """Why an entry cannot be run at all; empty if it can."""
        return entry.obstacle(self.track.ndim, self.weights.get(entry.base), self.why_not.get(entry.base, ""))

    @cached_property
    def large(self) -> bool:
        """Whether the images are large volumes."""
        return self.track.cases[0].fixed.grid.voxels > LARGE

    def exhibited(self, entry: Entry) -> bool:
        """Whether its fields are kept for the pairs that are shown."""
        return entry.group == "main" or (not self.large and self.ablation_pairs > 0)

    def record(self) -> dict[str, Any]:
        """What ``benchmark.json`` holds."""
        return {
            "track": self.track.name,
            "title": self.track.title,
            "affine": self.track.affine,
            "pairs": [{"name": n, "sha256": d} for n, d in zip(self.track.pairs, self.digests, strict=True)],
            "entries": [
                dataclasses.asdict(e) | {"options": dict(e.options), "sha256": self.entry_digests[e.key]}
                for e in self.entries
            ],
            "ablation_pairs": self.ablation_pairs,
            "threads": self.threads,
            "jobs": self.jobs,
            "weights": {m: {"file": p.name, "sha256": sha256_of(p)} for m, p in self.weights.items()},
            "not_trained": dict(self.why_not),
            "machine": described(),
            "command": self.command,
        }


def check_folder(out: Path, track: str, threads: int, force: bool) -> bool:
    """Make the folder, or take one of the same benchmark; anything else in it is refused unless `force`.

    Returns whether this is the first call that works on it. Afterwards the folder holds a record, so that a run that
    ends while a network is trained can go on.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        others = any(out.iterdir())
    except OSError as error:
        raise OutputError(
            f"{printable(out)}: cannot be written ({error.strerror}); expected a folder one may write to. "
            "Choose another --out."
        ) from error
    earlier = read_record(out)
    if earlier is None and others and not force:
        raise OutputError(
            f"{printable(out)}: the folder holds something else; expected a new or empty one, or one of an earlier "
            "benchmark. Choose another, or add --force."
        )
    for name, now in (("track", track), ("threads", threads)):
        if earlier is not None and not force and earlier.get(name) != now:
            raise OutputError(
                f"{printable(out)}: its {name} was {printable(str(earlier.get(name)))}, now it is {now}; expected the "
                "same, so that numbers can be compared. Choose another --out, or add --force."
            )
    if earlier is None:
        write_json(out / RECORD, {"track": track, "threads": threads})
    return earlier is None


def write_record(plan: Plan) -> None:
    """Write ``benchmark.json``: what is asked for, and on what it runs."""
    write_json(plan.out / RECORD, plan.record())


def read_record(out: Path) -> dict[str, Any] | None:
    """The record of an earlier benchmark; None if there is none."""
    path = out / RECORD
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or "track" not in found:
        raise reject(path, "cannot be read", "the record of a benchmark", "Choose another --out.")
    return found


def usual(track: Track, threads: int | None, jobs: int | None) -> tuple[int, int]:
    """Threads and jobs: one thread and a job for each core; of large volumes one job on all cores."""
    there = cores()
    if threads is None:
        threads = threads_allowed() if track.all_cores else 1
    return threads, jobs if jobs is not None else 1 if track.all_cores else max(1, there // threads)


def in_order(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The entries that come first, for every pair, because they say which pairs are shown; and the others."""
    first = [e for e in entries if e.key in (START, REFERENCE)]
    return first, [e for e in entries if e not in first]
