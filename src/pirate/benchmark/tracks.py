"""The pairs of a benchmark: validation subjects of the data folder or of a public data set, or a user's own table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import overload

from pirate.benchmark import cases
from pirate.benchmark.cases import Case
from pirate.benchmark.entries import Entry, entries
from pirate.data import subjects
from pirate.data.layouts import READERS
from pirate.data.listing import PairFiles
from pirate.data.pair_table import read_pairs
from pirate.data.reading import People
from pirate.data.subjects import Subject
from pirate.data.training_sets import USUAL, public
from pirate.errors import UsageError, printable, reject

NAMES = ("oasis2d", "hippocampus", "brain3d", "lung")
KINDS = tuple(READERS)
"""Public data sets."""

BRAINS = (("oasis_0001", "oasis_0002", "oasis_0455"), ("fstrain_05", "fstrain_06"))
"""Groups of validation subjects; all ordered pairs within each are evaluated."""

PUBLIC = 100
"""Pairs of a public data set, unless it has fewer or others are asked for."""

LARGE = 1_000_000
"""Voxels of a volume above which one registration at a time has all cores."""

CALIBRATION = 4
"""Training pairs whose fields tell how strong a prior is."""

AFFINE_START = (
    "Affine start: found by pirate once for each pair, the same for every method; the row start has it."
)
"""Of tracks whose images are not aligned yet."""

_LUNG = {
    "fixed": "fixed.nii.gz", "moving": "moving.nii.gz", "fixed_labels": "fixed_mask.nii.gz",
    "moving_labels": "moving_mask.nii.gz", "fixed_points": "fixed_landmarks_vox.txt",
    "moving_points": "moving_landmarks_vox.txt",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where a track comes from; enough to read it again in another process.

    Args:
        name: one of `NAMES` or `KINDS`, or the path of a table of pairs.
        data: the folder of the data; without meaning for a table.
        pairs: at most so many; None for all that the track has.
    """

    name: str
    data: Path
    pairs: int | None = None


class Cases(Sequence[Case]):
    """Pairs that are read when they are asked for."""

    def __init__(self, names: Sequence[str], read: Callable[[int], Case]) -> None:
        self.names, self._read = tuple(names), read

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | Sequence[Case]:
        if isinstance(index, slice):
            return [self._read(i) for i in range(*index.indices(len(self)))]
        return self._read(range(len(self))[index])

    def __iter__(self) -> Iterator[Case]:
        return (self._read(i) for i in range(len(self)))


@dataclass(frozen=True, eq=False)
class Track:
    """What is evaluated, and how.

    Args:
        name: one of `NAMES` or `KINDS`, or of a table of pairs.
        title: for headings.
        ndim: 2 or 3.
        cases: the pairs.
        affine: the start of every method: "none" as the files place them, or "affine", found once for each pair.
        training: what networks are trained on: a part of the data folder or a public data set, by its name; empty if
            nothing is there.
        source: where it comes from.
        suffix: what the names of its own priors end with.
        few: entries that would take hours on two cores, to the number of first pairs that they get.
        ablation_pairs: how many pairs the ablation takes unless told otherwise.
        calibration: reads pairs of training subjects, on which strengths of priors are compared.
        all_cores: one registration at a time on all cores, instead of as many as there are cores.
        sizes: shapes for the scalability.
        note: what is particular, for the page.
    """

    name: str
    title: str
    ndim: int
    cases: Cases
    affine: str
    training: str
    source: Source
    suffix: str = ""
    few: Mapping[str, int] = field(default_factory=dict)
    ablation_pairs: int = 20
    calibration: Callable[[], list[Case]] = list
    all_cores: bool = False
    sizes: tuple[tuple[int, ...], ...] = ()
    note: str = ""

    @property
    def pairs(self) -> tuple[str, ...]:
        """The names of the pairs."""
        return self.cases.names

    def entries(self) -> tuple[Entry, ...]:
        """Everything that is compared on it."""
        known = entries(self.suffix, self.all_cores)
        return known if self.training else tuple(e for e in known if e.key != "gaussian")


