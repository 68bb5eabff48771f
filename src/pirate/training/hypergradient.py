"""The gradient of a loss at a fixed point with respect to what the map depends on, eq. (15) and its relatives.

With the map of eq. (6), ``T(phi) = phi - gamma F(phi)``, its fixed point phi* and J = dT/dphi there,

    dl/dtheta = (dT/dtheta)^T w,        (I - J^T) w = dl/dphi

The three modes differ in w alone:

    jfb      w = dl/dphi                                  eq. (15)
    k-step   w = c sum_{i < k} (I - c (I - J^T))^i dl/dphi      k differentiated steps from phi*, damped by c:
                                                          phi <- phi + c (T(phi) - phi)
    exact    w solves the equation, without a matrix

As I - J = gamma dF/dphi and dT/dtheta = -gamma dF/dtheta, the exact gradient does not depend on gamma. J holds the
Hessian of the data term, so the warp must be differentiable twice. Linear interpolation is so inside the cells of the
grid; where the field points exactly onto a plane between cells, the slope on one side is taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate.energies.similarity import Similarity
from pirate.errors import UsageError
from pirate.ops.resample import resize_field
from pirate.ops.warp import identity, sample
from pirate.solvers.solution import norm

Mode = Literal["jfb", "k-step", "exact"]
MODES: tuple[Mode, ...] = ("jfb", "k-step", "exact")


@dataclass(frozen=True)
class Backward:
    """How w is found."""

    mode: Mode = "jfb"
    """One of `MODES`."""
    steps: int = 5
    """k-step: how many steps k, >= 1; 1 has the direction of jfb."""
    damping: float = 0.5
    """k-step: c, in (0, 1]. A step at which Anderson acceleration works well is often too long for plain steps,
    whose series then grows with k; this shortens it on the way back."""
    curvature: bool = True
    """k-step: whether J holds the Hessian of the data term; without it only the regularisers are differentiated."""
    iterations: int = 40
    """exact: most products with J^T."""
    tolerance: float = 1e-3
    """exact: stop when ``|dl/dphi - (I - J^T) w| / |dl/dphi|`` of every element is below."""

    def __post_init__(self) -> None:
        laws = {
            f"mode must be one of {', '.join(MODES)}": self.mode in MODES,
            "steps must be at least 1": self.steps >= 1,
            "damping must lie in (0, 1]": 0 < self.damping <= 1,
            "iterations must be at least 1": self.iterations >= 1,
            "tolerance must lie in [0, 1)": 0 <= self.tolerance < 1,
        }
        broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise UsageError(f"backward: {'; '.join(broken)}.")

    @property
    def bends(self) -> bool:
        """Whether the Hessian of the data term is needed."""
        return self.mode == "exact" or (self.mode == "k-step" and self.curvature)


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The vector w of a mode.

    Args:
        w: (B, d, *shape), loss per voxel.
        products: how many products with J^T it took.
        residual: ``|dl/dphi - (I - J^T) w| / |dl/dphi|``, the largest of the batch, without unit; measured in mode
            exact, not a number otherwise.
    """

    w: Tensor
    products: int
    residual: float


Map = Callable[[Tensor], Tensor]
"""T: (B, d, *shape) to the same shape, differentiable by autograd."""


def adjoint(operator: Map, field: Tensor, pull: Tensor, backward: Backward) -> Adjoint:
    """Find w at the fixed point `field`.

    Args:
        operator: T, not called in mode jfb.
        field: phi*, (B, d, *shape), voxels.
        pull: dl/dphi, (B, d, *shape), loss per voxel.
        backward: the mode and its constants.
    """
    if backward.mode == "jfb":
        return Adjoint(pull, 0, math.nan)
    if backward.bends and not warps_bend():
        raise UsageError(
            f"mode {backward.mode} needs the second derivative of grid_sample, which this version of torch does not "
            "have. Use mode jfb, or k-step without curvature."
        )
    product = transposed_jacobian(operator, field)
    if backward.mode == "exact":
        return gmres(lambda w: w - product(w), pull, backward.iterations, backward.tolerance)
    c = backward.damping
    w, term = c * pull, c * pull
    for _ in range(backward.steps - 1):
        term = torch.lerp(term, product(term), c)
        w += term
    return Adjoint(w, backward.steps - 1, math.nan)


