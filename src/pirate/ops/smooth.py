"""Separable Gaussian smoothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate import kernels


def gaussian_taps(sigma: float, truncate: float = 3.0) -> list[float]:
    """Weights of a sampled, normalised Gaussian of `sigma` voxels, cut at `truncate` sigmas; odd length."""
    radius = max(1, math.ceil(truncate * sigma))
    taps = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-radius, radius + 1)]
    total = math.fsum(taps)
    return [t / total for t in taps]


def gaussian(
    x: Tensor, sigma: float | Sequence[float], truncate: float = 3.0, out: Tensor | None = None
) -> Tensor:
    """Smooth `x` with a Gaussian; the border voxel is repeated outside.

    Args:
        x: (B, C, *shape), any unit.
        sigma: standard deviation in voxels, one for all axes or one for each; 0 leaves an axis alone.
        truncate: where the kernel is cut, in sigmas.
        out: (B, C, *shape) for the result, not `x`.

    Returns:
        (B, C, *shape), the unit of `x`.
    """
    d = x.ndim - 2
    sigmas = [float(sigma)] * d if isinstance(sigma, int | float) else [float(s) for s in sigma]
    if kernels.usable(x):
        return kernels.gaussian(x, sigmas, truncate, out)
    for axis, s in enumerate(sigmas):
        if s > 0:
            x = _correlate(x, gaussian_taps(s, truncate), axis)
    return x if out is None else out.copy_(x)


def _correlate(x: Tensor, taps: Sequence[float], axis: int) -> Tensor:
    """Correlate with `taps` (odd) along `axis`, repeating the border."""
    radius = len(taps) // 2
    pads = [0, 0] * (x.ndim - 2)
    pads[2 * (x.ndim - 3 - axis)] = pads[2 * (x.ndim - 3 - axis) + 1] = radius
    padded = F.pad(x, pads, mode="replicate")
    n = x.shape[axis + 2]
    out = torch.zeros_like(x)
    for offset, weight in enumerate(taps):
        out = out + weight * padded.narrow(axis + 2, offset, n)
    return out
