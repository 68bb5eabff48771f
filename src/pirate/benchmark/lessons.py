"""Which networks a track trains, for how long, and where their weights lie."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pirate.baselines.learning import METHODS, plan, untrained
from pirate.benchmark.entries import Entry
from pirate.benchmark.tracks import Track
from pirate.data.training_sets import USUAL, training_files
from pirate.denoisers import zoo
from pirate.errors import InputError, UsageError
from pirate.io.atomic import sha256_of
from pirate.io.weights import Scalar, load_weights
from pirate.settings import preset
from pirate.training.plan import Precision
from pirate.training.task import Ended

SCHEDULE = "reduced"
STEPS = {
    ("oasis2d", "symnet"): 16_000, ("oasis2d", "voxelmorph"): 16_000, ("oasis2d", "gradirn"): 2000,
    ("hippocampus", "symnet"): 4500, ("hippocampus", "voxelmorph"): 5000, ("hippocampus", "gradirn"): 1500,
    ("brain3d", "symnet"): 2200, ("brain3d", "voxelmorph"): 3200,
}  # fmt: skip
"""Other than the schedule's, so that a track ends within hours on two cores."""

NOT_HERE = {"gradirn": "it is not trained at this size on CPU cores; give --weights gradirn=FILE"}
"""Methods to why they are not trained on large volumes."""

HELD_OUT, CHECKS = 0.1, 20
"""Share of the training subjects that tell when to stop, and pairs of them."""

PLUS = "pirate-plus"
PLUS_STEPS, PLUS_BATCH, PLUS_RATE, PLUS_CHECKS = 200, 2, 1e-4, 8
PLUS_CHANGES = ("iterations=40",)
PLUS_LOSS = {
    "oasis2d": ("expansion=1", "smoothness=1"), "hippocampus": ("expansion=1", "smoothness=0.3"),
}  # fmt: skip
"""How the weights of PIRATE+ that ship were tuned, by the names of ``pirate train deq``. On these tracks it is done
again, minutes on a core, to show the evaluations that it takes; the tables have the weights that ship."""

ROUNDING = 0.01
"""Of the minutes on a card."""

MEMORY = "memory.json"
"""In the folder of a training: its peak memory."""


@dataclass(frozen=True)
class Lesson:
    """One training.

    Args:
        method: which network.
        track: the part of the data folder that it learns from.
        folder: for everything that it writes.
        steps: of the optimisation; None takes the schedule's.
        precision: of the numbers that convolutions multiply: bfloat16 where the processor does so itself.
        start: the denoiser that PIRATE+ is tuned from.
    """

    method: str
    track: str
    folder: Path
    steps: int | None
    precision: Precision = "single"
    start: Path | None = None

    @property
    def weights(self) -> Path:
        """The file that it writes in the end."""
        return self.folder / f"{self.method}.safetensors"


def lesson(track: Track, method: str, out: Path) -> Lesson:
    """The training of a method for a track; its folder is named after the content that it depends on."""
    steps = STEPS.get((track.training, method))
    precision = usual_precision()
    with torch.device("meta"):  # only what it would be is asked
        network, loss = untrained(method, track.ndim)
    facts = (
        method, steps, precision, plan(method, SCHEDULE, track.ndim), network.architecture(), loss,  # type: ignore[operator]
        track.training, USUAL[track.training], HELD_OUT, CHECKS,
    )  # fmt: skip
    digest = hashlib.sha256(f"{facts} ".encode() + _content(track).encode())
    folder = out / "training" / f"{method}-{digest.hexdigest()[:12]}"
    return Lesson(method, track.training, folder, steps, precision)


def equilibrium(track: Track, entries: tuple[Entry, ...], out: Path) -> Lesson | None:
    """The tuning of PIRATE+ that the page shows; None where it is not compared, cannot be or would take too long."""
    own = {e.key: e for e in entries if e.key in ("pirate", PLUS)}
    if track.training not in PLUS_LOSS or len(own) < 2 or own["pirate"].obstacle(track.ndim):
        return None
    constants = PLUS_STEPS, PLUS_BATCH, PLUS_RATE, PLUS_CHECKS, PLUS_CHANGES, PLUS_LOSS[track.training]
    weights = zoo.path_of(zoo.find(own["pirate"].prior, track.ndim, preset("paper", track.ndim).resolution))
    digest = hashlib.sha256(f"{track.training} {constants} {sha256_of(weights)} ".encode())
    digest.update(_content(track).encode())
    folder = out / "training" / f"{PLUS}-{digest.hexdigest()[:12]}"
    return Lesson(PLUS, track.training, folder, PLUS_STEPS, start=weights)


