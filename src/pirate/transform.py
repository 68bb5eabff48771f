"""Maps of the world onto itself: affines, displacement fields, and chains of them (numpy only).

One convention everywhere: the transform that brings the MOVING image onto the FIXED grid maps fixed world
points to moving world points, so that ``warped(p) = moving(transform(p))``. A registration's forward
transform is ``(Displacement on the fixed grid, Affine)``; its inverse is ``(Affine^-1, Displacement on the
fixed grid)``. To carry POINTS from moving to fixed space one therefore uses the inverse.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pirate.grid import Array, Grid


@dataclass(frozen=True, eq=False)
class Affine:
    """The map ``p -> matrix @ (p, 1)`` of RAS mm to RAS mm.

    Args:
        matrix: (4, 4), finite, invertible, last row 0 0 0 1.
    """

    matrix: Array

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or (matrix[3] != (0, 0, 0, 1)).any():
            raise ValueError("an affine is a finite 4 x 4 matrix whose last row is 0 0 0 1")
        if abs(np.linalg.det(matrix)) < 1e-12:
            raise ValueError("an affine must be invertible")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def inverse(self) -> Affine:
        """Return the affine that undoes this one."""
        matrix = np.linalg.inv(self.matrix).astype(np.float64)
        matrix[3] = 0, 0, 0, 1
        return Affine(matrix)

    def map(self, points: ArrayLike) -> Array:
        """Map points (N, 3), RAS mm, to (N, 3), RAS mm."""
        return np.asarray(points, dtype=np.float64) @ self.matrix[:3, :3].T + self.matrix[:3, 3]


@dataclass(frozen=True, eq=False)
class Displacement:
    """The map ``p -> p + grid.axes @ u(voxel(p))`` of RAS mm to RAS mm.

    u is interpolated linearly. A point up to half a voxel outside the lattice reads the border value; beyond,
    the displacement is 0 (the rule of ITK's DisplacementFieldTransform). On a two-dimensional grid the
    distance of p from the plane is kept.

    Args:
        grid: where the field's voxels lie.
        field: (d, *grid.shape), float32, voxels of `grid`; channel c moves along array axis c.
    """

    grid: Grid
    field: NDArray[np.float32] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        field = np.asarray(self.field, dtype=np.float32)
        if field.shape != (self.grid.ndim, *self.grid.shape):
            raise ValueError(
                f"a field on {self.grid.shape} is {(self.grid.ndim, *self.grid.shape)}, not {field.shape}"
            )
        object.__setattr__(self, "field", field)

    def map(self, points: ArrayLike) -> Array:
        """Map points (N, 3), RAS mm, to (N, 3), RAS mm."""
        world = np.asarray(points, dtype=np.float64)
        return world + interpolated(self.field, self.grid.to_voxel(world)) @ self.grid.axes.T


Part = Affine | Displacement


@dataclass(frozen=True, eq=False)
class Transform:
    """Parts applied in order to a world point; no part is the identity.

    Args:
        parts: the first is applied first.
        source: what the space is called that points come from (for images: the grid to resample onto).
        target: what the space is called that points go to (for images: the one that is resampled).
    """

    parts: tuple[Part, ...] = ()
    source: str = ""
    target: str = ""

    def map(self, points: ArrayLike) -> Array:
        """Map points (N, 3), RAS mm, to (N, 3), RAS mm."""
        world = np.array(points, dtype=np.float64)
        if world.ndim != 2 or world.shape[1] != 3:
            raise ValueError(f"points are (N, 3) in RAS mm, not {world.shape}")
        for part in self.parts:
            world = part.map(world)
        return world

    def then(self, other: Transform) -> Transform:
        """Return the transform ``p -> other(self(p))``; the spaces must meet where both are named."""
        if self.target and other.source and self.target != other.source:
            raise ValueError(
                f"a transform to {self.target!r} cannot be followed by one from {other.source!r}"
            )
        return Transform(self.parts + other.parts, self.source, other.target)

    def on(self, grid: Grid) -> Displacement:
        """Return one displacement that equals this transform at every voxel of `grid`.

        On a plane the transform must stay in the plane, to within 1e-3 mm.
        """
        first = self.parts[0] if self.parts else None
        if isinstance(first, Displacement) and first.grid == grid:  # read at its own voxels: no interpolation
            rest, start = Transform(self.parts[1:]), first.field
        else:
            rest, start = self, np.zeros((grid.ndim, *grid.shape), np.float32)
        field = np.empty_like(start)
        to_voxel = np.linalg.inv(frame(grid)[:3, :3]).T
        other_axes = [np.arange(n) for n in grid.shape[1:]]
        for i in range(grid.shape[0]):
            voxel = np.stack(np.meshgrid([i], *other_axes, indexing="ij"), -1).reshape(-1, grid.ndim)
            world = grid.to_world(voxel + start[:, i].reshape(grid.ndim, -1).T)
            step = (rest.map(world) - grid.to_world(voxel)) @ to_voxel
            if np.abs(step[:, grid.ndim :]).max(initial=0.0) > 1e-3:
                raise ValueError("the transform leaves the plane of the two-dimensional grid")
            field[:, i] = step[:, : grid.ndim].T.reshape(grid.ndim, *grid.shape[1:])
        return Displacement(grid, field)


def frame(grid: Grid) -> Array:
    """(4, 4), (voxel position, 1) to RAS mm; on a plane the third coordinate is mm along the unit normal."""
    if grid.ndim == 3:
        return grid.affine
    matrix = grid.affine.copy()
    normal = np.cross(grid.axes[:, 0], grid.axes[:, 1])
    matrix[:3, 2] = normal / np.linalg.norm(normal)
    return matrix


def inside(voxel: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether positions (..., d), voxels, lie in ITK's buffer ``[-1/2, n - 1/2)`` along every axis, (...)."""
    return np.asarray(((voxel >= -0.5) & (voxel < np.asarray(shape) - 0.5)).all(-1))


def interpolated(field: NDArray[np.float32], voxel: Array) -> Array:
    """Linear interpolation of a field at voxel positions, the sum over the 2^d corners of weight times value.

    Args:
        field: (d, *shape), any unit.
        voxel: (N, d), voxels.

    Returns:
        (N, d), the unit of `field`; 0 where a position is not `inside`.
    """
    shape = field.shape[1:]
    result = np.zeros((len(voxel), len(field)))
    known = inside(voxel, shape)
    last = np.asarray(shape) - 1
    at = np.clip(voxel[known], 0, last)
    lower = np.minimum(at.astype(np.int64), np.maximum(last - 1, 0))
    upper = np.minimum(lower + 1, last)
    fraction = at - lower
    for corner in product((0, 1), repeat=len(shape)):
        index = np.where(corner, upper, lower)
        weight = np.where(corner, fraction, 1 - fraction).prod(-1)
        result[known] += weight[:, None] * field[(slice(None), *index.T)].T
    return result
