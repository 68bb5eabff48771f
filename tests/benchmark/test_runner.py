"""A benchmark goes on after failures, deaths and interruptions, and gives the same rows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from tests.benchmark.conftest import Inline, entry

from pirate.benchmark import crew as crews
from pirate.benchmark import runner as runners
from pirate.benchmark.entries import Entry
from pirate.benchmark.gathering import gather
from pirate.benchmark.kept import path_of
from pirate.benchmark.plan import Plan, write_record
from pirate.benchmark.rows import Row, read_rows
from pirate.benchmark.runner import Clock, Progress, Runner
from pirate.registration.process import peak_memory

LETHAL = Entry("lethal", "lethal", "fast", "main", {"prior": "tests.benchmark.lethal:die"}, ours=True)
WRONG = Entry("wrong", "wrong", "fast", "main", {"alpha": 1.0}, ours=True)


def comparable(rows: Sequence[Row]) -> set[tuple[object, ...]]:
    """Everything but times."""
    names = [f.name for f in fields(Row) if "seconds" not in f.name]
    return {tuple(repr(getattr(r, n)) for n in names) for r in rows}


def test_failing_entries_are_rows_and_the_others_go_on(
    plan_of: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "PATIENCE", 2)
    chosen = (*map(entry, ("start", "fast")), WRONG, LETHAL, entry("voxelmorph"), entry("default"))
    plan = plan_of(*chosen, pairs=3)
    said: list[Progress] = []
    runner = Runner(plan, lambda p: said.append(p) if p is not None else None)
    runner.run()
    rows = {(r.entry, r.pair): r for r in read_rows(plan.out / "rows.csv", plan.wanted)}
    for key in ("start", "fast", "default"):
        own = [rows[key, p] for p in plan.track.pairs]
        assert not any(r.error for r in own)
        assert all(r.dice >= r.dice_before for r in own)
    told = [rows["wrong", p].error for p in plan.track.pairs]
    assert all("no effect in the compositional scheme" in t for t in told)
    assert ["not tried" in t for t in told] == [False, False, True]
    assert "signal 9" in rows["lethal", plan.track.pairs[0]].error
    assert "not tried" in rows["lethal", plan.track.pairs[2]].error
    assert rows["voxelmorph", plan.track.pairs[0]].error.startswith("no weights: pirate train voxelmorph")
    assert ("voxelmorph", plan.track.pairs[1]) not in rows
    assert said[-1].done == said[-1].total
    assert said[-1].seconds_left == 0
    assert not (plan.out / "work").exists()
    monkeypatch.setattr(runners, "Crew", Inline)
    _rerun_does_nothing(plan)
    _other_content_is_done_again(plan)
    _exhibits_are_kept(plan)


def _rerun_does_nothing(plan: Plan) -> None:
    """Good rows and kept fields are not computed again; a kept field that is lost is."""
    before = read_rows(plan.out / "rows.csv", plan.wanted)
    good = replace(plan, entries=tuple(e for e in plan.entries if e.key in ("start", "fast", "default")))
    done: list[Progress] = []
    Runner(good, lambda p: done.append(p) if p is not None else None).run()
    assert not done
    assert comparable(read_rows(plan.out / "rows.csv", plan.wanted)) == comparable(before)
    path_of(plan.out, 0, plan.track.pairs[0], "fast").unlink()
    Runner(good, lambda p: done.append(p) if p is not None else None).run()
    assert [p.what for p in done] == [f"fast on {plan.track.pairs[0]}"]


def _other_content_is_done_again(plan: Plan) -> None:
    """An entry with other settings, or another pair, has none of the old rows."""
    changed = replace(plan, entries=(replace(entry("fast"), options={"window": 5}),))
    assert read_rows(plan.out / "rows.csv", changed.wanted) == []
    threads = replace(plan, threads=2)
    assert read_rows(plan.out / "rows.csv", threads.wanted) == []


def _exhibits_are_kept(plan: Plan) -> None:
    write_record(plan)
    measured = gather(plan)
    assert [e.role for e in measured.exhibits] == ["first", "typical", "smallest gain"]
    first = measured.exhibits[0]
    assert [k.entry.key for k in first.kept] == ["start", "fast", "default"]
    assert all(k.field.shape == (2, 32, 40) and k.warped.shape == (32, 40) for k in first.kept)
    start, fast, _ = first.kept
    assert not start.field.any()
    assert start.trace.shape == (0, 4)
    np.testing.assert_array_equal(start.warped, first.case.moving.data)
    assert fast.trace.shape == (fast.row.iterations, 4)
    assert fast.warped_labels is not None
    assert [t.name for t in measured.tables] == ["main", "corner"]
    assert measured.machine["cores"]
    assert measured.of("fast").keys() == set(plan.track.pairs)
    assert measured.entry("none") is None


COMMAND = """
import sys
from pathlib import Path
from dataclasses import replace
from tests.benchmark.conftest import Inline, entry
from pirate.benchmark.plan import Plan
from pirate.benchmark.runner import Runner
from pirate.benchmark.tracks import Source, of
if __name__ == "__main__":
    data, out = map(Path, sys.argv[1:])
    out.mkdir(exist_ok=True)
    track = of(Source("oasis2d", data, 6))
    Runner(Plan(track, tuple(map(entry, ("start", "fast", "log-demons"))), out, 1, 1, 0), lambda p: None).run()
