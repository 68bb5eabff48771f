"""``pirate train anatomy``: the anatomy-aware prior, which is supervised."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import typer

from pirate import __version__
from pirate.cli.terminal import INTERVAL, configure_log, interrupts
from pirate.cli.watching import Watch
from pirate.data import subjects as data
from pirate.data.subjects import Subject
from pirate.denoisers.corrector import Corrector
from pirate.denoisers.learned import load_denoiser
from pirate.denoisers.planes import AS_TRAINED, PlaneCorrector, coronal
from pirate.errors import UsageError, printable, reject
from pirate.io.atomic import sha256_of
from pirate.io.weights import Card, Scalar, save_weights
from pirate.registration.process import using_threads
from pirate.reporting.curves import curves
from pirate.settings import preset
from pirate.training.corrector import CorrectorTask, Recipe
from pirate.training.loop import Plan, Trained, train
from pirate.training.solver_states import Solver, State, Variation, in_one_box
from pirate.training.warping_augment import mirror_partners

log = logging.getLogger("pirate")

WEIGHTS = "anatomy.safetensors"
TASK = "correction of fields by anatomy (supervised)"

FEW = 5
"""Where fewer subjects are held out, they are validated on in mirrors too."""


@dataclass(frozen=True)
class Track:
    """What is particular to a part of the data folder.

    Args:
        ndim: 2 or 3.
        spacing: mm of the grid on which the corrector acts.
        resolution: that grid relative to the images: 1 full, 2 half.
        width: channels of the corrector's first level.
        depth: levels of the corrector below the first.
        affine: how pairs start.
        pairs: how many are registered to train on.
        held_out: subjects kept for validation; 0 validates on other pairs of the training subjects.
        checks: pairs for validation.
        mirror: part of the subjects that is mirrored; 0 where left and right do not look alike.
        deform: part of the subjects that is deformed at random.
        largest: voxels, of the random deformations.
        steps: updates of the weights.
        batch: pairs for one update.
        recipe: constants of the loss and of the examples.
        planes: of volumes, of which few are labelled, every so-many-th coronal plane is learned from, by a 2-D network
            that later acts on planes (`PlaneCorrector`); 0 learns from volumes as they are.
        slices: pairs of the slices of `oasis2d.npz` that are learned from, too, if the data folder has them.
    """

    ndim: int
    spacing: float
    resolution: int
    width: int
    depth: int
    affine: str
    pairs: int
    held_out: int
    checks: int
    mirror: float
    deform: float
    largest: float
    steps: int
    batch: int
    recipe: Recipe
    planes: int = 0
    slices: int = 0

    @property
    def network_axes(self) -> int:
        """Axes of what the network sees: 2 or 3."""
        return 2 if self.planes else self.ndim


TRACKS = {
    "oasis2d": Track(2, 1.0, 1, 24, 3, "none", 1000, 24, 60, 0.5, 0.2, 6.0, 4000, 4, Recipe()),
    "hippocampus": Track(3, 1.0, 1, 16, 2, "affine", 120, 16, 20, 0.0, 0.2, 3.0, 700, 2, Recipe(window=7)),
    "brain3d": Track(
        3, 1.0, 1, 24, 3, "none", 60, 2, 6, 0.5, 0.6, 8.0, 10_000, 4, Recipe(own=0.0, remembered=1), 3, 1200
    ),
}
"""The constants of the weights that ship."""

VOLUMES_EVERY = 500
"""Steps on planes from one look at whole volumes to the next, which takes as long as a hundred steps."""

LABELLED = 1500
"""Voxels of a plane that must be labelled for it to be learned from."""


@dataclass(frozen=True)
class Request:
    """The options of ``pirate train anatomy``, as typed; None takes the track's own constant."""

    data: Path
    track: str
    out: Path
    steps: int | None
    minutes: float
    pairs: int | None
    held_out: int | None
    width: int | None
    batch: int | None
    learning_rate: float
    seed: int
    tensorboard: bool
    threads: int | None
    quiet: bool
    start: Path | None = None


def run(request: Request) -> None:
    """Register training pairs, train on where the solver ends, write weights with their card."""
    configure_log(request.quiet)
    interrupts.watch()
    track = _track(request)
    with using_threads(request.threads):
        _train(request, track)


