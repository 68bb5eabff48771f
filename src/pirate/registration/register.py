"""The public entry: two images in, a `Registration` out."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate.denoisers import plug
from pirate.denoisers.learned import Learned
from pirate.denoisers.plug import Denoiser, ImageDenoiser
from pirate.errors import UsageError, printable
from pirate.image import Image
from pirate.io.geometry import Form
from pirate.ops.repair import Repair, repair
from pirate.registration import additive, inputs, pyramid
from pirate.registration.correction import corrector_in, fitted
from pirate.registration.estimate import Estimate, estimate
from pirate.registration.finish import Found, as_it_is, finish
from pirate.registration.inputs import ImageLike
from pirate.registration.maps import maps_of
from pirate.registration.pair import Pair, Sources
from pirate.registration.process import Clock, choose_device, using_threads
from pirate.registration.result import Registration
from pirate.registration.working import Images, correlation, cropped, working_images
from pirate.settings import OTHER_SCHEME, Settings
from pirate.settings import preset as preset_for
from pirate.solvers.solution import Record, Solution
from pirate.transform import Affine

log = logging.getLogger("pirate")

LEAST_CORRELATION = 0.3
"""Of the images at the start: below it their contrasts differ, and intensities are not compared."""

Progress = Callable[[str, int, int, Record], None]
"""Called after each iteration with the stage's name, the iterations done, their total, and the record."""


def register(
    fixed: ImageLike,
    moving: ImageLike,
    *,
    preset: str = "default",
    smoothness: float = 0.5,
    prior: str | Denoiser | ImageDenoiser | None = None,
    affine: str | os.PathLike[str] | Affine | None = None,
    fixed_mask: ImageLike | None = None,
    moving_mask: ImageLike | None = None,
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    device: str = "auto",
    threads: int | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    prefer: Form | None = None,
    memory_limit: float | None = None,
    budget: float | None = None,
    maps: bool = False,
    progress: Progress | None = None,
) -> Registration:
    """Align `moving` to `fixed`.

    Images may differ in orientation, spacing and size: the moving one is read through world coordinates, and
    results come back on the fixed grid.

    Args:
        fixed: the image that stays: path, nibabel image, (array, 4 x 4 RAS affine) or `Image`.
        moving: the image that is warped onto it.
        preset: a name of `settings.PRESETS`: fast, default, best, paper or paper-plus.
        smoothness: 0 to 1; more gives a more regular field that follows the images less closely.
        prior: denoiser of the field: none, gaussian, tv, a .safetensors file, package.module:function, or a
            function D(field, sigma) itself; by default the preset's.
        affine: the start, which maps fixed to moving world points: "rigid", "similarity" or "affine" to find
            one, "none", an ITK file or an `Affine`; by default "affine", with the paper preset "none".
        fixed_mask: where the fixed image counts (weights in [0, 1]), on its grid.
        moving_mask: where the moving image counts, on its grid; used warped, times the fixed mask.
        fixed_labels: anatomy of the fixed image, only measured, never used to align.
        moving_labels: anatomy of the moving image, likewise.
        device: "auto", "cpu", "cuda", ...
        threads: CPU threads; by default what the environment allows.
        settings: all settings, or a mapping of changes to the preset's.
        prefer: "sform" or "qform": which to believe where a file's two disagree; else it is refused.
        memory_limit: GB; a job that needs more is refused. By default what is available.
        budget: seconds that the steps may take; when they are spent, the field so far is finished and returned.
        maps: also return maps on the fixed grid: the logarithm of the Jacobian determinant, and how unexpected the
            field is to the shipped `pirate` prior, with a score of that.
        progress: called after each iteration.

    Returns:
        `Registration`: warped image, forward and inverse transform, metrics, trace.
    """
    limit = inputs.bytes_of(memory_limit)
    start = affine if affine is not None else "none" if preset.startswith("paper") else "affine"
    sources = Sources(
        fixed, moving, fixed_mask, moving_mask, fixed_labels, moving_labels, start, prefer, limit
    )
    choice = Choice(preset, smoothness, prior, settings, _seconds(budget), maps)
    with using_threads(threads):
        return _register(sources, choice, choose_device(device), progress)


@dataclass(frozen=True)
class Choice:
    """How the caller wants it done: a preset, a smoothness, a prior, changes, seconds, and whether maps are made."""

    preset: str
    smoothness: float
    prior: str | Denoiser | ImageDenoiser | None
    settings: Settings | Mapping[str, Any] | None
    budget: float | None
    maps: bool = False

    def resolved(self, shape: tuple[int, ...]) -> Settings:
        """The preset's settings for images of `shape` with the caller's changes, checked for stability."""
        ndim, voxels = len(shape), math.prod(shape)
        base = self.settings if isinstance(self.settings, Settings) else preset_for(self.preset, ndim, voxels)
        if not isinstance(self.settings, Settings):
            base = base.changed(self.settings or {})
            _refuse_idle(base, self.settings or {})
        base = base.smoothed(self.smoothness)
        if self.prior is not None:
            base = base.changed({"prior": self.prior if isinstance(self.prior, str) else _name(self.prior)})
        if base.scheme == "additive":
            base.check_stability(ndim)
        return base

    def denoiser(self, settings: Settings, ndim: int, where: torch.device) -> Denoiser | ImageDenoiser | None:
        """The denoiser itself, tried on a small field; None if there is no prior."""
        if self.prior is not None and not isinstance(self.prior, str):
            return plug.checked(self.prior, _name(self.prior), ndim, where)
        if settings.prior == "none":
            return None
        # Compositional: a prior acts on the levels that are as coarse as its training, whichever it is.
        resolution = settings.resolution if settings.scheme == "additive" else None
        return plug.load(settings.prior, ndim, where, resolution)


