"""From a data set's files to subjects, as training and measuring take them.

Intensities: background 0, bright tissue about 1, nothing above 3 (`unit_range`), unless the set is scaled to 0 to 1
already. Every method scales what it is given once more in the same way, which leaves these as they are. Array axes run
along those of the set's first image. Sizes that differ are padded with 0 to one box, a multiple of 8 voxels along each
axis. Sets whose small labels are left out lose those that have fewer voxels than the set's limit in the median image.
The box and the small labels are those of the whole set, whichever images are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.data.listing import Entry, Layout, PairFiles
from pirate.data.subjects import SPLITS, Subject
from pirate.data.subjects import pairs as drawn_pairs
from pirate.errors import reject
from pirate.grid import Array, Grid
from pirate.image import Image
from pirate.io import metaimage, nifti, volume
from pirate.io.files import read_limited
from pirate.io.points import read_points
from pirate.registration.inputs import Kind, unit_range

VALIDATION = 0.2
"""Share of the subjects that validate, where the set itself does not say who does."""

MULTIPLE = 8
"""Of the box that images of different sizes are padded to."""

LARGEST_TABLE = 1 << 26  # bytes of a table of landmarks


def read_any(path: Path, kind: Kind = "image") -> Image:
    """Read an image, labels or a mask: NIfTI, MGH or MetaImage."""
    if _is_metaimage(path):
        return metaimage.read_metaimage(path, kind)
    return {"image": nifti.read_image, "labels": nifti.read_labels, "mask": nifti.read_mask}[kind](path)


def grid_of(path: Path) -> Grid:
    """Where the voxels of an image lie, by its header alone."""
    return metaimage.read_grid(path) if _is_metaimage(path) else volume.read_grid(path)


def files_of(path: Path) -> list[Path]:
    """The files that an image is made of: a MetaImage has its voxels in another one."""
    return metaimage.files_of(path) if _is_metaimage(path) else [path]


def landmarks(path: Path, image: Image) -> Array:
    """Landmarks, (N, 3), RAS mm.

    A table whose first line names columns holds RAS mm (`io.points`). One of numbers alone, by commas or blanks, holds
    voxel positions on the grid of `image`, as Learn2Reg's do.
    """
    content = read_limited(path, LARGEST_TABLE, "a table of points", "Split it.").decode("utf-8", "replace")
    lines = [line.replace(",", " ").split() for line in content.splitlines() if line.strip()]
    if not lines or not _numeric(lines[0]):
        return read_points(path).world
    count = image.grid.ndim
    odd = next((i for i, cells in enumerate(lines, 1) if not _numeric(cells) or len(cells) != count), None)
    if odd is not None:
        raise reject(
            path, f"line {odd} does not hold {count} numbers", "voxel positions", "Correct that line."
        )
    voxels = np.array(lines, dtype=np.float64)
    return np.asarray(image.grid.to_world(voxels))


def splits(layout: Layout, seed: int, share: float = VALIDATION) -> dict[str, str]:
    """Who is for training and who for validation, by the entry's name.

    What the set says holds. The other SUBJECTS, not images, are divided by the seed: `share` of them, at least one,
    validate.
    """
    if not 0 < share < 1:
        raise reject("share", str(share), "a number between 0 and 1", "Use for example 0.2.")
    free = sorted({entry.subject for entry in layout.entries if entry.split is None})
    order = np.random.default_rng(seed).permutation(len(free))
    chosen = {free[i] for i in order[: max(1, round(share * len(free)))]} if len(free) > 1 else set()
    return {
        entry.name: entry.split or ("validation" if entry.subject in chosen else "train")
        for entry in layout.entries
    }


@dataclass(frozen=True, eq=False)
class People:
    """The people of a data set, read one at a time: a large volume and its labels take some 50 MB.

    Args:
        layout: as `layouts.read_layout` finds it.
        seed: of the division into training and validation, by subjects.
        share: of the subjects that validate, where the set does not say.
    """

    layout: Layout
    seed: int = 0
    share: float = VALIDATION

    @cached_property
    def splits(self) -> dict[str, str]:
        """The split of every image by its name: "train" or "validation"."""
        return splits(self.layout, self.seed, self.share)

    def entries(self, split: str) -> list[Entry]:
        """The images of a split."""
        return [entry for entry in self.layout.entries if self.splits[entry.name] == split]

    def pairs(self, split: str) -> list[PairFiles]:
        """The pairs that the set itself names, both images of this split."""
        own = {entry.image for entry in self.entries(split)}
        return [pair for pair in self.layout.pairs if {pair.fixed, pair.moving} <= own]

    def drawn(self, split: str, seed: int) -> list[tuple[Entry, Entry]]:
        """Every ordered pair of images of different subjects of a split, in an order by the seed.

        Where any image of the split has labels, those without are not among them.
        """
        known = self.entries(split)
        known = [entry for entry in known if entry.labels is not None] or known
        return [(a, b) for a, b in drawn_pairs(known, None, seed) if a.subject != b.subject]

    def marked(self, drawn: Sequence[tuple[Entry, Entry]]) -> list[PairFiles]:
        """Those of the pairs whose images have landmarks, which say where something lies in the images as they are."""
        return [
            PairFiles.of(f"{fixed.name} <- {moving.name}", fixed, moving, None)
            for fixed, moving in drawn
            if fixed.points is not None and moving.points is not None
        ]

    def __getitem__(self, name: str) -> Subject:
        """Read the image of this name, its labels with it."""
        entry = next((entry for entry in self.layout.entries if entry.name == name), None)
        if entry is None:
            raise reject(self.layout.root, f"there is no {name}", "names that are there", "Correct the name.")
        box = self.box
        person = _subject(entry, self.splits[name], self.layout.scaled, self.first)
        labels = person.labels
        if labels is not None:
            labels = _in_box(_without(labels, self.small)[None], box)[0]
        return replace(person, image=_in_box(person.image, box), labels=labels)

    @cached_property
    def first(self) -> Grid:
        """The grid of the first image."""
        return grid_of(self.layout.entries[0].image)

    @cached_property
    def box(self) -> tuple[int, ...]:
        """The shape of every image: that of all, or a box that holds all."""
        shapes = set()
        for entry in self.layout.entries:
            grid = grid_of(entry.image)
            if grid.ndim != self.first.ndim:
                wanted = f"{self.first.ndim}-D as the set's first image"
                raise reject(entry.image, f"it is {grid.ndim}-D", wanted, "Fetch the set again.")
            shapes.add(tuple(grid.shape[axis] for axis, _ in _turns(grid, self.first)))
        if len(shapes) == 1:
            return shapes.pop()
        return tuple(-MULTIPLE * (-max(sizes) // MULTIPLE) for sizes in zip(*shapes, strict=True))

    @cached_property
    def small(self) -> list[int]:
        """Labels that are left out."""
        return small_labels(self.layout)


def subjects(
    layout: Layout,
    seed: int = 0,
    split: str | None = None,
    names: Sequence[str] | None = None,
    share: float = VALIDATION,
) -> list[Subject]:
    """Read the images of a data set at once; `People` reads one after the other.

    Args:
        layout: as `layouts.read_layout` finds it.
        seed: of the division into training and validation, by subjects.
        split: only "train" or only "validation"; both by default.
        names: only these entries, in the set's order.
        share: of the subjects that validate, where the set does not say.

    Returns:
        Subjects of one shape.
    """
    if split is not None and split not in SPLITS:
        raise reject(layout.root, f"the split {split!r}", f"one of {', '.join(SPLITS)}", "Correct the name.")
    unknown = sorted(set(names or ()) - {entry.name for entry in layout.entries})
    if unknown:
        raise reject(
            layout.root, f"there is no {', '.join(unknown)}", "names that are there", "Correct the name."
        )
    people = People(layout, seed, share)
    return [
        people[entry.name]
        for entry in layout.entries
        if split in (None, people.splits[entry.name]) and (names is None or entry.name in names)
    ]


def _subject(entry: Entry, split: str, scaled: bool, like: Grid) -> Subject:
    """An image and its labels with their array axes along those of `like`."""
    image = read_any(entry.image)
    labels = None
    if entry.labels is not None:
        found = read_any(entry.labels, "labels")
        if found.grid.shape != image.grid.shape:
            raise reject(
                entry.labels, f"its shape is {found.grid.shape}", f"that of its image, {image.grid.shape}",
                "Fetch the set again.",
            )  # fmt: skip
        labels = torch.from_numpy(turned(replace(found, grid=image.grid), like).data.astype(np.int16))
    image = turned(image, like)
    data = np.clip(image.data, 0, 1) if scaled else unit_range(image.data, robust=True)
    tensor = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))[None]
    grid = image.grid
    return Subject(
        entry.name, split, entry.source, tensor, labels, grid.spacing, image.sha256, grid.affine[:3, :3]
    )


def turned(image: Image, like: Grid) -> Image:
    """The image with its array axes along those of `like`, each along the nearest; every voxel stays where it is.

    Axes are exchanged and reversed, nothing is interpolated.
    """
    turns = _turns(image.grid, like)
    order = [axis for axis, _ in turns]
    reversed_ = [place for place, (_, reverse) in enumerate(turns) if reverse]
    if order == sorted(order) and not reversed_:
        return image
    affine = image.grid.affine.copy()
    affine[:, : len(order)] = affine[:, order]
    shape = tuple(image.grid.shape[axis] for axis in order)
    for place in reversed_:
        affine[:, 3] += (shape[place] - 1) * affine[:, place]
        affine[:, place] *= -1
    data = np.ascontiguousarray(np.flip(image.data.transpose(order), reversed_))
    return replace(image, data=data, grid=Grid(shape, affine))


def _turns(grid: Grid, like: Grid) -> list[tuple[int, bool]]:
    """For each array axis of `like`, the axis of `grid` that runs along it, and whether in the opposite direction."""
    cosines = (grid.axes / grid.spacing).T @ (like.axes / like.spacing)
    order = max(
        permutations(range(grid.ndim)), key=lambda p: sum(abs(cosines[axis, k]) for k, axis in enumerate(p))
    )
    return [(axis, bool(cosines[axis, k] < 0)) for k, axis in enumerate(order)]


def small_labels(layout: Layout) -> list[int]:
    """Labels with fewer voxels than the set's limit, in the median image that has them, over the whole set."""
    counts: dict[int, list[int]] = {}
    for entry in layout.entries if layout.least_label else ():
        if entry.labels is not None:
            found = np.bincount(read_any(entry.labels, "labels").data.ravel())
            for label in np.flatnonzero(found):
                counts.setdefault(int(label), []).append(int(found[label]))
    return sorted(n for n, sizes in counts.items() if n != 0 and np.median(sizes) < layout.least_label)


def _without(labels: Tensor, small: Sequence[int]) -> Tensor:
    """Labels (*shape) with the `small` ones as 0."""
    if not small:
        return labels
    left_out: NDArray[np.bool_] = np.isin(labels.numpy(), small)
    return torch.where(torch.from_numpy(left_out), torch.zeros_like(labels), labels)


def _in_box(x: Tensor, box: tuple[int, ...]) -> Tensor:
    """(C, *shape) in the middle of (C, *box), 0 around it."""
    pads: list[int] = []
    for n, b in zip(reversed(x.shape[1:]), reversed(box), strict=True):
        pads += [(b - n) // 2, b - n - (b - n) // 2]
    return torch.nn.functional.pad(x, pads)


def _is_metaimage(path: Path) -> bool:
    return path.suffix.lower() in (".mhd", ".mha")


def _numeric(cells: Sequence[str]) -> bool:
    try:
        return bool(np.isfinite([float(cell) for cell in cells]).all()) and len(cells) > 0
    except ValueError:
        return False
