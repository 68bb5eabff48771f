"""Running a plan: every entry on every pair, each alone for its time and memory, and over sizes; all resumable."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pirate.baselines.methods import METHODS
from pirate.benchmark import kept
from pirate.benchmark.crew import Crew, Named
from pirate.benchmark.entries import REFERENCE, START, Entry
from pirate.benchmark.machine import threads_allowed
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
"""Called after each registration, and again and again while waiting; what it raises ends the run soundly."""


class Runner:
    """Runs one plan; the rows are in ``rows.csv`` of its folder as soon as they exist."""

    def __init__(self, plan: Plan, observe: Observe) -> None:
        self.plan, self.observe = plan, observe
        self.path = plan.out / "rows.csv"
        self.rows: dict[tuple[str, str], Row] = {}
        self._failures: dict[str, str] = {}
        self._clock = Clock(plan.jobs)

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
        self._clock = Clock(self.plan.jobs)
        with self._crew(self.plan.jobs, self.plan.threads) as crew:
            every = [(e, i) for i in range(len(self.plan.track.pairs)) for e in first]
            later = self._all_missing(self._blocks(others, frozenset()), frozenset())
            self._do(crew, self._all_missing(every, frozenset()), later)
            shown = frozenset(self.roles().values())
            self._do(crew, self._all_missing(self._blocks([*first, *others], shown), shown))

    def _crew(self, count: int, threads: int) -> Crew:
        return Crew(count, self.plan.track.source, self.plan.out, threads, self._wait)

    def _wait(self) -> None:
        """Say what is running."""
        self.observe(self._clock.so_far())

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

    def _do(self, crew: Crew, missing: Sequence[Job], later: Sequence[Job] = ()) -> None:
        """Run the jobs; `later` are those that will follow, for the time left."""
        self._clock.expect([job.entry.key for job in (*missing, *later)])
        for job, done in crew.do(self._tried(missing)):
            self._record(done.row, job.made_from)
            self._note_time(job, done)
            what = f"{job.entry.key} on {done.row.pair}"
            self.observe(self._clock.count(job.entry.key, what, ": failed" if done.row.error else ""))

    def _all_missing(self, wanted: Sequence[tuple[Entry, int]], shown: frozenset[int]) -> list[Job]:
        """The wanted entries and pairs that are not there yet; fields of the pairs `shown` are kept."""
        return [job for e, i in wanted if (job := self._missing(e, i, i in shown)) is not None]

    def _missing(self, entry: Entry, pair: int, show: bool) -> Job | None:
        """The job that is left to do; None if all of it is there."""
        name, origin = self.plan.track.pairs[pair], self.plan.made_from(entry, pair)
        keep = show and self.plan.exhibited(entry)
        there = not keep or kept.is_kept(kept.path_of(self.plan.out, pair, name, entry.key), origin)
        if there and (entry.key, name) in self.rows:
            return None
        return Job(entry, pair, origin, self.plan.weights.get(entry.base), keep)

    def _tried(self, jobs: Sequence[Job]) -> Iterator[Named]:
        """The jobs, without those of entries that have only failed."""
        for job in jobs:
            name, key = self.plan.track.pairs[job.pair], job.entry.key
            why = self._given_up(key)
            if not why:
                self._clock.begin(key, f"{key} on {name}")
                yield job, name
                continue
            row = failed(key, name, f"not tried, because it failed on {PATIENCE} pairs: {why}")
            self._record(row, job.made_from)
            self.observe(self._clock.count(key, f"{key} on {name}", ": not tried"))

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
        return _hash([self.plan.made_from(entry, i) for i in self._timed], threads_allowed())

    def _note_time(self, job: Job, done: Done) -> None:
        """Another tool that ran alone on all cores, on the one pair that is timed, need not run again for that."""
        alone = self.plan.jobs == 1 and self.plan.threads == threads_allowed()
        tool = job.entry.base in METHODS and METHODS[job.entry.base].child
        if alone and tool and list(self._timed) == [job.pair] and not done.row.error:
            path, key = self.plan.out / "timing.csv", job.entry.key
            others = [t for t in read_timings(path) if t.entry != key]
            own = Timing(
                key, (done.row.seconds,), done.peak_mb, threads_allowed(), "", self._time_origin(job.entry)
            )
            write_timings(path, [*others, own])

    def time_alone(self) -> list[Timing]:
        """Each entry in a fresh process with all cores, one after the other."""
        path, threads, pairs = self.plan.out / "timing.csv", threads_allowed(), self._timed
        found = {t.entry: t for t in read_timings(path)}
        todo = []
        for entry in self.plan.entries:
            if entry.key != START and not self.plan.obstacle(entry) and not self._given_up(entry.key):
                old = found.get(entry.key)
                if old is None or old.made_from != self._time_origin(entry) or old.error:
                    todo.append(entry)
        self._clock = Clock(1)
        self._clock.expect([e.key for e in todo])
        for entry in todo:
            origin = self._time_origin(entry)
            jobs = [Job(entry, i, origin, self.plan.weights.get(entry.base)) for i in pairs]
            done = self._alone(jobs, threads, f"{entry.key} alone")
            errors = [d.row.error for d in done if d.row.error]
            seconds = tuple(d.row.seconds for d in done if not d.row.error)
            peak = max((d.peak_mb for d in done if not d.row.error), default=math.nan)
            found[entry.key] = Timing(entry.key, seconds, peak, threads, errors[0] if errors else "", origin)
            write_timings(path, list(found.values()))
        return [found[e.key] for e in self.plan.entries if e.key in found]

    def scale(self) -> list[Size]:
        """Time and memory over sizes, each in a fresh process with all cores."""
        path, threads = self.plan.out / "scaling.csv", threads_allowed()
        found = {(s.entry, s.shape): s for s in read_sizes(path)}
        able = [e for e in self.plan.entries if e.key in SCALED and not self.plan.obstacle(e)]
        wanted = []
        for shape in self.plan.track.sizes:
            for entry in able:
                origin = _hash([self.plan.made_from(entry, 0), str(shape)], threads)
                old = found.get((entry.key, shape))
                if old is None or old.made_from != origin or old.error:
                    wanted.append((entry, shape, origin))
        self._clock = Clock(1)
        self._clock.expect([e.key for e, _, _ in wanted])
        for entry, shape, origin in wanted:
            options: dict[str, Any] = {"iterations": SHORT} if entry.paper else {}
            job = Job(entry, 0, origin, shape=shape, options=options)
            done = self._alone([job], threads, f"{entry.key} at {'x'.join(map(str, shape))}")[0]
            found[entry.key, shape] = _size(entry, shape, done, origin, self._whole(entry))
            write_sizes(path, list(found.values()))
        return list(found.values())

    def _whole(self, entry: Entry) -> int:
        """Steps of a whole run of the paper's iteration."""
        own = self.rows.get((entry.key, self.plan.track.pairs[0]))
        return own.iterations if own is not None and own.iterations else entry.options.get("iterations", 500)

    def _alone(self, jobs: Sequence[Job], threads: int, what: str) -> list[Done]:
        """Jobs of one entry in a fresh process."""
        named = iter([(job, self.plan.track.pairs[job.pair]) for job in jobs])
        self._clock.begin(jobs[0].entry.key, what)
        with self._crew(1, threads) as crew:
            done = [found for _, found in crew.do(named)]
        self.observe(self._clock.count(jobs[0].entry.key, what))
        return done


