"""The compositional scheme: from coarse to fine, by small steps that are composed, so that nothing folds."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.denoisers.plug import Denoiser, ImageDenoiser, call
from pirate.energies.similarity import Similarity
from pirate.errors import InputError
from pirate.ops.compose import compose_small, longest
from pirate.ops.repair import repair
from pirate.ops.resample import resize_field
from pirate.ops.smooth import gaussian
from pirate.ops.warp import warp
from pirate.registration.correction import Correction, corrector_in
from pirate.registration.data_term import data_term
from pirate.registration.working import Images
from pirate.settings import Level, Settings
from pirate.solvers.solution import Record, Solution, Status

log = logging.getLogger("pirate")

LEAST_SIZE = 7
"""A level must leave so many voxels along every axis that it shrinks."""

PATIENCE = 10
"""Steps after which the data term must be lower, or the steps are halved."""

SHORTEST = 1 / 64
"""Voxels: a level is finished when its steps have become shorter."""

SLOPE = 10
"""Steps over which the gain is averaged to see whether a level is finished."""

Observer = Callable[[Record], bool]
"""Called after every step; returning True ends the whole solve, with the field as it is."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A level and the images it sees."""

    level: Level
    images: Images


def stages(images: Images, settings: Settings) -> list[Stage]:
    """The levels of `settings`, the coarsest first; those that leave too few voxels are dropped, the last never."""
    levels = [settings.level(i) for i in range(len(settings.levels))]
    finest = min(images.spacing)

    def fits(shrink: int) -> bool:
        sizes = zip(images.shape, images.spacing, strict=True)
        return all(s >= shrink * finest or n * s / (shrink * finest) >= LEAST_SIZE for n, s in sizes)

    result: list[Stage] = []
    here = images
    for level in reversed([level for level in levels[:-1] if fits(level.shrink)] + levels[-1:]):
        here = here.shrunk(level.shrink * finest)
        result.insert(0, Stage(level, here))
    return result


@dataclass(frozen=True, eq=False)
class Step:
    """One step on a level: phi <- G_field (phi o (id - t G_force grad g)), t so that the longest is `size`.

    The length of a step d is |d_1| + ... + |d_d| in voxels: up to 1 the upwind star that composes it takes a mean of
    neighbours with weights that are not negative, and cannot run away.

    Sigmas are in voxels of the finest axis. With h_a the spacing of axis a in that unit, a Gaussian has sigma / h_a
    voxels there; the gradient per mm is grad_a / h_a, and that many mm are / h_a voxels again: d_a goes with
    grad_a / h_a^2.
    """

    images: Images
    penalty: Similarity
    level: Level

    def __call__(self, field: Tensor, spare: Tensor, other: Tensor, size: float) -> tuple[float, bool]:
        """Change `field` (1, d, *shape) in place; return g before the step, and whether there was anything to do.

        `spare` and `other` are memory of the same shape; `size` is the length of the longest vector, at most 1.
        """
        h = self.images.relative_spacing
        value, force = self.penalty.force(self.images.moving, field, self.images.moving_mask, out=spare)
        if not math.isfinite(float(value[0])):
            return math.nan, False
        smooth = gaussian(force, [self.level.force_sigma / s for s in h], out=other)
        length = longest(smooth, [1 / s**2 for s in h])
        if not (math.isfinite(length) and length > 0):
            return float(value[0]), False
        t = size / length
        moved = compose_small(field, smooth, [-t / s**2 for s in h], out=spare)
        gaussian(moved, [self.level.field_sigma / s for s in h], out=field)
        return float(value[0]), True

    def value(self, field: Tensor) -> float:
        """g at a field (1, d, *shape), voxels; infinite where the field has left the image."""
        try:
            return float(self.penalty.value(self.images.moving, field, self.images.moving_mask)[0])
        except InputError:
            return math.inf


