"""The anatomy-aware prior for volumes of which few are labelled: a 2-D corrector, plane by plane. Supervised.

    r(x) = G_across r_2(x),    D(field) = field o (id - r) - r

Labelled slices are many where labelled volumes are few, so the network is that of `pirate.denoisers.corrector` in 2-D.
It sees the planes of a volume, every `every`-th one, and corrects the field within them; G_across is a Gaussian over
neighbouring planes, and the component across them stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from torch import Tensor, nn

from pirate.denoisers.corrector import Corrector
from pirate.grid import Array
from pirate.ops.compose import compose
from pirate.ops.smooth import gaussian

TOGETHER = 8
"""Planes that the network sees in one call; more take more memory and no less time."""

DIRECTIONS = ((-1, 0, 0), (0, 0, -1))
"""RAS directions of the two axes of a plane, as the slices of the training have them: coronal, to the left and down."""

AS_TRAINED = np.array([[-1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
"""(3, 3), RAS: the axes of a volume whose first two run so, and the third to the front."""


@dataclass(frozen=True)
class View:
    """How a volume's array is looked at, plane by plane.

    Args:
        axes: array axes: the plane's first, its second, the one across.
        turned: whether the plane's axes run against those of the array.
    """

    axes: tuple[int, int, int]
    turned: tuple[bool, bool]

    def planes(self, x: Tensor, some: slice = slice(None)) -> Tensor:
        """(1, C, *shape) to (planes, C, height, width), of `some` planes or of all."""
        first, second, across = self.axes
        seen = x[0].permute(1 + across, 0, 1 + first, 1 + second)[some]
        return (seen.flip(self._reversed) if self._reversed else seen).contiguous()

    def volume(self, planes: Tensor) -> Tensor:
        """Back: (planes, C, height, width) to (1, C, *shape)."""
        places = [0, 0, 0]
        for place, axis in zip((2, 3, 0), self.axes, strict=True):
            places[axis] = place
        seen = planes.flip(self._reversed) if self._reversed else planes
        return seen.permute(1, *places)[None]

    def field_planes(self, field: Tensor, some: slice = slice(None)) -> Tensor:
        """(1, 3, *shape) to what moves within the planes, (planes, 2, height, width), voxels."""
        within = zip(self.axes[:2], self._signs, strict=True)
        return torch.cat([sign * self.planes(field[:, a : a + 1], some) for a, sign in within], 1)

    def field_volume(self, planes: Tensor) -> Tensor:
        """(planes, 2, height, width) to (1, 3, *shape), voxels; 0 across."""
        first, second = (sign * self.volume(planes[:, i : i + 1]) for i, sign in enumerate(self._signs))
        parts = dict(zip(self.axes, (first, second, torch.zeros_like(first)), strict=True))
        return torch.cat([parts[axis] for axis in range(3)], 1)

    @property
    def _reversed(self) -> list[int]:
        return [2 + i for i, turned in enumerate(self.turned) if turned]

    @property
    def _signs(self) -> tuple[float, float]:
        return (-1.0 if self.turned[0] else 1.0), (-1.0 if self.turned[1] else 1.0)


def coronal(axes: Array) -> View:
    """How to look at the coronal planes of a volume whose array axes are the columns of `axes` (3, 3), RAS mm.

    Every direction of the world goes with the array axis that is closest to it; together they differ.
    """
    unit = axes / np.linalg.norm(axes, axis=0)
    order = max(permutations(range(3)), key=lambda p: sum(abs(unit[world, a]) for world, a in enumerate(p)))
    found, turned = [], []
    for direction in DIRECTIONS:
        world = int(np.argmax(np.abs(direction)))
        axis = order[world]  # the array axis along this direction
        found.append(axis)
        turned.append(bool(unit[world, axis] * direction[world] < 0))
    across = ({0, 1, 2} - set(found)).pop()
    return View((found[0], found[1], across), (turned[0], turned[1]))


class PlaneCorrector(nn.Module):
    """D(field, sigma, fixed, warped) -> field for volumes of any size.

    Args:
        ndim: 3.
        width: of the `Corrector` within the planes.
        depth: likewise.
        smoothing: likewise.
        across: sigma of the Gaussian over planes, voxels of the training.
        every: the network sees every so-many-th plane of the training's; between them its corrections are interpolated.
        spacing: mm of a voxel of the grid on which the network was trained, see `Corrector`.
    """

    wants_images = True

    def __init__(
        self,
        ndim: int = 3,
        width: int = 24,
        depth: int = 3,
        smoothing: float = 1.0,
        across: float = 1.5,
        every: int = 3,
        spacing: float = 1.0,
    ) -> None:
        super().__init__()
        if ndim != 3:
            raise ValueError(f"planes are those of a volume; ndim is 3, not {ndim}")
        if not (isinstance(every, int) and 1 <= every <= 16 and 0 <= across <= 16):
            raise ValueError(f"every is 1 to 16 planes and across 0 to 16 voxels, not {every} and {across}")
        self.within = Corrector(2, width, depth, smoothing, spacing)
        self.ndim, self.across, self.every, self.spacing = ndim, float(across), every, float(spacing)
        self.view = coronal(AS_TRAINED)

    @classmethod
    def around(cls, within: Corrector, across: float = 1.5, every: int = 3) -> PlaneCorrector:
        """One that looks at planes by `within`, whose weights it shares."""
        made = cls(3, within.width, within.depth, within.smoothing, across, every, within.spacing)
        made.within = within
        return made

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        inner = self.within.architecture()
        return {**inner, "kind": "plane-corrector", "across": self.across, "every": self.every}

    def facing(self, axes: Array) -> PlaneCorrector:
        """The same network for volumes whose array axes are the columns of `axes` (3, 3), RAS mm."""
        other = copy.copy(self)
        other.view = coronal(axes)
        return other

    def on(self, spacing: Sequence[float]) -> PlaneCorrector:
        """The same network on a grid of `spacing` mm: distances across the planes stay what they were in mm."""
        factor = self.spacing / spacing[self.view.axes[2]] if self.spacing else 1.0
        other = copy.copy(self)
        other.every, other.across = max(1, int(factor * self.every + 1e-6)), factor * self.across
        return other

    def forward(self, field: Tensor, sigma: float, fixed: Tensor, warped: Tensor) -> Tensor:
        """D(field) = field o (id - r) - r; arguments as in `Corrector.forward`, B = 1."""
        return compose(field, -self.correction(field, fixed, warped))

    def correction(self, field: Tensor, fixed: Tensor, warped: Tensor) -> Tensor:
        """The correction r, (1, 3, *shape), voxels."""
        if len(field) != 1:
            raise ValueError(f"one volume is corrected at a time, not {len(field)}")
        some = slice(0, None, self.every)
        seen = [self.view.planes(x, some) for x in (fixed, warped)]
        shown = self.view.field_planes(field, some)
        r = [
            self.within.correction(*part)
            for part in zip(*(torch.split(x, TOGETHER) for x in (shown, *seen)), strict=True)
        ]
        stack = torch.cat(r).movedim(0, 1)[None].contiguous()  # (1, 2, planes, height, width)
        if self.across > 0:
            stack = gaussian(stack, [self.across / self.every, 0.0, 0.0])
        planes = field.shape[2 + self.view.axes[2]]
        return self.view.field_volume(between(stack[0].movedim(1, 0), self.every, planes))


class SliceCorrector(nn.Module):
    """A 2-D corrector for coronal slices that lie otherwise in their array than those of its training.

    Args:
        within: the corrector.
        view: how to look at the slice, as at a volume of one plane.
    """

    wants_images = True

    def __init__(self, within: Corrector, view: View) -> None:
        super().__init__()
        self.within, self.view, self.spacing = within, view, within.spacing

    def forward(self, field: Tensor, sigma: float, fixed: Tensor, warped: Tensor) -> Tensor:
        """D(field) = field o (id - r) - r; arguments as in `Corrector.forward`, B = 1."""
        return compose(field, -self.correction(field, fixed, warped))

    def correction(self, field: Tensor, fixed: Tensor, warped: Tensor) -> Tensor:
        """The correction r, (1, 2, *shape), voxels."""
        seen = [self.view.planes(x[..., None]) for x in (fixed, warped)]
        r = self.within.correction(self.view.field_planes(field[..., None]), *seen)
        return self.view.field_volume(r)[:, :2, ..., 0].contiguous()


def between(seen: Tensor, every: int, planes: int) -> Tensor:
    """All `planes` from every `every`-th one, (n, C, height, width): linear between two, the last one goes on."""
    after = torch.cat([seen[1:], seen[-1:]])
    steps = [torch.lerp(seen, after, k / every) for k in range(every)]
    return torch.stack(steps, 1).flatten(0, 1)[:planes]
