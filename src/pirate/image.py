"""An image: voxels on a grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.grid import Grid


@dataclass(frozen=True, eq=False)
class Image:
    """Voxel values on a grid.

    Args:
        data: shape of `grid`; float32 intensities, or integer labels.
        grid: where the voxels lie (RAS mm).
        name: what messages call it, usually the file's path.
        notes: sentences about what was repaired while reading; they end up in ``run.json``.
        sha256: of the file it came from, empty for an array.
    """

    data: NDArray[Any] = field(repr=False)
    grid: Grid
    name: str = "array"
    notes: tuple[str, ...] = field(default=())
    sha256: str = ""

    def __post_init__(self) -> None:
        if self.data.shape != self.grid.shape:
            raise ValueError(f"{self.name}: voxels {self.data.shape} do not fill the grid {self.grid.shape}")

    @property
    def is_integer(self) -> bool:
        """Whether the voxels are integers, as labels are."""
        return bool(np.issubdtype(self.data.dtype, np.integer))
