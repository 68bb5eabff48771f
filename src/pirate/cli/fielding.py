"""``pirate fields``: a corpus of displacement fields to train a denoiser on."""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import typer
from torch import Tensor

from pirate.cli.terminal import INTERVAL, configure_log, interrupts
from pirate.data import subjects as readers
from pirate.data.subjects import Subject
from pirate.errors import QualityError, UsageError, printable
from pirate.registration.process import using_threads
from pirate.registration.register import register
from pirate.settings import parse_assignment
from pirate.settings import preset as preset_for
from pirate.training.fields import Corpus, Entry, Recipe
from pirate.training.mending import coarse_shape
from pirate.training.random_fields import RandomFields, random_field
from pirate.transform import Displacement

log = logging.getLogger("pirate")

METHODS = ("pirate", "nodeo", "random")
TRACKS = ("oasis2d", "hippocampus", "brain3d")

Pair = tuple[Subject, Subject]
Maker = Callable[[int], tuple[Tensor, tuple[str, ...]]]
"""Makes field number i, (1, d, *shape), voxels of the corpus's own grid or of the images, and names its subjects."""

Constants = TypeVar("Constants")


@dataclass(frozen=True)
class Request:
    """The options of ``pirate fields``, as typed."""

    out: Path
    data: Path | None
    track: str | None
    method: str
    count: int
    resolution: int
    preset: str
    affine: str
    split: str
    seed: int
    shape: str | None
    changes: tuple[str, ...]
    threads: int | None
    quiet: bool

    @property
    def settings(self) -> dict[str, Any]:
        """Changes to the method's constants."""
        return dict(parse_assignment(text) for text in self.changes)


def run(request: Request) -> None:
    """Make the fields that are still missing, say how many there are."""
    configure_log(request.quiet)
    interrupts.watch()
    _check(request)
    with using_threads(request.threads):
        people = _people(request)
        recipe, maker = _plan(request, people)
        corpus = Corpus.create(request.out, recipe)
        _make(corpus, maker, request.count, request.quiet, own_grid=request.method == "random")
    _say(corpus, request.out)


def _check(request: Request) -> None:
    """Refuse what cannot be done before anything is read."""
    for name, value, known in (
        ("--method", request.method, METHODS), ("--track", request.track or TRACKS[0], TRACKS),
        ("--split", request.split, readers.SPLITS), ("--affine", request.affine, ("none", "rigid", "affine")),
        ("--resolution", str(request.resolution), ("1", "2", "4", "8")),
    ):  # fmt: skip
        if value not in known:
            raise UsageError(f"{name} {printable(value)}: expected one of {', '.join(known)}.")
    if request.data is None and (request.method != "random" or request.shape is None):
        raise UsageError("give --data, the images to take pairs from; only random fields do with --shape.")
    if request.shape is not None and (request.method != "random" or request.data is not None):
        raise UsageError("--shape is for random fields without --data.")


def _people(request: Request) -> list[Subject]:
    """The subjects of one split of a track, or all images of a folder or list."""
    if request.data is None:
        return []
    log.info("reading images")
    if request.track is None:
        return readers.from_files(request.data)
    if request.track == "oasis2d":
        return readers.oasis2d(request.data, split=request.split)
    if request.track == "hippocampus":
        return readers.hippocampus(request.data, split=request.split)
    return readers.brain3d(request.data, split=request.split)


def _plan(request: Request, people: Sequence[Subject]) -> tuple[Recipe, Maker]:
    """How the fields are made, in words and as a function."""
    shape = tuple(people[0].image.shape[1:]) if people else _shape(str(request.shape))
    spacing = people[0].spacing if people else (1.0,) * len(shape)
    coarse = coarse_shape(shape, request.resolution)
    drawn = [] if request.method == "random" else readers.pairs(people, request.count, request.seed)
    constants, maker = {"pirate": _solver, "nodeo": _nodeo, "random": _random}[request.method](
        request, drawn, coarse
    )
    data = f"{request.track or 'images'}, {request.split}" if people else "none"
    sources = {s.name: s.sha256 for s in people} if drawn else {}
    steps = tuple(s * (n - 1) / max(c - 1, 1) for s, n, c in zip(spacing, shape, coarse, strict=True))
    recipe = Recipe(
        request.method, constants, data, sources, request.seed, len(shape), request.resolution, steps
    )
    return recipe, maker


def _solver(request: Request, drawn: Sequence[Pair], coarse: tuple[int, ...]) -> tuple[dict[str, Any], Maker]:
    """Our own registration, without a prior."""
    voxels = drawn[0][0].image.numel()
    settings = preset_for(request.preset, len(coarse), voxels).changed({**request.settings, "prior": "none"})

    def make(i: int) -> tuple[Tensor, tuple[str, ...]]:
        fixed, moving = drawn[i]
        result = register(
            _placed(fixed), _placed(moving), preset=request.preset, settings=settings, affine=request.affine
        )
        (field,) = (p.field for p in result.forward.parts if isinstance(p, Displacement))
        return torch.from_numpy(np.ascontiguousarray(field))[None], (fixed.name, moving.name)

    return {"preset": request.preset, "affine": request.affine, **asdict(settings)}, make


