"""Applying a transform to an image, to labels and to points, with one interpolation of the original voxels.

``result(x) = image(transform(x))`` for every voxel x of the reference grid. The transform that brings the
moving image onto the fixed grid leads from fixed to moving world points; to carry POINTS from moving to fixed
space, use its inverse: then the centroid of a warped label is the warped centroid.

Inside and outside are ITK's: up to half a voxel beyond the border an image reads its border value,
further out it reads 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pirate.errors import UsageError
from pirate.grid import Array, Grid
from pirate.image import Image
from pirate.ops.warp import sample
from pirate.registration.readers import Interpolation, ordered, reader, restored
from pirate.transform import Displacement, Transform, frame, inside

__all__ = ["Interpolation", "apply", "apply_labels", "apply_points", "points_outside"]

_SLAB_VOXELS = 1 << 19  # so many positions are held at once: some 50 MB with the corners of the vote
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
    (result,) = _resampled(image, transform, reference, (interpolation,), device, outside)
    return result


def apply_labels(image: Image, transform: Transform, reference: Grid) -> tuple[Image, Image]:
    """Labels on `reference` by the nearest voxel and by the vote, as `apply` has them, for one way through."""
    nearest, vote = _resampled(image, transform, reference, ("nearest", "vote"), "cpu", 0.0)
    return nearest, vote


def _resampled(
    image: Image,
    transform: Transform,
    reference: Grid,
    interpolations: Sequence[Interpolation],
    device: str | torch.device,
    outside: float,
) -> list[Image]:
    """One image for each interpolation; see `apply`."""
    _check(image, transform, reference, interpolations)
    linear = "linear" in interpolations
    voxels = image.data.astype(np.float32, copy=False) if linear else ordered(image.data)
    if not transform.parts and image.grid == reference:
        results = [voxels.copy() for _ in interpolations]
    else:
        source = torch.from_numpy(np.ascontiguousarray(voxels)).to(device)
        readers = [reader(interpolation, source) for interpolation in interpolations]
        results = [np.empty(reference.shape, voxels.dtype) for _ in interpolations]
        route = _Route.of(transform, reference, image.grid, torch.device(device))
        beyond = outside if linear else ordered(np.zeros(1, image.data.dtype)).item()
        for planes in _slabs(reference.shape):
            positions = route.positions(planes)
            known = _inside(positions, image.grid.shape)
            for result, read in zip(results, readers, strict=True):
                value = read(positions)
                if known is not None:
                    value.masked_fill_(~known, beyond)
                result[planes] = value.cpu().numpy()
    if not linear:
        results = [restored(result, image.data.dtype) for result in results]
    return [Image(result, reference, name=image.name, notes=image.notes) for result in results]


def _check(
    image: Image, transform: Transform, reference: Grid, interpolations: Sequence[Interpolation]
) -> None:
    if "vote" in interpolations and not image.is_integer:
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
            if d < 3:
                moved = torch.cat([moved, moved.new_zeros((1, *moved.shape[1:]))])
            displaced = moved if displaced is None else displaced + moved
        displaced = None if displaced is None else _turned(self.last, displaced)
        return self._absolute(self.last @ matrix, displaced, planes)[:d]

    def _absolute(self, matrix: Array, displaced: Tensor | None, planes: slice) -> Tensor:
        """Matrix @ (index, 1) + displaced, (3, planes, ...); the large first term is summed in float64.

        It is held along the axes on which it depends only.
        """
        d = len(self.shape)
        axes = [torch.arange(n, dtype=torch.float64) for n in self.shape]
        axes[0] = axes[0][planes]
        result = torch.empty((3, *(len(axis) for axis in axes)), device=self.device)
        for c, out in enumerate(result):
            *row, offset = matrix[c].tolist()
            start = torch.tensor(offset, dtype=torch.float64)
            for axis in (*range(1, d), 0):
                if row[axis] != 0:
                    start = start + row[axis] * axes[axis].view(-1, *[1] * (d - 1 - axis))
            if displaced is None:
                out.copy_(start)
            else:
                torch.add(displaced[c], start.float().to(self.device), out=out)
        return result


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


def _inside(positions: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Whether positions (d, ...) lie in ``[-1/2, n - 1/2)`` along every axis, (...); None if all of them do."""
    result: Tensor | None = None
    for position, n in zip(positions, shape, strict=True):
        least, most = torch.aminmax(position)
        if not (float(least) >= -0.5 and float(most) < n - 0.5):
            known = (position >= -0.5) & (position < n - 0.5)
            result = known if result is None else result.logical_and_(known)
    return result


def _field_at(field: Tensor, positions: Tensor) -> Tensor:
    """Field (d, *shape) at positions (d, ...), voxels, by linear interpolation; 0 outside."""
    value = sample(field[None], positions[None], padding="border")[0]
    known = _inside(positions, tuple(field.shape[1:]))
    return value if known is None else value * known
