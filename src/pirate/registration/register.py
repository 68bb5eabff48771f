"""The public entry: two images in, a `Registration` out."""

from __future__ import annotations

import logging
import math
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate import kernels
from pirate.denoisers import plug
from pirate.denoisers.plug import Denoiser, ImageDenoiser
from pirate.energies.local import LocalCorrelation
from pirate.energies.mutual import MutualInformation
from pirate.energies.similarity import GlobalCorrelation, Similarity, SquaredError
from pirate.errors import UsageError, printable
from pirate.image import Image
from pirate.io.geometry import Form
from pirate.ops.compose import invert
from pirate.ops.resample import half_shape, resize_field
from pirate.registration import inputs
from pirate.registration.apply import apply
from pirate.registration.inputs import ImageLike
from pirate.registration.measure import judge, measure
from pirate.registration.operator import Pirate
from pirate.registration.pair import Pair, Sources
from pirate.registration.result import Registration
from pirate.settings import Settings
from pirate.settings import preset as preset_for
from pirate.solvers import schedule
from pirate.solvers.anderson import accelerate
from pirate.solvers.fixed_point import iterate
from pirate.solvers.solution import Record, Solution
from pirate.transform import Affine

log = logging.getLogger("pirate")

Progress = Callable[[str, int, int, Record], None]
"""Called after each iteration with the stage's name, the iterations done, their total, and the record."""


def register(
    fixed: ImageLike,
    moving: ImageLike,
    *,
    preset: str = "paper",
    prior: str | Denoiser | ImageDenoiser | None = None,
    affine: str | os.PathLike[str] | Affine = "none",
    fixed_mask: ImageLike | None = None,
    moving_mask: ImageLike | None = None,
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    device: str = "auto",
    threads: int | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    prefer: Form | None = None,
    memory_limit: float | None = None,
    progress: Progress | None = None,
) -> Registration:
    """Align `moving` to `fixed`.

    Images may differ in orientation, spacing and size: the moving one is read through world coordinates, and
    results come back on the fixed grid.

    Args:
        fixed: the image that stays: path, nibabel image, (array, 4 x 4 RAS affine) or `Image`.
        moving: the image that is warped onto it.
        preset: a name of `settings.PRESETS`.
        prior: denoiser of the field: none, gaussian, tv, a .safetensors file, package.module:function, or a
            function D(field, sigma) itself; by default the preset's.
        affine: "none", or the start that maps fixed to moving world points: an ITK file or an `Affine`.
        fixed_mask: where the fixed image counts (weights in [0, 1]), on its grid.
        moving_mask: where the moving image counts, on its grid; used warped, times the fixed mask.
        fixed_labels: anatomy of the fixed image, only measured, never used to align.
        moving_labels: anatomy of the moving image, likewise.
        device: "auto", "cpu", "cuda", ...
        threads: CPU threads; by default what the environment allows.
        settings: all settings, or a mapping of changes to the preset's.
        prefer: "sform" or "qform": which to believe where a file's two disagree; else it is refused.
        memory_limit: GB; a job that needs more is refused. By default what is available.
        progress: called after each iteration.

    Returns:
        `Registration`: warped image, forward and inverse transform, metrics, trace.
    """
    limit = _bytes(memory_limit)
    sources = Sources(
        fixed, moving, fixed_mask, moving_mask, fixed_labels, moving_labels, affine, prefer, limit
    )
    with using_threads(threads):
        return _register(sources, Choice(preset, prior, settings), choose_device(device), progress)


