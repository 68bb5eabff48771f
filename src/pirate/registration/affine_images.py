"""What the affine start works on: coordinates in mm, and images thinned to a resolution.

Everything is in mm about one centre, in d coordinates y: the world's axes for a volume, two directions within
the plane for a plane. A `Pose` maps them, ``q = linear y + shift``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import torch
from torch import Tensor

from pirate.grid import Array, Grid
from pirate.image import Image
from pirate.ops.smooth import gaussian
from pirate.ops.warp import sample
from pirate.transform import Affine

TAIL = 1e-3
"""Share of the voxels unlike the background, at either end of the intensities, that is clipped."""

RANGE_SAMPLES = 1 << 16  # so many voxels say what the intensities are


@dataclass(frozen=True, eq=False)
class Pose:
    """The map ``q = linear y + shift``; linear (d, d), shift (d,), mm."""

    linear: Array
    shift: Array


@dataclass(frozen=True, eq=False)
class Frame:
    """Where the coordinates y lie in the world: ``world = centre + basis y``.

    Args:
        basis: (3, d), orthonormal columns, RAS.
        centre: (3,), RAS mm.
    """

    basis: Array
    centre: Array

    @classmethod
    def of(cls, grid: Grid, centre: Array) -> Frame:
        """The world's own axes for a volume; for a plane two directions within it."""
        return cls(np.eye(3) if grid.ndim == 3 else np.linalg.qr(grid.axes)[0], centre)

    def coordinates(self, world: Array) -> Array:
        """Map RAS mm (..., 3) to y (..., d), mm; on a plane the distance from it is dropped."""
        return np.asarray((world - self.centre) @ self.basis)

    def affine(self, pose: Pose) -> Affine:
        """The map of the world: `pose` within the span of the basis, nothing across it."""
        matrix = np.eye(4)
        matrix[:3, :3] += self.basis @ (pose.linear - np.eye(len(pose.shift))) @ self.basis.T
        matrix[:3, 3] = self.centre + self.basis @ pose.shift - matrix[:3, :3] @ self.centre
        return Affine(matrix)


