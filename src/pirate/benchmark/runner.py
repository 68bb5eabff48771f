"""Running a plan: every entry on every pair, each alone for its time and memory, and over sizes; all resumable."""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pirate.baselines.methods import METHODS
from pirate.benchmark import kept
from pirate.benchmark.crew import Crew, Named
from pirate.benchmark.entries import REFERENCE, START, Entry
from pirate.benchmark.machine import cores
from pirate.benchmark.plan import Plan, in_order
from pirate.benchmark.rows import Row, append_row, failed, read_rows, write_rows
from pirate.benchmark.timing import Size, Timing, read_sizes, read_timings, write_sizes, write_timings
from pirate.benchmark.working import Done, Job

BLOCK = 10
"""Pairs that all entries are run on before the next ones: an interrupted run has comparable pairs."""

PATIENCE = 3
"""Failures in a row, from the first pair on, after which an entry is given up."""

SHORT = 25
"""Steps of the paper's iteration when only its speed is measured."""

SCALED = ("pirate", "pirate-plus", REFERENCE)
"""Entries whose time and memory are measured over sizes."""


@dataclass(frozen=True)
class Progress:
    """How far it is: what is done, how many registrations of all, and about how many seconds are left."""

    what: str
    done: int
    total: int
    seconds_left: float


Observe = Callable[[Progress | None], None]
"""Called after each registration, and again and again while waiting (None); what it raises ends the run soundly."""


