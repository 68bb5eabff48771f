"""The one geometry noun: a lattice of voxels placed in the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grid:
    """Shape of a voxel lattice and its place in the world (RAS+, mm).

    ``world = affine @ (i, j, k, 1)``. A two-dimensional grid is a plane in the same world: its shape
    has two entries, the third column of `affine` is the slice direction, and k is 0.

    Args:
        shape: voxels per array axis, two or three entries.
        affine: (4, 4), voxel index to RAS mm; finite and invertible, last row 0 0 0 1.
        slice_axis: for a plane that was one slice of a volume: where the axis of one voxel stood (0, 1 or 2),
            so that results are written as such a slice again; None for an image of two axes. Not compared.
    """

    shape: tuple[int, ...]
    affine: Array
    slice_axis: int | None = None

    def __post_init__(self) -> None:
        shape = tuple(int(n) for n in self.shape)
        affine = np.array(self.affine, dtype=np.float64)
        if len(shape) not in (2, 3) or min(shape) < 1:
            raise ValueError(f"a grid has two or three axes of at least one voxel, not {shape}")
        if affine.shape != (4, 4) or not np.isfinite(affine).all() or not _spans_volume(affine[:3, :3]):
            raise ValueError("a grid needs a finite, invertible 4 x 4 affine")
        if (affine[3] != (0, 0, 0, 1)).any():
            raise ValueError("the last row of a grid's affine is 0 0 0 1")
        affine.setflags(write=False)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "affine", affine)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Grid)
            and self.shape == other.shape
            and bool((self.affine == other.affine).all())
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.affine.tobytes()))

    @property
    def ndim(self) -> int:
        """Number of array axes: 2 or 3."""
        return len(self.shape)

    @property
    def axes(self) -> Array:
        """(3, ndim), RAS mm: the step in the world of one voxel along each array axis."""
        return self.affine[:3, : self.ndim]

    @property
    def origin(self) -> Array:
        """(3,), RAS mm: the centre of voxel 0."""
        return self.affine[:3, 3]

    @property
    def spacing(self) -> tuple[float, ...]:
        """Voxel size in mm along each array axis."""
        return tuple(float(s) for s in np.linalg.norm(self.axes, axis=0))

    @property
    def voxels(self) -> int:
        """Number of voxels."""
        return int(np.prod(self.shape))

    def to_world(self, voxel: ArrayLike) -> Array:
        """Map voxel positions (..., ndim) to RAS mm (..., 3)."""
        return np.asarray(voxel, dtype=np.float64) @ self.axes.T + self.origin

    def to_voxel(self, world: ArrayLike) -> Array:
        """Map RAS mm (..., 3) to voxel positions (..., ndim).

        On a plane this is the orthogonal projection: the distance from the plane is dropped.
        """
        return (np.asarray(world, dtype=np.float64) - self.origin) @ np.linalg.pinv(self.axes).T

    def resized(self, shape: Sequence[int]) -> Grid:
        """Return the grid of `shape` voxels whose first and last voxel centres are those of this one."""
        affine = self.affine.copy()
        for axis, (old, new) in enumerate(zip(self.shape, shape, strict=True)):
            affine[:3, axis] *= (old - 1) / max(new - 1, 1) if old > 1 else 1.0
        return Grid(tuple(shape), affine)

    def same_space(self, other: Grid, tolerance: float = 1e-3) -> bool:
        """Whether both grids have one shape and their corners lie within `tolerance` mm of each other."""
        if self.shape != other.shape:
            return False
        corners = np.stack(np.meshgrid(*[(0, n - 1) for n in self.shape], indexing="ij"), -1).reshape(
            -1, self.ndim
        )
        return bool(np.abs(self.to_world(corners) - other.to_world(corners)).max() <= tolerance)


def _spans_volume(axes: Array) -> bool:
    """Whether three steps (3, 3), columns, any unit, enclose more than 1e-12 of the box of their lengths."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(abs(np.linalg.det(axes)) > 1e-12 * np.linalg.norm(axes, axis=0).prod())
