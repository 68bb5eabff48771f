"""Sampling an image where a field points. The only file that knows grid_sample's conventions."""

from __future__ import annotations

from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate import kernels

Interpolation = Literal["linear", "nearest"]
Padding = Literal["zeros", "border"]


def identity(field: Tensor) -> Tensor:
    """Return the voxel index of every point of `field`'s grid.

    Args:
        field: (B, d, *shape), read for shape, type and device only.

    Returns:
        (1, d, *shape), voxels, axis order i, j, k.
    """
    axes = [torch.arange(n, dtype=field.dtype, device=field.device) for n in field.shape[2:]]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]


def sample(
    image: Tensor,
    positions: Tensor,
    interpolation: Interpolation = "linear",
    padding: Padding = "zeros",
) -> Tensor:
    """Read `image` at `positions`.

    Args:
        image: (B, C, *source), any unit.
        positions: (B, d, *target), voxels of the image's grid; channel c is array axis c.
        interpolation: "linear" or "nearest".
        padding: outside the image "zeros" reads 0 (half of a border voxel's value half a voxel
            outside), "border" repeats the border voxel.

    Returns:
        (B, C, *target), the unit of `image`.
    """
    unit = []  # [-1, 1] along each axis, corners aligned
    for axis, n in enumerate(image.shape[2:]):
        position = positions[:, axis]
        unit.append(position if n == 1 else 2 * position / (n - 1) - 1)
    mode = "bilinear" if interpolation == "linear" else "nearest"
    where = torch.stack(unit[::-1], -1)
    return F.grid_sample(_widened(image, padding), where, mode=mode, padding_mode=padding, align_corners=True)


def _widened(image: Tensor, padding: Padding) -> Tensor:
    """Pad axes of one voxel to three; grid_sample would read that voxel wherever the position is.

    On three voxels -1, 0, 1 the unit coordinate is the position itself.
    """
    pads = [1 if n == 1 else 0 for n in reversed(image.shape[2:]) for _ in range(2)]
    if not any(pads):
        return image
    return F.pad(image, pads) if padding == "zeros" else F.pad(image, pads, mode="replicate")


def warp(
    image: Tensor,
    field: Tensor,
    interpolation: Interpolation = "linear",
    padding: Padding = "zeros",
) -> Tensor:
    """Resample `image` where `field` points: ``warped(x) = image(x + field(x))``.

    Args:
        image: (B, C, *shape), any intensity unit.
        field: (B, d, *shape), displacement in voxels.
        interpolation: "linear" or "nearest".
        padding: what lies outside the image: "zeros" or "border".

    Returns:
        (B, C, *shape), the unit of `image`.
    """
    if interpolation == "linear" and image.shape[2:] == field.shape[2:] and kernels.usable(image, field):
        return kernels.warp(image, field, padding)
    return sample(image, identity(field) + field, interpolation, padding)


def warp_with_gradient(image: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
    """Warp by linear interpolation with zeros outside, and the slope of the interpolant where it was read.

    On a voxel, where left and right slopes differ, the slope towards the next voxel is taken. Two planes of
    zeros around the image make the formula exact outside too. No autograd graph is kept.

    Args:
        image: (B, 1, *shape), any intensity unit.
        field: (B, d, *shape), displacement in voxels.

    Returns:
        warped, (B, 1, *shape), the unit of `image`; its gradient with respect to `field`, (B, d, *shape),
        that unit per voxel. A position that is not a number gives a value that is not a number.
    """
    if image.shape[2:] == field.shape[2:] and kernels.usable(image, field):
        return kernels.warp_with_gradient(image, field)
    d = field.shape[1]
    dtype = torch.promote_types(image.dtype, field.dtype)
    with torch.no_grad():
        padded = F.pad(image, [2, 2] * d).to(dtype)
        sizes = padded.shape[2:]
        last = torch.tensor([n - 2 for n in sizes], dtype=field.dtype, device=field.device)
        positions = (identity(field) + field + 2).clamp_min(0).minimum(last.view(1, -1, *[1] * d))
        lower = positions.floor()
        part = (positions - lower).to(dtype)
        strides = [prod(sizes[axis + 1 :]) for axis in range(d)]
        start = torch.zeros_like(lower[:, 0], dtype=torch.long)
        for axis in range(d):
            start += lower[:, axis].nan_to_num_().long() * strides[axis]
        warped, *slopes = _interpolate(padded.flatten(1), start, part, strides)
    return warped[:, None], torch.stack(slopes, 1)


def _interpolate(values: Tensor, start: Tensor, part: Tensor, strides: list[int]) -> list[Tensor]:
    """Value and slopes of the linear interpolant along the last ``len(strides)`` axes, one axis at a time.

    Along an axis the interpolant between the readings ``low`` and ``high`` at its two ends, and its slope:

        value = low + t (high - low),    slope = high - low

    Args:
        values: (B, voxels), the image, flat.
        start: (B, *shape), flat index of the cell's first corner.
        part: (B, d, *shape), t, position within the cell, voxels.
        strides: step of the flat index along each of these axes.

    Returns:
        value, (B, *shape), and one slope for each of these axes.
    """
    if not strides:
        return [values.gather(1, start.flatten(1)).view_as(start)]
    low = _interpolate(values, start, part, strides[1:])
    high = _interpolate(values, start + strides[0], part, strides[1:])
    t = part[:, -len(strides)]
    value, *others = (torch.lerp(a, b, t) for a, b in zip(low, high, strict=True))
    return [value, high[0] - low[0], *others]