class Runner:
    """Runs one plan; the rows are in ``rows.csv`` of its folder as soon as they exist."""

    def __init__(self, plan: Plan, observe: Observe) -> None:
        self.plan, self.observe = plan, observe
        self.path = plan.out / "rows.csv"
        self.rows: dict[tuple[str, str], Row] = {}
        self._failures: dict[str, str] = {}

    def run(self) -> None:
        """Every row that is not there yet."""
        everything = read_rows(self.path)
        write_rows(self.path, everything)  # a line that was cut off is gone
        good = [r for r in read_rows(self.path, self.plan.wanted) if not r.error]
        self.rows = {(r.entry, r.pair): r for r in good}
        for entry in self.plan.entries:
            why = self.plan.obstacle(entry)
            if why and self.plan.track.pairs:
                self._failures[entry.key] = why
                self._record(failed(entry.key, self.plan.track.pairs[0], why), self.plan.made_from(entry, 0))
        first, others = in_order([e for e in self.plan.entries if e.key not in self._failures])
        with self._crew(self.plan.jobs, self.plan.threads) as crew:
            self._do(crew, [(e, i) for i in range(len(self.plan.track.pairs)) for e in first], frozenset())
            shown = frozenset(self.roles().values())
            self._do(crew, self._blocks([*first, *others], shown), shown)

    def _crew(self, count: int, threads: int) -> Crew:
        return Crew(count, self.plan.track.source, self.plan.out, threads, lambda: self.observe(None))

    def roles(self) -> dict[str, int]:
        """The pairs that are shown, by what they are shown for; of large volumes no typical one."""
        found = kept.roles(list(self.rows.values()), self.plan.track.pairs)
        return {role: i for role, i in found.items() if not (self.plan.large and role == "typical")}

    def _blocks(self, entries: Sequence[Entry], shown: frozenset[int]) -> list[tuple[Entry, int]]:
        """Entries and pairs in the order in which they are run."""
        wanted = []
        for begin in range(0, len(self.plan.track.pairs), BLOCK):
            for entry in entries:
                own = set(self.plan.pairs_of(entry))
                if self.plan.exhibited(entry) and entry.key not in self.plan.track.few:
                    own |= shown
                block = range(begin, min(begin + BLOCK, len(self.plan.track.pairs)))
                wanted += [(entry, i) for i in block if i in own]
        return wanted

    def _do(self, crew: Crew, wanted: Sequence[tuple[Entry, int]], shown: frozenset[int]) -> None:
        """Those of the wanted entries and pairs that are not there yet; fields of the pairs `shown` are kept."""
        missing = [job for e, i in wanted if (job := self._missing(e, i, i in shown)) is not None]
        clock = Clock([job.entry.key for job in missing], self.plan.jobs)
        for job, done in crew.do(self._tried(missing, clock)):
            self._record(done.row, job.made_from)
            self._note_time(job, done)
            what = f"{job.entry.key} on {done.row.pair}" + (": failed" if done.row.error else "")
            self.observe(clock.count(job.entry.key, what))

    def _missing(self, entry: Entry, pair: int, show: bool) -> Job | None:
        """The job that is left to do; None if all of it is there."""
        name, origin = self.plan.track.pairs[pair], self.plan.made_from(entry, pair)
        keep = show and self.plan.exhibited(entry)
        there = not keep or kept.is_kept(kept.path_of(self.plan.out, pair, name, entry.key), origin)
        if there and (entry.key, name) in self.rows:
            return None
        return Job(entry, pair, origin, self.plan.weights.get(entry.base), keep)

    def _tried(self, jobs: Sequence[Job], clock: Clock) -> Iterator[Named]:
        """The jobs, without those of entries that have only failed."""
        for job in jobs:
            name, key = self.plan.track.pairs[job.pair], job.entry.key
            why = self._given_up(key)
            if not why:
                clock.begin(key)
                yield job, name
                continue
            row = failed(key, name, f"not tried, because it failed on {PATIENCE} pairs: {why}")
            self._record(row, job.made_from)
            self.observe(clock.count(key, f"{key} on {name}: not tried"))

    def _given_up(self, key: str) -> str:
        """Why an entry is not tried further; empty if it is."""
        own = [row for (entry, _), row in self.rows.items() if entry == key]
        bad = [row.error for row in own if row.error]
        return bad[0] if len(bad) >= PATIENCE and len(bad) == len(own) else ""

    def _record(self, row: Row, made_from: str) -> None:
        """Keep a row, unless a good one is there already and this one was made for its pictures only."""
        old = self.rows.get((row.entry, row.pair))
        if old is not None and not old.error:
            return
        self.rows[row.entry, row.pair] = replace(row, made_from=made_from)
        append_row(self.path, self.rows[row.entry, row.pair])

    @property
    def _timed(self) -> range:
        """Pairs on which entries are measured alone."""
        return range(min(1 if self.plan.large else self.plan.timed_pairs, len(self.plan.track.pairs)))

    def _time_origin(self, entry: Entry) -> str:
        return _hash([self.plan.made_from(entry, i) for i in self._timed], cores())

    def _note_time(self, job: Job, done: Done) -> None:
        """Another tool that ran alone on all cores, on the one pair that is timed, need not run again for that."""
        alone = self.plan.jobs == 1 and self.plan.threads == cores()
        tool = job.entry.base in METHODS and METHODS[job.entry.base].child
        if alone and tool and list(self._timed) == [job.pair] and not done.row.error:
            path, key = self.plan.out / "timing.csv", job.entry.key
            others = [t for t in read_timings(path) if t.entry != key]
            own = Timing(key, (done.row.seconds,), done.peak_mb, cores(), "", self._time_origin(job.entry))
            write_timings(path, [*others, own])

    def time_alone(self) -> list[Timing]:
        """Each entry in a fresh process with all cores, one after the other."""
        path, threads, pairs = self.plan.out / "timing.csv", cores(), self._timed
        found = {t.entry: t for t in read_timings(path)}
        todo = [
            e
            for e in self.plan.entries
            if e.key != START and not self.plan.obstacle(e) and not self._given_up(e.key)
        ]
        clock = Clock([e.key for e in todo], 1)
        for entry in todo:
            origin = self._time_origin(entry)
            if entry.key not in found or found[entry.key].made_from != origin or found[entry.key].error:
                jobs = [Job(entry, i, origin, self.plan.weights.get(entry.base)) for i in pairs]
                done = self._alone(jobs, threads)
                errors = [d.row.error for d in done if d.row.error]
                seconds = tuple(d.row.seconds for d in done if not d.row.error)
                peak = max((d.peak_mb for d in done if not d.row.error), default=math.nan)
                found[entry.key] = Timing(
                    entry.key, seconds, peak, threads, errors[0] if errors else "", origin
                )
                write_timings(path, list(found.values()))
            self.observe(clock.count(entry.key, f"{entry.key} alone"))
        return [found[e.key] for e in self.plan.entries if e.key in found]

    def scale(self) -> list[Size]:
        """Time and memory over sizes, each in a fresh process with all cores."""
        path, threads = self.plan.out / "scaling.csv", cores()
        found = {(s.entry, s.shape): s for s in read_sizes(path)}
        able = [e for e in self.plan.entries if e.key in SCALED and not self.plan.obstacle(e)]
        wanted = [(e, shape) for shape in self.plan.track.sizes for e in able]
        clock = Clock([e.key for e, _ in wanted], 1)
        for entry, shape in wanted:
            origin = _hash([self.plan.made_from(entry, 0), str(shape)], threads)
            old = found.get((entry.key, shape))
            if old is None or old.made_from != origin or old.error:
                options: dict[str, Any] = {"iterations": SHORT} if entry.paper else {}
                job = Job(entry, 0, origin, shape=shape, options=options)
                found[entry.key, shape] = _size(
                    entry, shape, self._alone([job], threads)[0], origin, self._whole(entry)
                )
                write_sizes(path, list(found.values()))
            self.observe(clock.count(entry.key, f"{entry.key} at {'x'.join(map(str, shape))}"))
        return list(found.values())

    def _whole(self, entry: Entry) -> int:
        """Steps of a whole run of the paper's iteration."""
        own = self.rows.get((entry.key, self.plan.track.pairs[0]))
        return own.iterations if own is not None and own.iterations else entry.options.get("iterations", 500)

    def _alone(self, jobs: Sequence[Job], threads: int) -> list[Done]:
        named = iter([(job, self.plan.track.pairs[job.pair]) for job in jobs])
        with self._crew(1, threads) as crew:
            return [found for _, found in crew.do(named)]


