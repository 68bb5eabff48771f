"""Seconds and memory of a method alone on the machine, and over sizes."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pirate.io.atomic import write_text


@dataclass(frozen=True)
class Timing:
    """One entry measured alone, with all threads, in a fresh process.

    Args:
        entry: its key.
        seconds: of the method itself, one for each pair.
        peak_mb: 10^6 bytes: largest resident size of the process that did the work.
        threads: CPU threads.
        error: why there are no numbers.
        made_from: hash of what was measured.
    """

    entry: str
    seconds: tuple[float, ...]
    peak_mb: float
    threads: int
    error: str = ""
    made_from: str = ""

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds) if self.seconds else float("nan")


@dataclass(frozen=True)
class Size:
    """One entry on one size of images.

    Args:
        entry: its key.
        voxels: of an image.
        shape: of an image.
        seconds: of the method itself; of the paper's iteration those of `iterations` steps, scaled to a whole run.
        peak_mb: 10^6 bytes, of a process of its own.
        iterations: steps that were taken.
        error: why there are no numbers.
        made_from: hash of what was measured.
    """

    entry: str
    voxels: int
    shape: tuple[int, ...]
    seconds: float
    peak_mb: float
    iterations: int = 0
    error: str = ""
    made_from: str = ""


_TIMING = ("entry", "median_seconds", "seconds", "peak_mb", "threads", "error", "made_from")
_SIZE = ("entry", "voxels", "shape", "seconds", "peak_mb", "iterations", "error", "made_from")


def write_timings(path: Path, timings: Sequence[Timing]) -> None:
    """One line for each entry."""
    _write(path, _TIMING, [
        (t.entry, repr(t.median), " ".join(map(repr, t.seconds)), repr(t.peak_mb), t.threads, t.error, t.made_from)
        for t in timings
    ])  # fmt: skip


def read_timings(path: Path) -> list[Timing]:
    """What `write_timings` wrote; nothing if the file is not there or not whole."""
    return [
        Timing(
            c["entry"], tuple(map(float, c["seconds"].split())), float(c["peak_mb"]), int(c["threads"]), c["error"],
            c["made_from"],
        )
        for c in _read(path, _TIMING)
    ]  # fmt: skip


def write_sizes(path: Path, sizes: Sequence[Size]) -> None:
    """One line for each entry and size."""
    _write(path, _SIZE, [
        (s.entry, s.voxels, "x".join(map(str, s.shape)), repr(s.seconds), repr(s.peak_mb), s.iterations, s.error,
         s.made_from)
        for s in sizes
    ])  # fmt: skip


def read_sizes(path: Path) -> list[Size]:
    """What `write_sizes` wrote; nothing if the file is not there or not whole."""
    return [
        Size(
            c["entry"], int(c["voxels"]), tuple(map(int, c["shape"].split("x"))), float(c["seconds"]),
            float(c["peak_mb"]), int(c["iterations"]), c["error"], c["made_from"],
        )
        for c in _read(path, _SIZE)
    ]  # fmt: skip


def _write(path: Path, names: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([names, *lines])
    write_text(path, stream.getvalue())


def _read(path: Path, names: Sequence[str]) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    return [dict(zip(names, c, strict=True)) for c in lines[1:] if len(c) == len(names)]
