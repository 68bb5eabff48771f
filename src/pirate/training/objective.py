"""The loss of eq. (12), with its gradient with respect to the field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pirate.energies.local import LocalCorrelation
from pirate.energies.regularity import Difference, Folding, Smoothness
from pirate.errors import UsageError
from pirate.ops.derivative import forward_difference, forward_difference_adjoint
from pirate.ops.resample import resize_field, resize_field_adjoint

NUDGE = 1e-2
"""Voxels rms: the difference of fields over which a denoiser's derivative is taken."""


@dataclass(frozen=True)
class Objective:
    """The loss of eq. (12), all terms on the grid of the images.

    l = similarity * l_smi + smoothness * l_smt + folding * l_Jac ( + expansion * l_exp, not in the paper )

    l_smi is 1 minus the mean local correlation (eq. 13), l_smt the smoothness, l_Jac the mean of
    ``relu(margin - |J|)^2`` (eq. 14).
    """

    similarity: float = 1.0
    """Weight w0."""
    window: int = 9
    """Side of the local correlation's window, voxels, odd."""
    squared: bool = False
    """Whether the local correlation is squared."""
    smoothness: float = 5.0
    """Weight w1."""
    smoothness_norm: Literal["l1", "l2"] = "l2"
    """l2: r of eq. (6) on the field at full resolution; l1: the mean over axes of ``mean |D_a field|``."""
    folding: float = 1.0
    """Weight w2."""
    margin: float = 0.0
    """Determinant below which a voxel is penalised."""
    difference: Difference = "forward"
    """How the determinant's derivatives are taken."""
    expansion: float = 0.0
    """Weight of a further term, on the network instead of the field: ``relu(growth - 1)^2``, see `growth`."""

    def __post_init__(self) -> None:
        for name in ("similarity", "smoothness", "folding", "expansion"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0):
                raise UsageError(f"objective: {name} is {weight}; expected a weight of 0 or more.")
        if self.smoothness_norm not in ("l1", "l2"):
            raise UsageError(f"objective: smoothness_norm is {self.smoothness_norm!r}; expected l1 or l2.")

    @torch.no_grad()
    def value_and_gradient(
        self, fixed: Tensor, moving: Tensor, field: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Return the loss, its gradient and the means of its terms, not weighted.

        Args:
            fixed: (B, 1, *shape), intensities from 0 to 1.
            moving: (B, 1, *shape), likewise.
            field: (B, d, *field_shape), voxels of its own grid.

        Returns:
            l, (B,), float64, without unit; dl/dfield, (B, d, *field_shape), per voxel; the terms by name.
        """
        full = resize_field(field, fixed.shape[2:])
        terms = {
            "similarity": LocalCorrelation(fixed, window=self.window, squared=self.squared).on_field(
                moving, full
            ),
            "smoothness": (Smoothness() if self.smoothness_norm == "l2" else Variation()).value_and_gradient(
                full
            ),
            "folding": Folding(self.margin, self.difference).value_and_gradient(full),
        }
        value = torch.zeros(len(field), dtype=torch.float64, device=field.device)
        gradient = torch.zeros_like(full)
        for name, (term, slope) in terms.items():
            value += getattr(self, name) * term
            gradient.add_(slope, alpha=getattr(self, name))
        means = {name: float(term.mean()) for name, (term, _) in terms.items()}
        return value, resize_field_adjoint(gradient, field.shape[2:]), means


def growth(denoise: Callable[[Tensor], Tensor], field: Tensor, products: int = 5) -> Tensor:
    """How much D expands noise that went through it before: ``|J v| / |v|``, (B,), J = dD/dphi at `field`.

    v is where `products` - 1 products with J lead from white noise (power iteration). With many products the result is
    the largest eigenvalue's modulus; with few it is a lower estimate that sees the wildest directions, which is what a
    penalty needs. Where an eigenvalue is above 1 + (curvature of the other terms) / tau, eq. (6) leaves its fixed
    point. J v is a difference quotient: D is piecewise linear or nearly so. Derivatives with respect to D's weights
    take v as given.

    Args:
        denoise: D at one noise level, (B, d, *shape) to the same, voxels.
        field: (B, d, *shape), voxels.
        products: with J, at least 1.
    """
    noise = torch.randn(field.shape, generator=torch.Generator().manual_seed(0)).to(field)
    with torch.no_grad():
        here, v = denoise(field), _of_length(noise)
        for _ in range(products - 1):
            v = _of_length(denoise(field + v) - here)
    moved = (denoise(field + v) - denoise(field)).flatten(1).square().sum(1).clamp_min(1e-36).sqrt()
    return moved / v.flatten(1).square().sum(1).sqrt().clamp_min(1e-9)


def _of_length(v: Tensor) -> Tensor:
    """(B, d, *shape) with rms `NUDGE` over each element of the batch."""
    rms = v.flatten(1).square().mean(1).sqrt().clamp_min(1e-30)
    return v * (NUDGE / rms).view(-1, *[1] * (v.ndim - 1))


@dataclass(frozen=True)
class Variation:
    """Anisotropic total variation with forward differences D_a along the d axes, means over all d n numbers.

    v        = 1/d sum_a mean |D_a phi|
    dv/dphi  = 1/(d^2 n) sum_a D_a^T sign(D_a phi)
    """

    def value_and_gradient(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Return v, (B,), float64, voxels, and dv/dfield, for a field (B, d, *shape) in voxels."""
        d = field.shape[1]
        factor = 1 / (d * field[0].numel())
        value = torch.zeros(len(field), dtype=torch.float64, device=field.device)
        gradient = torch.zeros_like(field)
        for axis in range(d):
            change = forward_difference(field, axis)
            value += change.double().abs().flatten(1).sum(1)
            gradient += forward_difference_adjoint(change.sign(), axis)
        return factor * value, gradient.mul_(factor)


OBJECTIVES: dict[str, Objective] = {
    "paper": Objective(),
    "released": Objective(
        window=21, squared=True, smoothness=1.0, smoothness_norm="l1", folding=5.0, margin=0.5
    ),
}
"""Eq. (12) as printed, weights 1, 5, 1 (the paper does not name the window), and as the authors' code has it."""


def objective(name: str) -> Objective:
    """The loss of that name; `dataclasses.replace` changes what should be different."""
    if name not in OBJECTIVES:
        raise UsageError(f"there is no objective {name!r}; there are {' and '.join(OBJECTIVES)}.")
    return OBJECTIVES[name]
