"""One registration of one pair by one method: run or taken from an earlier run, then measured."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from .plan import Method, Pair
from .processes import RunError, keep, kept, run, sha256, tree_digest, why

HERE = Path(__file__).parent
NOT_REGISTRATION = ("read", "invert", "resample", "measure", "write")
"""Stages of our run.json that lie before the images are in memory or after the final field."""

MEASURES_WITH = (
    "errors.py", "grid.py", "image.py", "transform.py", "io", "ops", "kernels", "evaluation",
    "registration/apply.py", "registration/measure.py", "registration/inputs.py",
)  # fmt: skip
WARP = "moving_to_fixed_warp.nii.gz"


@dataclass(frozen=True)
class Bench:
    """Where the data are, where results are kept, and how runs are done."""

    data: Path
    work: Path
    threads: int
    timeout: float
    fresh: bool = False

    def files(self, pair: Pair) -> dict[str, Path]:
        """Images and labels of a pair."""
        fixed, moving = (self.data / "brain3d" / name for name in (pair.fixed, pair.moving))
        return {
            "fixed": fixed / "norm.nii.gz",
            "moving": moving / "norm.nii.gz",
            "fixed_labels": fixed / "seg35.nii.gz",
            "moving_labels": moving / "seg35.nii.gz",
        }

    def missing(self, pairs: Sequence[Pair]) -> list[Path]:
        """Input files that are not there."""
        return sorted({p for pair in pairs for p in self.files(pair).values() if not p.is_file()})

    @cached_property
    def package(self) -> Path:
        """The folder of the pirate that is run."""
        found = importlib.util.find_spec("pirate")
        if found is None or not found.submodule_search_locations:
            raise SystemExit("pirate is not installed; install it, or set PYTHONPATH to its src folder.")
        return Path(found.submodule_search_locations[0])

    @cached_property
    def program(self) -> str:
        """Checksum of the whole package: a preset is only what this code makes of it."""
        return tree_digest(self.package)

    @cached_property
    def measure(self) -> str:
        """Checksum of the code that measures."""
        parts = [self.package / name for name in MEASURES_WITH]
        sums = [tree_digest(p) if p.is_dir() else sha256(p) for p in parts]
        return " ".join([*sums, sha256(HERE / "measuring.py")])

    def checksums(self, pair: Pair) -> dict[str, str]:
        """Checksum of each input."""
        return {name: self._sum(path) for name, path in self.files(pair).items()}

    @cached_property
    def _sums(self) -> dict[Path, str]:
        return {}

    def _sum(self, path: Path) -> str:
        if path not in self._sums:
            self._sums[path] = sha256(path)
        return self._sums[path]

    def key(self, pair: Pair, method: Method) -> dict[str, Any]:
        """What a kept run must have been made with."""
        return {
            "inputs": self.checksums(pair),
            "tool": method.tool,
            "parameters": dict(method.parameters),
            "versions": versions(method.packages),
            "threads": self.threads,
            "program": self.program if method.ours else sha256(HERE / "tools.py"),
        }

    def once(self, pair: Pair, method: Method, repeat: int) -> dict[str, Any]:
        """Run (or find) one registration.

        Returns:
            registration_s, whole_s, cpu_s, peak_mb, transform, warped, warp_sha256, when, reused, ...
        """
        folder = self.work / pair.folder / method.name / str(repeat)
        record, key = folder / "run.json", self.key(pair, method)
        found = None if self.fresh else kept(record, key)
        if found is not None and (repeat > 0 or Path(self.work / found["transform"]).exists()):
            return found | {"reused": True}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        when = time.strftime("%Y-%m-%d %H:%M")
        result = self._pirate(pair, method, folder) if method.ours else self._peer(pair, method, folder)
        if method.ours and tree_digest(self.package) != self.program:
            raise RunError("pirate's own files changed while the comparison ran; start it again")
        if method.ours and repeat > 0:
            shutil.rmtree(folder / "out")  # its checksum is kept; the first repeat holds the files
        keep(record, key, result | {"when": when})
        return result | {"when": when, "reused": False}

    def _pirate(self, pair: Pair, method: Method, folder: Path) -> dict[str, Any]:
        files, out = self.files(pair), folder / "out"
        words = [
            sys.executable, "-m", "pirate", "register", files["fixed"], files["moving"], "--out", out,
            "--preset", method.parameters["preset"], "--affine", "none", "--threads", self.threads,
            "--fixed-labels", files["fixed_labels"], "--moving-labels", files["moving_labels"],
            *(word for change in method.parameters["changes"] for word in ("--set", change)),
        ]  # fmt: skip
        done = run([str(w) for w in words], folder / "log.txt", self.threads, self.timeout, good=(0, 1))
        if not (out / "run.json").is_file():
            raise RunError(why(1, (folder / "log.txt").read_text(errors="replace")))
        record = json.loads((out / "run.json").read_text())
        return {
            "registration_s": registration_seconds(record["timings_s"]),
            "stages_s": record["timings_s"],
            "whole_s": done.seconds,
            "cpu_s": done.cpu_seconds,
            "peak_mb": done.peak_mb,
            "transform": self._inside(out / WARP),
            "warped": self._inside(out / "warped.nii.gz"),
            "warp_sha256": record["outputs"][WARP],
            "flags": record["flags"],
        }

    def _peer(self, pair: Pair, method: Method, folder: Path) -> dict[str, Any]:
        files = self.files(pair)
        job = {
            "tool": method.tool, "parameters": dict(method.parameters), "threads": self.threads,
            "fixed": str(files["fixed"]), "moving": str(files["moving"]), "out": str(folder),
        }  # fmt: skip
        (folder / "job.json").write_text(json.dumps(job))
        words = [sys.executable, str(HERE / "tools.py"), str(folder / "job.json")]
        done = run(words, folder / "log.txt", self.threads, self.timeout)
        for path in folder.glob("ants_*"):
            path.unlink()
        result = {
            "registration_s": json.loads((folder / "seconds.json").read_text())["registration_s"],
            "whole_s": done.seconds,
            "cpu_s": done.cpu_seconds,
            "peak_mb": done.peak_mb,
            "transform": self._inside(folder / "warp.nii.gz"),
            "warped": self._inside(folder / "warped.nii.gz"),
            "warp_sha256": sha256(folder / "warp.nii.gz"),
        }
        stage = ants_stage_seconds((folder / "log.txt").read_text(errors="replace"))
        return result | ({"optimisation_s": stage} if stage is not None else {})

    def _inside(self, path: Path) -> str:
        return path.relative_to(self.work).as_posix()

    def measured(self, pair: Pair, name: str, found: Mapping[str, Any] | None) -> dict[str, float]:
        """Numbers of the field of a run, or of no registration at all."""
        folder = self.work / pair.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        key = {"inputs": self.checksums(pair), "code": self.measure, "warp": found and found["warp_sha256"]}
        record = folder / "measured.json"
        known = None if self.fresh else kept(record, key)
        if known is not None:
            return known
        job = {name: str(path) for name, path in self.files(pair).items()}
        if found is not None:
            job |= {name: str(self.work / found[name]) for name in ("transform", "warped")}
        job["out"] = str(folder / "numbers.json")
        (folder / "measure-job.json").write_text(json.dumps(job))
        words = [sys.executable, str(HERE / "measuring.py"), str(folder / "measure-job.json")]
        run(words, folder / "measure-log.txt", self.threads, self.timeout)
        numbers: dict[str, float] = json.loads((folder / "numbers.json").read_text())
        keep(record, key, numbers)
        return numbers


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Version of each package, "not installed" where it is not; Python's own first."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def registration_seconds(stages: Mapping[str, float]) -> float:
    """From images in memory to the final field: every stage but those known to lie outside."""
    return sum(seconds for name, seconds in stages.items() if name not in NOT_REGISTRATION)


def ants_stage_seconds(log: str) -> float | None:
    """What antsRegistration says its optimisation took, without the warps it writes; None if it says nothing."""
    found = re.findall(r"Elapsed time \(stage \d+\):\s*([0-9.eE+-]+)", log)
    return sum(map(float, found)) if found else None


def combined(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of several repeats: medians of the times, the largest memory; all must have made one field."""
    if len({r["warp_sha256"] for r in repeats}) != 1:
        raise RunError("repeats of the same registration gave different fields")
    row = dict(repeats[0])
    for name in ("registration_s", "whole_s", "cpu_s"):
        row[name] = median(r[name] for r in repeats)
    row["peak_mb"] = max(r["peak_mb"] for r in repeats)
    row["reused"] = any(r["reused"] for r in repeats)
    row["repeats"] = len(repeats)
    return row
