"""The public entry: two images in, a `Registration` out."""

from __future__ import annotations

import logging
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate import kernels
from pirate.denoisers import plug
from pirate.energies.local import LocalCorrelation
from pirate.energies.mutual import MutualInformation
from pirate.energies.similarity import GlobalCorrelation, Similarity, SquaredError
from pirate.errors import InputError, UsageError, printable
from pirate.grid import Grid
from pirate.image import Image
from pirate.io.geometry import Form
from pirate.ops.compose import invert
from pirate.ops.resample import half_shape, resize_field
from pirate.registration import inputs
from pirate.registration.apply import apply
from pirate.registration.inputs import ImageLike
from pirate.registration.measure import judge, measure
from pirate.registration.operator import Pirate
from pirate.registration.pair import Pair
from pirate.registration.result import Registration
from pirate.settings import Settings, preset
from pirate.solvers import schedule
from pirate.solvers.anderson import accelerate
from pirate.solvers.fixed_point import iterate
from pirate.solvers.solution import Record, Solution
from pirate.transform import Affine, Transform

log = logging.getLogger("pirate")

Progress = Callable[[str, int, int, Record], None]
"""Called after each iteration with the stage's name, the iterations done, their total, and the record."""


def register(
    fixed: ImageLike,
    moving: ImageLike,
    *,
    preset: str = "paper",
    prior: str | None = None,
    affine: str | os.PathLike[str] | Affine = "none",
    fixed_mask: ImageLike | None = None,
    moving_mask: ImageLike | None = None,
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    device: str = "auto",
    threads: int | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    prefer: Form | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Registration:
    """Align `moving` to `fixed`.

    Images may differ in orientation, spacing and size: the moving one is read through world coordinates, and
    results come back on the fixed grid.

    Args:
        fixed: the image that stays: path, nibabel image, (array, 4 x 4 RAS affine) or `Image`.
        moving: the image that is warped onto it.
        preset: a name of `settings.PRESETS`.
        prior: denoiser of the field: none, gaussian, tv, a .safetensors file, or package.module:function.
        affine: "none", or the start that maps fixed to moving world points: an ITK file or an `Affine`.
        fixed_mask: where the fixed image counts (weights in [0, 1]), on its grid.
        moving_mask: where the moving image counts, on its grid; used warped, times the fixed mask.
        fixed_labels: anatomy of the fixed image, only measured, never used to align.
        moving_labels: anatomy of the moving image, likewise.
        device: "auto", "cpu", "cuda", ...
        threads: CPU threads; by default what the environment allows.
        settings: all settings, or a mapping of changes to the preset's.
        prefer: "sform" or "qform": which to believe where a file's two disagree; else it is refused.
        memory_limit: bytes; a job that needs more is refused. By default what is available.
        progress: called after each iteration.

    Returns:
        `Registration`: warped image, forward and inverse transform, metrics, trace.
    """
    clock = _Clock()
    with clock.stage("read"):
        use_threads(threads)
        where = choose_device(device)
        pair = Pair.read(fixed, moving, fixed_mask, moving_mask, fixed_labels, moving_labels, affine, prefer)
        chosen = choose_settings(preset, prior, settings, pair.fixed.grid.ndim)
        needed = inputs.memory_estimate(pair.fixed.grid.shape, chosen.resolution)
        inputs.check_memory(needed, memory_limit)
    log.info("moving %s -> fixed %s", printable(pair.moving.name), printable(pair.fixed.name))
    with clock.stage("prepare"):
        operator = build_operator(pair, chosen, where)
    with clock.stage("solve"):
        solution = solve(operator, chosen, pair.fixed.grid.shape, progress)
        displacement = resize_field(solution.field, pair.fixed.grid.shape)
    with clock.stage("invert"):
        inverse = invert(displacement)
    with clock.stage("resample"):
        forward, backward = pair.transforms(displacement, inverse.field)
        warped = apply(pair.moving, forward, pair.fixed.grid)
    with clock.stage("measure"):
        metrics = measure(pair, operator, solution, displacement, inverse.error, forward)
    flags = judge(solution.status, metrics)
    return Registration(
        pair.fixed, pair.moving, warped, forward, backward, metrics, solution.status, solution.trace, chosen,
        clock.seconds, peak_memory(), flags, pair.notes, pair.fixed_labels, pair.moving_labels,
    )  # fmt: skip


def choose_settings(
    name: str, prior: str | None, changes: Settings | Mapping[str, Any] | None, ndim: int
) -> Settings:
    """The preset's settings with the caller's changes, checked for stability."""
    chosen = changes if isinstance(changes, Settings) else preset(name, ndim).changed(changes or {})
    if prior is not None:
        chosen = chosen.changed({"prior": prior})
    chosen.check_stability(ndim)
    return chosen


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU if torch has one, else the CPU; a named device that is not there is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"the device {name!r} cannot be used here; expected auto or cpu.") from error
    return device