@dataclass(frozen=True, eq=False)
class Working:
    """An image smoothed to a resolution, its mask, and where its voxels lie.

    Args:
        image: (1, 1, *shape), intensities.
        mask: (1, 1, *shape), weights in [0, 1], or None.
        grid: of both.
        sigma: mm, how far the image has been smoothed.
    """

    image: Tensor
    mask: Tensor | None
    grid: Grid
    sigma: float = 0.0

    @classmethod
    def of(cls, image: Image, mask: Image | None, device: torch.device) -> Working:
        """The whole image, float32, its intensities clipped at both `TAIL`s and scaled to [0, 1]."""
        x = torch.from_numpy(np.ascontiguousarray(image.data, np.float32)).to(device)
        weight = None
        if mask is not None:
            weight = torch.from_numpy(np.ascontiguousarray(mask.data, np.float32)).to(device)
        low, high = _range(x if weight is None else x[weight > 0])
        scaled = x.sub(low).div_(max(high - low, 1e-30)).clamp_(0, 1)
        return cls(scaled[None, None], None if weight is None else weight[None, None], image.grid)

    def at(self, spacing: float) -> Working:
        """Smoothed by half of `spacing` (mm) and thinned to about `spacing` between voxels.

        An axis whose voxels are larger stays as it is. Squares of sigmas add, so a coarse level can be made
        of a finer one. With a mask m and the Gaussian G the image is ``G(m x) / G(m)``: what is masked out
        does not leak in.
        """
        own = self.grid.spacing
        added = max((0.5 * spacing) ** 2 - self.sigma**2, 0.0) ** 0.5
        sigmas = [added / s if added > 0.3 * s else 0.0 for s in own]
        steps = [
            min(max(1, round(spacing / s)), max(1, (n - 1) // 3))
            for s, n in zip(own, self.grid.shape, strict=True)
        ]
        first = [(n - 1) % k // 2 for n, k in zip(self.grid.shape, steps, strict=True)]
        lattice = (slice(None), slice(None), *(slice(a, None, k) for a, k in zip(first, steps, strict=True)))
        if self.mask is None:
            image, mask = gaussian(self.image, sigmas)[lattice].contiguous(), None
        else:
            image, mask = (gaussian(x, sigmas)[lattice] for x in (self.image * self.mask, self.mask))
            image, mask = image / mask.clamp_min(1e-6), mask.contiguous()
        affine = self.grid.affine.copy()
        affine[:3, : len(steps)] *= steps
        affine[:3, 3] = self.grid.to_world(first)
        return Working(image, mask, Grid(tuple(image.shape[2:]), affine), 0.5 * spacing)

    @property
    def volume(self) -> float:
        """mm^d that are not masked out."""
        cell = float(np.sqrt(np.linalg.det(self.grid.axes.T @ self.grid.axes)))
        return cell * self.grid.voxels * (1.0 if self.mask is None else float(self.mask.double().mean()))

    def middle(self) -> Array:
        """(3,), RAS mm: the middle of the grid."""
        return self.grid.to_world([(n - 1) / 2 for n in self.grid.shape])

    def centre(self) -> Array:
        """(3,), RAS mm: mean position weighted by how far intensities are from the border's median."""
        x = self.image[0, 0].double()
        faces = [x.select(axis, end).flatten() for axis in range(x.ndim) for end in (0, -1)]
        mass = (x - torch.cat(faces).median()).abs()
        if self.mask is not None:
            mass = mass * self.mask[0, 0]
        total = float(mass.sum())
        if total == 0:
            return self.middle()
        at = []
        for axis, n in enumerate(x.shape):
            along = mass.sum([a for a in range(x.ndim) if a != axis])
            at.append(float((along * torch.arange(n, device=x.device)).sum()) / total)
        return self.grid.to_world(at)


def _range(x: Tensor) -> tuple[float, float]:
    """Least and largest intensity that are not rare, of all that differ from the smallest one."""
    few = x.flatten()[:: max(1, x.numel() // RANGE_SAMPLES)]
    low, high = (float(v) for v in x.aminmax())
    shown = few[few > low].sort().values
    cut = int(TAIL * len(shown))
    if cut == 0 or shown[-1 - cut] == shown[0]:
        return low, high
    background = len(shown) < (1 - TAIL) * len(few)  # the smallest value itself is not rare
    return low if background else float(shown[cut]), float(shown[-1 - cut])


def scattered(count: int, d: int) -> Array:
    """(d, count) in [0, 1): points that fill the box evenly and lie on no lattice, always the same.

    The additive sequence ``frac(1/2 + n a)``, ``a_k = g^-k``, with g the root of ``g^(d + 1) = g + 1``.
    """
    g = 2.0
    for _ in range(60):
        g = (1 + g) ** (1 / (d + 1))
    steps = g ** -np.arange(1.0, d + 1)[:, None]
    return np.asarray((0.5 + steps * np.arange(1.0, count + 1)) % 1.0)


def read(image: Tensor, where: Tensor) -> Tensor:
    """Linear interpolation of (1, 1, *shape) at positions (d, ...), voxels, (...); the border continues."""
    d = len(where)
    at = where.reshape(1, d, -1, *[1] * (d - 1))
    return sample(image, at, padding="border").view(where.shape[1:])


def read_with_slope(image: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """The same as `read`, and the slope of the interpolant in the nearest cell.

    Along each axis in turn, between the readings ``low`` and ``high`` at the two ends of the cell,

        value = low + t (high - low),    slope = high - low

    Args:
        image: (1, 1, *shape), any unit; at least two voxels along each axis.
        where: (d, N), voxels.

    Returns:
        value (N,), the unit of `image`; slope (d, N), that unit per voxel.
    """
    shape = image.shape[2:]
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    start: Tensor | int = 0
    parts = []
    for position, n, stride in zip(where, shape, strides, strict=True):
        lower = position.clamp(0, n - 2).int()  # truncated, and so rounded down
        start = start + lower * stride
        parts.append((position - lower).clamp_(0, 1))
    corners = torch.tensor(list(product((0, 1), repeat=len(shape)))) @ torch.tensor(strides)
    index = corners.to(where.device, torch.int32)[:, None] + start
    ends = image.flatten().index_select(0, index.flatten()).view(*[2] * len(shape), -1)
    found = [ends]
    for t in parts:
        low, high = found[0]
        found = [torch.lerp(x[0], x[1], t) for x in found] + [high - low]
    return found[0], torch.stack(found[1:])
