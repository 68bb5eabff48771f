"""``pirate benchmark``: train what needs training, run every method on the same pairs, write tables and the page."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from pirate.benchmark import lessons
from pirate.benchmark.elapsed import Clock
from pirate.benchmark.entries import Entry, chosen, weights_name
from pirate.benchmark.gathering import gather
from pirate.benchmark.lessons import Lesson, equilibrium, finished, lesson, trainable, why_not
from pirate.benchmark.measured import Measured
from pirate.benchmark.plan import Plan, check_folder, read_record, usual, write_record
from pirate.benchmark.rows import read_rows
from pirate.benchmark.runner import Progress, Runner
from pirate.benchmark.tables import write_table
from pirate.benchmark.tracks import KINDS, NAMES, Source, Track, of
from pirate.cli.benchmark_training import train_all
from pirate.cli.terminal import INTERVAL, configure_log, interrupts
from pirate.errors import QualityError, UsageError, printable, reject

log = logging.getLogger("pirate")

PARTS = ("ablation", "scaling", "timing")
"""What ``--skip`` takes."""


@dataclass(frozen=True)
class Request:
    """The options of ``pirate benchmark``, as typed."""

    track: str
    out: Path
    data: Path | None = None
    methods: str | None = None
    pairs: int | None = None
    ablation_pairs: int | None = None
    jobs: int | None = None
    threads: int | None = None
    minutes_per_training: float = 0.0
    no_training: bool = False
    weights: tuple[str, ...] = ()
    only_page: bool = False
    skip: str = ""
    force: bool = False
    quiet: bool = False

    @property
    def skipped(self) -> list[str]:
        """Parts that are left out."""
        found = [word.strip() for word in self.skip.split(",") if word.strip()]
        unknown = [word for word in found if word not in PARTS]
        if unknown:
            raise UsageError(f"--skip {printable(', '.join(unknown))}: expected some of {', '.join(PARTS)}.")
        return found

    @property
    def source(self) -> Source:
        """Where the pairs come from."""
        if self.track in (*NAMES, *KINDS) and self.data is None:
            raise UsageError(f"the track {self.track} needs --data, the folder that holds it.")
        return Source(self.track, self.data or Path(), self.pairs)


def run(request: Request) -> None:
    """Do all that is asked for; what an earlier run left is not done again."""
    configure_log(request.quiet)
    interrupts.watch()
    skip = request.skipped
    log.info("reading images")
    track = of(request.source)
    entries = _entries(request, track)
    failures = 0
    if request.only_page:
        plan = _page_plan(request, track, entries)
    else:
        threads, jobs = usual(track, request.threads, request.jobs)
        clock = Clock(request.out, new=check_folder(request.out, track.name, threads, request.force))
        try:
            plan = _plan(request, track, entries, (threads, jobs), clock)
            failures = _run(plan, Watch(request.quiet, clock), skip)
        finally:
            clock.tick(last=True)
    measured = gather(plan, strict=not request.only_page)
    write(measured, plan.out)
    report(measured, plan.out)
    if failures:
        raise QualityError(
            f"{failures} of {len(measured.rows)} registrations gave nothing; rows.csv says why. The page has the rest."
        )


def _entries(request: Request, track: Track) -> tuple[Entry, ...]:
    """What is asked for; unless it is asked by name, without what makes no sense on the track."""
    if request.methods is not None:
        names = [n.strip() for n in request.methods.split(",") if n.strip()]
        return chosen(track.entries(), names, request.skipped)
    there = {row.entry for row in read_rows(request.out / "rows.csv")} if request.only_page else set()
    skip = request.skipped if request.only_page or _ablation_pairs(request, track) else ["ablation"]
    found = chosen(track.entries(), None, skip)
    # nobody knows whether other images than those of our own tracks show what a supervised prior has learned
    return tuple(e for e in found if track.training in NAMES or not e.supervised or e.key in there)


def _run(plan: Plan, watch: Watch, skip: Sequence[str]) -> int:
    """Every registration, and each entry alone; return how many gave nothing though they should have."""
    runner = Runner(plan, watch)
    runner.run()
    if "timing" not in skip:
        runner.time_alone()
    if "scaling" not in skip:
        runner.scale()
    return sum(bool(r.error) for r in runner.rows.values() if not _known(plan, r.entry))


def _known(plan: Plan, key: str) -> bool:
    """Whether it was clear from the start that an entry cannot be run."""
    return any(e.key == key and plan.obstacle(e) for e in plan.entries)


def _plan(
    request: Request, track: Track, entries: tuple[Entry, ...], processes: tuple[int, int], clock: Clock
) -> Plan:
    """What is to be run, after the networks were trained; `processes`: threads of each, and how many."""
    threads, jobs = processes
    weights, reasons = _weights(request, track, entries, clock)
    plan = Plan(
        track, lessons.named(entries, weights), request.out, threads, jobs, _ablation_pairs(request, track),
        weights, reasons, command=f"pirate {' '.join(printable(word) for word in sys.argv[1:])}",
    )  # fmt: skip
    write_record(plan)
    return plan


def _page_plan(request: Request, track: Track, entries: tuple[Entry, ...]) -> Plan:
    """What an earlier run had planned; nothing is run."""
    earlier = read_record(request.out)
    if earlier is None or earlier.get("track") != track.name:
        raise reject(
            request.out, f"there is no benchmark of {track.name}", "the folder of one", "Run it first."
        )
    pairs = earlier.get("ablation_pairs", 0) if request.ablation_pairs is None else request.ablation_pairs
    given = dict(weights_name(text) for text in request.weights)
    there = {m: f / f"{m}.safetensors" for m, f in lessons.folders(request.out).items()}
    weights = {m: path for m, path in (there | given).items() if path.is_file()}
    return Plan(
        track, lessons.named(entries, weights), request.out, earlier.get("threads", 1), 1, pairs, weights,
        command=str(earlier.get("command", "")),
    )  # fmt: skip


def _ablation_pairs(request: Request, track: Track) -> int:
    """Pairs of the ablation; entries that are asked for by name are run, even where the track has no ablation."""
    usually = track.ablation_pairs or (len(track.pairs) if request.methods is not None else 0)
    asked = usually if request.ablation_pairs is None else request.ablation_pairs
    return 0 if "ablation" in request.skipped else min(asked, len(track.pairs))


def _weights(
    request: Request, track: Track, entries: tuple[Entry, ...], clock: Clock
) -> tuple[dict[str, Path], dict[str, str]]:
    """Method to the file of its weights, trained here where none is given; and why there is none."""
    found = dict(weights_name(text) for text in request.weights)
    for path in found.values():
        if not path.is_file():
            raise reject(path, "there is no such file", "a weight file", "Correct --weights.")
    reasons: dict[str, str] = {}
    tasks: list[Lesson] = []
    for method in trainable(entries):
        if method in found:
            continue
        if why := why_not(track, method):
            reasons[method] = why
            continue
        task = lesson(track, method, request.out)
        found[method] = task.weights
        if not finished(task, request.minutes_per_training):
            tasks.append(task)
    if request.no_training:
        untrained = [task.method for task in tasks if not task.weights.is_file()]
        reasons |= dict.fromkeys(untrained, "not trained: --no-training")
        return {m: path for m, path in found.items() if m not in reasons}, reasons
    plus = equilibrium(track, entries, request.out)
    if plus is not None and not finished(plus, request.minutes_per_training):
        tasks.append(plus)
    if tasks:

        def look() -> None:
            interrupts.check()
            clock.tick()

        data, minutes = request.data or Path(), request.minutes_per_training
        reasons |= train_all(tasks, data, minutes, request.quiet, look)
    return {m: path for m, path in found.items() if m not in reasons}, reasons


class Watch:
    """A line on stderr every ten seconds; Ctrl-C ends the run soundly."""

    def __init__(self, quiet: bool, clock: Clock) -> None:
        self.quiet, self.clock, self.spoken = quiet, clock, time.monotonic()

    def __call__(self, progress: Progress | None) -> None:
        """Say how far it is, if it is time to."""
        interrupts.check()
        self.clock.tick()
        now = time.monotonic()
        if progress is None or self.quiet:
            return
        if now - self.spoken > INTERVAL or progress.done == progress.total:
            self.spoken = now
            left = (
                ""
                if math.isnan(progress.seconds_left)
                else f", about {_duration(progress.seconds_left)} left"
            )
            sys.stderr.write(f"{progress.done} of {progress.total}, {printable(progress.what)}{left}\n")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def write(measured: Measured, out: Path) -> None:
    """Tables, figures, the page and its Markdown."""
    for table in measured.tables:
        write_table(out / "tables", table)
    draw_pages(measured, out)


def draw_pages(measured: Measured, out: Path) -> None:
    """Figures, the page and its Markdown."""
    from pirate.reporting import benchmark as pages

    figures = pages.draw(measured, out / "figures")
    pages.write_page(measured, figures, out / "index.html")
    pages.write_markdown(measured, figures, out / f"{measured.track.name}.md")


def report(measured: Measured, out: Path) -> None:
    """The few columns that matter, then the folder."""
    table = measured.tables[0]
    wanted = [
        i
        for i, name in enumerate(table.columns)
        if name.split(" ")[0] in ("method", "DSC", "TRE", "neg.", "seconds")
    ]
    wanted = [i for i in wanted if "against" not in table.columns[i]]
    lines = [[table.columns[i] for i in wanted], *([row[i] for i in wanted] for row in table.rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(wanted))]
    for line in lines:
        typer.echo(printable("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()))
    page = out / "index.html"
    typer.echo(f"results in {printable(page if page.is_file() else out)}")