"""


def test_killed_and_continued_it_gives_the_same_rows(
    data: Path, tmp_path: Path, plan_of: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = tmp_path / "run.py", tmp_path / "killed"
    script.write_text(COMMAND)
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]  # the package as found here
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    killed = subprocess.Popen([sys.executable, str(script), str(data), str(out)], env=environment)
    deadline = time.monotonic() + 60
    while len(read_rows(out / "rows.csv")) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    with (out / "rows.csv").open("a") as file:
        file.write("fast,a line that was cut o")
    assert 8 <= len(read_rows(out / "rows.csv")) < 18
    monkeypatch.setattr(runners, "Crew", Inline)
    whole = plan_of(*map(entry, ("start", "fast", "log-demons")), pairs=6)
    for plan in (whole, replace(whole, out=out)):
        Runner(plan, lambda p: None).run()
    rows = [read_rows(folder / "rows.csv") for folder in (whole.out, out)]
    assert len(rows[0]) == 18
    assert comparable(rows[0]) == comparable(rows[1])
    assert sorted(p.name for p in (out / "kept").rglob("*.npz")) == [
        f"{k}.npz" for k in ("fast", "log-demons", "start")
    ]


def test_time_and_memory_alone_and_over_sizes(
    plan_of: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "threads_allowed", lambda: 1)
    short = replace(entry("pirate"), options={**entry("pirate").options, "iterations": 50})
    plan = replace(plan_of(entry("start"), short, pairs=2, sizes=((16, 20), (24, 30))), timed_pairs=2)
    runner = Runner(plan, lambda p: None)
    ours = np.ones(50_000_000)  # 400 MB, every page touched
    (timing,) = runner.time_alone()
    del ours
    monkeypatch.setattr(runners, "Crew", Inline)
    assert len(timing.seconds) == 2
    assert (
        50 < timing.peak_mb < peak_memory() / 1e6 - 200
    )  # the process's own, not that of the one that waits for it
    sizes = runner.scale()
    assert [(s.shape, s.voxels, s.iterations) for s in sizes] == [((16, 20), 320, 25), ((24, 30), 720, 25)]
    assert all(s.seconds > 0 and s.peak_mb > 50 and not s.error for s in sizes)
    again = Runner(plan, lambda p: None)
    again._alone = None  # type: ignore[assignment, method-assign]  # nothing is left to measure
    assert again.time_alone() == [timing]
    assert again.scale() == sizes


def test_an_interruption_ends_the_processes(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(entry("start"), pairs=2)
    members: list[object] = []

    def interrupt(progress: Progress | None) -> None:
        if progress is not None and progress.done:
            raise KeyboardInterrupt

    runner = Runner(plan, interrupt)
    original = crews._Member

    def remembered(*arguments: object) -> object:
        members.append(original(*arguments))  # type: ignore[arg-type]
        return members[-1]

    crews._Member = remembered  # type: ignore[assignment, misc]
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run()
    finally:
        crews._Member = original  # type: ignore[misc]
    assert len(read_rows(plan.out / "rows.csv")) == 1
    assert [m.process.is_alive() for m in members] == [False]  # type: ignore[attr-defined]


def test_the_clock_knows_what_each_entry_takes() -> None:
    clock = Clock(2)
    clock.expect(["slow", "slow", "quick", "quick", "quick"])
    clock.spent["slow"] = [10.0]
    assert clock.so_far() is None
    clock.begin("quick", "quick on p")
    waiting = clock.so_far()
    assert waiting is not None
    assert (waiting.what, waiting.done, waiting.total) == ("quick on p for 0 s", 0, 5)
    told = clock.count("quick", "quick on p", ": failed")
    assert (told.what, told.done, told.total) == ("quick on p: failed", 1, 5)
    assert told.seconds_left == pytest.approx((2 * 10 + 2 * 0) / 2, abs=0.5)
    assert clock.so_far() is None


def test_the_count_is_of_everything_and_what_is_running_is_said(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(*map(entry, ("start", "fast", "default")), pairs=2)
    told: list[Progress] = []
    runner = Runner(plan, lambda p: told.append(p) if p is not None else None)
    runner.run()
    ended = [p for p in told if " for " not in p.what]
    assert [p.done for p in ended] == list(range(1, len(ended) + 1))
    assert min(p.total for p in ended) >= 6
    assert ended[-1].done == ended[-1].total
    assert [p for p in told if re.search(r" on .* for \d+ s$", p.what)]


def test_what_a_killed_run_left_is_cleared_away(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(entry("start"))
    left = plan.out / "work" / "pirate-killed"
    left.mkdir(parents=True)
    with crews.Crew(1, plan.track.source, plan.out, 1, lambda: None):
        assert not left.exists()