def of(source: Source) -> Track:
    """Read a track."""
    if source.name in NAMES:
        return _READERS[source.name](source)
    if source.name in KINDS:
        return of_public(source)
    if source.name.lower().endswith(".csv"):
        return of_table(source)
    known = ", ".join((*NAMES, *KINDS))
    raise UsageError(
        f"there is no track {printable(source.name)}; expected one of {known}, or a CSV of pairs."
    )


def of_table(source: Source) -> Track:
    """A user's own pairs; nothing is trained for them."""
    path = Path(source.name)
    files = read_pairs(path)[: source.pairs]

    @lru_cache(maxsize=2)
    def read(index: int) -> Case:
        return cases.of_files(files[index])

    found = Cases([f.name for f in files], read)
    ndim = found[0].fixed.grid.ndim
    odd = next((c.name for c in found if {c.fixed.grid.ndim, c.moving.grid.ndim} != {ndim}), None)
    if odd is not None:
        raise reject(path, f"{odd} has another number of axes", f"{ndim}-D images only", "Split the table.")
    large = found[0].fixed.grid.voxels > LARGE
    return Track(
        path.stem, printable(path.name), ndim, found, "affine", "", source, ablation_pairs=0,
        all_cores=large, note=AFFINE_START,
    )  # fmt: skip


def of_public(source: Source) -> Track:
    """A public data set as it is downloaded: the validation pairs that it names, or pairs of validation subjects."""
    people = public(source.name, source.data)
    usual, large = USUAL[source.name], people.first.voxels > LARGE
    person = lru_cache(maxsize=5 if large else None)(people.__getitem__)

    def chosen(split: str, count: int, seed: int) -> Cases:
        """Pairs of a set that names them or has landmarks as the files are; others of one box, without small labels."""
        others = people.drawn(split, seed)[:count]
        files = people.pairs(split)[:count] or people.marked(others)
        if files:
            return Cases([pair.name for pair in files], lambda i: cases.of_files(files[i]))
        drawn = [(a.name, b.name) for a, b in others]
        names = [cases.pair_name(*pair) for pair in drawn]
        return Cases(names, lambda i: cases.of_subjects(*map(person, drawn[i])))

    found = chosen("validation", PUBLIC if source.pairs is None else source.pairs, 0)
    if not len(found):
        raise reject(
            source.data, "no pair is for validation", "two validation subjects, or a pair", "Add them."
        )
    return Track(
        source.name, people.layout.title, usual.ndim, found, usual.affine,
        source.name if people.entries("train") else "", source, few={"syn-cc": 1} if large else {},
        ablation_pairs=2 if large else 20, calibration=lambda: list(chosen("train", 1 if large else CALIBRATION, 1)),
        all_cores=large, sizes=_fractions(people.first.shape, (0.25, 0.5, 0.75) if large else (0.5, 1, 2)),
        note=_told(people, usual.affine),
    )  # fmt: skip