def _refuse_idle(settings: Settings, changes: Mapping[str, Any]) -> None:
    """A change that has no effect is a misunderstanding: say so."""
    idle = sorted(set(changes) & set(OTHER_SCHEME[settings.scheme]))
    if idle:
        other = "paper" if settings.scheme == "compositional" else "default"
        raise UsageError(
            f"{', '.join(idle)}: no effect in the {settings.scheme} scheme; expected settings of that scheme. "
            f"Add --preset {other}, or leave it out."
        )


def _refuse_weight(
    changes: Settings | Mapping[str, Any] | None, denoiser: Denoiser | ImageDenoiser | None
) -> None:
    """A corrector is called once, at full weight; say so to whoever sets another."""
    idle = [] if isinstance(changes, Settings) else sorted(set(changes or {}) & {"tau", "every"})
    if idle and corrector_in(denoiser) is not None:
        raise UsageError(
            f"{', '.join(idle)}: no effect with the anatomy-aware prior, which is called once, at the end; expected no "
            "weight. Leave it out."
        )


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _register(
    sources: Sources, choice: Choice, where: torch.device, progress: Progress | None
) -> Registration:
    clock = Clock()
    with clock.stage("read"):
        pair = Pair.read(sources)
        ndim = pair.fixed.grid.ndim
        chosen = choice.resolved(pair.fixed.grid.shape)
        shapes = pair.fixed.grid.shape, pair.moving.grid.shape
        needed = inputs.memory_estimate(*shapes, chosen, pair.fixed_labels is not None)
        inputs.check_memory(needed, sources.memory_limit)
    log.info("moving %s -> fixed %s", printable(pair.moving.name), printable(pair.fixed.name))
    with clock.stage("affine"):
        pair = pair if _same(pair) else pair.aligned(sources.affine, chosen.penalty == "mutual", where)
    with clock.stage("prepare"):
        denoiser = fitted(choice.denoiser(chosen, ndim, where), pair.fixed.grid)
        if chosen.scheme == "compositional":
            _refuse_weight(choice.settings, denoiser)
        if isinstance(denoiser, Learned) and denoiser.card.labels_used:
            log.info("the prior is supervised: it learned from %s", printable(denoiser.card.training_data))
        images = working_images(pair, where, robust=chosen.scheme == "compositional")
        chosen, remarks = _comparable(chosen, images)
    with clock.stage("solve"):
        solution, expected = _solve(images, chosen, denoiser, choice.budget, progress, needed)
    with clock.stage("repair"):
        mended = _mended(pair.inside(solution.field), chosen)
    more: dict[str, Any] = {}
    if expected is not None:
        more = {"estimated_solve_seconds": expected.seconds, "estimated_memory_mb": expected.memory / 1e6}
    drawn: dict[str, Image] = {}
    if choice.maps:
        with clock.stage("maps"):
            drawn, scores = maps_of(mended.field, pair.fixed, where)
            more |= scores
    log.info("inverting and measuring")
    remarks = (*remarks, *solution.notes)
    return finish(pair, Found(images, solution, mended), chosen, clock, remarks, more, drawn)


def _same(pair: Pair) -> bool:
    """Whether both images are the same, voxel by voxel, at the same place."""
    return pair.fixed.grid == pair.moving.grid and bool(np.array_equal(pair.fixed.data, pair.moving.data))


def _comparable(settings: Settings, images: Images) -> tuple[Settings, tuple[str, ...]]:
    """Where the images' contrasts differ, do not compare their intensities."""
    if settings.intensity == 0 or settings.penalty != "local":
        return settings, ()
    found = correlation(images)
    if found >= LEAST_CORRELATION:
        return settings, ()
    remark = (
        f"the images' intensities correlate by {found:.2f} only, so they are compared by local correlation "
        "alone; for different contrasts consider --set penalty=mutual."
    )
    return settings.changed({"intensity": 0.0}), (remark,)


def _solve(
    images: Images,
    settings: Settings,
    denoiser: Denoiser | ImageDenoiser | None,
    budget: float | None,
    progress: Progress | None,
    memory: int,
) -> tuple[Solution, Estimate | None]:
    """The field on the working grid, (1, d, *shape), by the scheme that the settings name, and what was expected."""
    deadline = None if budget is None else time.monotonic() + budget
    done, total = 0, settings.level(0).iterations

    def observe(record: Record) -> bool:
        nonlocal done
        done += 1
        if progress is not None:
            progress("register", done, total, record)
        return settings.scheme == "additive" and deadline is not None and time.monotonic() >= deadline

    if settings.scheme == "additive":
        return additive.solve(images, settings, denoiser, observe), None
    part, box = cropped(images)
    stages = pyramid.stages(part, settings)
    total = sum(stage.level.iterations for stage in stages)
    expected = estimate(stages, settings, memory)
    log.info("expected: %.1f s for the steps, %.1f GB of memory", expected.seconds, expected.memory / 1e9)
    solution = pyramid.solve(stages, settings, denoiser, observe, deadline)
    return dataclasses.replace(solution, field=box.fill(solution.field)), expected


def _mended(displacement: Tensor, settings: Settings) -> Repair:
    """The field without folds; eq. (6) to the letter keeps those it makes."""
    if settings.scheme == "compositional":
        return repair(displacement)
    return as_it_is(displacement)


def _seconds(budget: float | None) -> float | None:
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise UsageError(f"the budget is {budget} s; expected a positive number.")
    return budget
