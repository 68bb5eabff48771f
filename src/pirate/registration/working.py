"""A pair of images on the grid on which the field is sought, and the same pair at lower resolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.image import Image
from pirate.ops.resample import resize
from pirate.ops.smooth import gaussian
from pirate.registration.inputs import unit_range
from pirate.registration.pair import Pair

PYRAMID_SIGMA = 0.5
"""Gaussian before every second voxel is taken, voxels."""

BORDER = 4
"""Voxels of background kept around what is cropped."""


@dataclass(frozen=True, eq=False)
class Images:
    """A pair on one grid.

    Args:
        fixed: (1, 1, *shape), background 0.
        moving: (1, 1, *shape), likewise.
        fixed_mask: (1, 1, *shape), weights in [0, 1], or None.
        moving_mask: likewise.
        spacing: mm of a voxel along each axis.
    """

    fixed: Tensor
    moving: Tensor
    fixed_mask: Tensor | None
    moving_mask: Tensor | None
    spacing: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels along each axis."""
        return tuple(self.fixed.shape[2:])

    @property
    def relative_spacing(self) -> tuple[float, ...]:
        """Spacing in units of the finest axis."""
        return tuple(s / min(self.spacing) for s in self.spacing)

    def shrunk(self, target: float) -> Images:
        """The pair on a grid of about `target` mm, halved step by step.

        An axis is halved while its voxels are clearly shorter than the target, so that coarse voxels tend to be
        cubes. Corner voxels stay on corner voxels.
        """
        images = self
        while any(axes := tuple(1.5 * s < target for s in images.spacing)):
            images = images._halved(axes)
        return images

    def cut(self, box: Box) -> Images:
        """The pair on a part of its grid."""

        def part(x: Tensor | None) -> Tensor | None:
            return None if x is None else box.cut(x).contiguous()

        fixed, moving = box.cut(self.fixed).contiguous(), box.cut(self.moving).contiguous()
        return Images(fixed, moving, part(self.fixed_mask), part(self.moving_mask), self.spacing)

    def _halved(self, axes: Sequence[bool]) -> Images:
        shape = tuple((n + 1) // 2 if half else n for n, half in zip(self.shape, axes, strict=True))
        sigma = [PYRAMID_SIGMA if half else 0.0 for half in axes]

        def half(x: Tensor | None) -> Tensor | None:
            return None if x is None else resize(gaussian(x, sigma), shape)

        spacing = tuple(
            s * (n - 1) / (m - 1) if m > 1 else s
            for s, n, m in zip(self.spacing, self.shape, shape, strict=True)
        )
        fixed, moving = half(self.fixed), half(self.moving)
        if fixed is None or moving is None:
            raise ValueError("a pair has two images")
        return Images(fixed, moving, half(self.fixed_mask), half(self.moving_mask), spacing)


@dataclass(frozen=True)
class Box:
    """A part of a grid: voxels `low` to `high` (exclusive) of `shape`."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    shape: tuple[int, ...]

    def cut(self, x: Tensor) -> Tensor:
        """The part of (B, C, *shape), without a copy."""
        return x[(slice(None), slice(None), *map(slice, self.low, self.high))]

    def fill(self, field: Tensor) -> Tensor:
        """A field (1, d, *part) on the whole grid, (1, d, *shape); its border continues outside."""
        if tuple(field.shape[2:]) == self.shape:
            return field
        pads = [p for a, b, n in zip(self.low, self.high, self.shape, strict=True) for p in (n - b, a)][::-1]
        return torch.nn.functional.pad(field, pads, mode="replicate")


def working_images(pair: Pair, device: torch.device, robust: bool = False) -> Images:
    """Both images on the fixed grid with its margins, background 0 and about 1 at most.

    In the margins, where the moving image goes on, the fixed image is unknown and has weight 0.

    Args:
        pair: the images as read.
        device: where the tensors shall live.
        robust: scale by a high quantile instead of the largest value, so that a few bright voxels do not
            squeeze the rest.
    """
    margins = pair.margins
    fixed = np.pad(unit_range(pair.fixed.data, robust), margins)
    moving = Image(unit_range(pair.moving.data, robust), pair.moving.grid, pair.moving.name)
    mask = None if pair.fixed_mask is None else pair.fixed_mask.data
    if np.any(margins):
        inside = np.ones(pair.fixed.grid.shape, np.float32) if mask is None else mask
        mask = np.pad(inside, margins)
    return Images(
        _tensor(fixed, device),
        _tensor(pair.on_working_grid(moving), device),
        None if mask is None else _tensor(mask, device),
        None if pair.moving_mask is None else _tensor(pair.on_working_grid(pair.moving_mask), device),
        tuple(pair.fixed.grid.spacing),
    )


def correlation(images: Images) -> float:
    """Correlation of the images as they start, over every second voxel along each axis at which either is not 0."""
    f, m = images.fixed[0, 0], images.moving[0, 0]
    for axis, n in enumerate(images.shape):
        every = torch.arange(0, n, 2, device=f.device)
        f, m = f.index_select(axis, every), m.index_select(axis, every)
    shown = (f != 0) | (m != 0)
    if int(shown.sum()) < 2:
        return 0.0
    return float(torch.corrcoef(torch.stack([f[shown], m[shown]]).double())[0, 1].nan_to_num(0.0))


def cropped(images: Images) -> tuple[Images, Box]:
    """The pair without the planes that are background in both images, `BORDER` voxels apart."""
    shown = ((images.fixed != 0) | (images.moving != 0))[0, 0]
    low, high = [], []
    for axis, n in enumerate(images.shape):
        others = [a for a in range(shown.ndim) if a != axis]
        filled = (
            shown.any(dim=others[-1]).any(dim=others[0]) if len(others) == 2 else shown.any(dim=others[0])
        )
        where = torch.nonzero(filled).flatten()
        low.append(max(0, int(where[0]) - BORDER) if len(where) else 0)
        high.append(min(n, int(where[-1]) + 1 + BORDER) if len(where) else n)
    box = Box(tuple(low), tuple(high), images.shape)

    return images.cut(box), box


def _tensor(data: NDArray[Any], device: torch.device) -> Tensor:
    """(1, 1, *shape) float32 on `device`."""
    return torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))[None, None].to(device)
