"""Two checked images, what belongs to them, and where they start."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.errors import UsageError, printable, reject
from pirate.grid import Grid
from pirate.image import Image
from pirate.io import itk
from pirate.io.fields import is_axial
from pirate.io.geometry import Form
from pirate.registration import inputs
from pirate.registration.affine import align
from pirate.registration.affine_steps import Kind as Motion
from pirate.registration.apply import apply
from pirate.registration.inputs import ImageLike, Kind, as_image
from pirate.transform import Affine, Displacement, Transform

FOUND: tuple[Motion, ...] = ("rigid", "similarity", "affine")
"""Starts that are found by aligning the images."""

MARGIN = 0.1
"""Part of the fixed grid's length by which it may be extended where the moving image goes on."""


@dataclass(frozen=True)
class Sources:
    """What the caller handed over, unread; see `registration.register` for the meaning."""

    fixed: ImageLike
    moving: ImageLike
    fixed_mask: ImageLike | None = None
    moving_mask: ImageLike | None = None
    fixed_labels: ImageLike | None = None
    moving_labels: ImageLike | None = None
    affine: str | os.PathLike[str] | Affine = "none"
    prefer: Form | None = None
    memory_limit: int | None = None

    def image(self, source: ImageLike, role: str, kind: Kind = "image") -> Image:
        """Read one of them."""
        return as_image(source, role, kind, self.prefer, self.memory_limit)

    def companion(self, source: ImageLike | None, image: Image, role: str, kind: Kind) -> Image | None:
        """Read a mask or labels, which must lie on the grid of `image`."""
        return None if source is None else inputs.check_companion(self.image(source, role, kind), image, role)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two checked images and what belongs to them; `affine` maps fixed to moving world points (RAS mm)."""

    fixed: Image
    moving: Image
    fixed_mask: Image | None
    moving_mask: Image | None
    fixed_labels: Image | None
    moving_labels: Image | None
    affine: Affine | None
    remarks: tuple[str, ...] = ()
    """Sentences about images that look like something else, and about the affine start."""

    @staticmethod
    def read(sources: Sources) -> Pair:
        """Read and check everything, before any computing."""
        if (sources.fixed_labels is None) != (sources.moving_labels is None):
            raise UsageError(
                "labels of one image only: give both --fixed-labels and --moving-labels, or neither."
            )
        a, b = sources.image(sources.fixed, "fixed"), sources.image(sources.moving, "moving")
        affine = _in_plane(read_start(sources.affine), a.grid)
        inputs.check_pair(a, b)
        if sources.affine not in FOUND:
            inputs.check_overlap(a, b, affine or Affine(np.eye(4)))
        pair = Pair(
            a,
            b,
            sources.companion(sources.fixed_mask, a, "fixed mask", "mask"),
            sources.companion(sources.moving_mask, b, "moving mask", "mask"),
            sources.companion(sources.fixed_labels, a, "fixed labels", "labels"),
            sources.companion(sources.moving_labels, b, "moving labels", "labels"),
            affine,
        )
        if pair.fixed_labels is not None and pair.moving_labels is not None:
            inputs.common_labels(pair.fixed_labels, pair.moving_labels)
        doubts = (
            (role, inputs.mistaken(image, labels="labels" in role))
            for role, image in pair.images.items()
            if "mask" not in role
        )
        return replace(pair, remarks=tuple(f"{role}: it {doubt}" for role, doubt in doubts if doubt))

    def aligned(self, start: str | os.PathLike[str] | Affine, mutual: bool, device: torch.device) -> Pair:
        """The pair with an affine start of the kind that `start` names; itself where `start` is something else.

        Args:
            start: "rigid", "similarity", "affine", or anything that `read_start` has dealt with.
            mutual: compare by mutual information, for images of different contrast, instead of correlation.
            device: where to compute.
        """
        kind = next((name for name in FOUND if name == start), None)
        if kind is None:
            return self
        found = align(
            self.fixed, self.moving, kind, penalty="mutual" if mutual else "correlation",
            fixed_mask=self.fixed_mask, moving_mask=self.moving_mask, device=device,
        )  # fmt: skip
        inputs.check_overlap(self.fixed, self.moving, found.affine)
        remarks = (*self.remarks, *((found.note,) if found.note else ()))
        if inputs.overlap(self.fixed.grid, self.moving.grid, Affine(np.eye(4))) == 0:
            remarks += ("the headers place the images apart; they were brought together all the same.",)
        return replace(self, affine=_in_plane(found.affine, self.fixed.grid), remarks=remarks)

    @property
    def images(self) -> dict[str, Image]:
        """Every image that was given, by its role."""
        roles = ("fixed", "moving", "fixed_mask", "moving_mask", "fixed_labels", "moving_labels")
        return {role: getattr(self, role) for role in roles if getattr(self, role) is not None}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was repaired while reading, what looks odd, and what the affine start has to say."""
        repaired = (f"{role}: {note}" for role, image in self.images.items() for note in image.notes)
        return (*repaired, *self.remarks)

    @property
    def start(self) -> Transform:
        """Fixed world to moving world before the field."""
        return Transform((self.affine,) if self.affine is not None else ())

    @cached_property
    def margins(self) -> tuple[tuple[int, int], ...]:
        """Voxels to add before and after each axis of the fixed grid, because the moving image has data there.

        Without them a structure of the moving image just outside the fixed field of view could not move in.
        At most `MARGIN` of the axis; none where the moving image holds nothing but its smallest value.
        """
        grid = self.fixed.grid
        limits = [int(np.ceil(MARGIN * n)) for n in grid.shape]
        corners = np.stack(np.meshgrid(*[(0, n - 1) for n in self.moving.grid.shape], indexing="ij"), -1)
        back = self.affine.inverse() if self.affine is not None else Affine(np.eye(4))
        reach = grid.to_voxel(back.map(self.moving.grid.to_world(corners.reshape(-1, grid.ndim))))
        low, high = np.floor(reach.min(0)), np.ceil(reach.max(0)) - np.array(grid.shape) + 1
        wanted = tuple(
            (int(np.clip(-a, 0, m)), int(np.clip(b, 0, m))) for a, b, m in zip(low, high, limits, strict=True)
        )
        if not np.any(wanted):
            return wanted
        background = float(self.moving.data.min())
        contrast = (
            apply(self.moving, self.start, extended(grid, wanted), outside=background).data - background
        )
        return _trimmed(contrast > 1e-5 * float(np.ptp(self.moving.data)), wanted)

    def on_working_grid(self, image: Image, outside: float = 0.0) -> NDArray[Any]:
        """Voxels of a moving-space image on the fixed grid with its margins, read through the start."""
        grid = extended(self.fixed.grid, self.margins)
        if self.affine is None and image.grid == grid:
            return image.data
        return apply(image, self.start, grid, outside=outside).data

    def inside(self, field: Tensor) -> Tensor:
        """Cut a field (1, d, *working shape) back to the fixed grid, (1, d, *shape)."""
        cut = [slice(a, a + n) for (a, _), n in zip(self.margins, self.fixed.grid.shape, strict=True)]
        return field[(slice(None), slice(None), *cut)].contiguous()

    def transforms(self, displacement: Tensor, inverse: Tensor) -> tuple[Transform, Transform]:
        """Forward (field, then affine) and inverse (affine inverted, then inverse field).

        Args:
            displacement: (1, d, *shape), voxels of the fixed grid.
            inverse: (1, d, *shape), likewise.
        """
        grid = self.fixed.grid
        there, back = (Displacement(grid, u[0].float().cpu().numpy()) for u in (displacement, inverse))
        if self.affine is None:
            return Transform((there,)), Transform((back,))
        return Transform((there, self.affine)), Transform((self.affine.inverse(), back))