def _track(request: Request) -> Track:
    """The track with the changes asked for."""
    if request.track not in TRACKS:
        raise UsageError(f"--track {printable(request.track)}: expected one of {', '.join(TRACKS)}.")
    names = ("steps", "pairs", "held_out", "width", "batch")
    changes = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    return dataclasses.replace(TRACKS[request.track], **changes)


def _train(request: Request, track: Track) -> None:
    fit, held_out = _divided(request, track)
    torch.manual_seed(request.seed)
    network = Corrector(track.network_axes, track.width, track.depth, spacing=track.spacing)
    if request.start is not None:
        _fill(network, request.start)
    acting = PlaneCorrector.around if track.planes else None
    solver = Solver(preset("default", track.ndim, fit[0].image.numel()), track.spacing, track.affine)
    states, checks = _states(request, track, solver, fit, held_out)
    settings = preset("default", 2) if track.planes else solver.settings
    task = CorrectorTask(network, states, checks, settings, track.recipe, acting)
    plan = Plan(
        track.steps, track.batch, request.learning_rate, warmup=min(50, track.steps - 1), clip=1.0,
        validate_every=VOLUMES_EVERY if track.planes else 100, checkpoint_every=100, seed=request.seed,
        minutes=request.minutes,
    )  # fmt: skip
    constants = {name: value for name, value in dataclasses.asdict(track).items() if name != "steps"}
    planes = sum(s.shown is not None for s in states)
    if track.planes:  # what there is to learn from is not told by the track alone
        constants |= {"plane_states": planes, "slice_states": len(states) - planes, "labelled": LABELLED}
    constants |= {} if request.start is None else {"start": sha256_of(request.start)}
    trained = train(
        task,
        plan,
        request.out,
        Watch(request.quiet),
        request.tensorboard,
        {"track": request.track, "subjects": ",".join(s.name for s in fit), **constants},
    )
    if not trained.first:
        return
    network.load_state_dict(trained.best)
    metrics = _metrics(trained) | {"held_out": track.held_out}
    words = f"{request.track}: {track.pairs} pairs of {len(fit)} training subjects with labels, augmented"
    if track.planes:
        words += f", by {planes} coronal planes"
        words += f", and {len(states) - planes} pairs of slices" if len(states) > planes else ""
    if request.start is not None:
        words += f"; it started from weights trained on {load_denoiser(request.start, network.ndim).card.training_data}"
    whole = network if acting is None else acting(network)
    curves(
        request.out / "curves.png", trained.losses, trained.history, f"Anatomy-aware prior, {request.track}"
    )
    save_weights(request.out / WEIGHTS, whole.state_dict(), _card(whole, track, words, metrics))
    log.info("%s", trained.ended.value)
    who = "held-out" if track.held_out else "training"
    typer.echo(
        f"Dice of {who} pairs {metrics['dice_before']} -> {metrics['dice']} (supervised: labels were used)"
    )
    typer.echo(printable(request.out / WEIGHTS))


def _fill(network: Corrector, path: Path) -> None:
    """Take over the weights of a file, which must be of the same kind and size."""
    given = load_denoiser(path, network.ndim).network
    if not isinstance(given, Corrector) or given.architecture() != network.architecture():
        finding = f"it holds {printable(str(dict(getattr(given, 'architecture', dict)())))}"
        raise reject(
            path, finding, f"{network.architecture()}", "Choose other weights, or leave --start out."
        )
    network.load_state_dict(given.state_dict())


def _divided(request: Request, track: Track) -> tuple[list[Subject], list[Subject]]:
    """Labelled training subjects to learn from, and those kept for validation."""
    readers = {
        "oasis2d": lambda root: data.oasis2d(root, split="train"),
        "hippocampus": lambda root: data.hippocampus(root, split="train"),
        "brain3d": lambda root: data.brain3d(root, split="train"),
    }
    found = [s for s in readers[request.track](request.data) if s.labels is not None]
    odd = next((s for s in found if track.planes and not _as_trained(s)), None)
    if odd is not None:
        raise reject(
            odd.name, "its array axes run otherwise", "left, down, to the front (LIA), as the slices'",
            "Turn the volume and its labels, e.g. with nibabel's as_reoriented.",
        )  # fmt: skip
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0)).tolist()
    kept = [found[i] for i in order[: track.held_out]]
    fit = [found[i] for i in sorted(order[track.held_out :])]
    if len(fit) < 2 or len(kept) == 1:
        raise reject(
            request.data, f"{len(fit)} labelled subjects to learn from, {len(kept)} held out",
            "two or more, and none or two or more", "Change --held-out.",
        )  # fmt: skip
    return fit, kept or fit


