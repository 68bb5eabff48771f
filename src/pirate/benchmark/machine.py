"""What a benchmark ran on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path

import pirate
from pirate import kernels

PACKAGES = ("torch", "numpy", "scipy", "antspyx", "SimpleITK", "picsl-greedy")
THREADS = ("PIRATE_NUM_THREADS", "OMP_NUM_THREADS")
"""What the kernels ask for the number of threads, the first that is set."""


def described() -> dict[str, str]:
    """Processor, memory, system and versions: name to text."""
    facts = {
        "processor": _first(Path("/proc/cpuinfo"), r"model name\s*:\s*(.+)")
        or platform.processor()
        or "unknown",
        "cores": str(cores()),
        "memory": _memory(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pirate": pirate.__version__,
        "compiled kernels": kernels.variant(),
    }
    return facts | {name: _version(name) for name in PACKAGES}


def cores() -> int:
    """CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def threads_allowed() -> int:
    """Threads of a registration that has the machine to itself: what the environment allows, at most the cores."""
    named = next((v for name in THREADS if (v := os.environ.get(name, "").strip())), "")
    return min(cores(), int(named)) if named.isdecimal() and int(named) else cores()


def _memory() -> str:
    found = _first(Path("/proc/meminfo"), r"MemTotal:\s*(\d+) kB")
    return f"{int(found) * 1024 / 1e9:.0f} GB" if found else "unknown"


def _first(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text()) if path.is_file() else None
    return found[1].strip() if found else ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
