"""Applying a transform to an image, to labels and to points, with one interpolation of the original voxels.

``result(x) = image(transform(x))`` for every voxel x of the reference grid. The transform that brings the
moving image onto the fixed grid leads from fixed to moving world points; to carry POINTS from moving to fixed
space, use its inverse: then the centroid of a warped label is the warped centroid.

Inside and outside are ITK's: up to half a voxel beyond the border an image reads its border value,
further out it reads 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pirate.errors import UsageError
from pirate.grid import Array, Grid
from pirate.image import Image
from pirate.ops.warp import sample
from pirate.transform import Displacement, Transform, frame, inside

Interpolation = Literal["linear", "nearest", "vote"]

_SLAB_VOXELS = 1 << 20  # so many positions are held at once: some 100 MB with the vote's corners
_SAME_VOXEL = 1e-4  # a field on the reference grid is read at its own voxels


def apply(
    image: Image,
    transform: Transform,
    reference: Grid,
    interpolation: Interpolation = "linear",
    device: str | torch.device = "cpu",
    outside: float = 0.0,
) -> Image:
    """Resample `image` onto `reference`.

    Args:
        image: intensities, or integer labels of any size, which stay exact under "nearest" and "vote".
        transform: reference world to image world, RAS mm.
        reference: the grid of the result.
        interpolation: "linear"; "nearest" (halves go up); or "vote", for labels: the label with the largest
            sum of linear weights among the 2^d neighbours, the smaller one if two are equal.
        device: where to compute.
        outside: the value of "linear" where `image` has no data; labels are 0 there.

    Returns:
        float32 on `reference` for "linear", else the voxel type of `image`.
    """
    if interpolation == "vote" and not image.is_integer:
        raise UsageError(f"{image.name}: a vote needs integer labels; use linear or nearest for intensities.")
    if image.grid.ndim != reference.ndim:
        raise UsageError(
            f"{image.name}: it has {image.grid.ndim} dimensions, the reference {reference.ndim}."
        )
    for part in transform.parts:
        if isinstance(part, Displacement) and part.grid.ndim != reference.ndim:
            raise UsageError(
                f"{image.name}: it has {reference.ndim} dimensions, the displacement field {part.grid.ndim}."
            )
    voxels = image.data.astype(np.float32) if interpolation == "linear" else _ordered(image.data)
    source = torch.from_numpy(np.ascontiguousarray(voxels)).to(device)
    read = _reader(interpolation, source)
    result = np.empty(reference.shape, voxels.dtype)
    route = _Route.of(transform, reference, image.grid, torch.device(device))
    beyond = outside if interpolation == "linear" else _ordered(np.zeros(1, image.data.dtype)).item()
    for planes in _slabs(reference.shape):
        positions = route.positions(planes)
        value = read(positions).masked_fill(~_inside(positions, image.grid.shape), beyond)
        result[planes] = value.cpu().numpy()
    data = result if interpolation == "linear" else _restored(result, image.data.dtype)
    return Image(data, reference, name=image.name, notes=image.notes)


def apply_points(points: ArrayLike, transform: Transform) -> Array:
    """Map points (N, 3), RAS mm, to (N, 3), RAS mm; from moving to fixed space with the INVERSE transform."""
    return transform.map(points)


def points_outside(points: ArrayLike, transform: Transform) -> int:
    """How many of the points (N, 3), RAS mm, a displacement field of `transform` does not cover."""
    world = np.asarray(points, dtype=np.float64)
    missed = np.zeros(len(world), dtype=bool)
    for part in transform.parts:
        if isinstance(part, Displacement):
            missed |= ~inside(part.grid.to_voxel(world), part.grid.shape)
        world = part.map(world)
    return int(missed.sum())


def _slabs(shape: tuple[int, ...]) -> Iterator[slice]:
    planes = max(1, _SLAB_VOXELS // int(np.prod(shape[1:])))
    for start in range(0, shape[0], planes):
        yield slice(start, min(start + planes, shape[0]))


@dataclass(frozen=True)
class _Step:
    """Read a field at `matrix` @ coordinates and add it; coordinates are then voxels of the field's grid."""

    matrix: Array  # (4, 4): coordinates so far to voxels of this field's grid (frame)
    field: Tensor  # (d, *shape), voxels
    own: bool  # the coordinates are this grid's own voxel indices: no interpolation


