"""Two checked images, what belongs to them, and where they start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pirate.errors import UsageError
from pirate.image import Image
from pirate.io import itk
from pirate.io.geometry import Form
from pirate.registration import inputs
from pirate.registration.apply import apply
from pirate.registration.inputs import ImageLike, Kind, as_image
from pirate.transform import Affine, Displacement, Transform


@dataclass(frozen=True, eq=False)
class Pair:
    """Two checked images and what belongs to them."""

    fixed: Image
    moving: Image
    fixed_mask: Image | None
    moving_mask: Image | None
    fixed_labels: Image | None
    moving_labels: Image | None
    affine: Affine | None

    @staticmethod
    def read(
        fixed: ImageLike, moving: ImageLike, fixed_mask: ImageLike | None, moving_mask: ImageLike | None,
        fixed_labels: ImageLike | None, moving_labels: ImageLike | None,
        affine: str | os.PathLike[str] | Affine, prefer: Form | None,
    ) -> Pair:  # fmt: skip
        """Read and check everything, before any computing."""
        if (fixed_labels is None) != (moving_labels is None):
            raise UsageError(
                "labels of one image only: give both --fixed-labels and --moving-labels, or neither."
            )
        a, b = (
            as_image(source, role, prefer=prefer) for source, role in ((fixed, "fixed"), (moving, "moving"))
        )
        start = read_start(affine)
        inputs.check_pair(a, b, start or Affine(np.eye(4)))

        def companion(source: ImageLike | None, image: Image, role: str, kind: Kind) -> Image | None:
            if source is None:
                return None
            return inputs.check_companion(as_image(source, role, kind, prefer), image, role)

        return Pair(
            a, b,
            companion(fixed_mask, a, "fixed mask", "mask"), companion(moving_mask, b, "moving mask", "mask"),
            companion(fixed_labels, a, "fixed labels", "labels"),
            companion(moving_labels, b, "moving labels", "labels"),
            start,
        )  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        """What was repaired while reading."""
        return tuple(note for image in (self.fixed, self.moving) for note in image.notes)

    @property
    def start(self) -> Transform:
        """Fixed world to moving world before the field."""
        return Transform((self.affine,) if self.affine is not None else ())

    def on_fixed_grid(self, image: Image) -> np.ndarray[Any, np.dtype[Any]]:
        """Voxels of a moving-space image read on the fixed grid through the start."""
        if self.affine is None and image.grid == self.fixed.grid:
            return image.data
        return apply(image, self.start, self.fixed.grid, "linear").data

    def transforms(self, displacement: Tensor, inverse: Tensor) -> tuple[Transform, Transform]:
        """Forward (field, then affine) and inverse (affine inverted, then inverse field)."""
        grid = self.fixed.grid
        there, back = (Displacement(grid, u[0].float().cpu().numpy()) for u in (displacement, inverse))
        if self.affine is None:
            return Transform((there,)), Transform((back,))
        return Transform((there, self.affine)), Transform((self.affine.inverse(), back))


def read_start(affine: str | os.PathLike[str] | Affine) -> Affine | None:
    """Turn the `affine` option into an `Affine`, or None for "none"."""
    if isinstance(affine, Affine):
        return affine
    return None if str(affine) == "none" else itk.read_affine(Path(affine))
