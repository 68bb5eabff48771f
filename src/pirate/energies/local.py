"""Local correlation: the correlation of fixed and warped in a window around each voxel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate import kernels
from pirate.energies.similarity import Similarity, check_shape, total
from pirate.errors import reject
from pirate.ops.resample import resize_field, resize_field_adjoint
from pirate.ops.warp import warp_with_gradient

ROUNDING = 1e-13
"""A window whose variance is below this part of its mean square is flat: the rest is float64 rounding."""


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
        g     = 1 - sum s c,                    shares s = a / sum a

    and, with p = s dc/dcross and q = s dc/dvw,

        dg/dw = -a (f B p + 2 w B q - B(p B(a f) / n + 2 q B(a w) / n))

    A window in which either image is flat has c = 0. `epsilon` has the unit of vf vw, so that for
    intensities far below 1 it damps every window.
    """

    window: int = 9
    """Side in voxels, odd, at least 3."""
    squared: bool = True
    """True as in the released code, False as printed in eq. (13)."""
    epsilon: float = 1e-5
    """Added to the product of the variances, fourth power of the intensity unit."""

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
        p, q = share * p, 2 * share * q
        gradient = box_sum(p * mean_f + q * mean_w, self.window)
        gradient -= f * box_sum(p, self.window) + w * box_sum(q, self.window)
        if a is not None:
            gradient *= a
        return 1 - total((share * c).expand_as(f)), gradient.to(warped.dtype)

    def on_field(
        self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As in the base class, in compiled passes where that is possible."""
        if not kernels.usable(self.fixed, moving, field):
            return super().on_field(moving, field, moving_mask)
        check_shape(moving, self.fixed, "moving")
        low, high = moving.aminmax()
        if not bool(high > low):  # constant or not a number: the torch path says which
            return super().on_field(moving, field, moving_mask)
        shape, own, radius = self.fixed.shape[2:], field.shape[2:], self.window // 2
        full = field if own == shape else resize_field(field, shape)
        weight = self.weight_on_field(field, moving_mask)
        if weight is None:
            value, force = kernels.local_correlation_force(
                self.fixed, moving, full, radius, self.squared, self.epsilon, "additive"
            )
        else:
            warped, slope = warp_with_gradient(moving, full)
            value, pull = kernels.local_correlation(
                self.fixed, warped, radius, self.squared, self.epsilon, weight
            )
            force = pull * slope
        if not bool((value != 1).all() and value.isfinite().all()):
            return super().on_field(moving, field, moving_mask)  # says what is wrong with the images
        return value, force if own == shape else resize_field_adjoint(force, own)

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