def transposed_jacobian(operator: Map, field: Tensor) -> Map:
    """The linear map ``w -> (dT/dphi)^T w`` at `field`, both (B, d, *shape), voxels; T is evaluated once."""
    with torch.enable_grad():
        phi = field.detach().requires_grad_()
        following = operator(phi)

    def product(w: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(following, phi, w.to(following.dtype), retain_graph=True)
        return result

    return product


def data_gradient(penalty: Similarity, moving: Tensor, field: Tensor) -> Tensor:
    """dg/dfield of ``g(fixed, moving(x + U(x)))``, U = R field, as a function that autograd can differentiate.

    The penalty's own dg/dwarped, an expression of torch operations, is taken back through the warp by autograd:

        dg/dfield = (d warped / d field)^T dg/dwarped

    Args:
        penalty: g with the fixed image, (B, 1, *shape).
        moving: (B, 1, *shape), any intensity unit.
        field: (B, d, *field_shape), voxels of its own grid; a tensor that requires a gradient.

    Returns:
        (B, d, *field_shape), per voxel.
    """
    full = resize_field(field, penalty.fixed.shape[2:])
    warped = sample(moving, identity(full) + full)
    _, pull = penalty.value_and_gradient(warped)
    (gradient,) = torch.autograd.grad(warped, field, pull, create_graph=True)
    return gradient


@functools.cache
def warps_bend() -> bool:
    """Whether this torch can differentiate grid_sample twice."""
    image = torch.rand(1, 1, 3, 3, dtype=torch.float64)
    where = torch.zeros(1, 1, 1, 2, dtype=torch.float64).fill_(0.3).requires_grad_()
    with torch.enable_grad():
        value = F.grid_sample(image, where, align_corners=True).sum()
        (slope,) = torch.autograd.grad(value, where, create_graph=True)
        try:
            torch.autograd.grad(slope.sum(), where)
        except RuntimeError:
            return False
    return True


@torch.no_grad()
def gmres(product: Map, right: Tensor, iterations: int, tolerance: float) -> Adjoint:
    """Solve ``A x = b`` for each element of the batch by GMRES without restart (Saad and Schultz 1986).

    With the orthonormal basis V_j of the Krylov space and A V_j = V_{j+1} H,

        x = V_j y,      y = argmin | |b| e_1 - H y |

    Args:
        product: A, which must not mix the elements of the batch.
        right: b, (B, ...), any unit.
        iterations: most products with A; so many vectors are kept.
        tolerance: stop when ``|b - A x| / |b|`` of every element is below.
    """
    b, count = right.flatten(1), len(right)
    length = norm(b)
    basis = [_scaled(b, length)]
    hessenberg = torch.zeros(count, iterations + 1, iterations, dtype=torch.float64)
    target = torch.zeros(count, iterations + 1, 1, dtype=torch.float64)
    target[:, 0, 0] = length.cpu()
    y, residual, j = target.new_zeros(count, 0, 1), 1.0, 0
    while j < iterations and residual > tolerance and bool((length > 0).any()):
        v = product(basis[j].view_as(right)).flatten(1)
        for _ in range(2):  # twice is enough against rounding
            for i, other in enumerate(basis):
                share = (other.double() * v.double()).sum(1)
                hessenberg[:, i, j] += share.cpu()
                v = v - other * share[:, None].to(v.dtype)
        size = norm(v)
        hessenberg[:, j + 1, j] = size.cpu()
        basis.append(_scaled(v, size))
        j += 1
        small, aim = hessenberg[:, : j + 1, :j], target[:, : j + 1]
        y = torch.linalg.lstsq(small, aim, driver="gelsd").solution
        rest = norm(aim - small @ y)
        residual = float((rest / length.cpu().clamp_min(torch.finfo(torch.float64).tiny)).max())
    x = torch.zeros_like(b)
    for weight, vector in zip(y.unbind(1), basis, strict=False):
        x += vector * weight.to(vector)
    return Adjoint(x.view_as(right), j, residual)


def _scaled(x: Tensor, length: Tensor) -> Tensor:
    """Each row of `x`, (B, n), divided by its `length`, (B,); a row without length stays 0."""
    return x * torch.where(length > 0, 1 / length, 0.0)[:, None].to(x.dtype)
