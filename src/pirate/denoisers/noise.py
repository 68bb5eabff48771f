"""The noise that denoisers of fields are trained and tested with: white, or coloured by a Gaussian.

Registration errors are not white: neighbouring voxels err together. Coloured noise is white noise smoothed by a
Gaussian of random width and brought back to standard deviation 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.ops.smooth import gaussian, gaussian_taps

NARROWEST = 0.3  # voxels; a Gaussian narrower than this hardly couples neighbours: the noise stays white


@dataclass(frozen=True)
class Noise:
    """Gaussian noise of standard deviation sigma, sigma and the correlation width drawn uniformly.

    Args:
        sigma_min: smallest standard deviation, voxels, above 0.
        sigma_max: largest one.
        width_min: smallest standard deviation of the Gaussian that colours the noise, voxels; below 0.3 white.
        width_max: largest one; 0 for white noise only.
        calm: share of the examples with less noise than sigma says, from none to all of it.
    """

    sigma_min: float
    sigma_max: float
    width_min: float = 0.0
    width_max: float = 0.0
    calm: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.sigma_min, self.sigma_max, self.width_min, self.width_max, self.calm)
        if not all(math.isfinite(n) for n in numbers):
            raise ValueError(f"the noise needs finite numbers, not {numbers}")
        if not (0 < self.sigma_min <= self.sigma_max and 0 <= self.width_min <= self.width_max):
            raise ValueError("the noise needs 0 < sigma_min <= sigma_max and 0 <= width_min <= width_max")
        if not 0 <= self.calm <= 1:
            raise ValueError(f"the calm share is a number from 0 to 1, not {self.calm}")

    def level(self, generator: torch.Generator) -> float:
        """Draw sigma, voxels."""
        return _uniform(self.sigma_min, self.sigma_max, generator)

    def share(self, generator: torch.Generator) -> float:
        """Draw the part of the noise that an example gets: 1, or for the calm ones a number from 0 to 1."""
        if self.calm == 0 or _uniform(0, 1, generator) >= self.calm:
            return 1.0
        return _uniform(0, 1, generator)

    def unit(self, ndim: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw noise of standard deviation 1: (ndim, *shape), voxels, of a width drawn for it."""
        width = _uniform(self.width_min, self.width_max, generator)
        return coloured(ndim, shape, width, generator)

    def at(self, sigma: float) -> Noise:
        """Return the same noise with one standard deviation, `sigma` voxels."""
        return dataclasses.replace(self, sigma_min=sigma, sigma_max=sigma)


def coloured(ndim: int, shape: Sequence[int], width: float, generator: torch.Generator) -> Tensor:
    """Draw (ndim, *shape) of standard deviation 1, white if `width` < 0.3, else smoothed by `width` voxels.

    A Gaussian with weights w_i turns the variance of white noise into ``(sum w_i^2)^d``; the smoothing runs on a
    larger grid, so that the border is like the middle.
    """
    if width < NARROWEST:
        return torch.randn(ndim, *shape, generator=generator)
    taps = gaussian_taps(width)
    margin = len(taps) // 2
    white = torch.randn(1, ndim, *[n + 2 * margin for n in shape], generator=generator)
    spread = math.sqrt(math.fsum(t * t for t in taps) ** len(shape))
    smooth: Tensor = gaussian(white, width)[0]
    for axis, n in enumerate(shape, start=1):
        smooth = smooth.narrow(axis, margin, n)
    return smooth / spread


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))
