"""Which images of a public data set lie where, in the folders as they are downloaded.

Nothing is read here but names, and Learn2Reg's table. A `Layout` says who is there, what belongs together, and what is
missing, in sentences; `pirate.data.reading` turns it into subjects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pirate.data.listing import Entry, Layout, PairFiles, deep, first, images_in, stem
from pirate.errors import reject
from pirate.io.files import read_limited

LARGEST_TABLE = 1 << 24  # bytes of a dataset.json
CHECK = "Check the folder with `pirate data check`."


def neurite_oasis(root: Path) -> Layout | None:
    """neurite-oasis 3-D: ``OASIS_OAS1_0001_MR1/aligned_norm.nii.gz`` and ``aligned_seg35.nii.gz``, ``subjects.txt``."""
    return _neurite(
        root, "neurite-oasis", "neurite-oasis, 3-D", "aligned_norm", ("aligned_seg35", "aligned_seg4")
    )


def neurite_oasis_2d(root: Path) -> Layout | None:
    """neurite-oasis 2-D: ``OASIS_OAS1_0001_MR1/slice_norm.nii.gz`` and ``slice_seg24.nii.gz``, ``subjects.txt``."""
    return _neurite(
        root, "neurite-oasis-2d", "neurite-oasis, 2-D", "slice_norm", ("slice_seg24", "slice_seg4")
    )


def _neurite(root: Path, kind: str, title: str, image: str, maps: tuple[str, ...]) -> Layout | None:
    """Of the label `maps` the first that any subject has is that of the whole set, so that labels mean the same."""
    folders = sorted(p.name for p in root.glob("OASIS_OAS1_*_MR*") if p.is_dir())
    listed = _names(root / "subjects.txt")
    names = sorted({*folders, *listed})
    used = next((m for m in maps if any(first(root / name, m) for name in names)), maps[0])
    entries, missing = [], []
    for name in names:
        found, labels = first(root / name, image), first(root / name, used)
        if found is not None:
            subject = re.sub(r"_MR\d+$", "", name)
            entries.append(Entry(name, subject, "oasis", found, labels))
            if labels is None:
                other = next((m for m in maps if first(root / name, m)), None)
                told = f"; {other}.nii.gz, other labels than the set's, are not taken" if other else ""
                missing.append(f"{name}: there are no labels, {used}.nii.gz{told}.")
        elif name in listed:
            missing.append(f"{name}: subjects.txt lists it, but {image}.nii.gz is not there.")
        else:
            missing.append(f"{name}: {image}.nii.gz is not there.")
    return Layout(kind, title, root, tuple(entries), (), tuple(missing), scaled=True) if entries else None


def candi(root: Path) -> Layout | None:
    """CANDI (SchizBull 2008): ``[group/]HC_001/HC_001_procimg.nii.gz`` and ``HC_001_seg.nii.gz``.

    Labels of fewer than 1000 voxels are left out, which leaves 28, as the paper does.
    """
    entries, missing = [], []
    for path in deep(root, "_procimg"):
        name = stem(path).removesuffix("_procimg")
        labels = first(path.parent, f"{name}_seg")
        entries.append(Entry(name, name, "candi", path, labels))
        if labels is None:
            missing.append(f"{name}: there are no labels, {name}_seg.nii.gz.")
    known = {entry.name for entry in entries}
    lone = sorted({stem(path).removesuffix("_seg") for path in deep(root, "_seg")} - known)
    missing += [f"{name}: there are labels but no image, {name}_procimg.nii.gz." for name in lone]
    return Layout("candi", "CANDI", root, tuple(entries), (), tuple(missing), 1000) if entries else None


def empire10(root: Path) -> Layout | None:
    """EMPIRE10: ``scans/01_Fixed.mhd``, ``scans/01_Moving.mhd`` and ``lungMasks/`` with the same names.

    The lung masks are the labels. Both scans of a pair are of one person.
    """
    entries: dict[str, Entry] = {}
    pairs, missing = [], []
    numbers = {re.sub(r"_(Fixed|Moving)$", "", stem(p)) for p in images_in(root / "scans")}
    for number in sorted(n for n in numbers if re.fullmatch(r"\d+", n)):
        for side in ("Fixed", "Moving"):
            name = f"{number}_{side}"
            image, mask = first(root / "scans", name), first(root / "lungMasks", name)
            if image is None:
                missing.append(f"{name}: the scan is not there.")
                continue
            entries[name] = Entry(name, number, "empire10", image, mask)
            if mask is None:
                missing.append(f"{name}: there is no lung mask, lungMasks/{name}.mhd.")
        both = [entries.get(f"{number}_{side}") for side in ("Fixed", "Moving")]
        if both[0] is not None and both[1] is not None:
            pairs.append(PairFiles.of(number, both[0], both[1], None))
    if not entries:
        return None
    return Layout("empire10", "EMPIRE10", root, tuple(entries.values()), tuple(pairs), tuple(missing))


def learn2reg(root: Path) -> Layout | None:
    """A Learn2Reg task: ``<Task>_dataset.json``, ``imagesTr``, ``labelsTr``, ``keypointsTr``.

    The subjects of ``registration_val`` are for validation, the other ones for training; without it a seed decides.
    Test images are not read.
    """
    tables = sorted(p for p in root.glob("*dataset.json") if p.is_file())
    if not tables:
        return None
    table = _json(tables[0])
    if not any(key in table for key in ("training", "registration_val", "training_paired_images")):
        return None
    validation = _listed_pairs(tables[0], table, "registration_val")
    held = {_person(path) for pair in validation for path in pair}
    training = [
        pair
        for pair in _listed_pairs(tables[0], table, "training_paired_images")
        if not held & {_person(path) for path in pair}
    ]
    images = [
        _inside(tables[0], row["image"] if isinstance(row, dict) else row)
        for row in table.get("training", [])
    ]
    images += [path for pair in (*training, *validation) for path in pair]
    entries, missing = {}, []
    for relative in dict.fromkeys(images):
        path = root / relative
        name = stem(path)
        if not path.is_file():
            missing.append(f"{name}: {tables[0].name} lists it, but {relative} is not there.")
            continue
        subject = _person(relative)
        split = None if not held else "validation" if subject in held else "train"
        labels, points = (_companion(path, folder) for folder in ("labels", "keypoints"))
        entries[relative] = Entry(
            name, subject, str(table.get("name", root.name)), path, labels, points, split
        )
    if images and not any(entry.labels or entry.points for entry in entries.values()):
        missing.append(
            "there are neither labels (labelsTr) nor landmarks (keypointsTr); results cannot be measured."
        )
    pairs = [
        PairFiles.of(f"{entries[a].name}<-{entries[b].name}", entries[a], entries[b], split)
        for split, listed in (("train" if held else None, training), ("validation", validation))
        for a, b in listed
        if a in entries and b in entries
    ]
    title = f"Learn2Reg {table.get('name', root.name)}"
    return Layout("learn2reg", title, root, tuple(entries.values()), tuple(pairs), tuple(missing))


READERS: dict[str, Callable[[Path], Layout | None]] = {
    "neurite-oasis": neurite_oasis, "neurite-oasis-2d": neurite_oasis_2d, "candi": candi, "empire10": empire10,
    "learn2reg": learn2reg,
}  # fmt: skip


def recognise(root: Path) -> list[Layout]:
    """Every known data set that lies in a folder."""
    found = (reader(Path(root)) for reader in READERS.values())
    return [layout for layout in found if layout is not None]


def read_layout(root: Path, kind: str | None = None) -> Layout:
    """The data set in a folder, of this `kind`; without one, the only one there is."""
    found = [layout for layout in recognise(Path(root)) if kind in (None, layout.kind)]
    if len(found) != 1:
        there = " and ".join(layout.kind for layout in found) or "none"
        known = kind or f"one of {', '.join(READERS)}"
        raise reject(root, f"there is {there} of the known data sets", known, CHECK)
    return found[0]


def _names(path: Path) -> list[str]:
    """Names listed in a text file, one a line; none if there is no file. A name that is a path is refused."""
    if not path.is_file():
        return []
    text = read_limited(path, LARGEST_TABLE, "a list of subjects", CHECK).decode("utf-8", "replace")
    names = [line.strip() for line in text.splitlines() if line.strip()]
    odd = next((name for name in names if name != Path(name).name or name == ".."), None)
    if odd is not None:
        raise reject(path, f"it lists {odd[:80]!r}", "names of folders", CHECK)
    return names


def _json(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(read_limited(path, LARGEST_TABLE, "a Learn2Reg table", CHECK))
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise reject(path, "it is not a JSON table", "a Learn2Reg dataset.json", CHECK)
    return table


def _listed_pairs(path: Path, table: dict[str, Any], key: str) -> list[tuple[str, str]]:
    """The (fixed, moving) files under a key of the table, relative to its folder."""
    try:
        return [(_inside(path, row["fixed"]), _inside(path, row["moving"])) for row in table.get(key, [])]
    except (KeyError, TypeError):
        raise reject(path, f"{key} is not a list of fixed and moving", "pairs of files", CHECK) from None


def _inside(path: Path, name: Any) -> str:
    """A file name of a table, without ``./``; one that leaves the folder is refused."""
    relative = Path(str(name))
    if not isinstance(name, str) or relative.is_absolute() or ".." in relative.parts:
        raise reject(path, f"it names {str(name)[:80]!r}", "files inside its folder", CHECK)
    return relative.as_posix()


def _person(path: str) -> str:
    """Whose image a file of Learn2Reg is: the last number of ``<Task>_<subject>_<modality>`` tells scans apart."""
    return re.sub(r"_\d{4}$", "", stem(Path(path)))


def _companion(image: Path, what: str) -> Path | None:
    """The file of the same name in ``labelsTr`` or ``keypointsTr`` beside ``imagesTr``."""
    folder = image.parent.with_name(image.parent.name.replace("images", what))
    if folder == image.parent:
        return None
    points = folder / f"{stem(image)}.csv"
    return first(folder, stem(image)) if what != "keypoints" else points if points.is_file() else None
