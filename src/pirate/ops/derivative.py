"""Finite differences along the axes of a grid, and their adjoints.

Every difference is in units per voxel. At the borders the forward difference is 0 (Neumann), the central
difference is one-sided.
"""

from __future__ import annotations

import torch
from torch import Tensor


def forward_difference(x: Tensor, axis: int) -> Tensor:
    """``y[i] = x[i + 1] - x[i]``, 0 at the last index.

    Args:
        x: (B, C, *shape).
        axis: array axis, 0 to d - 1.

    Returns:
        (B, C, *shape), unit of `x` per voxel.
    """
    axis += 2
    n = x.shape[axis]
    return torch.cat(
        [x.narrow(axis, 1, n - 1) - x.narrow(axis, 0, n - 1), torch.zeros_like(x.narrow(axis, 0, 1))], axis
    )


def forward_difference_adjoint(y: Tensor, axis: int) -> Tensor:
    """Adjoint of `forward_difference`: ``x[i] = y[i - 1] - y[i]`` (B, C, *shape); minus the divergence."""
    axis += 2
    n = y.shape[axis]
    inner = y.narrow(axis, 0, n - 1)
    nothing = torch.zeros_like(y.narrow(axis, 0, 1))
    return torch.cat([nothing, inner], axis) - torch.cat([inner, nothing], axis)


def central_difference(x: Tensor, axis: int) -> Tensor:
    """``y[i] = (x[i + 1] - x[i - 1]) / 2``, one-sided at both ends.

    Args:
        x: (B, C, *shape).
        axis: array axis, 0 to d - 1.

    Returns:
        (B, C, *shape), unit of `x` per voxel; 0 along an axis of one voxel.
    """
    axis += 2
    n = x.shape[axis]
    if n == 1:
        return torch.zeros_like(x)
    first = x.narrow(axis, 1, 1) - x.narrow(axis, 0, 1)
    inner = (x.narrow(axis, 2, n - 2) - x.narrow(axis, 0, n - 2)) / 2
    last = x.narrow(axis, n - 1, 1) - x.narrow(axis, n - 2, 1)
    return torch.cat([first, inner, last], axis)


def central_difference_adjoint(y: Tensor, axis: int) -> Tensor:
    """Adjoint of `central_difference`, (B, C, *shape) to (B, C, *shape)."""
    axis += 2
    n = y.shape[axis]
    if n == 1:
        return torch.zeros_like(y)
    x = torch.zeros_like(y)
    x.narrow(axis, 1, 1).add_(y.narrow(axis, 0, 1))
    x.narrow(axis, 0, 1).sub_(y.narrow(axis, 0, 1))
    x.narrow(axis, 2, n - 2).add_(y.narrow(axis, 1, n - 2), alpha=0.5)
    x.narrow(axis, 0, n - 2).sub_(y.narrow(axis, 1, n - 2), alpha=0.5)
    x.narrow(axis, n - 1, 1).add_(y.narrow(axis, n - 1, 1))
    x.narrow(axis, n - 2, 1).sub_(y.narrow(axis, n - 1, 1))
    return x