def _fractions(shape: Sequence[int], factors: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """A shape times each factor, at least 16 voxels along each axis."""
    return tuple(tuple(max(16, round(factor * n)) for n in shape) for factor in factors)


def _told(people: People, affine: str) -> str:
    """What is particular to a public data set."""
    layout = people.layout
    told = "Training and validation are as the set says."
    if any(entry.split is None for entry in layout.entries):
        told = f"Subjects were divided by seed {people.seed}: {100 * people.share:.0f} % are for validation."
    named = people.pairs("validation")
    told += " The pairs are those that the set names." if named else " The pairs were drawn by seed 0."
    if layout.least_label:
        told += f" Labels of fewer than {layout.least_label} voxels in the median image are left out."
    if "oasis" in layout.title.lower():
        told += " The priors that ship have learned from slices of OASIS, perhaps of some of these subjects."
    return f"{told} {AFFINE_START if affine != 'none' else 'Affinely aligned as the files come.'}"


def _oasis2d(source: Source) -> Track:
    people = subjects.oasis2d(source.data, split="validation")
    pairs = subjects.pairs(people, _count(source, people, 100), seed=0)
    return Track(
        "oasis2d", "OASIS, coronal slices", 2, _of_subjects(pairs), "none", "oasis2d", source,
        calibration=lambda: _calibration(subjects.oasis2d(source.data, split="train")),
        sizes=((80, 96), (160, 192), (320, 384), (640, 768)),
        note="160 x 192 slices, affinely aligned as they come; 24 labels.",
    )  # fmt: skip


def _hippocampus(source: Source) -> Track:
    people = subjects.hippocampus(source.data, split="validation")
    pairs = subjects.pairs(people, _count(source, people, 100), seed=0)
    return Track(
        "hippocampus", "hippocampus MR", 3, _of_subjects(pairs), "affine", "hippocampus", source, "-hippocampus",
        calibration=lambda: _calibration(subjects.hippocampus(source.data, split="train")),
        sizes=((24, 32, 24), (32, 48, 32), (48, 64, 48), (64, 96, 64)),
        note=f"Two labels. {AFFINE_START}",
    )  # fmt: skip


def _brain3d(source: Source) -> Track:
    @lru_cache(maxsize=5)
    def person(name: str) -> Subject:
        return subjects.brain3d(source.data, names=[name])[0]

    def training() -> list[Case]:
        return [cases.of_subjects(person("oasis_0133"), person("oasis_0140"))]

    pairs = [(a, b) for group in BRAINS for a in group for b in group if a != b][: source.pairs]
    read = Cases(
        [cases.pair_name(a, b) for a, b in pairs],
        lambda i: cases.of_subjects(person(pairs[i][0]), person(pairs[i][1])),
    )
    return Track(
        "brain3d", "T1 brains", 3, read, "none", "brain3d", source, few={"syn-cc": 1},
        ablation_pairs=2, calibration=training, all_cores=True,
        sizes=((40, 48, 56), (64, 76, 90), (80, 96, 112), (120, 144, 168)),
        note="160 x 192 x 224 at 1 mm, affinely aligned as they come; 35 labels. SyN (CC), half an hour for a pair, is "
        "run on the first pair at most.",
    )  # fmt: skip


def _lung(source: Source) -> Track:
    folder = source.data / "lung" if (source.data / "lung").is_dir() else source.data
    paths = {role: folder / name for role, name in _LUNG.items()}
    absent = next((p for p in paths.values() if not p.is_file()), None)
    if absent is not None:
        raise reject(
            absent, "there is no such file", "the chest CT pair with its masks and landmarks", "Check --data."
        )
    files = PairFiles("fixed <- moving", split=None, **paths)

    @lru_cache(maxsize=1)
    def read(index: int) -> Case:
        return cases.of_files(files)

    return Track(
        "lung", "chest CT", 3, Cases([files.name], read), "none", "", source, ablation_pairs=0, all_cores=True,
        sizes=((29, 40, 33), (58, 79, 65), (86, 118, 97)),
        note="One pair, one lung, 51 landmarks. DSC is of the lung's mask, which no method sees. Every method starts "
        "as the files place the images: an affine fitted to the whole chest moves the landmarks further apart (6.4 mm "
        "instead of 4.6).",
    )  # fmt: skip


def _count(source: Source, people: Sequence[Subject], usual: int) -> int:
    possible = len(people) * (len(people) - 1)
    return min(usual if source.pairs is None else source.pairs, possible)


def _of_subjects(pairs: Sequence[tuple[Subject, Subject]]) -> Cases:
    return Cases([cases.pair_name(a.name, b.name) for a, b in pairs], lambda i: cases.of_subjects(*pairs[i]))


def _calibration(people: Sequence[Subject]) -> list[Case]:
    count = min(CALIBRATION, len(people) * (len(people) - 1))
    return [cases.of_subjects(a, b) for a, b in subjects.pairs(people, count, seed=1)]


_READERS: dict[str, Callable[[Source], Track]] = {
    "oasis2d": _oasis2d, "hippocampus": _hippocampus, "brain3d": _brain3d, "lung": _lung,
}  # fmt: skip
