"""Other tools' registrations, each in a child process on our verified copies, read back through our own door.

Both images are written in a plain frame: array axes along ITK's x, y, z, the fixed image's first voxel at the origin,
its spacing kept. So a tool sees neither the user's file nor the user's header, planes of any orientation are planes to
it, and its millimetres are our voxels times the spacing. A moving image whose voxels lie on the fixed one's lattice is
handed over as it is, whatever part of it it covers; any other is brought to that lattice through the start, with a
margin where it goes on beyond the fixed image.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate.errors import PirateError, UsageError
from pirate.grid import Grid
from pirate.io import fields, nifti
from pirate.registration.pair import Pair
from pirate.solvers.solution import Record

SCRIPT = Path(__file__).with_name("child_tools.py")
LAST_WORDS = 300
"""Characters of what a failed tool wrote last that are reported."""

OFF_LATTICE = 1e-3
"""Voxels by which another image may miss the fixed one's lattice and still lie on it."""

LARGEST_LOG = 1 << 22
"""Bytes of a tool's output that are looked at."""

KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
)  # fmt: skip
"""Variables of the caller that a child gets; and threads, by every name that a tool reads."""

THREADS = (
    "OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip

EXTRA = "pip install 'pirate-reg[baselines]'"


@dataclass(frozen=True)
class Tool:
    """Another tool.

    Args:
        name: of its function in ``child_tools.py``.
        title: what messages call it.
        modules: that it needs.
        energy: finds the data term of each iteration in what it prints, one group; empty if it is told otherwise.
        extra: the command that installs it.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    energy: str = ""
    extra: str = EXTRA

    def check_installed(self) -> None:
        """Refuse with one sentence that names the extra, if a package is not there."""
        missing = [name for name in self.modules if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"{self.title} needs the package {', '.join(missing)}, which is not here; {self.extra}."
            )


@dataclass(frozen=True)
class Limits:
    """What a child may use: threads, wall seconds, bytes of memory; 0 is no limit."""

    threads: int = 1
    seconds: float = 0.0
    memory: int = 0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a tool found.

    Args:
        field: (1, d, *shape), voxels of the fixed grid.
        inverse: likewise, the tool's own; None if it makes none.
        seconds: from images in memory to the final warp, by the tool's own clock.
        peak_memory: bytes, of the child.
        trace: the data term at each iteration, as the tool tells it; one record without numbers if it does not.
    """

    field: Tensor
    inverse: Tensor | None
    seconds: float
    peak_memory: int
    trace: tuple[Record, ...]


def run_tool(tool: Tool, pair: Pair, parameters: Mapping[str, Any], limits: Limits) -> Outcome:
    """Register `pair` with `tool` in a process of its own."""
    tool.check_installed()
    with tempfile.TemporaryDirectory(prefix="pirate-") as name:
        folder = Path(name)
        grid = _write_copies(folder, pair)
        job = {
            "parameters": dict(parameters), "ndim": grid.ndim,
            "fixed": str(folder / "fixed.nii.gz"), "moving": str(folder / "moving.nii.gz"),
        }  # fmt: skip
        result, log = run_job(tool, folder, job, limits)
        energies = result.get("energies") or [float(x) for x in re.findall(tool.energy, log) if tool.energy]
        inverse = folder / "inverse.nii.gz"
        return Outcome(
            read_warp(folder / "warp.nii.gz", grid), read_warp(inverse, grid) if inverse.exists() else None,
            result["seconds"], result["peak_memory"], trace_of(energies),
        )  # fmt: skip


def run_job(tool: Tool, folder: Path, job: Mapping[str, Any], limits: Limits) -> tuple[dict[str, Any], str]:
    """Run `tool` in a process of its own, on files in `folder` alone; return its ``result.json`` and its log."""
    own = {
        "tool": tool.name, "out": str(folder), "threads": limits.threads, "memory": limits.memory,
        "parent": os.getpid(),
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps({**job, **own}))
    log = _run(tool, folder, limits)
    return json.loads((folder / "result.json").read_text()), log


def plain(grid: Grid) -> Grid:
    """The lattice of `grid` with its axes along ITK's x, y, z (LPS), its first voxel at the origin."""
    steps = [*grid.spacing, 1.0][:3]
    return Grid(grid.shape, np.diag([-steps[0], -steps[1], steps[2], 1.0]))


def read_warp(path: Path, grid: Grid) -> Tensor:
    """The displacement in a file that must lie on the plain `grid`: (1, d, *shape), voxels."""
    found = fields.read_field(path)
    if not found.grid.same_space(grid, tolerance=1e-2 * min(grid.spacing)):
        raise PirateError(
            f"{path.name}: the tool's warp has the shape {found.grid.shape} or another place than the fixed image; "
            f"expected {grid.shape}. Try another version of the tool."
        )
    return torch.from_numpy(np.ascontiguousarray(found.field))[None]


def trace_of(energies: Sequence[float]) -> tuple[Record, ...]:
    """Records of the data term; a single one without numbers if there are none."""
    return tuple(Record(t, math.nan, e, math.nan, math.nan) for t, e in enumerate(energies or [math.nan]))


def _write_copies(folder: Path, pair: Pair) -> Grid:
    """Write both images; return the plain grid of the fixed one."""
    grid = plain(pair.fixed.grid)
    nifti.write_image(folder / "fixed.nii.gz", pair.fixed.data.astype(np.float32), grid)
    first = first_voxel(pair)
    if first is None:
        data = pair.on_working_grid(pair.moving, outside=float(pair.moving.data.min()))
        first = tuple(-before for before, _ in pair.margins)
    else:
        data = pair.moving.data
    affine = grid.affine.copy()
    affine[:3, 3] = grid.to_world(first)
    nifti.write_image(folder / "moving.nii.gz", data.astype(np.float32), Grid(data.shape, affine))
    return grid


def first_voxel(pair: Pair) -> tuple[int, ...] | None:
    """Where on the fixed lattice the moving image's first voxel lies, if all its voxels lie on it; else None."""
    moving = pair.moving.grid
    corners = np.concatenate([np.zeros((1, moving.ndim)), np.diag(np.array(moving.shape) - 1.0)])
    places = pair.fixed.grid.to_voxel(moving.to_world(corners))
    first = np.round(places[0])
    if pair.affine is not None or np.abs(places - corners - first).max() > OFF_LATTICE:
        return None
    return tuple(int(n) for n in first)


def _run(tool: Tool, folder: Path, limits: Limits) -> str:
    """Run the child to its end; return what it wrote."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {name: str(limits.threads) for name in THREADS}
    words = [sys.executable, "-P", str(SCRIPT), str(folder / "job.json")]
    with (folder / "log.txt").open("wb") as stream:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and script
            words, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
            start_new_session=True, cwd=folder,
        )  # fmt: skip
        try:
            code = child.wait(limits.seconds or None)
        except subprocess.TimeoutExpired:
            raise PirateError(
                f"{tool.title} took longer than the {limits.seconds:g} s allowed. Allow more, or take fewer iterations."
            ) from None
        finally:
            _end(child)
    with (folder / "log.txt").open("rb") as written:
        log = written.read(LARGEST_LOG).decode(errors="replace")
    if code != 0 or not (folder / "result.json").is_file():
        raise PirateError(f"{tool.title} gave no result: {why(code, log)}")
    return log


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child that still runs, and what it started: its own session, no other process."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def why(code: int, log: str) -> str:
    """One sentence about a process that failed: its code or signal, and the last line it wrote."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1][-LAST_WORDS:] if lines else "no output"
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}, last words: {last}."
