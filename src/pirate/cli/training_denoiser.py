"""``pirate train denoiser``."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from torch import Tensor, nn

from pirate import __version__
from pirate.cli.terminal import configure_log, interrupts
from pirate.cli.watching import Watch
from pirate.denoisers.learned import load_denoiser
from pirate.denoisers.noise import Noise
from pirate.errors import UsageError, printable, reject
from pirate.evaluation.gain import gain, residual_rms
from pirate.evaluation.probes import asymmetry, largest_singular_value
from pirate.io.atomic import sha256_of
from pirate.io.weights import Card, Scalar, save_weights
from pirate.registration.process import using_threads
from pirate.reporting.curves import curves
from pirate.training.denoiser import NETWORKS, PRESETS, Denoising, Preset, best_of
from pirate.training.fields import TABLE, Corpus
from pirate.training.loop import Trained, train

log = logging.getLogger("pirate")

WEIGHTS = "denoiser.safetensors"
TASK = "field denoising"
MEASURED = 12
"""So many held-out fields at most are measured at the end."""
PROBED = {2: 96, 3: 32}
"""Voxels along each axis of the part of a field at which the Jacobian is probed."""


@dataclass(frozen=True)
class Request:
    """The options of ``pirate train denoiser``, as typed."""

    corpora: tuple[Path, ...]
    out: Path
    preset: str
    steps: int | None
    batch: int | None
    learning_rate: float | None
    patch: int | None
    sigmas: tuple[float, ...]
    width: float | None
    calm: float | None
    start: Path | None
    held_out: float
    measure: Path | None
    data: Path | None
    track: str
    pairs: int
    minutes: float
    seed: int
    tensorboard: bool
    threads: int | None
    quiet: bool


@dataclass(frozen=True, eq=False)
class Material:
    """Fields (d, *shape), voxels, to learn from, and of other subjects to validate and to measure with."""

    training: list[Tensor]
    held_out: list[Tensor]
    measured: list[Tensor]
    ndim: int
    resolution: int
    words: str
    digests: tuple[str, ...]


def run(request: Request) -> None:
    """Train, measure on the held-out fields, write weights with their card; say what came out."""
    configure_log(request.quiet)
    interrupts.watch()
    preset = _preset(request)
    with using_threads(request.threads):
        material = _material(request)
        if len(request.sigmas) > 1:
            _choose(request, preset, material)
        else:
            _fit(request, preset, material, request.out)


def _preset(request: Request) -> Preset:
    """The preset with the changes asked for."""
    if request.preset not in PRESETS:
        raise UsageError(f"--preset {printable(request.preset)}: expected one of {', '.join(PRESETS)}.")
    if len(request.sigmas) > 1 and request.data is None:
        raise UsageError("several --sigma: give --data, whose validation pairs decide which one is kept.")
    base = PRESETS[request.preset]
    steps = request.steps or base.plan.steps
    plan = dataclasses.replace(
        base.plan,
        steps=steps,
        batch=request.batch or base.plan.batch,
        learning_rate=base.plan.learning_rate if request.learning_rate is None else request.learning_rate,
        warmup=min(base.plan.warmup, steps - 1),
        seed=request.seed,
        minutes=request.minutes,
    )
    try:
        noise = base.noise if not request.sigmas else base.noise.at(request.sigmas[0])
        if request.width is not None:
            noise = dataclasses.replace(
                noise, width_min=min(noise.width_min, request.width), width_max=request.width
            )
        if request.calm is not None:
            noise = dataclasses.replace(noise, calm=request.calm)
    except ValueError as error:
        raise UsageError(f"--sigma, --width or --calm: {error}.") from None
    patches = base.patches if request.patch is None else (request.patch, request.patch)
    return dataclasses.replace(base, plan=plan, noise=noise, patches=patches)


def _material(request: Request) -> Material:
    """The fields of all corpora, divided by subject."""
    training: list[Tensor] = []
    held_out: list[Tensor] = []
    words: list[str] = []
    everyone: set[str] = set()
    corpora = [Corpus.open(path) for path in request.corpora]
    first = corpora[0]
    for corpus in corpora:
        _check_kind(corpus, first)
        fit, test = corpus.split(request.held_out, seed=0)
        training += [corpus.field(i) for i in fit]
        held_out += [corpus.field(i) for i in test]
        people = {name for i in fit for name in corpus.subjects(i)}
        everyone |= people
        of_whom = f" between {len(people)} subjects ({corpus.recipe.data})" if people else ""
        words.append(f"{len(fit)} fields by {corpus.recipe.method}{of_whom}")
    if not training or not held_out:
        finding = f"{len(training)} fields to learn from and {len(held_out)} of other subjects"
        raise reject(request.corpora[0], finding, "some of both", "Make more fields, or change --held-out.")
    log.info("%s; %d held out", "; ".join(words), len(held_out))
    digests = tuple(sha256_of(path / TABLE) for path in request.corpora)
    measured = held_out if request.measure is None else _others(request.measure, first, everyone)
    return Material(training, held_out, measured, first.ndim, first.resolution, "; ".join(words), digests)


def _check_kind(corpus: Corpus, first: Corpus) -> None:
    """Refuse fields of another dimension or resolution than those of the first corpus."""
    if (corpus.ndim, corpus.resolution) != (first.ndim, first.resolution):
        finding = f"{corpus.ndim}-D fields of resolution {corpus.resolution}"
        expected = f"{first.ndim}-D of resolution {first.resolution}, as the first corpus"
        raise reject(corpus.path, finding, expected, "Take one kind of field.")


def _others(path: Path, first: Corpus, everyone: set[str]) -> list[Tensor]:
    """The fields of a corpus that shares no subject with the training; each (d, *shape), voxels."""
    corpus = Corpus.open(path)
    _check_kind(corpus, first)
    shared = sorted({name for i in range(len(corpus)) for name in corpus.subjects(i)} & everyone)
    if shared:
        finding = f"it shares {len(shared)} subjects with the training, {shared[0]} for one"
        raise reject(path, finding, "other subjects", "Measure on those who were not trained on.")
    return [corpus.field(i) for i in range(len(corpus))]


def _fit(request: Request, preset: Preset, material: Material, out: Path) -> nn.Module:
    """Train one network, or go on with it, and write everything about it to `out`."""
    torch.manual_seed(request.seed)
    network = NETWORKS[preset.network](material.ndim)
    if request.start is not None:
        _begin_with(network, request.start, material)
    patch = preset.patches[material.ndim - 2]
    task = Denoising(network, material.training, material.held_out, preset.noise, patch, preset.symmetries)
    settings: dict[str, object] = {
        "network": preset.network, "patch": patch, "symmetries": preset.symmetries, "corpora": material.digests,
        "held_out": request.held_out, "start": "" if request.start is None else sha256_of(request.start),
        **dataclasses.asdict(preset.noise),
    }  # fmt: skip
    trained = train(
        task,
        preset.plan,
        out,
        observe=Watch(request.quiet),
        tensorboard=request.tensorboard,
        settings=settings,
    )
    network.load_state_dict(trained.best)
    network.eval().requires_grad_(False)
    if trained.first:
        log.info("%s; measuring", trained.ended.value)
        metrics = measured(network, material, preset.noise) | _course(trained)
        card = _card(network, preset, material, metrics)
        curves(out / "curves.png", trained.losses, trained.history, f"Denoiser ({request.preset})")
        save_weights(out / WEIGHTS, network.state_dict(), card)
        _say(metrics, out / WEIGHTS)
    return network


def _begin_with(network: nn.Module, path: Path, material: Material) -> None:
    """Put the weights of a file into the network; they must be of the same architecture."""
    other = load_denoiser(path, material.ndim, resolution=material.resolution)
    if dict(other.card.architecture) != dict(network.architecture()):  # type: ignore[operator]
        expected = f"the network of the preset, {network.architecture()}"  # type: ignore[operator]
        raise reject(
            path, f"it holds {dict(other.card.architecture)}", expected, "Choose the preset that fits."
        )
    network.load_state_dict(other.network.state_dict())


def measured(network: nn.Module, material: Material, noise: Noise) -> dict[str, Scalar]:
    """Figures for the card: gains in dB at the middle of the noise range, and what kind of map it is."""
    fields = material.measured[:: max(1, len(material.measured) // MEASURED)][:MEASURED]
    sigma = 0.5 if noise.sigma_min <= 0.5 <= noise.sigma_max else noise.sigma_max
    least = noise.sigma_min  # a prior that expects little noise is the one that is surprised by a bad field
    found: dict[str, Scalar] = {"sigma": sigma, "surprise_sigma": least}
    found["residual_rms"] = residual_rms(network, fields, least)
    colours = {"white": Noise(sigma, sigma)}
    if noise.width_max > 0:
        colours["coloured"] = noise
    for name, colour in colours.items():
        gains = gain(network, fields, sigma, colour)
        found[f"{name}_db"], found[f"{name}_best_gaussian_db"] = gains.denoiser, gains.gaussian
    edge = PROBED[material.ndim]
    z = fields[0]
    for axis in range(1, z.ndim):
        size = min(edge, z.shape[axis])
        z = z.narrow(axis, (z.shape[axis] - size) // 2, size)
    found["asymmetry"] = asymmetry(network, z[None], sigma)
    found["largest_singular_value"] = largest_singular_value(network, z[None], sigma)
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in found.items()}


def _course(trained: Trained) -> dict[str, Scalar]:
    lowest = min(row["validation_loss"] for row in trained.history)
    return {
        "steps": trained.step,
        "best_step": trained.best_step,
        "minutes": round(trained.seconds / 60, 2),
        "validation_loss": round(lowest, 5),
    }


def _card(network: nn.Module, preset: Preset, material: Material, metrics: dict[str, Scalar]) -> Card:
    return Card(
        task=TASK,
        architecture=network.architecture(),  # type: ignore[operator]
        ndim=material.ndim,
        sigma_min=preset.noise.sigma_min,
        sigma_max=preset.noise.sigma_max,
        resolution=material.resolution,
        training_data=material.words,
        labels_used=False,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        metrics=metrics,
        pirate_version=__version__,
    )


def _choose(request: Request, preset: Preset, material: Material) -> None:
    """Train a network for each noise level and keep the one that registers the validation pairs best."""
    from pirate.cli.training_score import dice_of

    def fit(sigma: float) -> nn.Module:
        log.info("noise level %g", sigma)
        chosen = dataclasses.replace(preset, noise=preset.noise.at(sigma))
        return _fit(request, chosen, material, request.out / f"sigma-{sigma:g}")

    score = dice_of(Path(str(request.data)), request.track, request.pairs, material.resolution)
    best, _, scores = best_of(request.sigmas, fit, score)
    for sigma, value in scores.items():
        typer.echo(f"sigma {sigma:g}: Dice {value:.4f}" + (" (kept)" if sigma == best else ""))
    chosen = load_denoiser(request.out / f"sigma-{best:g}" / WEIGHTS, material.ndim)
    metrics = dict(chosen.card.metrics) | {f"dice_sigma_{s:g}": round(v, 5) for s, v in scores.items()}
    card = dataclasses.replace(chosen.card, metrics=metrics)
    save_weights(request.out / WEIGHTS, chosen.network.state_dict(), card)
    typer.echo(printable(request.out / WEIGHTS))


def _say(metrics: dict[str, Scalar], path: Path) -> None:
    for name in ("white", "coloured"):
        if f"{name}_db" in metrics:
            ours, best = float(metrics[f"{name}_db"]), float(metrics[f"{name}_best_gaussian_db"])
            typer.echo(
                f"{name} noise of {metrics['sigma']} voxels: {ours:.2f} dB taken off, "
                f"the best Gaussian {best:.2f} dB"
            )
    typer.echo(
        f"Jacobian: asymmetry {metrics['asymmetry']:.3f}, "
        f"largest singular value {metrics['largest_singular_value']:.3f}"
    )
    typer.echo(printable(path))
