"""What a data set holds, by file names: images, pairs, and the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENDINGS = (".nii.gz", ".nii", ".mgz", ".mgh", ".mhd", ".mha")
"""Of image files."""


@dataclass(frozen=True)
class Entry:
    """One image of a data set and what belongs to it.

    Args:
        name: unique in its set.
        subject: whose it is; images of one subject are never divided between training and validation.
        source: images of one source were scanned and labelled alike.
        image: file.
        labels: file, or None.
        points: landmarks, a file, or None.
        split: "train" or "validation" if the set itself says so; None leaves it to a seed.
    """

    name: str
    subject: str
    source: str
    image: Path
    labels: Path | None = None
    points: Path | None = None
    split: str | None = None


@dataclass(frozen=True)
class PairFiles:
    """Two images to be aligned and what belongs to them; `split` as in `Entry`."""

    name: str
    fixed: Path
    moving: Path
    fixed_labels: Path | None = None
    moving_labels: Path | None = None
    fixed_points: Path | None = None
    moving_points: Path | None = None
    split: str | None = None

    @staticmethod
    def of(name: str, fixed: Entry, moving: Entry, split: str | None) -> PairFiles:
        """The pair of two images of a data set."""
        return PairFiles(
            name, fixed.image, moving.image, fixed.labels, moving.labels, fixed.points, moving.points, split
        )

    @property
    def files(self) -> dict[str, Path]:
        """Every file that is named, by its role."""
        roles = ("fixed", "moving", "fixed_labels", "moving_labels", "fixed_points", "moving_points")
        return {role: getattr(self, role) for role in roles if getattr(self, role) is not None}


@dataclass(frozen=True)
class Layout:
    """A data set as it lies there.

    Args:
        kind: "neurite-oasis", "neurite-oasis-2d", "candi", "empire10" or "learn2reg".
        title: its name in a sentence.
        root: its folder.
        entries: its images, by name.
        pairs: those that the set itself names; empty if any two images are a pair.
        missing: sentences about what should be there and is not.
        least_label: labels of fewer voxels are left out, 0 for none.
        scaled: whether intensities are 0 to 1 already.
    """

    kind: str
    title: str
    root: Path
    entries: tuple[Entry, ...]
    pairs: tuple[PairFiles, ...] = ()
    missing: tuple[str, ...] = ()
    least_label: int = 0
    scaled: bool = False


def images_in(folder: Path) -> Iterator[Path]:
    """The images in a folder, by name."""
    return (p for p in sorted(folder.glob("*")) if p.is_file() and p.name.lower().endswith(ENDINGS))


def deep(root: Path, ending: str) -> list[Path]:
    """Images whose name ends so, up to three folders down."""
    found: dict[str, Path] = {}
    for depth in ("", "*/", "*/*/", "*/*/*/"):
        for path in sorted(root.glob(f"{depth}*{ending}.nii*")):
            if stem(path).endswith(ending) and path.name.lower().endswith(ENDINGS):
                found.setdefault(stem(path), path)
    return [found[name] for name in sorted(found)]


def first(folder: Path, name: str) -> Path | None:
    """The image `name` in a folder, whatever its ending."""
    return next((p for e in ENDINGS if (p := folder / f"{name}{e}").is_file()), None)


def stem(path: Path) -> str:
    """The name of an image without its ending."""
    lower = path.name.lower()
    return next((path.name[: -len(e)] for e in ENDINGS if lower.endswith(e)), path.stem)