@dataclass(frozen=True)
class _Route:
    """From voxel indices of the reference to voxel positions in the image: fields with matrices between."""

    steps: tuple[_Step, ...]
    last: Array  # (4, 4): coordinates after the steps to voxels of the image (frame)
    shape: tuple[int, ...]
    device: torch.device

    @classmethod
    def of(cls, transform: Transform, reference: Grid, image: Grid, device: torch.device) -> _Route:
        pending = frame(reference)  # coordinates so far to world
        steps: list[_Step] = []
        for part in transform.parts:
            if isinstance(part, Displacement):
                matrix = np.linalg.inv(frame(part.grid)) @ pending
                own = not steps and part.grid.shape == reference.shape and _is_identity(matrix, reference)
                steps.append(_Step(matrix, torch.from_numpy(part.field).to(device), own))
                pending = frame(part.grid)
            else:
                pending = part.matrix @ pending
        return cls(tuple(steps), np.linalg.inv(frame(image)) @ pending, reference.shape, device)

    def positions(self, planes: slice) -> Tensor:
        """(d, planes, ...), float32, voxels of the image, for some planes of the reference."""
        d = len(self.shape)
        matrix, displaced = np.eye(4), None  # coordinates = matrix @ (index, 1) + displaced
        for step in self.steps:
            matrix = step.matrix @ matrix
            displaced = None if displaced is None else _turned(step.matrix, displaced)
            if step.own:
                matrix = np.eye(4)
                moved = step.field[:, planes]
            else:
                moved = _field_at(step.field, self._absolute(matrix, displaced, planes)[: len(step.field)])
            moved = torch.cat([moved, moved.new_zeros((3 - len(moved), *moved.shape[1:]))])
            displaced = moved if displaced is None else displaced + moved
        displaced = None if displaced is None else _turned(self.last, displaced)
        return self._absolute(self.last @ matrix, displaced, planes)[:d]

    def _absolute(self, matrix: Array, displaced: Tensor | None, planes: slice) -> Tensor:
        """Matrix @ (index, 1) + displaced, (3, planes, ...); the large first term is summed in float64."""
        d = len(self.shape)
        first = torch.arange(self.shape[0], dtype=torch.float64)[planes]
        plane = torch.from_numpy(matrix[:3, 3]).view(3, *[1] * d)
        for axis in range(1, d):
            index = torch.arange(self.shape[axis], dtype=torch.float64).view(-1, *[1] * (d - 1 - axis))
            plane = plane + torch.from_numpy(matrix[:3, axis]).view(3, *[1] * d) * index
        along = torch.from_numpy(matrix[:3, 0]).view(3, *[1] * d) * first.view(-1, *[1] * (d - 1))
        start = (plane + along).float().to(self.device)
        return start if displaced is None else start.add_(displaced)


def _is_identity(matrix: Array, grid: Grid) -> bool:
    """Whether `matrix` leaves the voxel indices of `grid` where they are, to within `_SAME_VOXEL`."""
    corners = np.array(list(product(*[(0, n - 1) for n in grid.shape])), dtype=np.float64)
    moved = corners @ matrix[: grid.ndim, : grid.ndim].T + matrix[: grid.ndim, 3]
    return bool(np.abs(moved - corners).max() <= _SAME_VOXEL)


def _turned(matrix: Array, displaced: Tensor) -> Tensor:
    """The linear part of `matrix` (4, 4) times vectors (3, ...)."""
    if (matrix[:3, :3] == np.eye(3)).all():
        return displaced
    linear = torch.from_numpy(matrix[:3, :3].astype(np.float32)).to(displaced.device)
    turned: Tensor = torch.tensordot(linear, displaced, dims=1)
    return turned


