"""Mutual information of two images by a Parzen histogram (Mattes et al., 2003)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from pirate import kernels
from pirate.energies.similarity import Similarity
from pirate.energies.statistics import column, sound
from pirate.errors import reject

MOST_BINS = 32767
"""The compiled histogram counts them in 16 bits."""


@dataclass(frozen=True, eq=False)
class MutualInformation(Similarity):
    """Minus the mutual information of fixed and warped, in nats.

    A fixed intensity falls into one bin i (order 0); a warped intensity at bin coordinate u spreads over four
    bins j by the cubic B-spline b. With shares s that sum to 1:

        p_ij  = sum_x s(x) [bin(f(x)) = i] b(j - u(x)),     p_i = sum_j p_ij,   p_j = sum_i p_ij
        g     = -sum_ij p_ij log(p_ij / (p_i p_j))
        dg/dw = s (du/dw) sum_j log(p_ij / (p_i p_j)) b'(j - u),   i = bin(f(x))

    The ranges are fixed beforehand, so that g is smooth in `warped`; an intensity outside its range counts
    as the nearest end of the range and has no derivative. On CUDA the histogram's order of summation, and
    so the last digits, may vary between runs.
    """

    fixed_range: Tensor = field(kw_only=True)
    """(B, 2), lowest and highest intensity of fixed."""
    moving_range: Tensor = field(kw_only=True)
    """(B, 2), lowest and highest intensity of moving."""
    bins: int = field(default=32, kw_only=True)
    """Bins for each image, at least 5: a cubic B-spline spreads over four."""

    @classmethod
    def between(
        cls, fixed: Tensor, moving: Tensor, fixed_mask: Tensor | None = None, bins: int = 32
    ) -> MutualInformation:
        """Build the energy with the whole intensity ranges of `fixed` and `moving`, both (B, 1, *shape)."""
        ranges = [torch.stack(x.flatten(1).aminmax(dim=1), 1).double() for x in (fixed, moving)]
        return cls(fixed, fixed_mask, fixed_range=ranges[0], moving_range=ranges[1], bins=bins)

    def __post_init__(self) -> None:
        """Refuse ranges without extent and too few bins."""
        if self.bins < 5:
            raise reject("bins", f"there are {self.bins} bins", "5 or more", "Use for example 32.")
        for name, span in (("fixed", self.fixed_range), ("moving", self.moving_range)):
            if not bool((torch.isfinite(span).all(1) & (span[:, 1] > span[:, 0])).all()):
                raise reject(
                    name,
                    f"the intensity range is {span.tolist()}",
                    "finite [lowest, highest] with lowest < highest",
                    "Check that the image is not constant and has no NaN or infinite voxels.",
                )

    def value_and_gradient(self, warped: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return g, (B,), float64, nats, and dg/dwarped, (B, 1, *shape), nats per intensity unit."""
        share = self.share(self.weight(mask))
        self.centred_pair(warped, mask, share)  # refuses what cannot be aligned
        start, part, scale = self._coordinates(warped)
        histogram = self._histogram(start, part, share)
        value, ratio = _information(histogram)
        gradient = torch.zeros_like(part)
        for offset, (_, slope) in enumerate(_cubic(part)):
            gradient -= ratio.take(start + offset) * slope
        return -value, (gradient * scale * share).to(warped.dtype)

    def compiled(
        self, pair: kernels.Pair, out: Tensor | None, gradient: bool
    ) -> tuple[Tensor, Tensor] | None:
        """As in the base class, in two passes. Fixed is examined once, unless its mask moves."""
        if self.bins > MOST_BINS or not (pair.moving_mask is not None or self.fixed_is_sound):
            return None
        if pair.moving_mask is None:
            pair = pair._replace(fixed=None)
        term = kernels.mutual_information(pair, self._bins_of_fixed, self.bins, self._span, out, gradient)
        return (term.value, term.gradient) if sound(term.moments, pair.fixed is not None) else None

    @cached_property
    def _span(self) -> list[list[float]]:
        span: list[list[float]] = self.moving_range.double().tolist()
        return span

    @cached_property
    def _bins_of_fixed(self) -> Tensor:
        """Bin i of each voxel of fixed, (B, 1, *shape), int16; a few planes at a time."""
        return torch.cat([self._bin(part).short() for part in torch.split(self.fixed, 8, dim=2)], dim=2)

    def _bin(self, fixed: Tensor) -> Tensor:
        """Bin i of intensities (B, 1, *shape) of fixed, int64."""
        low, high = (column(v.double(), fixed) for v in self.fixed_range.unbind(1))
        return ((fixed.double() - low) / (high - low) * self.bins).long().clamp_(0, self.bins - 1)

    @cached_property
    def _row(self) -> Tensor:
        """Flat index of the first bin of each voxel's row (image b, fixed bin i), (B, 1, *shape), int64."""
        row = self._bin(self.fixed)
        image = torch.arange(row.shape[0], device=row.device)
        return (row + column(image, row) * self.bins) * self.bins

    def _coordinates(self, warped: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return each voxel's first of four flat bins, the part u - floor(u), and du/dw, (B, 1, *shape).

        The range maps to [1, bins - 2], so that the four bins floor(u) - 1, ..., floor(u) + 2 exist.
        """
        low, high = (column(v.double(), warped) for v in self.moving_range.unbind(1))
        rate = (self.bins - 3) / (high - low)
        w = warped.double()
        u = (1 + (w - low) * rate).clamp_(1, self.bins - 2)
        lower = u.floor().clamp_(max=self.bins - 3)
        return self._row + lower.long() - 1, u - lower, rate * ((w >= low) & (w <= high))

    def _histogram(self, start: Tensor, part: Tensor, share: Tensor) -> Tensor:
        """Joint distribution p, (B, bins, bins), fixed by moving, sum 1; needs a few images of memory."""
        size = start.shape[0] * self.bins**2
        histogram = torch.zeros(size, dtype=torch.float64, device=part.device)
        for offset, (height, _) in enumerate(_cubic(part)):
            histogram += torch.bincount((start + offset).flatten(), (height * share).flatten(), size)
        return histogram.view(-1, self.bins, self.bins)


def _information(p: Tensor) -> tuple[Tensor, Tensor]:
    """Mutual information of p (B, I, J), (B,), nats, and log(p_ij / (p_i p_j)), 0 in empty bins."""
    independent = p.sum(2, keepdim=True) * p.sum(1, keepdim=True)
    ratio = torch.where(p > 0, p / independent.clamp_min(torch.finfo(p.dtype).tiny), 1).log()
    return (p * ratio).sum((1, 2)), ratio


def _cubic(t: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Cubic B-spline weights b(j - u) and derivatives db/du at the bins floor(u) - 1, ..., floor(u) + 2.

    `t` = u - floor(u), any shape; the weights sum to 1, the derivatives to 0.
    """
    r = 1 - t
    yield r**3 / 6, -(r**2) / 2
    yield 2 / 3 - t**2 + t**3 / 2, -2 * t + 1.5 * t**2
    yield 2 / 3 - r**2 + r**3 / 2, 2 * r - 1.5 * r**2
    yield t**3 / 6, t**2 / 2