def solve(
    stages: Sequence[Stage],
    settings: Settings,
    denoiser: Denoiser | ImageDenoiser | None = None,
    observe: Observer | None = None,
    deadline: float | None = None,
) -> Solution:
    """Run every level, from the coarsest.

    Args:
        stages: levels and their images, the coarsest first.
        settings: constants, scheme "compositional".
        denoiser: D, or None; a corrector is called at the end only.
        observe: called after every step.
        deadline: `time.monotonic()` after which no further step is started; the first one always is.

    Returns:
        The solution; its field is (1, d, *shape) in voxels of the last stage's images.
    """
    corrector = corrector_in(denoiser)
    denoiser = None if corrector is not None else denoiser
    first = stages[0].images
    field = first.fixed.new_zeros((1, len(first.shape), *first.shape))
    trace: list[Record] = []
    settled = True
    status: Status | None = None
    notes: tuple[str, ...] = ()
    for stage in stages:
        level, here = stage.level, stage.images
        field = resize_field(field, here.shape)
        before, start = field.clone(), len(trace)
        step = Step(here, data_term(here, settings, level), level)
        for record in _steps(step, field, settings, denoiser, deadline):
            trace.append(record)
            if not math.isfinite(record.energy):
                status = Status.DIVERGED
            elif observe is not None and observe(record):
                status = Status.STOPPED
            if status is not None:
                break
        if len(trace) > start and not trace[-1].energy <= trace[start].energy:
            field = before  # these steps led nowhere, as where the images agree already
        if deadline is not None and time.monotonic() >= deadline and status is None:
            status = Status.OVERTIME
        if status is not None:
            break
        settled &= bool(trace) and trace[-1].t + 1 < level.iterations
        if stage in stages[-2:-1]:
            field = repair(field).field  # a fold that the finest level inherits would grow
    if status is None:
        status = Status.SETTLED if settled else Status.FINISHED
        if corrector is not None:
            field, outcomes = Correction.of(corrector, stages, settings)(field)
            notes = tuple(outcome.remark for outcome in outcomes)
    elif corrector is not None:
        notes = (
            "the anatomy-aware prior was not called: it comes after the last step, and the solver ended before",
        )
    field = resize_field(field, stages[-1].images.shape)
    return Solution(field, status, tuple(trace), len(trace), notes)


def _steps(
    step: Step,
    field: Tensor,
    settings: Settings,
    denoiser: Denoiser | ImageDenoiser | None,
    deadline: float | None,
) -> Iterator[Record]:
    """Take the steps of one level, changing `field` in place; yield a record for each.

    Where g has not fallen over `PATIENCE` steps they were too long: the next ones are half as long, until they are
    too short to matter. A call of the denoiser that makes g higher, and higher than at the level's start, is undone.
    """
    level, size = step.level, step.level.step
    spare, other = torch.empty_like(field), torch.empty_like(field)
    values: list[float] = []
    kept = 0  # the step since when the size has been the same
    for t in range(level.iterations):
        value, moved = step(field, spare, other, size)
        residual = size / max(longest(field), size) if moved else 0.0
        yield Record(t, size, value, residual, residual / size)
        values.append(value)
        if t >= kept + PATIENCE and value > values[t - PATIENCE]:
            size, kept = size / 2, t
        if denoiser is not None and (t + 1) % settings.every == 0 and acts_on(denoiser, level.shrink):
            spare.copy_(field)
            field.add_(_noise(denoiser, step.images, field, level), alpha=-level.tau)
            after = step.value(field)
            if not after <= values[0] and not after <= step.value(spare):
                field.copy_(spare)
                denoiser = None
                log.warning(
                    "the prior left the images less alike than they were at the start of the level 1/%d; this call "
                    "is undone, and the prior is not asked again on this level",
                    level.shrink,
                )
        if not moved or size < SHORTEST or _flat(values, settings.tolerance):
            return
        if deadline is not None and time.monotonic() >= deadline:
            return


def acts_on(denoiser: Denoiser | ImageDenoiser, shrink: int) -> bool:
    """A learned prior acts on levels that are at least about as coarse as the grid of its training."""
    card = getattr(denoiser, "card", None)
    return card is None or shrink >= card.resolution / math.sqrt(2)


def _noise(denoiser: Denoiser | ImageDenoiser, images: Images, field: Tensor, level: Level) -> Tensor:
    """phi - D(phi, sigma); a denoiser that asks for them gets fixed and warped."""
    if not getattr(denoiser, "wants_images", False):
        return field - call(denoiser, field, level.sigma)
    return field - call(denoiser, field, level.sigma, images.fixed, warp(images.moving, field))


def _flat(values: Sequence[float], tolerance: float) -> bool:
    """Whether a step's gain, averaged over the last `SLOPE`, is below `tolerance` times the gain so far."""
    if tolerance == 0 or len(values) <= SLOPE:
        return False
    recent, whole = values[-1 - SLOPE] - values[-1], values[0] - values[-1]
    return recent <= SLOPE * tolerance * max(whole, 0.0)
