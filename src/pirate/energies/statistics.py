"""Sums over images, and what an image must have to be aligned at all."""

from __future__ import annotations

import torch
from torch import Tensor

from pirate import kernels
from pirate.errors import reject


def check_shape(image: Tensor, fixed: Tensor, name: str) -> None:
    """Refuse an image that is not (B, 1, *shape) like fixed."""
    if image.shape != fixed.shape:
        raise reject(
            name,
            f"the shape is {tuple(image.shape)}",
            f"{tuple(fixed.shape)} as the fixed image",
            "Resample it to the fixed image's grid.",
        )


def total(x: Tensor) -> Tensor:
    """Sum over each image: (B, ...) to (B,)."""
    return x.flatten(1).sum(1)


def column(x: Tensor, like: Tensor) -> Tensor:
    """View (B,) as (B, 1, ..., 1) with as many axes as `like`."""
    return x.view(-1, *[1] * (like.ndim - 1))


def centred(image: Tensor, share: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Image minus its weighted mean, (B, 1, *shape), and its weighted variance, (B,), both float64.

    Raises:
        InputError: the image, called `name`, is not finite or has no contrast where the share is positive.
    """
    x = image.double()
    mean = total(share * x)
    x = x - column(mean, x)
    variance = total(share * x * x)
    if not bool(torch.isfinite(variance).all()):
        raise reject(
            name,
            "the image has values that are not finite",
            "finite intensities",
            "Replace NaN and infinite voxels, for example by 0, or check the field for divergence.",
        )
    rounding = 16 * torch.finfo(image.dtype).eps * mean.abs()
    if not bool((variance > rounding * rounding).all()):
        raise reject(
            name,
            "the image is constant inside the mask",
            "an image with contrast",
            "Check that it is the right file and that the images overlap.",
        )
    return x, variance


def contrast(image: Tensor) -> bool:
    """Whether each image of (B, 1, *shape) has two different intensities, and none that is not a number."""
    low, high = image.flatten(1).aminmax(dim=1)
    return bool((high > low).all())


def sound(moments: kernels.Moments, fixed: bool = True) -> bool:
    """Whether the sums show what `centred` accepts: some weight, finite images, variance beyond rounding.

    Args:
        moments: sums over each image, float32.
        fixed: whether the sums of the fixed image are there and count.
    """
    q, f, ff, w, ww = (torch.stack(tuple(moments))).unbind(0)
    good = q > 0
    for first, second in [(f, ff), (w, ww)] if fixed else [(w, ww)]:
        mean = first / q
        variance = second / q - mean * mean
        rounding = 16 * torch.finfo(torch.float32).eps * mean.abs()
        good &= torch.isfinite(variance) & (variance > rounding * rounding)
    return bool(good.all())