def finished(task: Lesson, minutes: float) -> bool:
    """Whether a training has ended by its steps or its patience; one that a limit cut short goes on under a longer one.

    Args:
        task: which.
        minutes: the limit now; 0 is none.
    """
    found = _metrics(task.weights)
    if found.get("ended") == Ended.MINUTES.name.lower():
        return 0 < minutes <= _minutes(found) + ROUNDING
    return found.get("ended") in (Ended.STEPS.name.lower(), Ended.PATIENCE.name.lower())


def usual_precision() -> Precision:
    """bfloat16 where the processor multiplies such numbers itself, which halves the time of a training."""
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "single"


def why_not(track: Track, method: str) -> str:
    """Why a method is not trained for a track; empty if it can be."""
    if not track.training:
        return f"there is nothing to train on here; give --weights {method}=FILE"
    return NOT_HERE.get(method, "") if track.all_cores else ""


SLOWEST = ("symnet", "voxelmorph", "gradirn")
"""What takes longest comes first, so that no core is idle in the end."""


def trainable(entries: tuple[Entry, ...]) -> list[str]:
    """The methods among the entries that need weights, in the order of their training."""
    return sorted((e.base for e in entries if e.trained and e.base in METHODS), key=SLOWEST.index)


def folders(out: Path) -> dict[str, Path]:
    """Method to the folder of its latest training that has a history."""
    found = {}
    for path in sorted((out / "training").glob("*-*/history.csv"), key=lambda p: p.stat().st_mtime):
        found[path.parent.name.rpartition("-")[0]] = path.parent
    return found


RESOLUTIONS: Mapping[float, str] = {2: "half resolution", 4: "quarter resolution"}


def named(entries: tuple[Entry, ...], weights: Mapping[str, Path]) -> tuple[Entry, ...]:
    """The entries; a network that looks at less than the full resolution says so in its title."""
    return tuple(
        replace(entry, title=f"{entry.title} ({told})")
        if entry.trained and (told := _resolution(weights.get(entry.base)))
        else entry
        for entry in entries
    )


def _resolution(path: Path | None) -> str:
    """At what resolution the network of a weight file looks at images; empty if at the full one or nobody knows."""
    try:
        found = load_weights(path)[1].resolution if path is not None else 1.0
    except InputError:
        return ""
    return "" if found == 1 else RESOLUTIONS.get(found, f"every {found:g} voxels")


def effort(
    entries: tuple[Entry, ...], ndim: int, weights: Mapping[str, Path]
) -> dict[str, tuple[float, float]]:
    """Minutes and MB of the training behind an entry, NaN where nobody knows; entries without training are left out."""
    found = {}
    for entry in entries:
        if entry.trained and entry.base in weights:
            path = weights[entry.base]
            found[entry.key] = _minutes(_metrics(path)), peak_mb(path.parent)
        elif entry.prior and ":" not in entry.prior:
            try:
                shipped = zoo.find(
                    entry.prior, ndim, preset("paper", ndim).resolution if entry.paper else None
                )
            except UsageError:
                continue
            found[entry.key] = _minutes(zoo.card_of(shipped).metrics), math.nan
    return found


def peak_mb(folder: Path) -> float:
    """Largest memory of a training, 10^6 bytes; NaN if it was not recorded."""
    try:
        return float(json.loads((folder / MEMORY).read_text())["peak_mb"])
    except (OSError, ValueError, KeyError, TypeError):
        return math.nan


def precision_of(folder: Path, method: str) -> str:
    """In which precision the network in the folder of a training was trained; empty if nobody knows."""
    return str(_metrics(folder / f"{method}.safetensors").get("precision", ""))


def _metrics(path: Path) -> Mapping[str, Scalar]:
    try:
        return load_weights(path)[1].metrics
    except InputError:
        return {}


def _minutes(metrics: Mapping[str, Scalar]) -> float:
    value = metrics.get("minutes")
    return float(value) if isinstance(value, int | float) else math.nan


def _content(track: Track) -> str:
    """Names and SHA-256 of the files that a training for a track reads."""
    files = training_files(track.training, track.source.data)
    return "".join(f"{path.name} {sha256_of(path)}\n" for path in files)
