"""Random multi-scale diffeomorphisms: fields that no anatomy shaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.errors import reject
from pirate.ops.compose import exponential
from pirate.ops.derivative import central_difference
from pirate.ops.repair import repair
from pirate.ops.resample import resize
from pirate.ops.smooth import gaussian


@dataclass(frozen=True)
class RandomFields:
    """Constants of the random fields.

    Args:
        scales: Gaussian sigmas of the noise, as parts of the shortest axis; one term each.
        amplitude: voxels: root mean square length of the velocity, all terms together, at most; of a field it is
            drawn between a fifth of this and this.
        decay: a term's share of the amplitude goes with its scale to this power: large waves are longer.
        steepest: largest derivative of the velocity's components, no unit; beyond it a term is scaled down.
    """

    scales: tuple[float, ...] = (0.25, 0.12, 0.06, 0.03)
    amplitude: float = 3.0
    decay: float = 1.0
    steepest: float = 0.4

    def __post_init__(self) -> None:
        if not self.scales or not all(0 < s <= 1 for s in self.scales):
            raise reject("scales", str(self.scales), "parts of the image, 0 to 1", "Use for example 0.1.")
        if not (0 < self.amplitude < 1e3 and 0 < self.steepest <= 2 and math.isfinite(self.decay)):
            raise reject(
                "random fields",
                f"amplitude {self.amplitude}, steepest {self.steepest}, decay {self.decay}",
                "amplitude 0 to 1000 voxels, steepest 0 to 2, a finite decay",
                "Leave them as they are.",
            )


def random_field(
    shape: Sequence[int], generator: torch.Generator, settings: RandomFields | None = None
) -> Tensor:
    """Draw one diffeomorphism of the grid.

    With white noise n_k and Gaussians G_k of sigma_k voxels, each term normalised to unit mean square length,

        v = a sum_k w_k G_k n_k / rms(G_k n_k),   w_k ~ |N(0, 1)| sigma_k^decay,   sum_k w_k^2 = 1
        field = exp(v)

    where no |d v_c / d x_b| of a term exceeds its share of `steepest`. The exponential is repaired where sampling
    it on voxels folded it, which is seldom.

    Args:
        shape: voxels, two or three entries of at least 4.
        generator: on the CPU; it alone decides the field.
        settings: constants.

    Returns:
        (1, d, *shape), float32, voxels; no fold by central or forward differences.
    """
    if len(shape) not in (2, 3) or min(shape) < 4:
        raise reject("shape", str(tuple(shape)), "two or three axes of at least 4 voxels", "Correct it.")
    field = exponential(random_velocity(shape, generator, settings or RandomFields()))
    return repair(field).field


def random_velocity(shape: Sequence[int], generator: torch.Generator, settings: RandomFields) -> Tensor:
    """The velocity v of `random_field`, (1, d, *shape), voxels per unit time."""
    sigmas = [s * min(shape) for s in settings.scales]
    drawn = torch.randn(len(sigmas), generator=generator).abs()
    weights = drawn * torch.tensor([s**settings.decay for s in sigmas])
    weights = weights / torch.linalg.vector_norm(weights).clamp_min(1e-12)
    amplitude = settings.amplitude * (0.2 + 0.8 * float(torch.rand((), generator=generator)))
    velocity = torch.zeros(1, len(shape), *shape)
    for sigma, weight in zip(sigmas, weights.tolist(), strict=True):
        term = amplitude * weight * _smooth_noise(shape, sigma, generator)
        allowed = settings.steepest / len(sigmas) ** 0.5
        velocity += term * min(1.0, allowed / max(_slope(term), 1e-12))
    return velocity


def _smooth_noise(shape: Sequence[int], sigma: float, generator: torch.Generator) -> Tensor:
    """White noise smoothed by about `sigma` voxels, (1, d, *shape), of mean square length 1.

    Coarse noise is drawn and smoothed on a grid of four voxels to a sigma, with a margin, and interpolated.
    """
    apart = max(1.0, sigma / 4)
    coarse = [min(n, max(4, round((n - 1) / apart) + 1)) for n in shape]
    per_axis = [sigma * (c - 1) / (n - 1) for c, n in zip(coarse, shape, strict=True)]
    margin = [math.ceil(3 * s) for s in per_axis]
    wide = torch.randn(
        1, len(shape), *[c + 2 * m for c, m in zip(coarse, margin, strict=True)], generator=generator
    )
    inner = tuple(slice(m, m + c) for c, m in zip(coarse, margin, strict=True))
    noise = resize(gaussian(wide, per_axis)[(slice(None), slice(None), *inner)].contiguous(), shape)
    if apart > 1:
        noise = gaussian(noise, apart / 2)  # rounds the edges of linear interpolation
    return noise / noise.square().sum(1).mean().sqrt().clamp_min(1e-12)


def _slope(velocity: Tensor) -> float:
    """Largest |d v_c / d x_b|, no unit, of (1, d, *shape)."""
    return max(float(central_difference(velocity, axis).abs().max()) for axis in range(velocity.shape[1]))