@dataclass(frozen=True)
class Choice:
    """How the caller wants it done: a preset, a prior, and changes."""

    preset: str
    prior: str | Denoiser | ImageDenoiser | None
    settings: Settings | Mapping[str, Any] | None

    def resolved(self, ndim: int) -> Settings:
        """The preset's settings with the caller's changes, checked for stability."""
        base = self.settings if isinstance(self.settings, Settings) else preset_for(self.preset, ndim)
        if not isinstance(self.settings, Settings):
            base = base.changed(self.settings or {})
        if self.prior is not None:
            base = base.changed({"prior": self.prior if isinstance(self.prior, str) else _name(self.prior)})
        base.check_stability(ndim)
        return base

    def denoiser(self, settings: Settings, ndim: int, where: torch.device) -> Denoiser | ImageDenoiser | None:
        """The denoiser itself, tried on a small field; None if there is no prior."""
        if self.prior is not None and not isinstance(self.prior, str):
            return plug.checked(self.prior, _name(self.prior), ndim, where)
        return None if settings.prior == "none" else plug.load(settings.prior, ndim, where)


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _register(
    sources: Sources, choice: Choice, where: torch.device, progress: Progress | None
) -> Registration:
    clock = _Clock()
    with clock.stage("read"):
        pair = Pair.read(sources)
        ndim = pair.fixed.grid.ndim
        chosen = choice.resolved(ndim)
        shapes = pair.fixed.grid.shape, pair.moving.grid.shape
        needed = inputs.memory_estimate(*shapes, chosen, pair.fixed_labels is not None)
        inputs.check_memory(needed, sources.memory_limit)
    log.info("moving %s -> fixed %s", printable(pair.moving.name), printable(pair.fixed.name))
    with clock.stage("prepare"):
        operator = build_operator(pair, chosen, choice.denoiser(chosen, ndim, where), where)
    with clock.stage("solve"):
        solution = solve(operator, chosen, progress)
        displacement = pair.inside(resize_field(solution.field, operator.moving.shape[2:]))
    log.info("inverting and measuring")
    with clock.stage("invert"):
        inverse = invert(displacement)
    with clock.stage("resample"):
        forward, backward = pair.transforms(displacement, inverse.field)
        warped = apply(pair.moving, forward, pair.fixed.grid, outside=float(pair.moving.data.min()))
    with clock.stage("measure"):
        metrics = {"penalty": chosen.penalty} | measure(
            pair, operator, solution, displacement, inverse.error, forward
        )
    flags = judge(solution.status, metrics)
    return Registration(
        pair.fixed, pair.moving, warped, forward, backward, metrics, solution.status, solution.trace, chosen,
        clock.seconds, peak_memory(), torch.get_num_threads(), flags, pair.notes, pair.images,
    )  # fmt: skip


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU if torch has one, else the CPU; a named device that is not there is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"the device {name!r} cannot be used here; expected auto or cpu.") from error
    return device


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Give torch and the compiled kernels the same number of CPU threads inside the block."""
    if threads is None:
        named = os.environ.get("PIRATE_NUM_THREADS", "").strip()
        if named and not (named.isdigit() and int(named) > 0):
            raise UsageError(f"PIRATE_NUM_THREADS is {named!r}; expected a positive number.")
        threads = int(named) if named else torch.get_num_threads()
    if threads < 1:
        raise UsageError(f"threads is {threads}; expected at least 1.")
    before = torch.get_num_threads(), kernels.threads()
    torch.set_num_threads(threads)
    kernels.set_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        kernels.set_threads(before[1])


def _bytes(gigabytes: float | None) -> int | None:
    if gigabytes is None:
        return None
    if not (math.isfinite(gigabytes) and gigabytes > 0):
        raise UsageError(f"the memory limit is {gigabytes} GB; expected a positive number.")
    return int(gigabytes * 1e9)


def build_operator(
    pair: Pair, settings: Settings, denoiser: Denoiser | ImageDenoiser | None, device: torch.device
) -> Pirate:
    """Put both images, scaled to [0, 1], on the working grid and build T of eq. (6) from the settings.

    The working grid is the fixed grid, with margins where the moving image goes on; there the fixed image is
    unknown and has weight 0.
    """
    margins = pair.margins
    fixed = np.pad(inputs.unit_range(pair.fixed.data), margins)
    scaled = Image(inputs.unit_range(pair.moving.data), pair.moving.grid, pair.moving.name)
    moving = _tensor(pair.on_working_grid(scaled), device)
    fixed_mask = None if pair.fixed_mask is None else pair.fixed_mask.data
    if np.any(margins):
        inside = np.ones(pair.fixed.grid.shape, np.float32) if fixed_mask is None else fixed_mask
        fixed_mask = np.pad(inside, margins)
    weight = None if fixed_mask is None else _tensor(fixed_mask, device)
    moving_mask = (
        None if pair.moving_mask is None else _tensor(pair.on_working_grid(pair.moving_mask), device)
    )
    penalty = build_penalty(settings, _tensor(fixed, device), moving, weight)
    share = coverage(settings, moving, weight, moving_mask)
    return Pirate(penalty, moving, moving_mask, denoiser, settings.alpha, settings.tau, settings.sigma, share)


def coverage(
    settings: Settings, moving: Tensor, fixed_mask: Tensor | None, moving_mask: Tensor | None
) -> float:
    """How much smaller the data term's step must be because masks leave less to count; 1 without masks.

    The curvature of a mean over N voxels goes with 1 / N; that of the correlation, which is divided by the
    image's variance too, with one over the sum of squares about the mean, SS. So the factor is the covered share
    of the voxels, for the correlation the covered share of SS.

    Args:
        settings: which penalty.
        moving: (1, 1, *shape).
        fixed_mask: (1, 1, *shape), weights in [0, 1], or None.
        moving_mask: likewise.
    """
    masks = [mask.double() for mask in (fixed_mask, moving_mask) if mask is not None]
    if not masks:
        return 1.0
    weight = math.prod(masks[1:], start=masks[0])
    total = float(weight.sum())
    if settings.penalty != "global" or total == 0:
        return total / weight.numel()
    image = moving.double()
    mean = float((weight * image).sum()) / total
    squares = float((weight * (image - mean).square()).sum())
    return squares / float((image - image.mean()).square().sum())


def build_penalty(settings: Settings, fixed: Tensor, moving: Tensor, fixed_mask: Tensor | None) -> Similarity:
    """The data term g that the settings name; images are (1, 1, *shape) on one grid."""
    if settings.penalty == "global":
        return GlobalCorrelation(fixed, fixed_mask)
    if settings.penalty == "local":
        return LocalCorrelation(
            fixed, fixed_mask, window=settings.window, squared=settings.squared_correlation
        )
    if settings.penalty == "squared":
        return SquaredError(fixed, fixed_mask)
    return MutualInformation.between(fixed, moving, fixed_mask, bins=settings.bins)


def solve(operator: Pirate, settings: Settings, progress: Progress | None) -> Solution:
    """Run the iteration from a zero field; the field returned is (1, d, *field_shape(...))."""
    shape = tuple(operator.moving.shape[2:])
    start = operator.moving.new_zeros((1, len(shape), *field_shape(shape, settings.resolution)))

    def observe(record: Record) -> bool:
        if progress is not None:
            progress("register", record.t + 1, settings.iterations, record)
        return False

    with torch.no_grad():
        if settings.solver == "anderson":
            return accelerate(
                operator, start, settings.gamma, memory=settings.memory, ridge=settings.ridge,
                iterations=settings.iterations, tolerance=settings.tolerance, observe=observe,
            )  # fmt: skip
        steps = {"cosine": schedule.cosine, "constant": schedule.constant}[settings.schedule]
        return iterate(
            operator, start, steps(settings.gamma, settings.iterations), settings.tolerance, observe=observe
        )


def field_shape(shape: tuple[int, ...], resolution: int) -> tuple[int, ...]:
    """Shape of the field's grid: the image's, halved as often as the resolution says."""
    while resolution > 1:
        shape, resolution = half_shape(shape), resolution // 2
    return shape


def _tensor(data: np.ndarray[Any, np.dtype[Any]], device: torch.device) -> Tensor:
    """(1, 1, *shape) float32 on `device`."""
    return torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))[None, None].to(device)


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes.

    getrusage counts the parent's size before the program started, so Linux's own figure is preferred.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


@dataclass
class _Clock:
    """Seconds spent in each named stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside the block to `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
