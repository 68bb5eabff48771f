"""One pair with one entry: register, measure, keep. This is what a worker process does."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate.baselines.protocol import register_with
from pirate.benchmark import controls, kept, tracks
from pirate.benchmark.cases import Case, file_name, resized
from pirate.benchmark.entries import START, Entry
from pirate.benchmark.judging import numbers, started
from pirate.benchmark.kept import Held, write_held
from pirate.benchmark.rows import Row, failed
from pirate.benchmark.snapshots import Recorder, images_at, trace_of
from pirate.benchmark.tracks import Source, Track
from pirate.denoisers import plug
from pirate.errors import PirateError
from pirate.io.atomic import write_json
from pirate.ops.resample import resize_field
from pirate.registration.additive import field_shape
from pirate.registration.affine import align
from pirate.registration.process import using_threads
from pirate.registration.register import register
from pirate.registration.result import Registration
from pirate.settings import preset
from pirate.transform import Affine

Prior = Any
"""A name, or a function D(field, sigma)."""


@dataclass(frozen=True)
class Job:
    """One registration to do.

    Args:
        entry: by what.
        pair: index in the track.
        made_from: goes into the row.
        weights: file of a trained network; None if it needs none.
        keep: also write field, images and trace.
        shape: register copies of this size instead; nothing but time and memory is measured then.
        options: further changes to the settings.
    """

    entry: Entry
    pair: int
    made_from: str
    weights: Path | None = None
    keep: bool = False
    shape: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What came of a job: the row, and the memory of the process that did the work, 10^6 bytes."""

    row: Row
    peak_mb: float = math.nan


class Worker:
    """Does jobs of one track; subjects and priors are read once.

    Args:
        source: of the track.
        out: folder of the benchmark.
        threads: for each registration.
    """

    def __init__(self, source: Source, out: Path, threads: int) -> None:
        self.source, self.out, self.threads = source, out, threads
        self._track: Track | None = None
        self._priors: dict[tuple[str, bool], Prior] = {}
        self._case = lru_cache(maxsize=2)(self._read)

    @property
    def track(self) -> Track:
        """Read when first asked for, so that a data set that cannot be read is a row that says so."""
        if self._track is None:
            self._track = tracks.of(self.source)
        return self._track

    def __call__(self, job: Job, pair: str) -> Done:
        """Do a job; whatever goes wrong becomes a row that says so."""
        try:
            with using_threads(self.threads):
                done = self._shaped(job) if job.shape else self._done(job)
        except MemoryError:
            done = Done(failed(job.entry.key, pair, "the memory ran out", self.threads))
        except PirateError as error:
            done = Done(failed(job.entry.key, pair, str(error), self.threads))
        except Exception as error:  # a benchmark goes on, whatever a method does
            done = Done(failed(job.entry.key, pair, f"{type(error).__name__}: {error}", self.threads))
        return replace(done, row=replace(done.row, made_from=job.made_from))

    def _done(self, job: Job) -> Done:
        case, begin = self._case(job.pair), time.perf_counter()
        start = self.start(job.pair, case)
        path = kept.path_of(self.out, job.pair, case.name, job.entry.key)
        if job.entry.key == START:
            row, held = started(case, start)
            if job.keep:
                write_held(path, held, job.made_from)
            return Done(replace(row, threads=self.threads, total_seconds=time.perf_counter() - begin))
        recorder = self.recorder(job) if job.keep else None
        result = self.register(job, case, start, recorder)
        found, now = numbers(case, result, start)
        if job.keep:
            shots = images_at(case, start, recorder.fields) if recorder is not None else {}
            total = result.forward.on(case.fixed.grid).field
            write_held(path, Held(total, now.warped, now.labels, trace_of(result), shots), job.made_from)
        row = replace(self._row(job, case, result), **found, total_seconds=time.perf_counter() - begin)
        return Done(row, result.peak_memory / 1e6)

    def _shaped(self, job: Job) -> Done:
        """Only time and memory, on copies of another size."""
        case = self._case(job.pair)
        result = self.register(job, resized(case, job.shape), self.start(job.pair, case), None)
        return Done(self._row(job, case, result), result.peak_memory / 1e6)

    def _row(self, job: Job, case: Case, result: Registration) -> Row:
        """The row with what the result itself tells of its course."""
        return Row(
            job.entry.key, case.name, seconds=own_seconds(result), iterations=len(trace_of(result)),
            threads=self.threads,
        )  # fmt: skip

    def _read(self, index: int) -> Case:
        return self.track.cases[index]

    def start(self, index: int, case: Case) -> Affine | None:
        """The affine that every method is given; found once for each pair, and kept. None: as the files are placed."""
        if self.track.affine == "none":
            return None
        path = self.out / "starts" / f"{file_name(index, case.name)}-{case.digest[:12]}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, align(case.fixed, case.moving, "affine").affine.matrix.tolist())
        return Affine(np.array(json.loads(path.read_text()), dtype=np.float64))

    def register(self, job: Job, case: Case, start: Affine | None, recorder: Recorder | None) -> Registration:
        """One registration by any method."""
        entry, options = job.entry, {**job.entry.options, **job.options}
        affine = "none" if start is None else start
        labels = case.fixed_labels, case.moving_labels
        if not entry.prior:
            return register_with(
                entry.method, case.fixed, case.moving, options=options, weights=job.weights, affine=affine,
                fixed_labels=labels[0], moving_labels=labels[1], threads=self.threads,
            )  # fmt: skip
        return register(
            case.fixed, case.moving, preset=entry.method, prior=recorder or self.prior(entry), affine=affine,
            fixed_labels=labels[0], moving_labels=labels[1], settings=options, threads=self.threads,
        )  # fmt: skip

    def prior(self, entry: Entry) -> Prior:
        """What `register` takes: a name, or a control that is built once."""
        key = entry.prior, entry.paper
        if key not in self._priors:
            resolution = preset("paper", self.track.ndim).resolution if entry.paper else None
            fields = self._training_fields() if entry.prior.startswith("gaussian:") else []
            self._priors[key] = controls.built(entry.prior, self.track.ndim, resolution, fields)
        return self._priors[key]

    def recorder(self, job: Job) -> Recorder | None:
        """The prior of the paper's iteration, so that it also remembers the fields it is shown."""
        entry = job.entry
        if not entry.paper or entry.group != "main" or ":" in entry.prior:
            return None
        resolution = preset("paper", self.track.ndim).resolution
        return Recorder(plug.load(entry.prior, self.track.ndim, resolution=resolution))  # type: ignore[arg-type]

    def _training_fields(self) -> list[Tensor]:
        """Fields (1, d, *shape) of training pairs by P+S, voxels of the grid on which the prior acts."""
        found = []
        for case in self.track.calibration():
            start = None if self.track.affine == "none" else align(case.fixed, case.moving, "affine").affine
            result = register_with(
                "paper",
                case.fixed,
                case.moving,
                affine="none" if start is None else start,
                threads=self.threads,
            )
            whole = torch.from_numpy(result.field)[None]
            shape = field_shape(tuple(whole.shape[2:]), preset("paper", self.track.ndim).resolution)
            found.append(resize_field(whole, shape))
        return found


def own_seconds(result: Registration) -> float:
    """Of the method itself: its steps and its repair."""
    return result.timings["solve"] + result.timings.get("repair", 0.0)
