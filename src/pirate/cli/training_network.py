"""``pirate train voxelmorph``, ``symnet`` and ``gradirn``: networks that align a pair at once. No labels are used."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import typer
from torch import nn

from pirate import __version__
from pirate.baselines.learning import (
    METHODS,
    SCHEDULES,
    Learner,
    PairTask,
    Person,
    learner,
    plan,
    posed,
    untrained,
)
from pirate.baselines.trained import RESOLUTIONS, TASK
from pirate.cli.terminal import configure_log, interrupts
from pirate.cli.watching import Watch
from pirate.data import subjects as data
from pirate.data.subjects import Subject
from pirate.data.training_sets import USUAL, TrainingSet, Usual, training_set
from pirate.errors import UsageError, printable, reject
from pirate.io.weights import Card, Scalar, save_weights
from pirate.registration.affine_steps import Kind
from pirate.registration.process import using_threads
from pirate.reporting.curves import curves
from pirate.training.loop import Plan, Trained, train

log = logging.getLogger("pirate")

TITLES = {"voxelmorph": "VoxelMorph", "symnet": "SYMNet", "gradirn": "GraDIRN"}
AFFINES = ("none", "rigid", "similarity", "affine")
ALIKE = 0.02
"""Of a voxel: steps along an array axis that differ by less are taken for the same."""


@dataclass(frozen=True)
class Request:
    """The options of ``pirate train voxelmorph|symnet|gradirn``, as typed; None takes the schedule's or track's own."""

    method: str
    data: Path
    track: str
    out: Path
    schedule: str
    similarity: str
    displacement: bool
    resolution: int | None
    affine: str | None
    steps: int | None
    batch: int | None
    learning_rate: float | None
    held_out: float
    checks: int
    validate_every: int | None
    patience: int | None
    precision: str
    minutes: float
    seed: int
    tensorboard: bool
    threads: int | None
    quiet: bool


def weights_name(method: str) -> str:
    """The name of the weight file in the folder of a training."""
    return f"{method}.safetensors"


def run(request: Request) -> None:
    """Read subjects, train, write weights with their card; say what it does on held-out pairs."""
    configure_log(request.quiet)
    interrupts.watch()
    track = _track(request)
    torch.manual_seed(request.seed)
    network, loss = untrained(request.method, track.ndim, request.similarity, request.displacement)
    constants = _plan(request, track)
    with using_threads(request.threads):
        log.info("reading images")
        source = training_set(request.track, request.data)
        fit, checks = _divided(request, source)
        known = _prepared(track, source, fit, checks)
        places = {name: index for index, name in enumerate(fit)}
        pairs = [(places[a], places[b]) for a, b in source.pairs if {a, b} <= places.keys()]
        held_out = [(known[a], known[b]) for a, b in checks]
        task = PairTask(network, loss, [known[name] for name in fit], held_out, pairs)
        record = _record(request, track, task, dataclasses.asdict(loss))
        trained = train(
            task, constants, request.out, Watch(request.quiet, request.method), request.tensorboard, record
        )
        if trained.first:
            _write(request, track, network, trained, len(fit))


def _track(request: Request) -> Usual:
    """The track with the changes asked for; what cannot be done is refused before anything is read."""
    choices = (("train", request.method, METHODS), ("--track", request.track, USUAL))
    for name, value, known in (*choices, ("--schedule", request.schedule, SCHEDULES)):
        if value not in known:
            raise UsageError(f"{name} {printable(value)}: expected one of {', '.join(known)}.")
    if not 0 < request.held_out < 1:
        raise UsageError(f"--held-out {request.held_out}: expected a share between 0 and 1.")
    names = ("resolution", "affine")
    changes = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    track = dataclasses.replace(USUAL[request.track], **changes)
    if track.resolution not in RESOLUTIONS:
        raise UsageError(
            f"--resolution {track.resolution}: expected one of {', '.join(map(str, RESOLUTIONS))}."
        )
    if track.affine not in AFFINES:
        raise UsageError(f"--affine {printable(track.affine)}: expected one of {', '.join(AFFINES)}.")
    return track


def _plan(request: Request, track: Usual) -> Plan:
    """The schedule with the changes asked for."""
    names = ("steps", "batch", "learning_rate", "validate_every", "patience")
    changes = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    base = plan(request.method, request.schedule, track.ndim)
    steps = request.steps or base.steps
    changes |= {"seed": request.seed, "minutes": request.minutes, "warmup": min(base.warmup, steps - 1)}
    changes["precision"] = request.precision
    return dataclasses.replace(base, **changes)


def _divided(request: Request, source: TrainingSet) -> tuple[list[str], list[tuple[str, str]]]:
    """The images to learn from, by their names, and pairs (fixed, moving) of those held out."""
    fit, held_out = source.divided(request.held_out)
    if not fit or not held_out:
        finding = f"{len(source.members)} training subjects, {'all' if held_out else 'none'} of them held out"
        raise reject(request.data, finding, "four or more of one source, or two pairs", "Add subjects.")
    drawn = source.among(held_out) or [
        (a.name, b.name) for a, b in data.pairs(held_out, None, 0) if a.person != b.person
    ]
    return [member.name for member in fit], drawn[: request.checks]


def _prepared(
    track: Usual, source: TrainingSet, fit: Sequence[str], checks: Sequence[tuple[str, str]]
) -> dict[str, Learner]:
    """The images as the network sees them, by name, in the pose of the first where the track asks for it.

    Each is read when it is its turn; only those that are validated on keep their labels.
    """
    result: dict[str, Learner] = {}
    measured = {name for pair in checks for name in pair}
    first = source.read(fit[0])
    lead = {first.source: first}
    for name in dict.fromkeys((*fit, *(name for pair in checks for name in pair))):
        interrupts.check()
        subject = first if name == fit[0] else source.read(name)
        person: Person = subject
        if track.affine == "none":
            _check_alike(subject, lead.setdefault(subject.source, subject))
        elif subject is not first:
            person = posed(subject, first, cast(Kind, track.affine))
        found = learner(person, track.resolution)
        result[name] = found if name in measured else dataclasses.replace(found, labels=None)
    return result


def _check_alike(subject: Subject, first: Subject) -> None:
    """Refuse an image whose voxels cannot be laid on those of the first without bringing it into its pose."""
    apart = np.abs(subject.grid.axes - first.grid.axes).max()
    if apart > ALIKE * min(first.spacing):
        raise reject(
            subject.name, "its voxels are of another size or turned against those of others",
            f"those of {first.name}", "Bring the images into one pose: --affine rigid.",
        )  # fmt: skip


def _record(request: Request, track: Usual, task: PairTask, loss: dict[str, object]) -> dict[str, object]:
    """What defines the training besides the plan; it is not resumed under anything else."""
    architecture = cast(dict[str, object], task.network.architecture())  # type: ignore[operator]
    names = [s.name for s in task.subjects]
    return {
        "track": request.track,
        "subjects": ",".join(names),
        "checks": ",".join(f"{a.name}-{b.name}" for a, b in task.held_out),
        "resolution": track.resolution,
        "affine": track.affine,
        **({"pairs": ",".join(f"{names[a]}-{names[b]}" for a, b in task.pairs)} if task.pairs else {}),
        **{f"network {name}": value for name, value in architecture.items()},
        **{f"loss {name}": value for name, value in loss.items()},
    }


def _write(request: Request, track: Usual, network: nn.Module, trained: Trained, count: int) -> None:
    """The best weights with their card and the curves; what they do on held-out pairs goes to stdout."""
    network.load_state_dict(trained.best)
    metrics = _metrics(request, trained)
    title = f"{TITLES[request.method]}, {request.track}"
    curves(request.out / "curves.png", trained.losses, trained.history, title)
    card = Card(
        task=TASK,
        architecture=network.architecture(),  # type: ignore[operator]
        ndim=track.ndim,
        sigma_min=0.0,
        sigma_max=0.0,
        resolution=track.resolution,
        training_data=f"{count} subjects ({request.track}, train), pose: {track.affine}, without labels",
        labels_used=False,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        metrics=metrics,
        pirate_version=__version__,
    )
    path = request.out / weights_name(request.method)
    save_weights(path, network.state_dict(), card)
    log.info("%s", trained.ended.value)
    names = [name for name in ("loss", "dice", "folds_percent") if f"{name}_after" in metrics]
    pieces = [f"{name} {metrics[f'{name}_before']} -> {metrics[f'{name}_after']}" for name in names]
    typer.echo(f"held-out pairs: {', '.join(pieces)}")
    typer.echo(printable(path))


def _metrics(request: Request, trained: Trained) -> dict[str, Scalar]:
    """Held-out pairs before the training and with the weights kept, and the course of the training."""
    before, after = trained.history[0], min(trained.history, key=lambda row: row["validation_loss"])
    figures: dict[str, Scalar] = {"schedule": request.schedule, "precision": request.precision}
    for name, value in after.items():
        if name.startswith("validation_") and math.isfinite(value):
            short = name.removeprefix("validation_")
            figures |= {f"{short}_before": round(before[name], 5), f"{short}_after": round(value, 5)}
    course: dict[str, Scalar] = {
        "steps": trained.step,
        "best_step": trained.best_step,
        "minutes": round(trained.seconds / 60, 2),
        "ended": trained.ended.name.lower(),
    }
    return figures | course
