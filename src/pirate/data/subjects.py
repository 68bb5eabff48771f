"""Subjects to train on and to measure with, read from the project's own data folder.

The folder holds any of: ``oasis2d.npz``, ``hippocampus/{images,labels,subjects.csv}``, ``brain3d/<id>/`` with
``brain3d/subjects.csv``. Who is for training and who for validation is written there and kept.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.errors import reject
from pirate.grid import Array, Grid
from pirate.image import Image
from pirate.io import nifti
from pirate.io.arrays import read_arrays
from pirate.io.atomic import sha256_of
from pirate.registration.inputs import unit_range

SPLITS = ("train", "validation")
IMAGES = (".nii", ".nii.gz", ".mgh", ".mgz")
CHECK = "Check --data."


@dataclass(frozen=True, eq=False)
class Subject:
    """One subject's image, with labels where there are any.

    Args:
        name: unique in its set.
        split: "train" or "validation".
        source: subjects of one source were scanned and labelled alike.
        image: (1, *shape), float32; background 0, bright tissue about 1, nothing above 3.
        labels: (*shape), int16, or None.
        spacing: mm of a voxel along each array axis.
        sha256: of the file that the image came from.
        axes: (3, 3), RAS mm: the step in the world of one voxel along each array axis, of a plane its slice direction
            in the third column; None if nobody knows.
    """

    name: str
    split: str
    source: str
    image: Tensor = field(repr=False)
    labels: Tensor | None = field(repr=False)
    spacing: tuple[float, ...]
    sha256: str = ""
    axes: Array | None = field(default=None, repr=False)

    @property
    def grid(self) -> Grid:
        """Its voxels in the world: turned as the file says, the first at 0, so that those that lie alike start so."""
        affine = np.diag([*self.spacing, *[1.0] * (4 - len(self.spacing))])
        if self.axes is not None:
            affine[:3, :3] = self.axes
        return Grid(tuple(self.image.shape[1:]), affine)


def oasis2d(
    root: Path, labels: Literal["seg24", "seg4"] = "seg24", split: str | None = None
) -> list[Subject]:
    """Coronal slices of neurite-oasis, 160 x 192, 1 mm, intensities 0 to 1.

    Args:
        root: the data folder, or ``oasis2d.npz`` itself.
        labels: which of the two label maps.
        split: only "train" or only "validation"; both by default.
    """
    path = Path(root) if Path(root).suffix == ".npz" else Path(root) / "oasis2d.npz"
    arrays = read_arrays(path, ("ids", "split", "norm", labels))
    ids, splits, norm, maps = (arrays[key] for key in ("ids", "split", "norm", labels))
    if norm.ndim != 3 or maps.shape != norm.shape or not len(ids) == len(splits) == len(norm):
        raise reject(
            path, f"norm {norm.shape}, {labels} {maps.shape}, {len(ids)} ids, {len(splits)} splits",
            "as many slices, label maps, ids and splits", CHECK,
        )  # fmt: skip
    digest = sha256_of(path)
    return [
        Subject(str(name), _split(path, str(part)), "oasis", _scaled(image), _labels(map_), (1.0, 1.0), digest)
        for name, part, image, map_ in zip(ids, splits, norm, maps, strict=True)
        if split in (None, str(part))
    ]  # fmt: skip


def hippocampus(root: Path, split: str | None = None) -> list[Subject]:
    """Hippocampus MR of the Medical Segmentation Decathlon, 3-D, 1 mm, labels 1 and 2.

    Intensities have an arbitrary scale: the 90 % quantile becomes 1 (`unit_range`). Sizes differ: every image is
    centred in one box, the smallest of multiples of 8 voxels that holds all, and padded with 0.

    Args:
        root: the data folder, or its part ``hippocampus``.
        split: only "train" or only "validation"; both by default. The box is the same.
    """
    folder = _folder(root, "hippocampus")
    rows = _rows(folder / "subjects.csv", ("id", "split"))
    read = [
        (row, nifti.read_image(_file(folder / "images", row["id"])), _file(folder / "labels", row["id"]))
        for row in rows
    ]
    box = tuple(-8 * (-max(sizes) // 8) for sizes in zip(*(i.grid.shape for _, i, _ in read), strict=True))
    return [
        Subject(
            row["id"], row["split"], "hippocampus",
            torch.from_numpy(_padded(unit_range(image.data, robust=True), box))[None],
            _labels(_padded(_of(nifti.read_labels(labels), image), box)), image.grid.spacing, image.sha256,
        )
        for row, image, labels in read
        if split in (None, row["split"])
    ]  # fmt: skip


def brain3d(root: Path, split: str | None = None, names: Sequence[str] | None = None) -> list[Subject]:
    """T1 brains, 160 x 192 x 224, 1 mm, intensities 0 to 1, the 35 labels where a subject has them.

    A volume and its labels take 41 MB, so ask only for those that are needed.

    Args:
        root: the data folder, or its part ``brain3d``.
        split: only "train" or only "validation"; both by default.
        names: only these, in the order of ``subjects.csv``.
    """
    folder = _folder(root, "brain3d")
    table = folder / "subjects.csv"
    rows = _rows(table, ("id", "split", "labels"))
    unknown = sorted(set(names or ()) - {row["id"] for row in rows})
    if unknown:
        raise reject(table, f"lists no {', '.join(unknown)}", "names that it lists", "Correct the name.")
    return [
        _brain(folder / row["id"], row)
        for row in rows
        if split in (None, row["split"]) and (names is None or row["id"] in names)
    ]


def listed_files(root: Path, part: str, split: str) -> list[Path]:
    """The table of the part hippocampus or brain3d and the images of a split, each of which must be there."""
    folder = _folder(root, part)
    table = folder / "subjects.csv"
    names = [row["id"] for row in _rows(table, ("id", "split")) if row["split"] == split]
    places = [(folder / "images", n) if part == "hippocampus" else (folder / n, "norm") for n in names]
    return [table, *(_file(place, name) for place, name in places)]


def from_files(source: Path) -> list[Subject]:
    """Images of one's own, all of one size: the bright tissue becomes 1, every one is for training, without labels.

    Args:
        source: a folder of .nii, .nii.gz, .mgh or .mgz files, or a text file with a path on each line (relative
            ones count from its folder).
    """
    source = Path(source)
    if source.is_dir():
        found = sorted(p for p in source.iterdir() if p.name.lower().endswith(IMAGES))
    else:
        found = [source.parent / line for line in _lines(source)]
    if len(found) < 2:
        raise reject(source, f"holds {len(found)} images", "two or more", f"Give {', '.join(IMAGES)} files.")
    images = [nifti.read_image(path) for path in found]
    odd = next((i for i in images if i.grid.shape != images[0].grid.shape), None)
    if odd is not None:
        raise reject(
            odd.name, f"its shape is {odd.grid.shape}", f"that of the others, {images[0].grid.shape}",
            "Resample the images to one grid.",
        )  # fmt: skip
    return [
        Subject(
            path.name.removesuffix(".gz").rpartition(".")[0], "train", str(source.name),
            torch.from_numpy(unit_range(image.data, robust=True))[None], None, image.grid.spacing, image.sha256,
        )
        for path, image in zip(found, images, strict=True)
    ]  # fmt: skip


class Sourced(Protocol):
    """What pairs are drawn of: subjects, or what stands for them until they are read."""

    @property
    def source(self) -> str:
        """Those of one source were scanned and labelled alike."""


One = TypeVar("One", bound=Sourced)


def pairs(
    subjects: Sequence[One], count: int | None, seed: int, within_source: bool = True
) -> list[tuple[One, One]]:
    """Draw `count` different ordered pairs (fixed, moving) of different subjects; None draws all there are.

    Args:
        subjects: of whom to draw.
        count: how many; more than there are is refused.
        seed: the same seed gives the same pairs; a larger count begins with those of a smaller one.
        within_source: only pairs of one source, so that scanner and labelling agree.
    """
    possible = [
        (a, b)
        for a in range(len(subjects))
        for b in range(len(subjects))
        if a != b and (not within_source or subjects[a].source == subjects[b].source)
    ]
    if count is not None and not 0 <= count <= len(possible):
        raise reject(
            "pairs", f"{count} asked for", f"0 to {len(possible)}, what {len(subjects)} subjects give",
            "Ask for fewer, or give more subjects.",
        )  # fmt: skip
    order = np.random.default_rng(seed).permutation(len(possible))[:count]
    return [(subjects[possible[i][0]], subjects[possible[i][1]]) for i in order]


def _brain(folder: Path, row: dict[str, str]) -> Subject:
    image = nifti.read_image(_file(folder, "norm"))
    labels = None
    if row["labels"] == "seg35":
        labels = _labels(_of(nifti.read_labels(_file(folder, "seg35")), image))
    source = row["id"].rpartition("_")[0]
    return Subject(
        row["id"], row["split"], source, _scaled(image.data), labels, image.grid.spacing, image.sha256,
        image.grid.axes,
    )  # fmt: skip


def _scaled(image: NDArray[Any]) -> Tensor:
    """(1, *shape), float32, 0 to 1, of values 0 to 255."""
    return torch.from_numpy(image.astype(np.float32) / np.float32(255))[None]


def _labels(labels: NDArray[Any]) -> Tensor:
    """(*shape), int16, no unit."""
    return torch.from_numpy(labels.astype(np.int16))


def _of(labels: Image, image: Image) -> NDArray[Any]:
    """The labels' voxels, if they lie on the grid of their image."""
    if labels.grid.shape != image.grid.shape:
        raise reject(
            labels.name, f"its shape is {labels.grid.shape}", f"that of its image, {image.grid.shape}", CHECK
        )
    return labels.data


