"""How much noise a denoiser takes off fields it has not seen, against the best that classical filters do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.denoisers.classical import Gaussian
from pirate.denoisers.noise import Noise
from pirate.denoisers.total_variation import TotalVariation

Denoise = Callable[[Tensor, float], Tensor]

WIDTHS = tuple(0.25 * 1.25**k for k in range(14))  # voxels, 0.25 to 4.5
STRENGTHS = tuple(0.05 * 1.6**k for k in range(9))  # lambda per voxel of sigma, 0.05 to 2.1


@dataclass(frozen=True)
class Gain:
    """Noise power taken off, in dB: ``10 log10(|n|^2 / |D(z + n) - z|^2)``; 0 is nothing, below 0 harm.

    Args:
        sigma: voxels.
        denoiser: of the denoiser under test.
        gaussian: of the Gaussian filter whose width is the best for these very fields and this noise.
        gaussian_width: that width, voxels.
        total_variation: of total variation, its strength the best likewise; NaN if not asked for.
    """

    sigma: float
    denoiser: float
    gaussian: float
    gaussian_width: float
    total_variation: float

    @property
    def over_gaussian(self) -> float:
        """How much better than the best Gaussian, dB."""
        return self.denoiser - self.gaussian


def gain(
    denoiser: Denoise,
    fields: Sequence[Tensor],
    sigma: float,
    noise: Noise | None = None,
    seed: int = 0,
    with_total_variation: bool = False,
) -> Gain:
    """Measure the gain of `denoiser` at one noise level on clean `fields`.

    Powers are summed over fields before the quotient is taken. The rivals' one parameter is chosen on the same
    noisy fields, which favours them.

    Args:
        denoiser: any callable D(field, sigma).
        fields: each (d, *shape), voxels; not seen in training.
        sigma: standard deviation of the noise, voxels.
        noise: its colour; None is white. Its own levels are not used.
        seed: of the noise.
        with_total_variation: also measure total variation, which takes longer.
    """
    colour = Noise(sigma, sigma) if noise is None else noise.at(sigma)
    generator = torch.Generator().manual_seed(seed)
    pairs = [(z[None], sigma * colour.unit(len(z), z.shape[1:], generator)[None]) for z in fields]
    if not pairs:
        raise ValueError("the gain of a denoiser needs fields to measure it on")
    filters = {width: decibel(_of_width(width), pairs, sigma) for width in WIDTHS}
    best = max(filters, key=lambda width: filters[width])
    variation = math.nan
    if with_total_variation:
        variation = max(decibel(TotalVariation(strength=s), pairs, sigma) for s in STRENGTHS)
    return Gain(sigma, decibel(denoiser, pairs, sigma), filters[best], best, variation)


def decibel(denoiser: Denoise, pairs: Sequence[tuple[Tensor, Tensor]], sigma: float) -> float:
    """``10 log10(sum |n|^2 / sum |D(z + n, sigma) - z|^2)`` over pairs of z and n, each (1, d, *shape), voxels."""
    before = after = 0.0
    with torch.no_grad():
        for clean, noise in pairs:
            before += float(noise.double().square().sum())
            after += float((denoiser(clean + noise, sigma) - clean).double().square().sum())
    return 10 * math.log10(before / max(after, 1e-300))


def residual_rms(denoiser: Denoise, fields: Sequence[Tensor], sigma: float) -> float:
    """Root mean square of ``z - D(z, sigma)``, voxels, over clean `fields` (d, *shape), voxels.

    What the prior finds surprising about fields as they should be: the yardstick of `evaluation.surprise`.
    """
    total, count = 0.0, 0
    with torch.no_grad():
        for z in fields:
            total += float((z[None] - denoiser(z[None], sigma)).double().square().sum())
            count += z.numel()
    return math.sqrt(total / count)


def _of_width(width: float) -> Denoise:
    """A Gaussian of `width` voxels whatever sigma is."""
    return lambda field, sigma: Gaussian()(field, width)
