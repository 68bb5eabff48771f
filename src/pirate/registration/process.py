"""The process that does the work: its device, threads, clock and memory."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pirate import kernels
from pirate.errors import UsageError


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU if torch has one, else the CPU; a named device that is not there is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"the device {name!r} cannot be used here; expected auto or cpu.") from error
    return device


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Give torch and the compiled kernels the same number of CPU threads inside the block."""
    if threads is None:
        named = os.environ.get("PIRATE_NUM_THREADS", "").strip()
        if named and not (named.isdigit() and int(named) > 0):
            raise UsageError(f"PIRATE_NUM_THREADS is {named!r}; expected a positive number.")
        threads = int(named) if named else torch.get_num_threads()
    if threads < 1:
        raise UsageError(f"threads is {threads}; expected at least 1.")
    before = torch.get_num_threads(), kernels.threads()
    torch.set_num_threads(threads)
    kernels.set_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        kernels.set_threads(before[1])


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes.

    getrusage counts the parent's size before the program started, so Linux's own figure is preferred.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def resident_memory() -> int:
    """Resident size of this process now, bytes; the largest so far where the system does not tell."""
    status = Path("/proc/self/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else peak_memory()


@dataclass
class Clock:
    """Seconds spent in each named stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside the block to `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
