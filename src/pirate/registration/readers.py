"""Reading an image at positions between its voxels: linearly, at the nearest voxel, or by a vote of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.ops.warp import sample

Interpolation = Literal["linear", "nearest", "vote"]

_TIE = 1e-6  # sums of weights closer than this are equal
_SIGNED = {2: np.int16, 4: np.int32, 8: np.int64}  # torch computes with no other integers of so many bytes


def reader(interpolation: Interpolation, image: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what reads `image` (*source) at positions (d, ...), voxels, wherever they are in the image.

    "linear" needs float32, "vote" integers; "nearest" takes any type and never turns it into another.
    """
    if interpolation == "linear":
        return partial(_linear, image)
    if interpolation == "nearest":
        return partial(_nearest, image.flatten(), image.shape)
    return partial(_vote, image.flatten(), _even_cells(image).flatten(), image.shape)


def _linear(image: Tensor, positions: Tensor) -> Tensor:
    """Linear interpolation of `image` (*source), float32, at positions (d, ...), voxels; the border goes on."""
    return sample(image[None, None], positions[None], padding="border")[0, 0]


def _nearest(voxels: Tensor, shape: torch.Size, positions: Tensor) -> Tensor:
    """Values of `voxels` (N,) at the nearest index, halves up: ``floor(position + 1/2)``."""
    nearest = [(p + 0.5).to(_index_type(shape)) for p in positions]
    return _gathered(voxels, _flat(nearest, shape))


def _vote(voxels: Tensor, even: Tensor, shape: torch.Size, positions: Tensor) -> Tensor:
    """The label of `voxels` (N,) with the largest sum of linear weights, the smallest of several.

    Where a cell is `even` (N,), all its corners bear the label of the first. Elsewhere the label of the nearest
    corner is the winner if its weights sum to more than half; only the rest is counted out.
    """
    at = [p.clamp(0, n - 1) for p, n in zip(positions, shape, strict=True)]
    first = [p.to(_index_type(shape)) for p in at]
    start = _flat(first, shape)
    winner = _gathered(voxels, start)
    mixed = torch.nonzero(~_gathered(even, start).flatten()).flatten()
    if not len(mixed):
        return winner
    low = [index.flatten()[mixed] for index in first]
    share = [p.flatten()[mixed].double() - index for p, index in zip(at, low, strict=True)]
    labels, weights = _corners(voxels, start.flatten()[mixed], low, share, shape)
    nearest = _nearest(voxels, shape, torch.stack([p.flatten()[mixed] for p in at]))
    total = torch.zeros_like(weights[0])
    for label, weight in zip(labels, weights, strict=True):
        total += weight * (label == nearest)
    open_ = torch.nonzero(total <= 0.5 + _TIE).flatten()
    nearest[open_] = elected([label[open_] for label in labels], [weight[open_] for weight in weights])
    winner.view(-1)[mixed] = nearest
    return winner


def _corners(
    voxels: Tensor, start: Tensor, low: Sequence[Tensor], share: Sequence[Tensor], shape: torch.Size
) -> tuple[list[Tensor], list[Tensor]]:
    """Labels and linear weights, (M,) each, of the 2^d corners of the cells that begin at `start` (M,)."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = [
        (index < n - 1).to(start.dtype) * stride for index, n, stride in zip(low, shape, strides, strict=True)
    ]
    labels: list[Tensor] = []
    weights: list[Tensor] = []
    for corner in product((0, 1), repeat=len(low)):
        where = sum((step for step, c in zip(steps, corner, strict=True) if c), start=start)
        labels.append(_gathered(voxels, where))
        factors = [u if c else 1 - u for c, u in zip(corner, share, strict=True)]
        weights.append(math.prod(factors[1:], start=factors[0]))
    return labels, weights


def elected(labels: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """For candidates (N,) with weights (N,): the label whose weights sum to most, on a tie the smallest."""
    best, most = labels[0], torch.full_like(weights[0], -1.0)
    for label in labels:
        total = torch.zeros_like(most)
        for other, weight in zip(labels, weights, strict=True):
            total += weight * (other == label)
        wins = (total > most + _TIE) | ((total > most - _TIE) & (label < best))
        best, most = torch.where(wins, label, best), torch.where(wins, total, most)
    return best


def _even_cells(labels: Tensor) -> Tensor:
    """Whether the 2^d voxels from each voxel to the next along all axes bear one label, (*shape)."""
    even = torch.ones_like(labels, dtype=torch.bool)
    for axis, n in enumerate(labels.shape):
        here, there = (labels.narrow(axis, start, n - 1) for start in (0, 1))
        even.narrow(axis, 0, n - 1).logical_and_((here == there) & even.narrow(axis, 1, n - 1))
    return even


def _index_type(shape: torch.Size) -> torch.dtype:
    return torch.int32 if math.prod(shape) < 2**31 else torch.int64


def _flat(index: Sequence[Tensor], shape: torch.Size) -> Tensor:
    """Position in memory of the voxels at `index` (one tensor for each axis), which is clamped to the image."""
    flat = index[0].clamp_(0, shape[0] - 1)
    for part, n in zip(index[1:], shape[1:], strict=True):
        flat = (flat * n).add_(part.clamp_(0, n - 1))
    return flat


def _gathered(voxels: Tensor, where: Tensor) -> Tensor:
    return voxels.index_select(0, where.flatten()).view(where.shape)


def ordered(data: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a type that torch computes with, in the same order.

    Unsigned integers of more than one byte become signed ones with their first bit flipped; others stay.
    """
    native = data.astype(data.dtype.newbyteorder("="), copy=False)
    return _flipped(native).view(_SIGNED[native.itemsize]) if _is_wide_unsigned(native.dtype) else native


def restored(data: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo `ordered` for numbers that were of the type `dtype`."""
    if _is_wide_unsigned(dtype):
        data = _flipped(data.view(dtype.newbyteorder("=")))
    return data.astype(dtype, copy=False)


def _is_wide_unsigned(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "u" and dtype.itemsize > 1


def _flipped(data: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(data ^ data.dtype.type(1 << (8 * data.itemsize - 1)))
