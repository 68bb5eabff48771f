"""A run that is killed or interrupted leaves whole files or none, and can simply be run again."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pirate.io.atomic import sha256_of
from pirate.io.nifti import read_image
from pirate.io.transforms import read_transform


def start(files: Path, out: Path, iterations: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "pirate", "register", files / "fixed.nii.gz", files / "moving.nii.gz"]
    options = [
        "--out",
        out,
        "--set",
        f"iterations={iterations}",
        "--threads",
        "1",
        "--force",
        "--preset",
        "paper",
    ]
    return subprocess.Popen(
        [*map(str, words), *map(str, options)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for_start(process: subprocess.Popen[str]) -> None:
    if process.stderr is None:
        raise ValueError("no stderr")
    assert process.stderr.readline().startswith("moving ")


def test_a_killed_run_leaves_nothing_half_written(files: Path) -> None:
    out = files / "out"
    rng = random.Random(5)
    for _ in range(4):
        process = start(files, out, 20)
        wait_for_start(process)
        time.sleep(rng.uniform(0.0, 2.5))
        process.kill()
        process.communicate()
        for path in out.rglob("*.nii.gz"):
            if not path.name.startswith(".part-") and "warped" in path.name:
                read_image(path)  # whole: the checksum is verified
        if (out / "run.json").exists():
            check_complete(out)
    process = start(files, out, 20)
    process.communicate()
    assert process.returncode == 0
    check_complete(out)
    assert not list(out.rglob(".part-*"))


def check_complete(out: Path) -> None:
    """What run.json lists is there, byte for byte."""
    outputs = json.loads((out / "run.json").read_text())["outputs"]
    assert len(outputs) >= 6
    for name, digest in outputs.items():
        assert sha256_of(out / name) == digest
    read_transform(out)
    read_transform(out, inverse=True)


@pytest.mark.parametrize("which", [signal.SIGINT])
def test_ctrl_c_leaves_with_130_and_no_results(files: Path, which: signal.Signals) -> None:
    out = files / "out"
    process = start(files, out, 1_000_000)
    wait_for_start(process)
    time.sleep(0.5)
    process.send_signal(which)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not out.exists()
