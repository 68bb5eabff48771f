"""Denoisers without training and without iteration: a Gaussian filter, and none at all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from pirate.ops.smooth import gaussian

NARROWEST = 0.05  # voxels; a sampled Gaussian narrower than this is the identity to double precision


@dataclass(frozen=True)
class Gaussian:
    """``D(z, sigma) = K * z``, K a Gaussian of standard deviation ``width * sigma`` voxels.

    Linear and, away from the borders, symmetric with a spectrum in [0, 1].

    Args:
        width: kernel standard deviation per voxel of sigma, >= 0.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width) and self.width >= 0):
            raise ValueError(f"the width of the Gaussian must be finite and not negative, not {self.width}")

    def __call__(self, field: Tensor, sigma: float) -> Tensor:
        """Smooth `field` (B, d, *shape), voxels, for noise of `sigma` voxels, >= 0."""
        spread = self.width * sigma
        if not (math.isfinite(spread) and spread >= 0):
            raise ValueError(f"sigma must be finite and not negative, not {sigma}")
        return gaussian(field, spread if spread >= NARROWEST else 0.0)


@dataclass(frozen=True)
class Identity:
    """``D(z, sigma) = z``: no prior, so that RED's term z - D(z) is 0."""

    def __call__(self, field: Tensor, sigma: float) -> Tensor:
        """Return `field` (B, d, *shape), voxels, itself."""
        return field
