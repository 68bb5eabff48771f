"""The additive scheme: eq. (6) on one level, as the paper has it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pirate.denoisers.plug import Denoiser, ImageDenoiser
from pirate.ops.resample import half_shape, resize_field
from pirate.registration.data_term import data_term
from pirate.registration.operator import Pirate
from pirate.registration.working import Images
from pirate.settings import Settings
from pirate.solvers import schedule
from pirate.solvers.anderson import accelerate
from pirate.solvers.fixed_point import iterate
from pirate.solvers.solution import Record, Solution


def solve(
    images: Images,
    settings: Settings,
    denoiser: Denoiser | ImageDenoiser | None = None,
    observe: Callable[[Record], bool] | None = None,
) -> Solution:
    """Iterate eq. (6) from a zero field; the field returned is (1, d, *shape), voxels of the images' grid."""
    level = settings.level(0)
    penalty = data_term(images, settings, level)
    share = coverage(settings, images.moving, images.fixed_mask, images.moving_mask)
    operator = Pirate(
        penalty, images.moving, images.moving_mask, denoiser, settings.alpha, level.tau, level.sigma, share
    )
    shape = images.shape
    start = images.moving.new_zeros((1, len(shape), *field_shape(shape, settings.resolution)))
    with torch.no_grad():
        if settings.solver == "anderson":
            solution = accelerate(
                operator, start, settings.gamma, memory=settings.memory, ridge=settings.ridge,
                iterations=level.iterations, tolerance=settings.tolerance, observe=observe,
            )  # fmt: skip
        else:
            steps = {"cosine": schedule.cosine, "constant": schedule.constant}[settings.schedule]
            gammas = steps(settings.gamma, level.iterations)
            solution = iterate(operator, start, gammas, settings.tolerance, observe=observe)
        full = resize_field(solution.field, shape)
    return Solution(full, solution.status, solution.trace, solution.evaluations)


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


def field_shape(shape: tuple[int, ...], resolution: int) -> tuple[int, ...]:
    """Shape of the field's grid: the image's, halved as often as the resolution says."""
    while resolution > 1:
        shape, resolution = half_shape(shape), resolution // 2
    return shape
