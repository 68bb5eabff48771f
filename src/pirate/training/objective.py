"""The loss of eq. (12), with its gradient with respect to the field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pirate.energies.local import LocalCorrelation
from pirate.energies.regularity import Difference, Folding, Smoothness
from pirate.errors import UsageError
from pirate.ops.derivative import forward_difference, forward_difference_adjoint
from pirate.ops.resample import resize_field, resize_field_adjoint


@dataclass(frozen=True)
class Objective:
    """The loss of eq. (12), all terms on the grid of the images.

    l = similarity * l_smi + smoothness * l_smt + folding * l_Jac

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

    def __post_init__(self) -> None:
        for name in ("similarity", "smoothness", "folding"):
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
