"""From a data set's files to subjects, as training and measuring take them.

Intensities: background 0, bright tissue about 1 (`unit_range`), unless the set is scaled to 0 to 1 already. Sizes that
differ are padded with 0 to one box, a multiple of 8 voxels along each axis. Sets whose small labels are left out lose
those that have fewer voxels than the set's limit in the median image, whichever images are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.data.listing import Entry, Layout
from pirate.data.subjects import SPLITS, Subject
from pirate.errors import reject
from pirate.grid import Array
from pirate.image import Image
from pirate.io import nifti
from pirate.io.files import read_limited
from pirate.io.metaimage import read_metaimage
from pirate.io.points import read_points
from pirate.registration.inputs import Kind, unit_range

VALIDATION = 0.2
"""Share of the subjects that validate, where the set itself does not say who does."""

MULTIPLE = 8
"""Of the box that images of different sizes are padded to."""

LARGEST_TABLE = 1 << 26  # bytes of a table of landmarks


def read_any(path: Path, kind: Kind = "image") -> Image:
    """Read an image, labels or a mask: NIfTI, MGH or MetaImage."""
    if path.suffix.lower() in (".mhd", ".mha"):
        return read_metaimage(path, kind)
    return {"image": nifti.read_image, "labels": nifti.read_labels, "mask": nifti.read_mask}[kind](path)


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


def subjects(
    layout: Layout,
    seed: int = 0,
    split: str | None = None,
    names: Sequence[str] | None = None,
    share: float = VALIDATION,
) -> list[Subject]:
    """Read the images of a data set.

    A large volume and its labels take some 50 MB: ask only for those that are needed.

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
    divided = splits(layout, seed, share)
    chosen = [
        entry
        for entry in layout.entries
        if split in (None, divided[entry.name]) and (names is None or entry.name in names)
    ]
    read = [_subject(entry, divided[entry.name], layout.scaled) for entry in chosen]
    small = small_labels(layout)
    return [
        person
        if person.labels is None or not small
        else replace(person, labels=_without(person.labels, small))
        for person in padded(read)
    ]


def _subject(entry: Entry, split: str, scaled: bool) -> Subject:
    image = read_any(entry.image)
    data = np.clip(image.data, 0, 1) if scaled else unit_range(image.data, robust=True)
    labels = None
    if entry.labels is not None:
        found = read_any(entry.labels, "labels")
        if found.grid.shape != image.grid.shape:
            raise reject(
                entry.labels, f"its shape is {found.grid.shape}", f"that of its image, {image.grid.shape}",
                "Fetch the set again.",
            )  # fmt: skip
        labels = torch.from_numpy(found.data.astype(np.int16))
    tensor = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))[None]
    return Subject(entry.name, split, entry.source, tensor, labels, image.grid.spacing, image.sha256)


def padded(people: Sequence[Subject]) -> list[Subject]:
    """The subjects in one box, each in its middle, 0 around; unchanged where all have one shape."""
    shapes = {tuple(person.image.shape[1:]) for person in people}
    if len(shapes) < 2:
        return list(people)
    box = tuple(-MULTIPLE * (-max(sizes) // MULTIPLE) for sizes in zip(*shapes, strict=True))
    return [
        replace(
            person,
            image=_in_box(person.image, box),
            labels=None if person.labels is None else _in_box(person.labels[None], box)[0],
        )
        for person in people
    ]


def small_labels(layout: Layout) -> list[int]:
    """Labels with fewer voxels than the set's limit, in the median image that has them, over the whole set."""
    counts: dict[int, list[int]] = {}
    for entry in layout.entries if layout.least_label else ():
        if entry.labels is not None:
            for label, count in zip(
                *np.unique(read_any(entry.labels, "labels").data, return_counts=True), strict=True
            ):
                counts.setdefault(int(label), []).append(int(count))
    return sorted(n for n, found in counts.items() if n != 0 and np.median(found) < layout.least_label)


def _without(labels: Tensor, small: Sequence[int]) -> Tensor:
    """Labels (*shape) with the `small` ones as 0."""
    left_out: NDArray[np.bool_] = np.isin(labels.numpy(), small)
    return torch.where(torch.from_numpy(left_out), torch.zeros_like(labels), labels)


def _in_box(x: Tensor, box: tuple[int, ...]) -> Tensor:
    """(C, *shape) in the middle of (C, *box), 0 around it."""
    pads: list[int] = []
    for n, b in zip(reversed(x.shape[1:]), reversed(box), strict=True):
        pads += [(b - n) // 2, b - n - (b - n) // 2]
    return torch.nn.functional.pad(x, pads)


def _numeric(cells: Sequence[str]) -> bool:
    try:
        return bool(np.isfinite([float(cell) for cell in cells]).all()) and len(cells) > 0
    except ValueError:
        return False
