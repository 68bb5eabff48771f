"""The page that checks the rivals: what its table of demons says of rows, and SyN against ANTs on a small pair."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import blobs, labels_of

from pirate.baselines import syn
from pirate.baselines.protocol import register_with
from pirate.benchmark.entries import chosen, entries
from pirate.benchmark.rows import Row, write_rows
from pirate.grid import Grid
from pirate.io.nifti import write_image

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


@pytest.mark.skipif(importlib.util.find_spec("ants") is None, reason="ANTs is not installed")
def test_syn_is_ants_called_directly_on_the_same_files(tmp_path: Path) -> None:
    """`syn:cc` with few iterations, on files with permuted axes.

    Voxels are cubes: where they are not, ANTs' own steps depend on the order in which a file has its axes.
    """
    shape, few = (28, 32, 24), {"iterations": (20, 10, 1), "shrinks": (4, 2, 1), "sigmas": (2.0, 1.0, 0.0)}
    grid = Grid(shape, np.array([[0, 0, 1.1, 3], [1.1, 0, 0, -4], [0, 1.1, 0, 5], [0, 0, 0, 1]]))
    files = {}
    for role, shift in (("fixed", (0.0, 0.0, 0.0)), ("moving", (2.0, -1.5, 1.2))):
        image = blobs(shape, shift=shift)
        for name, data in ((role, image), (f"{role}_labels", labels_of(image))):
            files[name] = str(tmp_path / f"{name}.nii.gz")
            write_image(tmp_path / f"{name}.nii.gz", data, grid)
    ours = register_with(
        "syn:cc", files["fixed"], files["moving"], affine="none", fixed_labels=files["fixed_labels"],
        moving_labels=files["moving_labels"], options=few, threads=1,
    ).metrics  # fmt: skip
    theirs = rivals.direct(files, 3, tmp_path, replace(syn.PRESETS["cc"], **few))  # type: ignore[arg-type]
    assert theirs > ours["dice_before"] + 0.2
    assert ours["dice"] == pytest.approx(theirs, abs=rivals.ALLOWED)
