"""Symmetric log-domain demons (Vercauteren et al. 2008, 2009), on the project's own operators.

The map is the flow of a stationary velocity, s = exp(v), so that its inverse is exp(-v). With f the fixed image, m the
moving one, matched to the histogram of f, and h the spacing along each axis in units of the finest:

    c   = still - moved                                            difference
    J   = (D still + D moved) / 2,   J_a per mm = J_a / h_a        both images' slopes (ESM)
    u_a = c (J_a / h_a^2) / (sum_b (J_b / h_b)^2 + c^2 / (4 L^2))  voxels; no longer than L
    u   <- G_fluid u

At the ends, as the authors do, the force is taken twice: u_forward with still = f, moved = m o exp(v), and u_backward
with the images exchanged, on exp(-v):

    Z(v, u) = v + u + [v, u] / 2 + [v, [v, u]] / 12,   [v, u] = Dv u - Du v      exp(Z) = exp(v) o exp(u)
    v   <- G_diffusion (Z(v, u_forward) - Z(-v, u_backward)) / 2

In the middle, our default, the force is taken once, on both images brought half way, still = f o exp(-v/2),
moved = m o exp(v/2):

    v   <- G_diffusion (v + u)        exp(v/2) o exp(u) o exp(v/2) = exp(v + u - [v, [v, u]] / 24 + ...)

There the first bracket, which holds derivatives of the rough update, drops out: without it an update at an end lands
on average half a displacement away from where it was felt. So the default has no use for the series Z; the presets
`ends`, with our constants, and `authors`, with theirs, are the published algorithm. Lengths are in voxels of the finest
axis, so that voxels that are no cubes are treated by their mm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from pirate.baselines.histogram import matched_histogram
from pirate.errors import reject
from pirate.ops.compose import exponential
from pirate.ops.derivative import central_difference
from pirate.ops.resample import resize_field
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity, warp
from pirate.registration.working import Images, cropped
from pirate.solvers.solution import Record, Status

LEAST_SIZE = 12
"""A level must leave so many voxels along every axis that it shrinks."""

SLOPE = 10
"""Iterations over which the gain is averaged to see whether a level is finished."""

Observer = Callable[[Record], bool]
"""Called after every iteration; returning True ends the registration, with the velocity as it is."""


@dataclass(frozen=True)
class LogDemonsSettings:
    """Constants; a tuple has one number for each level, the coarsest first."""

    levels: tuple[int, ...] = (2, 1)
    """Shrink factors; a third level reaches farther and costs planes of brains 0.003 Dice."""
    iterations: tuple[int, ...] = (100, 200)
    """At most so many on each level; the authors' tool takes 15 x 10 x 5, with which it is not finished."""
    step: float = 0.5
    """L, the longest update, voxels; SimpleITK's. With 1 some voxels fold, with 2, the authors' tool's, many, unless
    the velocity is smoothed as much as theirs."""
    fluid_sigma: float = 0.5
    """Gaussian on the update, voxels: a little takes the roughness off a force that is one difference of voxels."""
    diffusion_sigma: float = 0.9
    """Gaussian on the velocity after every update, voxels: from 0.7 to 1.1 training pairs score alike."""
    terms: int = 2
    """Of the Baker-Campbell-Hausdorff series at the ends: 2 (ITK's), 3 or 4; in the middle there are 2."""
    symmetry: Literal["middle", "ends", "none"] = "middle"
    """Where the force is taken: in the middle of the flow, at both ends (the authors'), or at the fixed image alone."""
    matching: bool = True
    """Match the moving image's histogram to the fixed one's; the force compares intensities."""
    match_points: int = 7
    """Quantiles between the mean and the largest value at which the histograms are matched; ITK's usual number."""
    least_difference: float = 1e-3
    """Smaller differences of the images, scaled to about 1, give no force; ITK's."""
    tolerance: float = 2e-4
    """A level ends when an iteration gains less than this part of what the level has gained; 0 never."""

    def __post_init__(self) -> None:
        if not self.levels or len(self.iterations) not in (1, len(self.levels)):
            raise reject(
                "iterations", f"{len(self.iterations)} numbers for {len(self.levels)} levels",
                "one for each level, or one for all", "Correct the setting.",
            )  # fmt: skip
        if min(self.levels) < 1 or min(self.iterations) < 1:
            raise reject(
                "levels", f"{self.levels} with {self.iterations} iterations", "1 or more", "Correct it."
            )
        if self.terms not in (2, 3, 4):
            raise reject("terms", str(self.terms), "2, 3 or 4", "Correct the setting.")
        if self.symmetry not in ("middle", "ends", "none"):
            raise reject("symmetry", repr(self.symmetry), "middle, ends or none", "Correct the setting.")
        for name in (
            "step",
            "fluid_sigma",
            "diffusion_sigma",
            "least_difference",
            "tolerance",
            "match_points",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise reject(name, str(getattr(self, name)), "a number from 0", "Correct the setting.")

    def of_level(self, index: int) -> int:
        """Iterations on a level, counted from the coarsest."""
        return self.iterations[index if len(self.iterations) > 1 else 0]


PRESETS = {
    "default": LogDemonsSettings(),
    "ends": LogDemonsSettings(symmetry="ends", terms=3),
    "authors": LogDemonsSettings(
        symmetry="ends", levels=(4, 2, 1), iterations=(15, 10, 5), step=2.0, fluid_sigma=0.0, diffusion_sigma=1.5,
        tolerance=0.0,
    ),
}  # fmt: skip
"""default: the force in the middle, constants chosen on training pairs; ends: the same constants, forces at both ends,
three terms of the series; authors: forces at both ends with the constants of the authors' tool, ITK's two terms. On
training pairs of slices the default scores best and `authors` least; `ends` with `terms=2` is closer to the default."""


@dataclass(frozen=True, eq=False)
class LogDemons:
    """What `log_demons` returns.

    Args:
        velocity: v, (1, d, *shape), voxels per unit time.
        field: exp(v) - id, (1, d, *shape), voxels: brings the moving image onto the fixed one.
        inverse: exp(-v) - id, likewise.
        status: why it stopped.
        trace: one record for each iteration; its energy is the mean squared difference where the force is taken.
    """

    velocity: Tensor
    field: Tensor
    inverse: Tensor
    status: Status
    trace: tuple[Record, ...]


def log_demons(
    images: Images, settings: LogDemonsSettings | None = None, observe: Observer | None = None
) -> LogDemons:
    """Align one pair.

    Args:
        images: the pair on one grid, intensities about 0 to 1; masks are not used.
        settings: constants.
        observe: called after every iteration.
    """
    settings = settings or LogDemonsSettings()
    if settings.matching:
        images = replace(images, moving=_matched(images, settings.match_points))
    part, box = cropped(images)  # background in both images moves nothing
    stages = _stages(part, settings)
    first = stages[0][0]
    velocity = first.fixed.new_zeros((1, len(first.shape), *first.shape))
    trace: list[Record] = []
    status: Status | None = None
    settled = True
    for here, iterations in stages:
        velocity = resize_field(velocity, here.shape)
        start = len(trace)
        for t in range(iterations):
            following, record = _iteration(here, velocity, settings, t)
            trace.append(record)
            if not (math.isfinite(record.energy) and math.isfinite(record.residual)):
                status = Status.DIVERGED
                break
            velocity = following
            if observe is not None and observe(record):
                status = Status.STOPPED
            if status is not None or _flat([r.energy for r in trace[start:]], settings.tolerance):
                break
        settled &= len(trace) - start < iterations
        if status is not None:
            break
    velocity = box.fill(resize_field(velocity, part.shape))
    status = status or (Status.SETTLED if settled else Status.FINISHED)
    return LogDemons(velocity, exponential(velocity), exponential(-velocity), status, tuple(trace))


def _stages(images: Images, settings: LogDemonsSettings) -> list[tuple[Images, int]]:
    """The pair on each level with its iterations, the coarsest first; levels too small are dropped, the last never."""
    finest, last = min(images.spacing), len(settings.levels) - 1
    stages: list[tuple[Images, int]] = []
    here = images
    for index in range(last, -1, -1):
        target = settings.levels[index] * finest
        sizes = zip(images.shape, images.spacing, strict=True)
        if index < last and not all(s >= target or n * s / target >= LEAST_SIZE for n, s in sizes):
            continue
        here = here.shrunk(target)
        stages.insert(0, (here, settings.of_level(index)))
    return stages


def _iteration(
    images: Images, velocity: Tensor, settings: LogDemonsSettings, t: int
) -> tuple[Tensor, Record]:
    """One update of the velocity (1, d, *shape), voxels; the record's energy is that before it."""
    h = images.relative_spacing
    if settings.symmetry == "middle":
        energy, update = _drawn(images.fixed, images.moving, velocity / 2, h, settings, both=True)
        following = velocity + update
    else:
        energy, forward = _drawn(images.fixed, images.moving, velocity, h, settings)
        following = bch(velocity, forward, settings.terms)
    if settings.symmetry == "ends":
        other, backward = _drawn(images.moving, images.fixed, -velocity, h, settings)
        energy = (energy + other) / 2
        following = (following - bch(-velocity, backward, settings.terms)) / 2
    following = _smoothed(following, settings.diffusion_sigma, h)
    residual = float((following - velocity).norm() / following.norm().clamp_min(1e-12))
    return following, Record(t, settings.step, energy, residual, residual / max(settings.step, 1e-12))


def _drawn(
    still: Tensor,
    moved: Tensor,
    velocity: Tensor,
    h: Sequence[float],
    settings: LogDemonsSettings,
    both: bool = False,
) -> tuple[float, Tensor]:
    """Mean squared difference of `still` and `moved` o exp(velocity); the smoothed force, (1, d, *shape), voxels.

    With `both`, `still` is brought the other way by exp(-velocity) first.
    """
    field = exponential(velocity)
    warped, felt = warp(moved, field), _inside(field)
    if both:
        back = exponential(-velocity)
        still, felt = warp(still, back), felt * _inside(back)
    energy = float((still - warped).double().square().mean())
    update = force(still, warped, h, settings.step, settings.least_difference) * felt
    return energy, _smoothed(update, settings.fluid_sigma, h)


def force(
    fixed: Tensor, warped: Tensor, spacing: Sequence[float], step: float, least: float = 1e-3
) -> Tensor:
    """The update u that the efficient second-order minimisation takes; see the module for the equation.

    Args:
        fixed: (1, 1, *shape), any intensity unit.
        warped: (1, 1, *shape), the same unit.
        spacing: of each axis, in units of the finest.
        step: L, the longest update, in voxels of the finest axis.
        least: differences up to this give no force.

    Returns:
        (1, d, *shape), voxels of each axis.
    """
    difference = fixed - warped
    axes = range(len(spacing))
    slope = torch.cat(
        [(central_difference(fixed, a) + central_difference(warped, a)) / (2 * spacing[a]) for a in axes], 1
    )
    below = slope.square().sum(1, keepdim=True) + difference.square() / (4 * max(step, 1e-12) ** 2)
    felt = (difference.abs() > least) & (below > 1e-9)
    update = torch.where(felt, difference / below.clamp_min(1e-9), 0.0) * slope
    return update / update.new_tensor(spacing).view(1, -1, *[1] * len(spacing))


def bch(velocity: Tensor, update: Tensor, terms: int = 3) -> Tensor:
    """Z with exp(Z) about exp(velocity) o exp(update), for a small update.

    Args:
        velocity: v, (B, d, *shape), voxels.
        update: u, (B, d, *shape), voxels.
        terms: 2: v + u; 3: and [v, u] / 2; 4: and [v, [v, u]] / 12.

    Returns:
        (B, d, *shape), voxels.
    """
    result = velocity + update
    if terms > 2:
        inner = bracket(velocity, update)
        result = result + inner / 2
        if terms > 3:
            result = result + bracket(velocity, inner) / 12
    return result


def bracket(v: Tensor, u: Tensor) -> Tensor:
    """``[v, u] = Dv u - Du v``, (B, d, *shape), D the central difference, of v and u (B, d, *shape), voxels."""
    result = torch.zeros_like(v)
    for axis in range(v.shape[1]):
        result += central_difference(v, axis) * u[:, axis : axis + 1]
        result -= central_difference(u, axis) * v[:, axis : axis + 1]
    return result


def _matched(images: Images, points: int) -> Tensor:
    """The moving image, (1, 1, *shape), with the fixed one's histogram."""
    fixed, moving = (x[0, 0].cpu().numpy() for x in (images.fixed, images.moving))
    return torch.from_numpy(matched_histogram(moving, fixed, points))[None, None].to(images.moving)


def _smoothed(field: Tensor, sigma: float, h: Sequence[float]) -> Tensor:
    """Gaussian of `sigma` voxels of the finest axis on a field (1, d, *shape)."""
    return gaussian(field.contiguous(), [sigma / s for s in h]) if sigma > 0 else field


def _inside(field: Tensor) -> Tensor:
    """Whether the field points into the image, (1, 1, *shape), as numbers 0 and 1."""
    last = field.new_tensor(field.shape[2:]).view(1, -1, *[1] * (field.ndim - 2)) - 1
    positions = identity(field) + field
    return ((positions >= 0) & (positions <= last)).all(1, keepdim=True).to(field.dtype)


def _flat(values: Sequence[float], tolerance: float) -> bool:
    """Whether an iteration's gain, averaged over the last `SLOPE`, is below `tolerance` times the gain so far."""
    if tolerance == 0 or len(values) <= SLOPE:
        return False
    recent, whole = values[-1 - SLOPE] - values[-1], values[0] - values[-1]
    return recent <= SLOPE * tolerance * max(whole, 0.0)
