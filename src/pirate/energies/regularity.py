"""Terms that depend on the field alone: smoothness r of eq. (6) and the folding loss of eq. (14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pirate import kernels
from pirate.errors import reject
from pirate.ops.derivative import (
    central_difference,
    central_difference_adjoint,
    forward_difference,
    forward_difference_adjoint,
)

SMOOTHNESS_FACTOR = 2.0
"""The released code's factor before the mean over the axes; it fixes the meaning of alpha in eq. (6)."""

Difference = Literal["forward", "central"]
_DIFFERENCES = {
    "forward": (forward_difference, forward_difference_adjoint),
    "central": (central_difference, central_difference_adjoint),
}


@dataclass(frozen=True)
class Smoothness:
    """Smoothness r of eq. (6), ``|grad phi|^2`` with forward differences D_a along the d axes.

    With n voxels and d components, each mean running over all d n numbers (the difference beyond the last
    voxel is 0 and counts):

        r         = SMOOTHNESS_FACTOR / d * sum_a mean((D_a phi)^2)
        dr/dphi   = 2 SMOOTHNESS_FACTOR / (d^2 n) * sum_a D_a^T D_a phi

    that is 4/9 (3-D) or 1 (2-D) times minus the Laplacian over n.
    """

    def value_and_gradient(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Return r, (B,), float64, voxels squared, and dr/dfield, for a field (B, d, *shape) in voxels."""
        d = field.shape[1]
        factor = SMOOTHNESS_FACTOR / (d * field[0].numel())
        if kernels.usable(field):
            value, gradient = kernels.smoothness_gradient(field)
            return factor * value, gradient.mul_(2 * factor)
        value = torch.zeros(field.shape[0], dtype=torch.float64, device=field.device)
        gradient = torch.zeros_like(field)
        for axis in range(d):
            change = forward_difference(field, axis)
            value += change.double().square().flatten(1).sum(1)
            gradient += forward_difference_adjoint(change, axis)
        return factor * value, gradient.mul_(2 * factor)


@dataclass(frozen=True)
class Folding:
    """Folding loss of eq. (14): mean over voxels of ``relu(margin - |J|)^2``, J = I + d field / dx.

    With the cofactors C of J, C_ca = d|J| / d(D_a field_c):

        h            = 1/n sum relu(margin - |J|)^2
        dh/dfield_c  = -2/n sum_a D_a^T (relu(margin - |J|) C_ca)

    Forward differences are not taken in the last plane of each axis, as in `folding_ratio`.
    """

    margin: float = 0.0
    """Determinant below which a voxel is penalised, no unit: 0 in eq. (14), 0.5 in the released code."""
    difference: Difference = "central"
    """How derivatives are taken."""

    def __post_init__(self) -> None:
        """Refuse an unknown difference."""
        if self.difference not in _DIFFERENCES:
            raise reject(
                "difference",
                f"it is {self.difference!r}",
                "'forward' or 'central'",
                "Correct the setting.",
            )

    def value_and_gradient(self, field: Tensor) -> tuple[Tensor, Tensor]:
        """Return h, (B,), float64, no unit, and dh/dfield, for a field (B, d, *shape) in voxels."""
        d = field.shape[1]
        difference, adjoint = _DIFFERENCES[self.difference]
        columns = [difference(field, axis) for axis in range(d)]  # columns[a][:, c] = d field_c / d x_a
        jacobian = [[columns[a][:, c] + (1.0 if a == c else 0.0) for a in range(d)] for c in range(d)]
        cofactors = _cofactors(jacobian)
        determinant = sum((jacobian[0][a] * cofactors[0][a] for a in range(d)), torch.zeros_like(field[:, 0]))
        short, count = self._shortfall(determinant)
        value = short.double().square().flatten(1).sum(1) / count
        gradient = torch.zeros_like(field)
        for axis in range(d):
            flux = torch.stack([short * cofactors[c][axis] for c in range(d)], 1)
            gradient += adjoint(flux, axis)
        return value, gradient.mul_(-2 / count)

    def _shortfall(self, determinant: Tensor) -> tuple[Tensor, int]:
        """Return ``relu(margin - |J|)``, (B, *shape), 0 where not counted, and how many voxels count."""
        short = (self.margin - determinant).clamp_min(0)
        count = short[0].numel()
        if self.difference == "forward":
            for axis, n in enumerate(determinant.shape[1:], start=1):
                if n > 1:
                    short.narrow(axis, n - 1, 1).zero_()
                    count = count // n * (n - 1)
        return short, count


def _cofactors(m: list[list[Tensor]]) -> list[list[Tensor]]:
    """Cofactor matrix of a 2 x 2 or 3 x 3 matrix of (B, *shape) tensors: d det / d m_ij."""
    if len(m) == 2:
        return [[m[1][1], -m[1][0]], [-m[0][1], m[0][0]]]
    return [
        [
            m[(i + 1) % 3][(j + 1) % 3] * m[(i + 2) % 3][(j + 2) % 3]
            - m[(i + 1) % 3][(j + 2) % 3] * m[(i + 2) % 3][(j + 1) % 3]
            for j in range(3)
        ]
        for i in range(3)
    ]
