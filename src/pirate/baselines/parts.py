"""What the networks VoxelMorph, SYMNet and GraDIRN share: results, sizes, and a trunk's convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.denoisers.convolution import CONVOLUTIONS
from pirate.ops.compose import exponential
from pirate.ops.resample import half_shape, resize, resize_field, unit_change
from pirate.ops.smooth import gaussian

WIDEST = 256
"""Channels; a card from a stranger must not ask for more."""

SLOPE = 0.2
"""Of the leaky ReLU below 0."""

BLUR = 1.0
"""Sigma in voxels of the Gaussian before an image is halved."""


class Fields(NamedTuple):
    """A field and its inverse."""

    field: Tensor
    """(B, d, *shape), voxels: ``warped(x) = moving(x + field(x))``."""
    inverse: Tensor | None
    """(B, d, *shape), voxels, the other way round; None where the method has none."""


class Scored(NamedTuple):
    """What a loss returns."""

    value: Tensor
    """Mean over the batch, a scalar with its graph, no unit."""
    terms: dict[str, float]
    """Its parts, not weighted."""
    field: Tensor
    """(B, d, *shape), voxels, without graph."""


def convolution(ndim: int, before: int, after: int, stride: int = 1, side: int = 3) -> nn.Module:
    """A convolution of `side`^d with zeros outside, from `before` to `after` channels."""
    return CONVOLUTIONS[ndim](before, after, side, stride=stride, padding=side // 2)


def padded(images: Tensor, multiple: int) -> Tensor:
    """Images (B, C, *shape), zeros behind the last voxel of each axis up to a multiple of `multiple` voxels."""
    pads = [p for n in reversed(images.shape[2:]) for p in (0, -n % multiple)]
    return F.pad(images, pads) if any(pads) else images


def halved(image: Tensor) -> Tensor:
    """An image (B, 1, *shape) at half the resolution, (B, 1, *half_shape)."""
    return resize(gaussian(image, BLUR), half_shape(image.shape[2:]))


def cut(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The first `shape` voxels of (B, C, *larger), any unit."""
    return x[(slice(None), slice(None), *[slice(0, n) for n in shape])]


def resized(field: Tensor, shape: Sequence[int]) -> Tensor:
    """`resize_field`, faster where a derivative is wanted: (B, d, *source) to (B, d, *shape), voxels of each grid."""
    source = tuple(field.shape[2:])
    if source == tuple(shape):
        return field
    if not field.requires_grad:
        return resize_field(field, shape)
    mode = "bilinear" if len(source) == 2 else "trilinear"
    factors = torch.tensor(unit_change(source, shape), dtype=field.dtype, device=field.device)
    larger = F.interpolate(field, size=tuple(shape), mode=mode, align_corners=True)
    return larger * factors.view(1, -1, *[1] * len(source))


def flows(velocities: Sequence[Tensor], squarings: int) -> list[Tensor]:
    """The exponentials of velocities, (B, d, *shape) each, voxels, together: fewer and longer sums are faster."""
    return list(exponential(torch.cat(list(velocities)), squarings).chunk(len(velocities)))


def widths(text: str, name: str) -> list[int]:
    """Numbers of channels as a card writes them, e.g. "16,32,32,32".

    Raises:
        ValueError: it is no such list.
    """
    parts = text.split(",") if isinstance(text, str) else []
    if not 1 <= len(parts) <= 16 or not all(p.isascii() and p.isdigit() and len(p) < 5 for p in parts):
        raise ValueError(f"{name} is a list of numbers like '16,32,32', not {text!r}")
    found = [int(p) for p in parts]
    if not all(1 <= n <= WIDEST for n in found):
        raise ValueError(f"{name} has 1 to {WIDEST} channels everywhere, not {text!r}")
    return found


def check(ndim: int, numbers: dict[str, tuple[int, int, int]]) -> None:
    """Refuse arguments for which there is no network.

    Args:
        ndim: 2 or 3.
        numbers: by name the value, the least and the largest.

    Raises:
        ValueError: one of them is not a whole number or out of its range.
    """
    for name, (value, low, high) in {"ndim": (ndim, 2, 3), **numbers}.items():
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{name} is a whole number from {low} to {high}, not {value!r}")