def _nodeo(request: Request, drawn: Sequence[Pair], coarse: tuple[int, ...]) -> tuple[dict[str, Any], Maker]:
    """The paper's choice; the images are taken as they lie."""
    from pirate.baselines.nodeo import NodeoSettings, nodeo

    settings = _changed(NodeoSettings(), request.settings)

    def make(i: int) -> tuple[Tensor, tuple[str, ...]]:
        fixed, moving = drawn[i]
        field = nodeo(fixed.image[None], moving.image[None], settings)
        return field, (fixed.name, moving.name)

    return asdict(settings), make


def _random(request: Request, drawn: Sequence[Pair], coarse: tuple[int, ...]) -> tuple[dict[str, Any], Maker]:
    """Random diffeomorphisms, drawn on the corpus's own grid."""
    settings = _changed(RandomFields(), request.settings)

    def make(i: int) -> tuple[Tensor, tuple[str, ...]]:
        mixed = np.random.SeedSequence([request.seed, i]).generate_state(2, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(mixed) % 2**63)
        return random_field(coarse, generator, settings), ()

    return {**asdict(settings), "shape": list(coarse)}, make


def _changed(settings: Constants, changes: Mapping[str, Any]) -> Constants:
    """The constants with `changes`, each of the type that it has."""
    known = asdict(settings)  # type: ignore[call-overload]
    clean: dict[str, Any] = {}
    for name, given in changes.items():
        if name not in known:
            raise UsageError(
                f"--set {printable(name)}: there is no such setting; expected one of {', '.join(known)}."
            )
        value = tuple(given) if isinstance(given, list) else given
        value = float(value) if type(value) is int and type(known[name]) is float else value
        if type(value) is not type(known[name]):
            raise UsageError(f"--set {name}: expected a value like {known[name]!r}.")
        clean[name] = value
    return dataclasses.replace(settings, **clean)  # type: ignore[type-var]


def _placed(subject: Subject) -> tuple[Any, Any]:
    """Array (*shape) and its 4 x 4 RAS affine, mm."""
    return subject.image[0].numpy(), subject.grid.affine


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(n) for n in text.lower().split("x"))
    except ValueError:
        shape = ()
    if len(shape) not in (2, 3) or not all(4 <= n <= 4096 for n in shape):
        raise UsageError(
            f"--shape {printable(text)}: expected two or three numbers from 4, for example 160x192."
        )
    return shape


def _make(corpus: Corpus, maker: Maker, count: int, quiet: bool, own_grid: bool) -> None:
    """Make what is missing, one after the other; everything made is kept if this is interrupted."""
    pending = corpus.pending(count)
    if len(pending) < count:
        log.info("%d of %d are there already", count - len(pending), count)
    started = spoken = time.monotonic()
    level, threshold = log.level, logging.WARNING  # one line for each registration would be too many
    log.setLevel(max(level, threshold))
    try:
        for done, index in enumerate(pending, 1):
            begin = time.perf_counter()
            field, names = maker(index)
            keep = corpus.store if own_grid else corpus.append
            keep(index, field, names, round(time.perf_counter() - begin, 3))
            interrupts.check()
            now = time.monotonic()
            if not quiet and (now - spoken > INTERVAL or done in (1, len(pending))):
                spoken = now
                _progress(done, len(pending), now - started, corpus)
    finally:
        log.setLevel(level)


def _progress(done: int, total: int, seconds: float, corpus: Corpus) -> None:
    each = seconds / done
    sys.stderr.write(
        f"fields: {done} of {total}, {each:.1f} s each, about {each * (total - done):.0f} s left, "
        f"{len(corpus.dropped)} dropped\n"
    )


def _say(corpus: Corpus, out: Path) -> None:
    if not len(corpus):
        raise QualityError("no field was kept: all of them fold too much.")
    mended = [e for e in corpus.entries if e.mended_voxels]
    typer.echo(
        f"{len(corpus)} fields of {'x'.join(map(str, corpus.shape))} voxels, {len(corpus.dropped)} dropped, "
        f"{len(mended)} mended; {_mean_seconds(corpus.entries):.2f} s each"
    )
    typer.echo(f"length {_length(corpus):.2f} voxels (root mean square)")
    typer.echo(printable(out))


def _mean_seconds(entries: Sequence[Entry]) -> float:
    return sum(e.seconds for e in entries) / len(entries)


def _length(corpus: Corpus) -> float:
    squares = [float(corpus.field(i).square().sum(0).mean()) for i in range(len(corpus))]
    return float(np.sqrt(np.mean(squares)))
