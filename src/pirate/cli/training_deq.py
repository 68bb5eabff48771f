"""``pirate train deq``: PIRATE+, a denoiser trained on through the fixed point of the registration."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import typer

from pirate import __version__
from pirate.cli.terminal import configure_log, interrupts
from pirate.cli.watching import Watch
from pirate.data import subjects as data
from pirate.data.subjects import Subject
from pirate.denoisers.learned import Learned, load_denoiser
from pirate.errors import UsageError, printable, reject
from pirate.io.atomic import sha256_of
from pirate.io.weights import Card, Scalar, save_weights
from pirate.registration.process import using_threads
from pirate.reporting.curves import curves
from pirate.settings import RESOLUTIONS, Settings, parse_assignment, preset
from pirate.training.equilibrium import EquilibriumTask, Regulariser, equilibrium_settings
from pirate.training.hypergradient import MODES, Backward, Mode
from pirate.training.loop import Plan, Trained, train
from pirate.training.objective import OBJECTIVES, Objective, objective

log = logging.getLogger("pirate")

WEIGHTS = "pirate-plus.safetensors"
TASK = "field denoising, trained at the fixed point of the registration"
TRACKS = {"oasis2d": 2, "hippocampus": 3, "brain3d": 3}
RATES = {"paper": (5000, 1e-5), "released": (6000, 1e-6)}
"""Steps and learning rate of the paper's text (50 epochs of 100 pairs) and of its code (60)."""


@dataclass(frozen=True)
class Request:
    """The options of ``pirate train deq``, as typed; None takes the preset's own constant."""

    weights: Path
    data: Path
    track: str
    out: Path
    preset: str
    mode: str
    k: int
    steps: int | None
    batch: int
    learning_rate: float | None
    changes: tuple[str, ...]
    loss: tuple[str, ...]
    learn: tuple[str, ...]
    held_out: float
    checks: int
    validate_every: int
    patience: int
    minutes: float
    seed: int
    tensorboard: bool
    threads: int | None
    quiet: bool


def run(request: Request) -> None:
    """Read weights and subjects, train, write weights with their card; say what changed on held-out pairs."""
    configure_log(request.quiet)
    interrupts.watch()
    _check(request)
    with using_threads(request.threads):
        ndim = TRACKS[request.track]
        start = load_denoiser(request.weights, ndim)
        settings = _settings(request, start.card)
        load_denoiser(request.weights, ndim, resolution=settings.resolution)
        if start.wants_images:
            finding = "the network also looks at the images"
            raise reject(
                request.weights, finding, "a denoiser of fields", "Train one with `pirate train denoiser`."
            )
        log.info("reading images")
        subjects = SUBJECTS[request.track](request.data)
        fit, held_out = _divided(request, subjects)
        _train(request, start, settings, fit, held_out)


SUBJECTS = {
    "oasis2d": lambda root: data.oasis2d(root, split="train"),
    "hippocampus": lambda root: data.hippocampus(root, split="train"),
    "brain3d": lambda root: data.brain3d(root, split="train"),
}
"""Readers of the training subjects; those for validation are left to the measurement of the finished weights."""


def _check(request: Request) -> None:
    """Refuse what cannot be done before anything is read."""
    for name, value, known in (
        ("--track", request.track, TRACKS), ("--preset", request.preset, OBJECTIVES), ("--mode", request.mode, MODES),
    ):  # fmt: skip
        if value not in known:
            raise UsageError(f"{name} {printable(value)}: expected one of {', '.join(known)}.")
    if not 0 < request.held_out < 1:
        raise UsageError(f"--held-out {request.held_out}: expected a share between 0 and 1.")


def _settings(request: Request, card: Card) -> Settings:
    """Of the iteration: the paper's, on the grid and at the noise level of the weights, and the changes asked for."""
    usual = preset("paper", card.ndim).level(0).sigma
    own: dict[str, Any] = {"sigma": float(min(max(usual, card.sigma_min), card.sigma_max))}
    if card.resolution in RESOLUTIONS:
        own["resolution"] = int(card.resolution)
    return equilibrium_settings(card.ndim, own | dict(parse_assignment(text) for text in request.changes))


def _objective(request: Request) -> Objective:
    """The preset's loss with the changes asked for, each of the type that it has."""
    base = objective(request.preset)
    known = dataclasses.asdict(base)
    clean: dict[str, Any] = {}
    for name, given in (parse_assignment(text) for text in request.loss):
        if name not in known:
            raise UsageError(
                f"--loss {printable(name)}: there is no such constant; expected one of {', '.join(known)}."
            )
        value = float(given) if type(given) is int and type(known[name]) is float else given
        if type(value) is not type(known[name]):
            raise UsageError(f"--loss {name}: expected a value like {known[name]!r}.")
        clean[name] = value
    return dataclasses.replace(base, **clean)