def extended(grid: Grid, margins: tuple[tuple[int, int], ...]) -> Grid:
    """The grid with so many voxels more before and after each axis, at the same place in the world."""
    affine = grid.affine.copy()
    affine[:3, 3] = grid.to_world([-before for before, _ in margins])
    return Grid(tuple(n + a + b for n, (a, b) in zip(grid.shape, margins, strict=True)), affine)


def _trimmed(shown: NDArray[np.bool_], margins: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Margins without their empty outer planes; `shown` is True where there is data, on the extended grid."""
    result = []
    for axis, (before, after) in enumerate(margins):
        others = tuple(a for a in range(shown.ndim) if a != axis)
        filled = np.flatnonzero(shown.any(axis=others))
        first, last = (filled[0], filled[-1]) if filled.size else (before, shown.shape[axis] - 1 - after)
        end = shown.shape[axis] - 1
        result.append((max(0, before - int(first)), max(0, after - (end - int(last)))))
    return tuple(result)


def read_start(affine: str | os.PathLike[str] | Affine) -> Affine | None:
    """Turn the `affine` option into an `Affine`; None for "none" and for what has yet to be found."""
    if isinstance(affine, Affine):
        return affine
    if str(affine) in ("none", *FOUND):
        return None
    if not Path(affine).exists():
        raise reject(
            "affine", f"there is no such kind or file, {printable(affine)}", f"none, {', '.join(FOUND)} or a file",
            "Correct it.",
        )  # fmt: skip
    return itk.read_affine(Path(affine))


def _in_plane(affine: Affine | None, grid: Grid) -> Affine | None:
    """For an axial plane, keep what moves within it; a tilt out of the plane is refused."""
    if affine is None or grid.ndim == 3 or not is_axial(grid):
        return affine
    if np.abs([*affine.matrix[2, :2], *affine.matrix[:2, 2]]).max() > 1e-6:
        raise reject("affine", "it tilts the plane", "an affine within the plane", "Give a 2-D affine.")
    matrix = affine.matrix.copy()
    matrix[2] = matrix[:, 2] = [0, 0, 1, 0]
    return Affine(matrix)
