"""Rows survive being written, cut off and written again."""

from __future__ import annotations

import math
from pathlib import Path

from tests.benchmark.conftest import row

from pirate.benchmark.rows import Row, append_row, failed, read_rows, write_rows
from pirate.benchmark.timing import Size, Timing, read_sizes, read_timings, write_sizes, write_timings

ODD = Row(
    "a", 'one, "two" <- three\nfour', dice=0.1 + 0.2, threads=2, error="it failed, badly", made_from="m"
)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    rows = [row("a", "p", 1 / 3, iterations=7, tre=math.inf), ODD]
    write_rows(path, rows[:1])
    append_row(path, rows[1])
    assert list(map(repr, read_rows(path))) == list(map(repr, rows))
    assert read_rows(tmp_path / "none.csv") == []


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, [row("a", "p", 0.5), row("a", "q", 0.6)])
    whole = path.read_text()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        path.write_text(whole[:-cut])
        found = read_rows(path, {("a", "p"): "x", ("a", "q"): "x"})
        assert [r.pair for r in found] in (["p"], ["p", "q"])
        assert all(r.dice in (0.5, 0.6) and r.made_from == "x" for r in found)
    path.write_text(whole.replace("0.6", "six"))
    assert [r.pair for r in read_rows(path)] == ["p"]


def test_only_rows_made_from_the_same_are_taken_and_the_last_wins(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, [row("a", "p", 0.5), row("a", "q", 0.6, made_from="old"), row("a", "p", 0.7)])
    assert [(r.pair, r.dice) for r in read_rows(path, {("a", "p"): "x", ("a", "q"): "x"})] == [("p", 0.7)]
    assert len(read_rows(path)) == 2


def test_a_failure_is_one_line() -> None:
    assert failed("a", "p", "so\n  and so").error == "so and so"
    assert failed("a", "p", "").error == "no reason was given"
    assert math.isnan(failed("a", "p", "x").dice)


def test_times_and_sizes_come_back_as_they_were(tmp_path: Path) -> None:
    timings = [
        Timing("a", (3.0, 1.0, 2.5), 100.25, 2, "", "m"),
        Timing("b", (), 5.0, 2, "no, it failed", "n"),
    ]
    write_timings(tmp_path / "timing.csv", timings)
    assert read_timings(tmp_path / "timing.csv") == timings
    assert timings[0].median == 2.5
    assert math.isnan(timings[1].median)
    sizes = [Size("a", 12, (3, 4), 0.5, 10.0, 25, "", "m")]
    write_sizes(tmp_path / "scaling.csv", sizes)
    assert read_sizes(tmp_path / "scaling.csv") == sizes
    assert read_sizes(tmp_path / "none.csv") == []