def _divided(request: Request, subjects: Sequence[Subject]) -> tuple[list[Subject], list[Subject]]:
    """Subjects to learn from and, a share of each source that gives pairs of its own, those held out."""
    fit: list[Subject] = []
    held_out: list[Subject] = []
    for source in dict.fromkeys(s.source for s in subjects):
        own = [s for s in subjects if s.source == source]
        count = round(request.held_out * len(own))
        count = count if count >= 2 and len(own) - count >= 2 else 0
        fit += own[: len(own) - count]
        held_out += own[len(own) - count :]
    if not held_out:
        finding = f"{len(subjects)} training subjects, none of them held out"
        raise reject(request.data, finding, "a source with two or more to hold out", "Raise --held-out.")
    return fit, held_out


def _train(
    request: Request, start: Learned, settings: Settings, fit: Sequence[Subject], held_out: Sequence[Subject]
) -> None:
    network = Regulariser(start.network.requires_grad_(True), settings, request.learn)
    checks = data.pairs(held_out, min(request.checks, len(data.pairs(held_out, None, 0))), 0)
    task = EquilibriumTask(
        network,
        [s.image for s in fit],
        [(fixed.image, moving.image) for fixed, moving in checks],
        settings,
        [s.source for s in fit],
        _objective(request),
        Backward(cast(Mode, request.mode), steps=request.k),
    )
    trained = train(
        task,
        _plan(request),
        request.out,
        Watch(request.quiet),
        request.tensorboard,
        _record(request, task, fit),
    )
    if not trained.first:
        return
    network.load_state_dict(trained.best)
    metrics = _metrics(request, trained, network, settings)
    curves(
        request.out / "curves.png",
        trained.losses,
        trained.history,
        f"PIRATE+, {request.track}, {request.mode}",
    )
    card = _card(
        start.card, f"{len(fit)} subjects ({request.track}, train), without labels", settings, metrics
    )
    save_weights(request.out / WEIGHTS, network.denoiser.state_dict(), card)
    log.info("%s", trained.ended.value)
    _say(metrics, request.out / WEIGHTS)


def _plan(request: Request) -> Plan:
    steps, rate = RATES[request.preset]
    return Plan(
        steps=request.steps or steps,
        batch=request.batch,
        learning_rate=rate if request.learning_rate is None else request.learning_rate,
        schedule="constant",
        validate_every=request.validate_every,
        checkpoint_every=min(request.validate_every, 20),
        patience=request.patience,
        seed=request.seed,
        minutes=request.minutes,
    )


def _record(request: Request, task: EquilibriumTask, fit: Sequence[Subject]) -> dict[str, object]:
    """What defines the training besides the plan; it is not resumed under anything else."""
    return {
        "start": sha256_of(request.weights),
        "track": request.track,
        "subjects": ",".join(s.name for s in fit),
        "checks": len(task.held_out),
        "learn": ",".join(request.learn),
        **{f"loss {name}": value for name, value in dataclasses.asdict(task.objective).items()},
        **{f"backward {name}": value for name, value in dataclasses.asdict(task.backward).items()},
        **{
            name: list(v) if isinstance(v, tuple) else v
            for name, v in dataclasses.asdict(task.settings).items()
        },
    }


def _metrics(
    request: Request, trained: Trained, network: Regulariser, settings: Settings
) -> dict[str, Scalar]:
    """Held-out pairs before the training and with the weights kept, the constants to use them with, the course."""
    before, after = trained.history[0], min(trained.history, key=lambda row: row["validation_loss"])
    figures: dict[str, Scalar] = {"mode": request.mode, "preset": request.preset}
    for name in ("loss", "similarity", "folds_percent", "nfe", "growth"):
        for when, row in (("before", before), ("after", after)):
            figures[f"{name}_{when}"] = round(row[f"validation_{name}"], 5)
    figures |= {name: round(value, 6) for name, value in network.scalars().items()}
    course: dict[str, Scalar] = {
        "steps": trained.step,
        "best_step": trained.best_step,
        "minutes": round(trained.seconds / 60, 2),
        "ended": trained.ended.name.lower(),
    }
    return figures | {"gamma": settings.gamma} | course


def _card(start: Card, words: str, settings: Settings, metrics: Mapping[str, Scalar]) -> Card:
    """The card of the weights at the start, told on."""
    return dataclasses.replace(
        start,
        task=TASK,
        resolution=settings.resolution,
        training_data=f"{start.training_data}; then {words}",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        metrics=metrics,
        pirate_version=__version__,
    )


def _say(metrics: Mapping[str, Scalar], path: Path) -> None:
    pieces = [
        f"{name} {metrics[f'{name}_before']} -> {metrics[f'{name}_after']}" for name in ("loss", "similarity")
    ]
    typer.echo(f"held-out pairs: {', '.join(pieces)}")
    typer.echo(
        f"folded voxels {metrics['folds_percent_before']} -> {metrics['folds_percent_after']} %, "
        f"evaluations {metrics['nfe_before']} -> {metrics['nfe_after']}"
    )
    typer.echo(printable(path))