def _inside(positions: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Whether positions (d, ...) lie in ``[-1/2, n - 1/2)`` along every axis, (...)."""
    result = torch.ones(positions.shape[1:], dtype=torch.bool, device=positions.device)
    for position, n in zip(positions, shape, strict=True):
        result &= position >= -0.5
        result &= position < n - 0.5
    return result


def _field_at(field: Tensor, positions: Tensor) -> Tensor:
    """Field (d, *shape) at positions (d, ...), voxels, by linear interpolation; 0 outside."""
    return sample(field[None], positions[None], padding="border")[0] * _inside(positions, field.shape[1:])


def _reader(interpolation: Interpolation, image: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what reads `image` (*source) at positions (d, ...), voxels, its border value outside."""
    if interpolation == "vote":
        return partial(_vote, image, _even_cells(image))
    return partial(_nearest if interpolation == "nearest" else _linear, image)


def _linear(image: Tensor, positions: Tensor) -> Tensor:
    """Linear interpolation of `image` (*source), float32, at positions (d, ...), voxels."""
    return sample(image[None, None], positions[None], padding="border")[0, 0]


def _nearest(image: Tensor, positions: Tensor) -> Tensor:
    """Voxels of `image` (any type, never turned into another) at the nearest index."""
    return image[tuple(_clamped((p + 0.5).floor(), n) for p, n in zip(positions, image.shape, strict=True))]


def _vote(labels: Tensor, even: Tensor, positions: Tensor) -> Tensor:
    """The label with the largest sum of linear weights, counted only in cells that are not `even`."""
    at = [p.clamp(0, n - 1) for p, n in zip(positions, labels.shape, strict=True)]
    lower = tuple(p.long() for p in at)
    winner = labels[lower]
    mixed = ~even[lower]
    low = [index[mixed] for index in lower]
    high = [(index + 1).clamp_max(n - 1) for index, n in zip(low, labels.shape, strict=True)]
    share = [p[mixed].double() - index for p, index in zip(at, low, strict=True)]
    candidates, weights = [], []
    for corner in product((0, 1), repeat=len(low)):
        candidates.append(labels[tuple(h if c else i for c, i, h in zip(corner, low, high, strict=True))])
        weights.append(math.prod(u if c else 1 - u for c, u in zip(corner, share, strict=True)))
    winner[mixed] = _elected(candidates, weights)
    return winner


def _even_cells(labels: Tensor) -> Tensor:
    """Whether the 2^d voxels from each voxel to the next along all axes bear one label, (*shape)."""
    even = torch.ones_like(labels, dtype=torch.bool)
    for axis, n in enumerate(labels.shape):
        here, there = (labels.narrow(axis, start, n - 1) for start in (0, 1))
        even.narrow(axis, 0, n - 1).logical_and_((here == there) & even.narrow(axis, 1, n - 1))
    return even


def _elected(labels: list[Tensor], weights: list[Tensor]) -> Tensor:
    """For candidates (N,) with weights (N,): the label whose weights sum to most, on a tie the smallest."""
    best, most = labels[0], torch.full_like(weights[0], -1.0)
    for label in labels:
        total = torch.zeros_like(most)
        for other, weight in zip(labels, weights, strict=True):
            total += weight * (other == label)
        wins = (total > most + 1e-6) | ((total > most - 1e-6) & (label < best))
        best, most = torch.where(wins, label, best), torch.where(wins, total, most)
    return best


def _clamped(index: Tensor, n: int) -> Tensor:
    return index.clamp(0, n - 1).long()


def _ordered(data: NDArray[Any]) -> NDArray[Any]:
    """Integers of any type as int64 in the same order (uint64: first bit flipped); others as they are."""
    if data.dtype == np.uint64:
        return np.asarray(data ^ np.uint64(1 << 63)).view(np.int64)
    return data.astype(np.int64) if np.issubdtype(data.dtype, np.integer) else data


def _restored(data: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo `_ordered`."""
    if dtype == np.uint64:
        return np.asarray(data.view(np.uint64) ^ np.uint64(1 << 63))
    return data.astype(dtype)