def use_threads(threads: int | None) -> None:
    """Give torch and the compiled kernels the same number of CPU threads."""
    if threads is None:
        named = os.environ.get("PIRATE_NUM_THREADS", "")
        threads = int(named) if named.isdigit() and int(named) > 0 else None
    if threads is not None:
        if threads < 1:
            raise UsageError(f"threads is {threads}; expected at least 1.")
        torch.set_num_threads(threads)
        kernels.set_threads(threads)


def build_operator(pair: Pair, settings: Settings, device: torch.device) -> Pirate:
    """Put both images, scaled to [0, 1], on the fixed grid and build T of eq. (6) from the settings."""
    fixed = _tensor(inputs.unit_range(pair.fixed.data), device)
    scaled = Image(inputs.unit_range(pair.moving.data), pair.moving.grid, pair.moving.name)
    moving = _tensor(pair.on_fixed_grid(scaled), device)
    fixed_mask = None if pair.fixed_mask is None else _tensor(pair.fixed_mask.data, device)
    moving_mask = None if pair.moving_mask is None else _tensor(pair.on_fixed_grid(pair.moving_mask), device)
    denoiser = None if settings.prior == "none" else plug.load(settings.prior, pair.fixed.grid.ndim, device)
    return Pirate(
        build_penalty(settings, fixed, moving, fixed_mask), moving, moving_mask, denoiser,
        settings.alpha, settings.tau, settings.sigma,
    )  # fmt: skip


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


def solve(
    operator: Pirate, settings: Settings, shape: tuple[int, ...], progress: Progress | None
) -> Solution:
    """Run the iteration from a zero field; the field returned is (1, d, *field_shape(...))."""
    start = operator.moving.new_zeros((1, len(shape), *field_shape(shape, settings.resolution)))

    def observe(record: Record) -> bool:
        if progress is not None:
            progress("register", record.t + 1, settings.iterations, record)
        return False

    def step(field: Tensor, gamma: float) -> tuple[Tensor, float]:
        try:
            return operator(field, gamma)
        except InputError:
            if not field.any():
                raise  # the images themselves are at fault
            return torch.full_like(field, math.nan), math.nan  # the field has left the image

    with torch.no_grad():
        if settings.solver == "anderson":
            return accelerate(
                step, start, settings.gamma, memory=settings.memory, ridge=settings.ridge,
                iterations=settings.iterations, tolerance=settings.tolerance, observe=observe,
            )  # fmt: skip
        steps = {"cosine": schedule.cosine, "constant": schedule.constant}[settings.schedule]
        return iterate(
            step, start, steps(settings.gamma, settings.iterations), settings.tolerance, observe=observe
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
    """Largest resident size of this process so far, bytes."""
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


def moving_on_fixed(registration: Registration) -> Image:
    """The moving image on the fixed grid before the field: through world and affine start only."""
    start = Transform(tuple(p for p in registration.forward.parts if isinstance(p, Affine)))
    grid: Grid = registration.fixed.grid
    return apply(registration.moving, start, grid, "linear")
