"""The memory estimate is an upper bound, and not a wild one; measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MEASURE = """
import json, sys
import numpy as np
from pirate.registration import inputs
from pirate.registration.process import peak_memory
from pirate.registration.register import register
from pirate.settings import preset
from tests.conftest import blobs

name, changes = sys.argv[1], json.loads(sys.argv[2]) | {"iterations": 4}
small, large = (20, 20, 20), (96, 96, 96)
image, axis = blobs(large), np.eye(4)
register((blobs(small), axis), (blobs(small, 1), axis), preset=name, settings={"iterations": 2}, threads=1)  # load all
before = peak_memory()
register((image, axis), (np.roll(image, 1, 0), axis), preset=name, settings=changes, threads=1)
estimate = inputs.memory_estimate(large, large, preset(name, 3).changed(changes), labels=False)
print(json.dumps({"needed": peak_memory() - before, "estimate": estimate}))
"""


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("paper", {}), ("paper", {"prior": "tv"}), ("paper", {"penalty": "mutual"}),
        ("default", {}), ("default", {"prior": "tv", "every": 2}), ("default", {"penalty": "mutual"}),
        ("paper", {"prior": "pirate"}), ("paper-plus", {}),
        ("default", {"prior": "pirate", "every": 2}), ("default", {"prior": "anatomy"}),
    ],
)  # fmt: skip
def test_the_estimate_is_an_upper_bound(name: str, changes: dict[str, object]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, name, json.dumps(changes)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["needed"] <= found["estimate"] <= 4 * found["needed"]
