"""Registering every pair with every variant; a row for each is kept, so that an interrupted run goes on."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from _prior import variants
from _prior.variants import SIGMA, Variant
from pirate.benchmark import rows as benchmark_rows
from pirate.benchmark.entries import entries
from pirate.data import subjects
from pirate.data.subjects import Subject
from pirate.image import Image
from pirate.ops.resample import resize_field
from pirate.registration.additive import field_shape
from pirate.registration.register import register
from pirate.registration.result import Registration
from pirate.settings import preset

CALIBRATION = 4
"""Training pairs whose fields tell how strong a prior is."""


@dataclass(frozen=True)
class Row:
    """What came of one pair with one variant; folds and NDV in percent; `weights`: SHA-256 of the network, or "-"."""

    track: str
    variant: str
    pair: str
    start: float
    dice: float
    folds: float
    folds_forward: float
    ndv: float
    sdlogj: float
    seconds: float
    evaluations: int
    weights: str = "-"


@dataclass(frozen=True)
class Track:
    """Validation pairs of a data set.

    Args:
        name: oasis2d, hippocampus or brain3d.
        pairs: (fixed, moving).
        training: pairs of training subjects, for strengths.
        processes: how many registrations run at a time, each on one thread; 1 gives all threads to one.
        affine: the start of every registration.
        suffix: what the names of its own priors end with.
    """

    name: str
    pairs: list[tuple[Subject, Subject]]
    training: list[tuple[Subject, Subject]]
    processes: int
    affine: str = "none"
    suffix: str = ""


def track(name: str, data: Path, count: int) -> Track:
    """Read the subjects and draw the pairs."""
    if name == "brain3d":
        groups = [["oasis_0001", "oasis_0002", "oasis_0455"], ["fstrain_05", "fstrain_06"]]
        found = []
        for group in groups:
            people = subjects.brain3d(data, names=group)
            found += [(a, b) for a in people for b in people if a is not b]
        training = subjects.brain3d(data, names=["oasis_0133", "oasis_0140"])
        return Track(name, found[:count], [(training[0], training[1])], 1)
    read = {"oasis2d": subjects.oasis2d, "hippocampus": subjects.hippocampus}[name]
    return Track(
        name,
        subjects.pairs(read(data, split="validation"), count, seed=0),
        subjects.pairs(read(data, split="train"), CALIBRATION, seed=1),
        2,
        affine="affine" if name == "hippocampus" else "none",
        suffix="-hippocampus" if name == "hippocampus" else "",
    )


def run(track: Track, chosen: Sequence[Variant], work: Path, benchmark: Path | None = None) -> list[Row]:
    """Every row of a track: those of an earlier run from `work` and of a `benchmark` of it, the others now."""
    path = work / f"{track.name}.csv"
    own, done = known(track.name, chosen, work), known(track.name, chosen, work, benchmark)
    for key in done.keys() - own.keys():
        _append(path, done[key])
    wanted = [
        (v, i) for v in chosen for i in range(len(track.pairs)) if (v.key, pair_name(track, i)) not in done
    ]
    started = time.monotonic()
    for number, row in enumerate(_results(track, wanted), 1):
        _append(path, row)
        done[row.variant, row.pair] = row
        left = (time.monotonic() - started) / number * (len(wanted) - number)
        if number % 20 == 0 or left > 600:
            print(f"{track.name}: {number} of {len(wanted)}, {left / 60:.0f} min left", flush=True)
    keys = {v.key for v in chosen}
    return [row for row in done.values() if row.variant in keys]


def known(
    track: str, chosen: Sequence[Variant], work: Path, benchmark: Path | None = None
) -> dict[tuple[str, str], Row]:
    """The rows that are there already, by variant and pair; those of other weights than today's are left out."""
    ndim = 2 if track == "oasis2d" else 3
    today = {v.key: v.weights(ndim) or "-" for v in chosen}
    found = {
        (row.variant, row.pair): row
        for row in read_rows(work / f"{track}.csv")
        if today.get(row.variant) == row.weights
    }
    by_entry = {v.entry: v for v in chosen if v.entry}
    same = set() if benchmark is None else _of_today(benchmark, ndim)
    for row in [] if benchmark is None else benchmark_rows.read_rows(benchmark / "rows.csv"):
        if row.entry in by_entry and row.entry in same and not row.error:
            key = by_entry[row.entry].key
            found[key, row.pair] = Row(
                track, key, row.pair, row.dice_before, row.dice, row.folds, row.folds_forward, row.ndv, row.sdlogj,
                row.seconds, row.iterations, today[key],
            )  # fmt: skip
    return found


