"""Fields and images of the pairs that are shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.benchmark.cases import Case, file_name
from pirate.benchmark.entries import REFERENCE, Entry
from pirate.benchmark.rows import Row
from pirate.errors import InputError
from pirate.io.arrays import read_arrays, write_arrays

_NAMES = ("made_from", "field", "warped", "warped_labels", "trace", "at", "snapshots")


@dataclass(frozen=True, eq=False)
class Kept:
    """One entry on one exhibited pair.

    Args:
        entry: which.
        row: its numbers.
        field: (d, *shape), voxels of the fixed grid, the affine start included.
        warped: (*shape), the moving image on the fixed grid, its own intensity unit.
        warped_labels: (*shape), by nearest neighbour; None without labels.
        trace: (n, 4): t, energy, residual, residual divided by the step; (0, 4) if the method has none.
        snapshots: number of evaluations to the warped image (*shape) after them; of the paper's iteration only.
    """

    entry: Entry
    row: Row
    field: NDArray[np.float32]
    warped: NDArray[np.float32]
    warped_labels: NDArray[Any] | None
    trace: NDArray[np.float64]
    snapshots: Mapping[int, NDArray[np.float32]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One pair and all entries on it.

    Args:
        case: the pair.
        role: "first", "typical" (median gain of `default`) or "smallest gain".
        kept: in the order of the entries.
    """

    case: Case
    role: str
    kept: tuple[Kept, ...]


@dataclass(frozen=True, eq=False)
class Held:
    """The arrays of `Kept`, on their way to a file or from one."""

    field: NDArray[np.float32]
    warped: NDArray[np.float32]
    warped_labels: NDArray[Any] | None
    trace: NDArray[np.float64]
    snapshots: Mapping[int, NDArray[np.float32]]


def path_of(folder: Path, index: int, pair: str, entry: str) -> Path:
    """The file of an entry on a pair, `folder` being that of the benchmark."""
    return folder / "kept" / file_name(index, pair) / f"{entry}.npz"


def write_held(path: Path, held: Held, made_from: str) -> None:
    """Write the arrays, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = sorted(held.snapshots)
    empty = np.zeros((0, *held.warped.shape), np.float32)
    write_arrays(path, {
        "made_from": np.array([made_from]), "field": held.field, "warped": held.warped, "trace": held.trace,
        "warped_labels": np.zeros(0, np.int16) if held.warped_labels is None else held.warped_labels,
        "at": np.array(order, np.int64),
        "snapshots": np.stack([held.snapshots[t] for t in order]) if order else empty,
    })  # fmt: skip


def read_held(path: Path, made_from: str | None = None) -> Held | None:
    """What `write_held` wrote; None if it is not there, not whole, or made from something else."""
    if not path.is_file():
        return None
    try:
        arrays = read_arrays(path, _NAMES)
    except InputError:
        return None
    if made_from is not None and str(arrays["made_from"][0]) != made_from:
        return None
    labels = arrays["warped_labels"]
    return Held(
        arrays["field"], arrays["warped"], labels if labels.size else None, arrays["trace"],
        dict(zip(arrays["at"].tolist(), arrays["snapshots"], strict=True)),
    )  # fmt: skip


def is_kept(path: Path, made_from: str) -> bool:
    """Whether the arrays are there and were made from this."""
    if not path.is_file():
        return False
    try:
        return str(read_arrays(path, ("made_from",))["made_from"][0]) == made_from
    except InputError:
        return False


def roles(rows: Sequence[Row], pairs: Sequence[str]) -> dict[str, int]:
    """Which pairs are shown, by index: the first, and those of the median and of the smallest gain of `default`."""
    found = {"first": 0} if pairs else {}
    gains = {r.pair: r.dice - r.dice_before for r in rows if r.entry == REFERENCE and not r.error}
    known = sorted((g, i) for i, p in enumerate(pairs) if (g := gains.get(p, np.nan)) == g)
    if len(known) > 1:
        found["typical"] = known[(len(known) - 1) // 2][1]
        found["smallest gain"] = known[0][1]
    return found
