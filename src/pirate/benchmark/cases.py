"""One pair of images with all that belongs to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pirate.data.listing import PairFiles
from pirate.data.reading import landmarks, read_any
from pirate.data.subjects import Subject
from pirate.grid import Array
from pirate.image import Image
from pirate.ops.resample import resize


@dataclass(frozen=True, eq=False)
class Case:
    """A pair to be aligned.

    Args:
        name: unique in its track.
        fixed: the image that stays.
        moving: the image that is warped onto it.
        fixed_labels: anatomy of the fixed image, only measured; None without.
        moving_labels: likewise.
        fixed_points: (n, 3), RAS mm, landmarks of the fixed image; None without.
        moving_points: (n, 3), RAS mm, the same places in the moving image.
    """

    name: str
    fixed: Image
    moving: Image
    fixed_labels: Image | None = None
    moving_labels: Image | None = None
    fixed_points: Array | None = None
    moving_points: Array | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of all voxels, grids and points."""
        found = hashlib.sha256()
        for image in (self.fixed, self.moving, self.fixed_labels, self.moving_labels):
            if image is not None:
                found.update(repr((image.grid.shape, str(image.data.dtype))).encode())
                found.update(image.grid.affine.tobytes())
                found.update(image.data.tobytes())
            found.update(b"|")
        for points in (self.fixed_points, self.moving_points):
            found.update(b"" if points is None else points.tobytes())
            found.update(b"|")
        return found.hexdigest()


def pair_name(fixed: str, moving: str) -> str:
    """What a pair of subjects is called."""
    return f"{fixed} <- {moving}"


def subjects_of(pair: str) -> tuple[str, ...]:
    """Who takes part in a pair of this name: both sides of the arrow; a name without one stands for itself."""
    return tuple(side.strip() for side in pair.split("<-"))


def of_subjects(fixed: Subject, moving: Subject) -> Case:
    """The pair of two subjects, voxel on voxel if their arrays lie alike."""
    return Case(
        pair_name(fixed.name, moving.name), image_of(fixed), image_of(moving), labels_of(fixed), labels_of(moving)
    )  # fmt: skip


def of_files(pair: PairFiles) -> Case:
    """The pair that a table or a data set names by its files."""
    fixed, moving = read_any(pair.fixed), read_any(pair.moving)
    labels = [None if p is None else read_any(p, "labels") for p in (pair.fixed_labels, pair.moving_labels)]
    points = [
        None if path is None else landmarks(path, image)
        for path, image in ((pair.fixed_points, fixed), (pair.moving_points, moving))
    ]
    return Case(pair.name, fixed, moving, labels[0], labels[1], points[0], points[1])


def image_of(subject: Subject) -> Image:
    """A subject's image as registrations take it."""
    return Image(subject.image[0].numpy(), subject.grid, subject.name)


def labels_of(subject: Subject) -> Image | None:
    """A subject's labels likewise."""
    return None if subject.labels is None else Image(subject.labels.numpy(), subject.grid, subject.name)


def resized(case: Case, shape: Sequence[int]) -> Case:
    """The pair without labels and points on grids of `shape` voxels that span the same boxes."""
    return Case(case.name, _resized(case.fixed, shape), _resized(case.moving, shape))


def _resized(image: Image, shape: Sequence[int]) -> Image:
    tensor = torch.from_numpy(np.ascontiguousarray(image.data, dtype=np.float32))[None, None]
    return Image(resize(tensor, shape)[0, 0].numpy(), image.grid.resized(shape), image.name)


def file_name(index: int, pair: str) -> str:
    """A name for files of the pair that is `index`-th in its track."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in pair)
    return f"{index:03d}-{plain[:80]}"
