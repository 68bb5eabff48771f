"""Fields as maps: composition, inversion and the exponential of a velocity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from pirate import kernels
from pirate.ops.warp import identity, warp, warp_with_gradient


def compose(outer: Tensor, inner: Tensor) -> Tensor:
    """Field of ``x -> outer(inner(x))``: ``inner + outer o (id + inner)``.

    Args:
        outer: (B, d, *shape), voxels; its border value continues outside.
        inner: (B, d, *shape), voxels, applied first.

    Returns:
        (B, d, *shape), voxels.
    """
    if kernels.usable(outer, inner):
        return kernels.compose(outer, inner)
    if kernels.usable(outer.detach(), inner.detach()):
        composed: Tensor = _Composition.apply(outer, inner)  # type: ignore[no-untyped-call]
        return composed
    return inner + warp(outer, inner, padding="border")


class _Composition(torch.autograd.Function):
    """The compiled `compose` with its compiled derivative; where that is to be differentiated again, torch's."""

    @staticmethod
    def forward(outer: Tensor, inner: Tensor) -> Tensor:
        return kernels.compose(outer, inner)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        outer, inner = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return kernels.compose_adjoint(outer, inner, cotangent, ctx.needs_input_grad)
        # views: in a squaring both are one tensor, whose derivative would count twice
        both = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in (outer, inner)]
        composed = both[1] + warp(both[0], both[1], padding="border")
        return torch.autograd.grad(composed, both, cotangent, create_graph=True)


def compose_small(
    field: Tensor, update: Tensor, scale: Sequence[float] | None = None, out: Tensor | None = None
) -> Tensor:
    """`compose` for updates up to one voxel, by an upwind star instead of interpolation.

    ``u(x) + sum_a |d_a| (u(x + sign(d_a) e_a) - u(x)) + d``, with ``d_a = scale_a update_a``, ``|d_a|`` cut at 1
    and the border repeated; exact to first order in the update, and cheaper.

    Args:
        field: u, (B, d, *shape), voxels.
        update: (B, d, *shape), voxels once scaled, applied first.
        scale: a factor for each component of the update, 1 by default.
        out: (B, d, *shape) for the result, neither of the two.

    Returns:
        (B, d, *shape), voxels.
    """
    if kernels.usable(field, update):
        return kernels.compose_small(field, update, scale, out)
    if scale is not None:
        update = update * torch.tensor(scale, dtype=update.dtype, device=update.device).view(
            1, -1, *[1] * (update.ndim - 2)
        )
    moved = field + update
    for axis in range(field.shape[1]):
        n = field.shape[axis + 2]
        voxels = torch.arange(n, device=field.device)
        before = field.index_select(axis + 2, (voxels - 1).clamp_min(0))
        after = field.index_select(axis + 2, (voxels + 1).clamp_max(n - 1))
        step = update[:, axis : axis + 1]
        moved = moved + step.abs().clamp_max(1) * (torch.where(step < 0, before, after) - field)
    return moved if out is None else out.copy_(moved)


def longest(x: Tensor, weight: Sequence[float] | None = None) -> float:
    """Largest ``sum over a of |weight_a x_a|`` over the voxels, the unit of `x`.

    Args:
        x: (B, d, *shape).
        weight: a factor for each component, 1 by default.
    """
    if kernels.usable(x):
        return kernels.longest(x, weight)
    factors = torch.ones(x.shape[1]) if weight is None else torch.tensor(weight)
    scaled = x * factors.to(x).view(1, -1, *[1] * (x.ndim - 2))
    return float(scaled.abs().sum(1).max())


PLAIN = 8
"""Fixed-point steps of `invert` before Newton's."""


class Inverse(NamedTuple):
    """An inverse field and how far from an inverse it is."""

    field: Tensor
    """(B, d, *shape), voxels."""
    error: Tensor
    """(B, *shape), voxels: ``|inverse(x) + field(x + inverse(x))|``, 0 for an exact inverse."""


def invert(field: Tensor, iterations: int = 50, tolerance: float = 1e-3) -> Inverse:
    """Inverse field by ``v <- v - w r``, ``r = v + field o (id + v)``, then by Newton's steps.

    The undamped iteration (w = 1, Chen et al. 2008) converges where the field's Jacobian has norm below
    1; damping by 1/2 where the error grew carries it further. After `PLAIN` steps r is replaced by
    ``(I + D field)^-1 r`` taken at ``x + v``, which gets through where space is squeezed to a few per cent.

    Args:
        field: (B, d, *shape), voxels.
        iterations: at most so many.
        tolerance: stop when the largest error is below so many voxels.

    Returns:
        `Inverse`: field, and error in voxels at each voxel.
    """
    if kernels.usable(field):
        return Inverse(*kernels.invert(field, iterations, tolerance))
    inverse = -field
    damping = torch.ones_like(field[:, :1])
    residual = inverse + warp(field, inverse, padding="border")
    error = torch.linalg.vector_norm(residual, dim=1, keepdim=True)
    for t in range(iterations):
        if not float(error.max()) >= tolerance:
            break
        if t == PLAIN:
            damping = torch.ones_like(damping)
        step = residual if t < PLAIN else _newton(field, inverse, residual)
        trial = inverse - damping * step
        residual_trial = trial + warp(field, trial, padding="border")
        error_trial = torch.linalg.vector_norm(residual_trial, dim=1, keepdim=True)
        better = error_trial < error
        inverse = torch.where(better, trial, inverse)
        residual = torch.where(better, residual_trial, residual)
        error = torch.where(better, error_trial, error)
        damping = torch.where(better, (damping * 1.5).clamp_max(1.0), damping * 0.5)
    return Inverse(inverse, error[:, 0])


def _newton(field: Tensor, inverse: Tensor, residual: Tensor) -> Tensor:
    """``(I + D field(x + inverse))^-1 residual``, D of the interpolant; `residual` where that is singular."""
    d, shape = field.shape[1], field.shape[2:]
    last = torch.tensor(shape, dtype=field.dtype, device=field.device).view(1, -1, *[1] * d) - 1
    here = identity(field)
    there = here + inverse
    inside = (there >= 0) & (there <= last)  # outside the grid the field is constant along that axis
    clipped = torch.minimum(there.clamp_min(0), last) - here
    rows = [warp_with_gradient(field[:, a : a + 1].contiguous(), clipped)[1] * inside for a in range(d)]
    matrix = torch.stack(rows, 1).movedim((1, 2), (-2, -1))
    matrix = matrix + torch.eye(d, dtype=field.dtype, device=field.device)
    right = residual.movedim(1, -1)
    solved, failed = torch.linalg.solve_ex(matrix, right)
    good = (failed == 0) & torch.isfinite(solved).all(-1)
    return torch.where(good[..., None], solved, right).movedim(-1, 1)


def exponential(velocity: Tensor, squarings: int | None = None) -> Tensor:
    """Field of the flow of a stationary velocity at time 1, by scaling and squaring.

    Args:
        velocity: (B, d, *shape), voxels per unit time.
        squarings: number of compositions with itself; by default enough that the first step is below
            1/4 voxel.

    Returns:
        (B, d, *shape), voxels.
    """
    if squarings is None:
        largest = float(velocity.detach().abs().max())
        squarings = max(0, math.ceil(math.log2(max(largest, 1e-12) * 4)))
    field = velocity / 2.0**squarings
    for _ in range(squarings):
        field = compose(field, field)
    return field
