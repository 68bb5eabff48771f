"""Local correlation: the correlation of fixed and warped in a window around each voxel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate import kernels
from pirate.energies.composition import Remembered
from pirate.energies.similarity import Similarity
from pirate.energies.statistics import contrast, sound, total
from pirate.errors import reject
from pirate.ops.resample import resize_field, resize_field_adjoint

ROUNDING = 1e-13
"""A window whose variance is below this part of its mean square is flat: the rest is float64 rounding."""

LEAST_WEIGHT = 1e-4
"""A window with less weight does not count: its means would be quotients of rounding errors."""

DOUBT = 0.01
"""So near to 1, or not a number, the value may be that of an image constant in its mask: then it is examined."""


def box_sum(x: Tensor, window: int) -> Tensor:
    """Sum over the cube of `window` (odd) voxels a side around each voxel; 0 outside; its own adjoint.

    Along each axis sums of 1, 2, 4, ... neighbours come from one another, and those in the binary digits of
    `window` are joined: about 2 log2(window) additions, none of which cancels.

    Args:
        x: (B, C, *shape), any unit.
        window: side in voxels, odd.

    Returns:
        (B, C, *shape), the unit of `x`.
    """
    for axis in range(2, x.ndim):
        x = _running_sum(x, window, axis)
    return x


def _running_sum(x: Tensor, window: int, axis: int) -> Tensor:
    n = x.shape[axis]
    pads = [0, 0] * (x.ndim - 1 - axis) + [window // 2] * 2
    power, size = F.pad(x, pads), 1  # power[i] = sum of `size` voxels from i
    result, offset = torch.zeros_like(x), 0
    while size <= window:
        if window & size:
            result += power.narrow(axis, offset, n)
            offset += size
        m = power.shape[axis] - size
        if 2 * size <= window:
            power = power.narrow(axis, 0, m) + power.narrow(axis, size, m)
        size *= 2
    return result


@dataclass(frozen=True, eq=False)
class LocalCorrelation(Similarity):
    """Penalty of eq. (13): one minus the mean of the (squared) correlation in windows, in [0, 1] or [0, 2].

    With weights a, B the box sum, n = B a (the constant window^d if no mask is given, 0 outside the image):

        cross = B(a f w) - B(a f) B(a w) / n,   vf = B(a f f) - B(a f)^2 / n,   vw likewise
        c     = cross^2 / (vf vw + epsilon)     or, plain,   cross / sqrt(vf vw + epsilon)
        g     = 1 - sum s c + intensity sum s m (w - f)^2,      shares s = a / sum a, m = 1 where f is not 0

    and, with p = s dc/dcross and q = s dc/dvw,

        dg/dw = -a (f B p + 2 w B q - B(p B(a f) / n + 2 q B(a w) / n)) + 2 intensity s m (w - f)

    A window in which either image is flat, or whose weights sum to no more than `LEAST_WEIGHT`, has c = 0.
    `epsilon` has the unit of vf vw, so that for intensities far below 1 it damps every window.
    """

    window: int = 9
    """Side in voxels, odd, at least 3."""
    squared: bool = True
    """True as in the released code, False as printed in eq. (13)."""
    epsilon: float = 1e-5
    """Added to the product of the variances, fourth power of the intensity unit."""
    intensity: float = 0.0
    """Weight of the squared difference: windows say where edges are, intensities on which side of them one is."""

    def __post_init__(self) -> None:
        """Refuse a window without a centre and an epsilon that would let 0/0 through."""
        if self.window < 3 or self.window % 2 == 0:
            raise reject(
                "window",
                f"the window has {self.window} voxels",
                "an odd number, 3 or more",
                "Use for example 5, 7 or 9.",
            )
        if not self.epsilon > 0:
            raise reject("epsilon", f"it is {self.epsilon}", "a positive number", "Use for example 1e-5.")
        if not 0 <= self.intensity < float("inf"):
            raise reject("intensity", f"it is {self.intensity}", "a number from 0", "Use for example 30.")

    def value_and_gradient(self, warped: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return g, (B,), float64, no unit, and dg/dwarped, (B, 1, *shape), per intensity unit."""
        a = self.weight(mask)
        share = self.share(a)
        self.centred_pair(warped, mask, share)  # refuses what cannot be aligned
        n = self._size(a)
        f, mean_f, vf = self._whole_statistics if mask is None else self._statistics(self.fixed, a, n)
        w, mean_w, vw = self._statistics(warped, a, n)
        cross = self._sum(f * w, a) - n * mean_f * mean_w
        cross = cross.masked_fill_((vf == 0) | (vw == 0), 0)
        c, p, q = self._correlation(cross, vf, vw)
        if a is not None:
            c, p, q = (x.masked_fill(n <= LEAST_WEIGHT, 0) for x in (c, p, q))
        p, q = share * p, 2 * share * q
        gradient = box_sum(p * mean_f + q * mean_w, self.window)
        gradient -= f * box_sum(p, self.window) + w * box_sum(q, self.window)
        if a is not None:
            gradient *= a
        difference = (w - f).masked_fill_(f == 0, 0)
        gradient += 2 * self.intensity * share * difference
        value = 1 - total((share * (c - self.intensity * difference.square())).expand_as(f))
        return value, gradient.to(warped.dtype)

    def on_field(
        self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As in the base class, in compiled passes where that is possible."""
        shape, own = self.fixed.shape[2:], field.shape[2:]
        full = field if own == shape else resize_field(field, shape)
        pair = self.pair(moving, full, moving_mask)
        term = None if pair is None else self._compiled(pair, None, "additive")
        if term is None:
            return super().on_field(moving, field, moving_mask)
        return term[0], term[1] if own == shape else resize_field_adjoint(term[1], own)

    def compiled(
        self, pair: kernels.Pair, out: Tensor | None, gradient: bool
    ) -> tuple[Tensor, Tensor] | None:
        """As in the base class, in one pass; the gradient comes with it."""
        return self._compiled(pair, out, "compositional")

    def _compiled(
        self, pair: kernels.Pair, out: Tensor | None, scheme: Literal["additive", "compositional"]
    ) -> tuple[Tensor, Tensor] | None:
        constants = (self.window // 2, self.squared, self.epsilon)
        if pair.field is None:
            weight = pair.moving_mask if pair.fixed_mask is None else pair.fixed_mask
            if pair.fixed_mask is not None and pair.moving_mask is not None:
                weight = pair.fixed_mask * pair.moving_mask
            value, slope = kernels.local_correlation(
                self.fixed, pair.moving, *constants, weight, out, self.intensity
            )
        else:
            weight = self._moved_weight(pair, pair.field)
            value, slope = kernels.local_correlation_force(
                self.fixed, pair.moving, pair.field, *constants, scheme, out, weight, self.intensity
            )
        clear = bool(((value - 1).abs() > DOUBT).all())
        if (
            clear
            and self._has_contrast(pair.moving)
            and (pair.moving_mask is not None or self.fixed_is_sound)
        ):
            return value, slope
        flat = not sound(kernels.correlation(pair, None, False).moments)
        return None if flat else (value, slope)

    def _moved_weight(self, pair: kernels.Pair, field: Tensor) -> Tensor | None:
        """fixed_mask * moving_mask(x + field), (B, 1, *shape), in memory that is used again; None without masks."""
        if pair.moving_mask is None:
            return pair.fixed_mask
        weight = kernels.warp(pair.moving_mask, field, out=self._spare)
        return weight if pair.fixed_mask is None else weight.mul_(pair.fixed_mask)

    @cached_property
    def _has_contrast(self) -> Remembered[bool]:
        return Remembered(contrast)

    @cached_property
    def _spare(self) -> Tensor:
        return torch.empty_like(self.fixed, memory_format=torch.contiguous_format)

    def _correlation(self, cross: Tensor, vf: Tensor, vw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return c, dc/dcross and dc/dvw; a window where fixed is flat has no derivative."""
        product = vf * vw + self.epsilon
        if self.squared:
            slope = cross / product
            return cross * slope, 2 * slope, -slope * slope * vf
        slope = product.rsqrt()
        c = cross * slope
        return c, slope * (vf > 0), -0.5 * c * vf / product * (vw > 0)

    def _size(self, weight: Tensor | None) -> Tensor:
        if weight is None:
            count = float(self.window ** (self.fixed.ndim - 2))
            return torch.tensor(count, dtype=torch.float64, device=self.fixed.device)
        return box_sum(weight, self.window)

    def _sum(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return box_sum(x if weight is None else x * weight, self.window)

    def _statistics(self, image: Tensor, weight: Tensor | None, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the image, its mean in each window and its variance times n there, float64."""
        x = image.double()
        mean = self._sum(x, weight) / n.clamp_min(torch.finfo(torch.float64).tiny)
        squares = self._sum(x * x, weight)
        variance = squares - n * mean * mean
        return x, mean, variance.masked_fill_(variance <= ROUNDING * squares, 0)

    @cached_property
    def _whole_statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        a = self.weight(None)
        return self._statistics(self.fixed, a, self._size(a))
