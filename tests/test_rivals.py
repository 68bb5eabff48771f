"""The page that checks the rivals: what its table of demons says of rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pirate.benchmark.entries import chosen, entries
from pirate.benchmark.rows import Row, write_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import rivals

KEYS = [name.replace(":", "-") for name in rivals.DEMONS]


def test_the_demons_are_rows_of_the_benchmark() -> None:
    assert {e.key for e in chosen(entries(), rivals.DEMONS)} == {"start", *KEYS}


def test_the_table_compares_the_same_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[object], check: bool) -> None:
        assert check
        assert command[command.index("--methods") + 1] == ",".join(rivals.DEMONS)
        rows = [
            Row(key, f"pair {i}", dice_before=0.5, dice=0.7 + 0.01 * k + 0.001 * i, folds=k, made_from="x")
            for k, key in enumerate(KEYS)
            for i in range(4)
        ]
        broken = Row("greedy-sv", "pair 3", error="it fell", made_from="x")
        (tmp_path / "oasis2d").mkdir()
        write_rows(tmp_path / "oasis2d" / "rows.csv", [*rows[:-1], broken])

    monkeypatch.setattr(rivals.subprocess, "run", run)
    lines = rivals.demons(Path("data"), "oasis2d", tmp_path)
    assert lines[0] == "### `oasis2d`, Dice 0.5000 at the start"
    cells = {line.split(" | ")[0]: line.split(" | ")[1:] for line in lines[4:-1]}
    ours, theirs, last = (cells[f"| `{rivals.DEMONS[k]}`"] for k in (0, 1, 3))
    assert ours[:4] == ["4", "0.7015", "-0.0100 [-0.0100, -0.0100]", "0 of 4"]
    assert theirs[2:4] == ["-", "-"]
    assert last[0] == "3"
    assert last[2].startswith("+0.0200")
    assert last[4].startswith("3.0000 / ")
