"""What is in a folder of data, in plain words: for ``pirate data check``."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pirate.data import layouts
from pirate.data.listing import Layout
from pirate.data.pair_table import absent_files
from pirate.data.reading import read_any
from pirate.errors import InputError, reject
from pirate.io.arrays import read_arrays

SHOWN = 8
"""So many of the things that are missing are told one by one."""

KNOWN = (
    "neurite-oasis (OASIS_OAS1_*_MR1/aligned_norm.nii.gz, or slice_norm.nii.gz in 2-D), CANDI (*/*_procimg.nii.gz), "
    "EMPIRE10 (scans/01_Fixed.mhd), Learn2Reg (<Task>_dataset.json), the tracks oasis2d.npz, hippocampus/, brain3d/ "
    "and lung/, or a CSV of pairs"
)


@dataclass(frozen=True)
class Report:
    """What was found.

    Args:
        sentences: what is there, and how it can be used.
        missing: what is not, one sentence each.
    """

    sentences: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Everything, the missing things after the rest and cut short."""
        shown = [f"missing: {sentence}" for sentence in self.missing[:SHOWN]]
        rest = len(self.missing) - len(shown)
        return [*self.sentences, *shown, *([f"missing: and {rest} more."] if rest > 0 else [])]


def check(source: Path) -> Report:
    """Say what lies in a folder, or in a CSV of pairs.

    Only names are looked at, tables, and the first image of each set.
    """
    source = Path(source)
    if source.is_file():
        count, absent = absent_files(source)
        told = "" if absent else "; every file is there"
        return Report((f"A table of {_many(count, 'pair')}{told}.",), tuple(absent))
    if not source.is_dir():
        raise reject(source, "there is no such file or folder", "a folder of data", "Check the path.")
    reports = [_of_layout(layout) for layout in layouts.recognise(source)]
    reports += [found for track in TRACKS.values() if (found := track(source)) is not None]
    if not reports:
        raise reject(source, "no known data set lies here", KNOWN, "Give the folder that holds one of these.")
    return Report(
        tuple(s for report in reports for s in report.sentences),
        tuple(s for report in reports for s in report.missing),
    )


def _of_layout(layout: Layout) -> Report:
    people = len({entry.subject for entry in layout.entries})
    labelled = sum(entry.labels is not None for entry in layout.entries)
    marked = sum(entry.points is not None for entry in layout.entries)
    what = [
        _many(len(layout.entries), "image") + f" of {_many(people, 'subject')}",
        f"{labelled} with labels",
    ]
    what += [f"{marked} with landmarks"] if marked else []
    sentences = [f"{layout.title}: {', '.join(what)}."]
    if layout.pairs:
        by = Counter(pair.split for pair in layout.pairs)
        told = ", ".join(f"{n} for {split}" for split, n in sorted(by.items(), key=str) if split is not None)
        sentences.append(f"It names {_many(len(layout.pairs), 'pair')}{': ' + told if told else ''}.")
    if layout.least_label:
        sentences.append(f"Labels of fewer than {layout.least_label} voxels are left out.")
    if all(entry.split is None for entry in layout.entries):
        sentences.append("Who is for training and who for validation is drawn by subject, from a seed.")
    missing = list(layout.missing)
    try:
        grid = read_any(layout.entries[0].image).grid
        size = " x ".join(map(str, grid.shape))
        spacing = " x ".join(f"{s:.3g}" for s in grid.spacing)
        sentences.append(f"The first image, {layout.entries[0].name}, has {size} voxels of {spacing} mm.")
    except InputError as error:
        missing.append(f"the first image cannot be read: {error}")
    return Report(tuple(sentences), tuple(missing))


def _oasis2d(root: Path) -> Report | None:
    path = root / "oasis2d.npz"
    if not path.is_file():
        return None
    try:
        split = Counter(str(s) for s in read_arrays(path, ("ids", "split"))["split"])
    except InputError as error:
        return Report(("oasis2d.npz is there.",), (str(error),))
    return Report((f"Track oasis2d: {_counts(split)}.",), ())


def _hippocampus(root: Path) -> Report | None:
    return _track(root / "hippocampus", "hippocampus", ("images/{id}.nii.gz", "labels/{id}.nii.gz"))


def _brain3d(root: Path) -> Report | None:
    return _track(root / "brain3d", "brain3d", ("{id}/norm.nii.gz",), "{id}/{labels}.nii.gz")


def _lung(root: Path) -> Report | None:
    folder = root / "lung"
    if not folder.is_dir():
        return None
    sides = ("fixed", "moving")
    names = [f"{side}{end}" for side in sides for end in (".nii.gz", "_mask.nii.gz", "_landmarks_vox.txt")]
    absent = tuple(f"lung/{name} is not there." for name in names if not (folder / name).is_file())
    return Report(("Track lung: one pair of chest CT.",), absent)


def _track(folder: Path, name: str, files: Sequence[str], map_: str = "") -> Report | None:
    """A track of the project's own data folder: every line of its table must have its files.

    Args:
        folder: of the track.
        name: of the track.
        files: of every line, named by its id.
        map_: of every line that names labels, by its id and labels.
    """
    if not folder.is_dir():
        return None
    table = folder / "subjects.csv"
    try:
        with table.open(newline="", encoding="utf-8") as stream:
            rows = [(str(row["id"]), str(row["split"]), row.get("labels")) for row in csv.DictReader(stream)]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        return Report((f"A folder {name} is there.",), (f"{name}/subjects.csv cannot be read ({error}).",))
    wanted = [file.format(id=subject) for subject, _, _ in rows for file in files]
    wanted += [map_.format(id=subject, labels=labels) for subject, _, labels in rows if map_ and labels]
    absent = [f"{name}/{file} is not there." for file in wanted if not (folder / file).is_file()]
    told = _counts(Counter(split for _, split, _ in rows))
    return Report((f"Track {name}: {told}.",), tuple(absent))


TRACKS: dict[str, Callable[[Path], Report | None]] = {
    "oasis2d": _oasis2d, "hippocampus": _hippocampus, "brain3d": _brain3d, "lung": _lung,
}  # fmt: skip


def _counts(split: Counter[str]) -> str:
    return ", ".join(f"{_many(n, 'subject')} for {name}" for name, n in sorted(split.items()))


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
