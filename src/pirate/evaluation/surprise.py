"""The prior's own opinion of a field: where, and how much, it would change it.

A denoiser leaves fields like those it was trained on nearly alone. What it takes off a result without being given
any noise is what it did not expect: a map over the voxels, and a score that needs neither labels nor a cohort.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.denoisers.plug import Denoiser, ImageDenoiser, call
from pirate.ops.resample import half_shape, resize, resize_field


@dataclass(frozen=True, eq=False)
class Surprise:
    """How unexpected a field is to a prior.

    Args:
        map: (1, 1, *shape), ``|phi - D(phi, sigma)|``, voxels of the field's grid.
        score: root mean square of the map over the mask, divided by what is expected of good fields: about 1 is
            usual, several times that is not.
    """

    map: Tensor
    score: float


def surprise(
    denoiser: Denoiser | ImageDenoiser,
    field: Tensor,
    sigma: float,
    expected: float,
    *,
    mask: Tensor | None = None,
    resolution: int = 1,
    images: tuple[Tensor, Tensor] | None = None,
) -> Surprise:
    """Ask a prior about a field.

        map(x) = |phi(x) - D(phi, sigma)(x)|        score = sqrt(mean over the mask of map^2) / expected

    Args:
        denoiser: the prior.
        field: (1, d, *shape), voxels.
        sigma: noise level to assume, voxels of the prior's grid. Small is best, 0.02 to 0.1: a prior that expects
            much noise takes as much off a good field as off a bad one. A card has it as ``surprise_sigma``.
        expected: root mean square of the same on fields like those of the training, voxels of the prior's grid
            (`evaluation.gain.residual_rms`; a learned prior's card has it as ``residual_rms``).
        mask: (1, 1, *shape), where it counts, e.g. the brain; everywhere if None.
        resolution: of the grid on which the prior acts: 1 that of the field, 2 half of it, ...
        images: fixed and warped, each (1, C, *shape), for a prior that wants them.
    """
    if not (math.isfinite(expected) and expected > 0):
        raise ValueError(f"the surprise expected of good fields must be above 0, not {expected}")
    shape: tuple[int, ...] = tuple(field.shape[2:])
    coarse = shape
    for _ in range(resolution.bit_length() - 1):
        coarse = half_shape(coarse)
    z = field if coarse == shape else resize_field(field, coarse)
    shown = () if images is None else tuple(resize(image, coarse) for image in images)
    with torch.no_grad():
        change = (z - call(denoiser, z, sigma, *shown)).square().sum(1, keepdim=True)
        length = change.sqrt()
    weight = torch.ones_like(length) if mask is None else resize(mask.to(length), coarse)
    total = float(weight.double().sum())
    if total <= 0:
        raise ValueError("the mask of the surprise is empty")
    per_component = float((weight * change).double().sum()) / (total * field.shape[1])
    full = length if coarse == shape else resize(length, shape) * resolution
    return Surprise(full, math.sqrt(per_component) / expected)
