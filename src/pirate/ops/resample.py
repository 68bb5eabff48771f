"""Changing resolution. Corner voxels stay on corner voxels (align_corners), so world corners stay put."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pirate import kernels


def half_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of the half-resolution grid: (n + 1) // 2 voxels, at least 2 where there are 2 or more."""
    return tuple(min(n, max(2, (n + 1) // 2)) for n in shape)


def unit_change(source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Voxels of the `target` grid per voxel of the `source` grid, for each axis: (n' - 1) / (n - 1)."""
    return [(t - 1) / (s - 1) if s > 1 else 1.0 for s, t in zip(source, target, strict=True)]


def resize(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Interpolate (B, C, *source) linearly at the voxels of the resized grid, (B, C, *shape), same unit."""
    for axis, n in enumerate(shape):
        x = _resize_axis(x, axis, n)
    return x


def resize_adjoint(y: Tensor, shape: Sequence[int]) -> Tensor:
    """Adjoint of `resize`: (B, C, *resized) back to (B, C, *shape), the sum of what each voxel fed."""
    for axis in reversed(range(len(shape))):
        y = _resize_axis_adjoint(y, axis, shape[axis])
    return y


def resize_field(field: Tensor, shape: Sequence[int]) -> Tensor:
    """Resample a field to another resolution, with the change of unit that this means.

    Args:
        field: (B, d, *source), voxels of the source grid.
        shape: the target shape.

    Returns:
        (B, d, *shape), voxels of the target grid.
    """
    if kernels.usable(field) and shape[-1] >= 2:
        return kernels.resize_field(field, shape)
    return resize(field, shape) * _per_channel(field, unit_change(field.shape[2:], shape))


def resize_field_adjoint(force: Tensor, shape: Sequence[int]) -> Tensor:
    """Adjoint of `resize_field`: takes a gradient at full resolution to one at `shape`, (B, d, *shape)."""
    if kernels.usable(force) and shape[-1] >= 2:
        return kernels.resize_field_adjoint(force, shape)
    return resize_adjoint(force * _per_channel(force, unit_change(shape, force.shape[2:])), shape)


def half_resolution(field: Tensor) -> Tensor:
    """Field on the half-resolution grid, (B, d, *half_shape), in voxels of that grid."""
    return resize_field(field, half_shape(field.shape[2:]))


def _per_channel(like: Tensor, factors: Sequence[float]) -> Tensor:
    return torch.tensor(factors, dtype=like.dtype, device=like.device).view(1, -1, *[1] * (like.ndim - 2))


def _weights(source: int, target: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Lower index (target,) and weight of the upper neighbour (target,) for each target voxel."""
    position = torch.arange(target, device=like.device, dtype=torch.float64)
    position = position * ((source - 1) / (target - 1)) if target > 1 else position
    lower = position.floor().clamp(0, max(source - 2, 0)).long()
    return lower, (position - lower).to(like.dtype)


def _resize_axis(x: Tensor, axis: int, target: int) -> Tensor:
    source = x.shape[axis + 2]
    if source == target:
        return x
    lower, weight = _weights(source, target, x)
    weight = weight.view(-1, *[1] * (x.ndim - 3 - axis))
    upper = (lower + 1).clamp_max(source - 1)
    return torch.lerp(x.index_select(axis + 2, lower), x.index_select(axis + 2, upper), weight)


def _resize_axis_adjoint(y: Tensor, axis: int, source: int) -> Tensor:
    target = y.shape[axis + 2]
    if source == target:
        return y
    lower, weight = _weights(source, target, y)
    weight = weight.view(-1, *[1] * (y.ndim - 3 - axis))
    upper = (lower + 1).clamp_max(source - 1)
    shape = list(y.shape)
    shape[axis + 2] = source
    x = y.new_zeros(shape)
    return x.index_add(axis + 2, lower, y * (1 - weight)).index_add(axis + 2, upper, y * weight)