class Clock:
    """Guesses how long the rest will take: of each entry what it took so far, of unknown ones the mean of all."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.done, self.left = jobs, 0, Counter[str]()
        self.spent: dict[str, list[float]] = defaultdict(list)
        self.running: dict[str, float] = {}

    @property
    def total(self) -> int:
        """What is done and what is left."""
        return self.done + self.left.total()

    def expect(self, keys: Sequence[str]) -> None:
        """What is left to do from now on, by the key of the entry."""
        self.left = Counter(keys)

    def begin(self, key: str, what: str) -> None:
        """`what`, by the entry `key`, begins."""
        self.running[what] = time.monotonic()

    def count(self, key: str, what: str, how: str = "") -> Progress:
        """It has ended, `how`."""
        begun = self.running.pop(what, None)
        if begun is not None:
            self.spent[key].append(time.monotonic() - begun)
        self.left[key] -= 1
        self.done += 1
        return Progress(what + how, self.done, self.total, self._rest())

    def so_far(self) -> Progress | None:
        """What has been running for longest; None if nothing is."""
        if not self.running:
            return None
        what, begun = min(self.running.items(), key=lambda one: one[1])
        seconds = time.monotonic() - begun
        return Progress(f"{what} for {seconds:.0f} s", self.done, self.total, self._rest())

    def _rest(self) -> float:
        every = [s for values in self.spent.values() for s in values]
        usual = sum(every) / len(every) if every else math.nan
        known = {key: sum(values) / len(values) for key, values in self.spent.items()}
        return sum(n * known.get(key, usual) for key, n in self.left.items() if n > 0) / self.jobs


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
