"""Denoising by total variation: the one classical prior with a sound objective.

    D(z, sigma) = argmin_u  1/2 |u - z|^2 + lambda TV(u),     lambda = strength * sigma

Its residual z - D(z) is the gradient of the Moreau envelope of lambda TV, so RED with this denoiser descends
an energy that exists; D is firmly non-expansive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Coupling = Literal["channel", "vector"]

CHECK_EVERY = 5  # inner iterations between two measurements of the gap
FLOOR = 1e-6  # share of n lambda^2 added to the primal value, for fields whose minimum is nearly 0


@dataclass(frozen=True)
class Certificate:
    """How well the last call solved its problem.

    Args:
        iterations: inner iterations spent.
        gap: largest relative duality gap of the batch; ``1/2 |u - u*|^2 <= gap * (P(u) + 1e-6 n lambda^2)``.
    """

    iterations: int
    gap: float


class TotalVariation:
    """Proximal operator of total variation, solved in the dual by accelerated projected gradients.

    With G the forward differences along all axes (0 at the last index) and p in unit balls:

        TV(u)   = sum over voxels (and components) of |G u| = max over |p| <= 1 of <p, G u>
        u(p)    = z - lambda G^T p
        p       <- project(q + G u(q) / (4 d lambda)),  |G|^2 <= 4 d,   q the extrapolated p (FISTA)
        gap(p)  = lambda sum(|G u| - <p, G u>)  >=  1/2 |u - u*|^2

    The gap is summed in float64 over terms that are each >= 0. The iteration stops when the gap of every
    element of the batch is at most `gap` times ``P(u) + 1e-6 n lambda^2``, P being the objective; the second
    term keeps the ratio meaningful where P is nearly 0. float32 cannot certify a ratio below about 1e-6.

    The dual of the last call is kept and starts the next one on the same shape (fields change little from
    one outer iteration to the next). It changes the answer by no more than the gap allows; `reset` drops it.
    Not differentiable: gradients do not flow through a call.

    Args:
        coupling: "channel" takes one length per component and voxel (all axes in it), "vector" one length
            per voxel over all components and axes, so that the components share their edges.
        strength: lambda per voxel of sigma; 0 returns the field unchanged.
        gap: relative duality gap at which to stop.
        iterations: most inner iterations of one call.
    """

    def __init__(
        self, coupling: Coupling = "vector", strength: float = 1.0, gap: float = 1e-3, iterations: int = 300
    ) -> None:
        if coupling not in ("channel", "vector"):
            raise ValueError(f"coupling is 'channel' or 'vector', not {coupling!r}")
        if not (math.isfinite(strength) and strength >= 0 and gap > 0 and iterations >= 1):
            raise ValueError(
                "total variation needs a finite strength >= 0, a gap > 0 and at least one iteration, "
                f"not {strength}, {gap} and {iterations}"
            )
        self.coupling, self.strength, self.gap, self.iterations = coupling, strength, gap, iterations
        self.last = Certificate(0, 0.0)
        self._dual: Tensor | None = None

    def reset(self) -> None:
        """Forget the dual of the last call; the next call starts from zero."""
        self._dual = None

    @torch.no_grad()
    def __call__(self, field: Tensor, sigma: float) -> Tensor:
        """Denoise `field`.

        Args:
            field: (B, d, *shape), displacement in voxels (any number of components is accepted).
            sigma: noise standard deviation in voxels, >= 0.

        Returns:
            (B, d, *shape), voxels; a new tensor.
        """
        weight = self.strength * sigma  # lambda, voxels
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"sigma must be finite and not negative, not {sigma}")
        if weight == 0:
            self.last = Certificate(0, 0.0)
            return field.clone()
        u = self._solve(field.contiguous(), weight)
        if not math.isfinite(self.last.gap):
            self.reset()  # a broken field must not poison the next call
        return u

    def _solve(self, z: Tensor, weight: float) -> Tensor:
        """Return u(p) for the first p whose gap is small enough; keeps p and writes the certificate."""
        p = self._start(z)
        q, u, spare = p.clone(), torch.empty_like(z), (torch.empty_like(z), torch.empty_like(z))
        step = 1.0 / (4 * (z.ndim - 2) * weight)
        momentum, best = 1.0, math.inf
        for k in range(self.iterations + 1):
            if k % CHECK_EVERY == 0 or k == self.iterations:
                _primal(u, z, p, weight)
                gap = _relative_gap(u, z, p, weight, self.coupling, spare)
                self.last = Certificate(k, gap)
                if gap <= self.gap or k == self.iterations or not math.isfinite(gap):
                    break
                if gap > best:  # the momentum overshot: start it again from p
                    momentum = 1.0
                    q.copy_(p)
                best = gap
            _primal(u, z, q, weight)
            _ascend(q, u, step)
            _project(q, self.coupling, spare[0])
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            p, q = q, torch.lerp(p, q, 1 + (momentum - 1) / following, out=p)  # q = p + beta (p - p_old)
            momentum = following
        self._dual = p
        return u

    def _start(self, z: Tensor) -> Tensor:
        """Return the dual to start from, (d, B, C, *shape), without unit, |p| <= 1."""
        kept = self._dual
        shape = (z.ndim - 2, *z.shape)
        if kept is not None and kept.shape == shape and kept.dtype == z.dtype and kept.device == z.device:
            return kept
        return z.new_zeros(shape)


def _primal(u: Tensor, z: Tensor, p: Tensor, weight: float) -> None:
    """``u = z - lambda G^T p``, that is ``u[i] = z[i] + lambda (p[i] - p[i - 1])`` along each axis."""
    u.copy_(z)
    for axis, part in enumerate(p, start=2):
        inner = part.narrow(axis, 0, part.shape[axis] - 1)
        _from(u, axis, 0).add_(inner, alpha=weight)
        _from(u, axis, 1).sub_(inner, alpha=weight)


def _ascend(q: Tensor, u: Tensor, step: float) -> None:
    """``q += step G u``; the last entry along each axis stays 0."""
    for axis, part in enumerate(q, start=2):
        _from(part, axis, 0).add_(_from(u, axis, 1), alpha=step).sub_(_from(u, axis, 0), alpha=step)


def _project(q: Tensor, coupling: Coupling, length: Tensor) -> None:
    """``q /= max(1, |q|)``, the length over axes (and over components if they are coupled)."""
    torch.mul(q[0], q[0], out=length)
    for part in q[1:]:
        length.addcmul_(part, part)
    total = length.sum(1, keepdim=True) if coupling == "vector" else length
    q /= total.sqrt_().clamp_(min=1)


def _relative_gap(
    u: Tensor, z: Tensor, p: Tensor, weight: float, coupling: Coupling, spare: tuple[Tensor, Tensor]
) -> float:
    """Return the largest ``lambda sum(|G u| - <p, G u>) / (P(u) + 1e-6 n lambda^2)`` of the batch."""
    slope, length = spare
    product = torch.zeros_like(u)
    length.zero_()
    for axis, part in enumerate(p, start=2):
        inner = _from(slope, axis, 0)
        torch.sub(_from(u, axis, 1), _from(u, axis, 0), out=inner)
        _from(length, axis, 0).addcmul_(inner, inner)
        _from(product, axis, 0).addcmul_(inner, _from(part, axis, 0))
    if coupling == "vector":
        length, product = length.sum(1, keepdim=True), product.sum(1, keepdim=True)
    length.sqrt_()
    variation = weight * _total(length)
    gap = weight * _total(length.sub_(product).clamp_(min=0))
    objective = 0.5 * _total(torch.sub(u, z, out=slope).square_()) + variation
    return float((gap / (objective + FLOOR * u[0].numel() * weight**2)).max())


def _from(x: Tensor, axis: int, start: int) -> Tensor:
    """View all but one entry of `x` along `axis`: without the last (start 0) or the first (start 1)."""
    return x.narrow(axis, start, x.shape[axis] - 1)


def _total(x: Tensor) -> Tensor:
    """Sum each element of the batch in float64, (B, ...) to (B,)."""
    return x.flatten(1).sum(1, dtype=torch.float64)