def _as_trained(subject: Subject) -> bool:
    """Whether its array shows coronal planes as the slices of the training are."""
    return subject.axes is None or coronal(subject.axes) == coronal(AS_TRAINED)


def _states(
    request: Request, track: Track, solver: Solver, fit: Sequence[Subject], held_out: Sequence[Subject]
) -> tuple[list[State], list[State]]:
    """Where the solver ends on training pairs, augmented, and on validation pairs, as they are."""
    partners = mirror_partners([s.labels for s in fit if s.labels is not None])
    vary = Variation(partners, track.mirror, track.deform, track.largest)
    same = Variation(partners, track.mirror, 0.0) if track.held_out < FEW else None
    found = solver.states(fit, track.pairs, 2 * request.seed, vary)
    others = solver.states(held_out, track.checks, 2 * request.seed + 1, same)
    unit = 2 ** (track.depth + 1)
    if track.planes:
        states = _planes(_watched(found, track.pairs, request.quiet), track.planes)
        if not states:
            finding = f"no coronal plane has {LABELLED} labelled voxels"
            raise reject(request.data, finding, "brains of about 1 mm with labels", "Train on other data.")
        spared = held_out if track.held_out else ()
        states += _slices(request, track, {s.name.rpartition("_")[2] for s in spared})
        return in_one_box(states, unit, request.seed), list(others)
    states, checks = list(_watched(found, track.pairs, request.quiet)), list(others)
    boxed = in_one_box([*states, *checks], unit, request.seed)
    return boxed[: len(states)], boxed[len(states) :]


def _planes(volumes: Iterable[State], every: int) -> list[State]:
    """Planes of all volumes, of each from another one on."""
    view = coronal(AS_TRAINED)
    return [plane for k, v in enumerate(volumes) for plane in v.planes(view, every, k % every, LABELLED)]


def _slices(request: Request, track: Track, spared: Collection[str]) -> list[State]:
    """Pairs of training slices, if there are any; in them many more subjects are labelled than in volumes.

    A slice is named by its subject's number, as the end of a volume's name is: those of `spared` are left out.
    """
    root = next((r for r in (request.data, request.data.parent) if (r / "oasis2d.npz").is_file()), None)
    if not track.slices or root is None:
        log.info("no oasis2d.npz there: learning from planes of volumes alone")
        return []
    people = [s for s in data.oasis2d(root, split="train") if s.name not in spared]
    log.info("learning from slices of %d subjects, too", len(people))
    partners = mirror_partners([s.labels for s in people if s.labels is not None])
    own = TRACKS["oasis2d"]
    solver = Solver(preset("default", 2), track.spacing, own.affine)
    vary = Variation(partners, own.mirror, own.deform, own.largest)
    found = solver.states(people, track.slices, 2 * request.seed, vary)
    return list(_watched(found, track.slices, request.quiet))


def _watched(states: Iterable[State], count: int, quiet: bool) -> Iterator[State]:
    """All of them, with a line every ten seconds."""
    started = spoken = time.monotonic()
    for done, state in enumerate(states, 1):
        interrupts.check()
        yield state
        now = time.monotonic()
        if not quiet and now - spoken > INTERVAL:
            spoken = now
            left = (now - started) / done * (count - done)
            sys.stderr.write(f"registered {done} of {count} pairs, about {left:.0f} s left\n")


def _metrics(trained: Trained) -> dict[str, Scalar]:
    best = min(trained.history, key=lambda row: row["validation_loss"])
    return {
        "steps": trained.step,
        "best_step": trained.best_step,
        "minutes": round(trained.seconds / 60, 2),
        "dice": round(1 - best["validation_loss"], 5),
        "dice_before": round(best["validation_dice_before"], 5),
    }


def _card(network: Corrector | PlaneCorrector, track: Track, words: str, metrics: dict[str, Scalar]) -> Card:
    return Card(
        task=TASK,
        architecture=network.architecture(),
        ndim=track.ndim,
        sigma_min=0.0,
        sigma_max=1000.0,
        resolution=track.resolution,
        training_data=words,
        labels_used=True,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        metrics=metrics,
        pirate_version=__version__,
    )
