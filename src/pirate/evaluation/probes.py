"""What kind of map a denoiser is near a field: conservative or not, contracting or not.

With J the Jacobian of D at z, RED's energy exists only if J = J^T, and the iteration is safe only if D does not
expand. Neither matrix is ever formed: random vectors are sent through J and J^T (Hutchinson; power iteration).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
Denoise = Callable[[Tensor, float], Tensor]

DIFFERENCE = 1e-3  # voxels rms; the step of finite differences for denoisers that cannot be differentiated


@dataclass(frozen=True, eq=False)
class Jacobian:
    """J of ``z -> D(z, sigma)`` at a field, as two maps of fields.

    Args:
        forward: v to J v; both (B, d, *shape), voxels.
        transposed: v to J^T v, or None where the denoiser cannot be differentiated automatically.
    """

    forward: Map
    transposed: Map | None


def jacobian(denoiser: Denoise, field: Tensor, sigma: float) -> Jacobian:
    """Linearise `denoiser` at `field`.

    J^T v is a backward pass; J v is the derivative of u -> J^T u towards v (a second backward pass), or, where the
    denoiser cannot be differentiated (total variation, compiled code), a central difference.

    Args:
        denoiser: any callable D(field, sigma).
        field: (B, d, *shape), voxels.
        sigma: voxels.
    """
    with torch.enable_grad():
        z = field.detach().clone().requires_grad_()
        result = denoiser(z, sigma)
        differentiable = result.requires_grad
    if not differentiable:
        return Jacobian(lambda v: _difference(denoiser, field, sigma, v), None)
    with torch.enable_grad():
        dual = torch.zeros_like(result, requires_grad=True)
        (pulled,) = torch.autograd.grad(result, z, dual, create_graph=True)

    def transposed(v: Tensor) -> Tensor:
        return torch.autograd.grad(result, z, v, retain_graph=True)[0].detach()

    def forward(v: Tensor) -> Tensor:
        return torch.autograd.grad(pulled, dual, v, retain_graph=True)[0].detach()

    return Jacobian(forward, transposed)


def asymmetry(denoiser: Denoise, field: Tensor, sigma: float, probes: int = 8, seed: int = 0) -> float:
    """Estimate ``rho = |J - J^T| / (2 |J|)``, Frobenius norms, in [0, 1]: 0 is conservative.

    A matrix unrelated to its transpose has 1/sqrt 2, an antisymmetric one 1. With random signs v,

        |J|^2 = E |J v|^2,   |J - J^T|^2 = E |J v - J^T v|^2 = 2 |J|^2 - 2 E <v, J J v>

    the last form serves where there is no J^T.

    Args:
        denoiser: any callable D(field, sigma).
        field: (B, d, *shape), voxels.
        sigma: voxels.
        probes: number of random vectors.
        seed: of the vectors.
    """
    linear = jacobian(denoiser, field, sigma)
    generator = torch.Generator().manual_seed(seed)
    square = odd = 0.0
    for _ in range(probes):
        v = _signs(field, generator)
        through = linear.forward(v)
        square += _dot(through, through)
        if linear.transposed is None:
            odd += 2 * _dot(through, through) - 2 * _dot(v, linear.forward(through))
        else:
            apart = through - linear.transposed(v)
            odd += _dot(apart, apart)
    return math.sqrt(max(odd, 0.0) / square) / 2 if square > 0 else 0.0


def largest_singular_value(
    denoiser: Denoise, field: Tensor, sigma: float, iterations: int = 50, seed: int = 0
) -> float:
    """Estimate |J|_2 by power iteration of ``J^T J``: above 1, D expands some directions. A lower bound.

    Where there is no J^T, J alone is iterated, which gives the same for a symmetric J and less otherwise.

    Args:
        denoiser: any callable D(field, sigma).
        field: (B, d, *shape), voxels.
        sigma: voxels.
        iterations: of the power method; stops earlier when the value has settled to 1e-4.
        seed: of the first vector.
    """
    linear = jacobian(denoiser, field, sigma)
    v = _unit(_signs(field, torch.Generator().manual_seed(seed)))
    value = 0.0
    for _ in range(iterations):
        through = linear.forward(v)
        before, value = value, math.sqrt(_dot(through, through))
        if value == 0 or abs(value - before) < 1e-4 * value:
            break
        v = _unit(through if linear.transposed is None else linear.transposed(through))
    return value


def _difference(denoiser: Denoise, field: Tensor, sigma: float, v: Tensor) -> Tensor:
    """``J v = (D(z + h v) - D(z - h v)) / (2 h)``, h so that h v has the root mean square DIFFERENCE."""
    size = math.sqrt(_dot(v, v) / v.numel())
    if size == 0:
        return torch.zeros_like(field)
    h = DIFFERENCE / size
    with torch.no_grad():
        return (denoiser(field + h * v, sigma) - denoiser(field - h * v, sigma)) / (2 * h)


def _signs(field: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(2, field.shape, generator=generator) * 2 - 1
    return signs.to(field)


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a.double() * b.double()).sum())


def _unit(v: Tensor) -> Tensor:
    return v / math.sqrt(max(_dot(v, v), 1e-300))