def _padded(data: NDArray[Any], box: tuple[int, ...]) -> NDArray[Any]:
    """The array in the middle of `box` voxels, 0 around it."""
    extra = [b - n for b, n in zip(box, data.shape, strict=True)]
    return np.pad(data, [(e // 2, e - e // 2) for e in extra])


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise reject(path, f"cannot be read ({error})", "a folder or a list of images", CHECK) from None


def _folder(root: Path, name: str) -> Path:
    """`root`, if it is the set's own folder, else the set's folder in it."""
    return Path(root) if (Path(root) / "subjects.csv").is_file() else Path(root) / name


def _file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.nii.gz"
    if not path.is_file():
        raise reject(path, "there is no such file", "an image for every line of subjects.csv", CHECK)
    return path


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The lines of a table, each with `columns`; the column split is checked."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise reject(path, f"cannot be read ({error})", "the table of subjects", CHECK) from None
    missing = [c for c in columns if not rows or rows[0].get(c) is None]
    if missing:
        raise reject(
            path, f"has no rows or no column {', '.join(missing)}", f"columns {', '.join(columns)}", CHECK
        )
    for row in rows:
        _split(path, str(row["split"]))
        if not row["id"] or any(part in row["id"] for part in ("/", "\\", "..")):
            raise reject(path, f"the id {row['id']!r}", "the name of a subject", "Correct the table.")
    return rows


def _split(path: Path, split: str) -> str:
    if split not in SPLITS:
        raise reject(
            path, f"the split {split!r}", f"one of {', '.join(SPLITS)}", "Test subjects stay unread."
        )
    return split
