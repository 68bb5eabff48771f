"""The same mathematics in torch, in double precision: what the kernels are compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate.ops.derivative import central_difference, forward_difference, forward_difference_adjoint
from pirate.ops.resample import resize_field
from pirate.ops.warp import warp


def warp_with_gradient(image: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
    field = field.detach().clone().requires_grad_()
    warped = warp(image, field)
    (gradient,) = torch.autograd.grad(warped.sum(), field)
    return warped.detach(), gradient


def global_correlation(
    fixed: Tensor, moving: Tensor, field: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    field = field.detach().clone().requires_grad_()
    warped = warp(moving, resize_field(field, fixed.shape[2:]))
    q = torch.ones_like(fixed) if weight is None else weight
    axes = tuple(range(1, fixed.ndim))
    f = fixed - (q * fixed).sum(axes, keepdim=True) / q.sum(axes, keepdim=True)
    w = warped - (q * warped).sum(axes, keepdim=True) / q.sum(axes, keepdim=True)
    value = 1 - (q * f * w).sum(axes) / ((q * f * f).sum(axes) * (q * w * w).sum(axes)).sqrt()
    (gradient,) = torch.autograd.grad(value.sum(), field)
    return value.detach(), gradient


def box(x: Tensor, radius: int) -> Tensor:
    """Sums over windows of 2 radius + 1 voxels, zeros outside."""
    for axis in range(2, x.ndim):
        pads = [0, 0] * (x.ndim - 1 - axis) + [radius, radius]
        padded = F.pad(x, pads)
        x = sum((padded.narrow(axis, m, x.shape[axis]) for m in range(2 * radius + 1)), torch.zeros_like(x))
    return x


def local_value(
    fixed: Tensor, warped: Tensor, radius: int, squared: bool, epsilon: float, weight: Tensor | None = None
) -> Tensor:
    q = torch.ones_like(fixed) if weight is None else weight
    d = fixed.ndim - 2
    n = torch.full_like(fixed, float((2 * radius + 1) ** d)) if weight is None else box(q, radius)
    seen = n > 0
    n = torch.where(seen, n, torch.ones_like(n))
    sf, sw = box(q * fixed, radius), box(q * warped, radius)
    cross = box(q * fixed * warped, radius) - sf * sw / n
    vf = (box(q * fixed * fixed, radius) - sf * sf / n).clamp_min(0)
    vw = (box(q * warped * warped, radius) - sw * sw / n).clamp_min(0)
    c = cross**2 / (vf * vw + epsilon) if squared else cross / (vf * vw + epsilon).sqrt()
    return 1 - (q * c * seen).flatten(1).sum(1) / q.flatten(1).sum(1)


def local_correlation(
    fixed: Tensor, warped: Tensor, radius: int, squared: bool, epsilon: float, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    warped = warped.detach().clone().requires_grad_()
    value = local_value(fixed, warped, radius, squared, epsilon, weight)
    (gradient,) = torch.autograd.grad(value.sum(), warped)
    return value.detach(), gradient


def local_correlation_force(
    fixed: Tensor, moving: Tensor, field: Tensor, radius: int, squared: bool, epsilon: float, scheme: str
) -> tuple[Tensor, Tensor]:
    if scheme == "additive":
        field = field.detach().clone().requires_grad_()
        value = local_value(fixed, warp(moving, field), radius, squared, epsilon)
        (force,) = torch.autograd.grad(value.sum(), field)
        return value.detach(), force
    warped = warp(moving, field)
    value, gradient = local_correlation(fixed, warped, radius, squared, epsilon)
    d = field.shape[1]
    return value, torch.cat([gradient * central_difference(warped, axis) for axis in range(d)], 1)


def smoothness_gradient(field: Tensor) -> tuple[Tensor, Tensor]:
    differences = [forward_difference(field, axis) for axis in range(field.ndim - 2)]
    value = sum((y.flatten(1) ** 2).sum(1) for y in differences)
    gradient = sum(forward_difference_adjoint(y, axis) for axis, y in enumerate(differences))
    return value, gradient