def _of_today(benchmark: Path, ndim: int) -> set[str]:
    """The entries of a benchmark whose constants and weights are today's."""
    record = json.loads((benchmark / "benchmark.json").read_text())
    made = {entry["key"]: entry["sha256"] for entry in record["entries"]}
    suffix = "-hippocampus" if record["track"] == "hippocampus" else ""
    return {e.key for e in entries(suffix, record["track"] == "brain3d") if made.get(e.key) == e.digest(ndim)}


def _results(track: Track, wanted: Sequence[tuple[Variant, int]]) -> Iterator[Row]:
    if track.processes == 1 or len(wanted) < 2:
        worker = Worker(track, None)
        yield from map(worker, wanted)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(track.processes, _start, (track,)) as pool:
        yield from pool.imap_unordered(_work, wanted, chunksize=4)


_worker: Worker | None = None


def _start(track: Track) -> None:
    global _worker
    torch.set_num_threads(1)
    _worker = Worker(track, 1)


def _work(job: tuple[Variant, int]) -> Row:
    if _worker is None:
        raise RuntimeError("the pool was not started")
    return _worker(job)


class Worker:
    """Registers pairs of one track; the priors are built once."""

    def __init__(self, track: Track, threads: int | None) -> None:
        self.track, self.threads = track, threads
        self.priors: dict[tuple[str, str], str | variants.Denoise] = {}
        self.fields: dict[str, list[Tensor]] = {}

    def __call__(self, job: tuple[Variant, int]) -> Row:
        """Register one pair with one variant."""
        variant, index = job
        result = self.register(variant, *self.track.pairs[index])
        m = result.metrics
        return Row(
            self.track.name, variant.key, pair_name(self.track, index), m["dice_before"], m["dice"], m["folds_percent"],
            m["folds_forward_percent"], m["ndv_percent"], m["sd_log_jacobian"],
            result.timings["solve"] + result.timings["repair"], len(result.trace),
            variant.weights(axes_of(self.track)) or "-",
        )  # fmt: skip

    def register(self, variant: Variant, fixed: Subject, moving: Subject) -> Registration:
        """One registration."""
        changes = dict(variant.changes)
        smoothness = float(changes.pop("smoothness", 0.5))
        prior = self.prior(variant)
        if prior != "none":
            changes.setdefault("sigma", SIGMA)
        return register(
            image(fixed), image(moving), preset=variant.preset, smoothness=smoothness, prior=prior,
            affine=self.track.affine,
            fixed_labels=labels(fixed), moving_labels=labels(moving), settings=changes, threads=self.threads,
        )  # fmt: skip

    def prior(self, variant: Variant) -> str | variants.Denoise:
        """The variant's prior, built once."""
        key = (variant.preset, variant.prior)
        if key not in self.priors:
            ndim = axes_of(self.track)
            resolution = preset("paper", ndim).resolution if variant.preset == "paper" else None
            fields = self.training_fields(variant.preset) if variant.prior.startswith("gaussian:") else []
            self.priors[key] = variants.built(variant.prior, ndim, resolution, fields)
        return self.priors[key]

    def training_fields(self, name: str) -> list[Tensor]:
        """Fields of training pairs by the plain preset, on the grid on which the prior acts."""
        if name not in self.fields:
            found = []
            for fixed, moving in self.track.training:
                result = self.register(Variant("plain", name), fixed, moving)
                field = torch.from_numpy(result.field)[None]
                shape = field_shape(tuple(field.shape[2:]), preset("paper", field.shape[1]).resolution)
                found.append(resize_field(field, shape) if name == "paper" else field)
            self.fields[name] = found
        return self.fields[name]


def axes_of(track: Track) -> int:
    """How many axes the images of a track have: 2 or 3."""
    return track.pairs[0][0].image.ndim - 1


def image(subject: Subject) -> Image:
    """A subject's image for `register`."""
    return Image(subject.image[0].numpy(), subject.grid, subject.name)


def labels(subject: Subject) -> Image | None:
    """A subject's labels for `register`."""
    return None if subject.labels is None else Image(subject.labels.numpy(), subject.grid, subject.name)


def pair_name(track: Track, index: int) -> str:
    """Which pair: fixed, then moving."""
    fixed, moving = track.pairs[index]
    return f"{fixed.name} <- {moving.name}"


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier run."""
    if not path.is_file():
        return []
    kinds = {"float": float, "int": int, "str": str}
    with path.open(newline="") as file:
        return [
            Row(**{f.name: kinds[str(f.type)](line[f.name]) for f in fields(Row)})
            for line in csv.DictReader(file)
            if all(line.get(f.name) not in (None, "") for f in fields(Row))
        ]


def _append(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.is_file() or path.read_text().partition("\n")[0].split(",") != [
        f.name for f in fields(Row)
    ]
    if new and path.is_file():
        path.rename(path.with_suffix(".old.csv"))  # rows of an earlier form are not read
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))
        file.flush()
        os.fsync(file.fileno())
