"""Terms of the networks' losses, each a mean over its image, (B,), to be differentiated once.

Data terms come from `pirate.energies` with their analytic derivatives, so that no graph of the warp is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pirate.energies.local import LocalCorrelation
from pirate.energies.similarity import Similarity
from pirate.ops.derivative import forward_difference
from pirate.ops.jacobian import determinant
from pirate.ops.warp import warp


def data(penalty: Similarity, moving: Tensor, field: Tensor) -> Tensor:
    """g(fixed, moving(x + field(x))), differentiable once with respect to `field`.

    The value is g, the derivative the analytic one: ``g + < dg/dfield, field - field >``, the second field constant.

    Args:
        penalty: g with the fixed image, (B, 1, *shape).
        moving: (B, 1, *shape), any intensity unit.
        field: (B, d, *shape), voxels.

    Returns:
        (B,), no unit or that of the penalty.
    """
    still = field.detach()
    if not field.requires_grad:
        return penalty.value(moving, still).to(field.dtype)
    with torch.no_grad():
        value, gradient = penalty.on_field(moving, still)
    return value.to(field.dtype) + (gradient * (field - still)).flatten(1).sum(1)


def midway(images: tuple[Tensor, Tensor], fields: tuple[Tensor, Tensor], window: int) -> Tensor:
    """One minus the mean squared local correlation of two images that are both warped.

    As the local correlation is symmetric, each image in turn takes the place of the fixed one.

    Args:
        images: (B, 1, *shape) each, any intensity unit.
        fields: (B, d, *shape) each, voxels.
        window: side in voxels, odd.

    Returns:
        (B,), no unit.
    """
    with torch.no_grad():
        first, second = (warp(image, field.detach()) for image, field in zip(images, fields, strict=True))
    towards_second = data(LocalCorrelation(second, window=window), images[0], fields[0])
    towards_first = data(LocalCorrelation(first, window=window), images[1], fields[1])
    return towards_second + towards_first - towards_first.detach()


def mean_square_slope(field: Tensor) -> Tensor:
    """``1/d sum_a mean (D_a field)^2``, the mean over all components and the differences that there are.

    Args:
        field: (B, d, *shape), voxels; forward differences D_a.

    Returns:
        (B,), no unit.
    """
    terms = [field.diff(dim=axis + 2).square().flatten(1).mean(1) for axis in range(field.shape[1])]
    return torch.stack(terms).mean(0)


def diffusion(field: Tensor) -> Tensor:
    """``mean over voxels of sum_a sum_c (D_a field_c)^2``: the same without 1/d^2, zero at the last voxel.

    Args:
        field: (B, d, *shape), voxels; forward differences D_a.

    Returns:
        (B,), no unit.
    """
    voxels = field[0, 0].numel()
    terms = [field.diff(dim=axis + 2).square().flatten(1).sum(1) for axis in range(field.shape[1])]
    return torch.stack(terms).sum(0) / voxels


def orientation(field: Tensor) -> Tensor:
    """``mean relu(-|J|)`` with forward differences, in all voxels that have a next one along every axis.

    Args:
        field: (B, d, *shape), voxels.

    Returns:
        (B,), no unit.
    """
    inner = (slice(None), *[slice(0, n - 1) for n in field.shape[2:]])
    return determinant(field, forward_difference)[inner].neg().clamp_min(0).flatten(1).mean(1)