class Clock:
    """Guesses how long the rest will take: of each entry what it took so far, of unknown ones the mean of all."""

    def __init__(self, keys: Sequence[str], jobs: int) -> None:
        self.left: dict[str, int] = defaultdict(int)
        for key in keys:
            self.left[key] += 1
        self.total, self.jobs, self.done = len(keys), jobs, 0
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.started: dict[str, list[float]] = defaultdict(list)
        self.last = time.monotonic()

    def begin(self, key: str) -> None:
        """A registration by `key` begins."""
        self.started[key].append(time.monotonic())

    def count(self, key: str, what: str) -> Progress:
        """One by `key` has ended."""
        now = time.monotonic()
        begun = self.started[key].pop(0) if self.started[key] else self.last
        self.spent[key].append(now - begun)
        self.last = now
        self.left[key] -= 1
        self.done += 1
        every = [s for values in self.spent.values() for s in values]
        usual = sum(every) / len(every)
        rest = sum(
            n * (sum(self.spent[k]) / len(self.spent[k]) if self.spent[k] else usual)
            for k, n in self.left.items()
        )
        return Progress(what, self.done, self.total, rest / self.jobs)


def _size(entry: Entry, shape: tuple[int, ...], done: Done, origin: str, whole: int) -> Size:
    """What was measured; the paper's iteration as if it had taken all its steps."""
    row, factor = done.row, 1.0
    if entry.paper and row.iterations:
        factor = whole / row.iterations
    return Size(
        entry.key,
        math.prod(shape),
        shape,
        row.seconds * factor,
        done.peak_mb,
        row.iterations,
        row.error,
        origin,
    )


def _hash(parts: Sequence[str], threads: int) -> str:
    return hashlib.sha256(f"{' '.join(parts)} {threads}".encode()).hexdigest()[:16]
