"""The extension as a process sees it: it is there, takes its threads from the environment, survives a fork."""

from __future__ import annotations

import os
import subprocess
import sys

from pirate import kernels


def test_the_extension_is_built() -> None:
    """Without it every other test of the kernels would be skipped, and nobody would notice."""
    assert kernels.available()


def run_python(code: str, **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


def test_threads_come_from_the_environment() -> None:
    code = "from pirate import kernels; print(kernels.threads(), kernels.variant())"
    said = run_python(code, PIRATE_NUM_THREADS="3", OMP_NUM_THREADS="2", PIRATE_SIMD="baseline")
    assert said == "3 baseline"
    assert run_python(code, PIRATE_NUM_THREADS="", OMP_NUM_THREADS="2").startswith("2 ")


def test_a_forked_child_computes_the_same() -> None:
    code = """
import os, torch
from pirate import kernels
kernels.set_threads(3)
x = torch.rand(1, 3, 40, 12, 16)
before = kernels.gaussian(x, 1.0)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(kernels.gaussian(x, 1.0), before) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_python(code) == "0"
