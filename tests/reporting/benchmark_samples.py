"""A small benchmark that was never run: rows as asked for, pairs of the phantom, fields that fold where told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from pirate.benchmark.cases import Case
from pirate.benchmark.entries import START, Entry
from pirate.benchmark.kept import Exhibit, Kept
from pirate.benchmark.measured import Measured
from pirate.benchmark.rows import Row
from pirate.benchmark.tables import Table
from pirate.benchmark.timing import Size, Timing
from pirate.benchmark.tracks import Cases, Source, Track
from pirate.data.phantom import brain_pair
from pirate.ops.warp import warp

OURS = Entry("default", "pirate `default`", "default", "main", ours=True)
FAST = Entry("fast", "pirate `fast`", "fast", "main", ours=True)
SYN = Entry("syn-cc", "SyN (CC)", "syn:cc", "main")
NETWORK = Entry("voxelmorph", "VoxelMorph", "voxelmorph", "main", trained=True)
ANATOMY = Entry(
    "default-anatomy", "pirate `default`, anatomy prior (supervised)", "default", "main", supervised=True, ours=True
)  # fmt: skip
PIRATE = Entry("pirate", "PIRATE", "paper", "main", ours=True)
PLUS = Entry("pirate-plus", "PIRATE+", "paper-plus", "main", ours=True)
SMOOTH = Entry("p+s", "P+S", "paper", "ablation", ours=True)
TV = Entry("tv", "TV for R", "tv", "tv", ours=True)
STEADY = Entry("pirate-fixed", "PIRATE, fixed step", "paper", "step", ours=True)
NOTHING = Entry(START, "start", "", "main")


def rows(
    entry: Entry, dice: Sequence[float], folds: float = 0.0, seconds: float = 1.0, tre: float = math.nan
) -> list[Row]:
    """One row for each Dice, the pairs called a, b, c, ...; NaN is a failure."""
    return [
        Row(entry.key, pair, error="the process <b>died</b>") if math.isnan(d) else
        Row(entry.key, pair, 0.5, d, 2.0, folds, folds, folds, 0.3, 0.01, 4.0 if tre == tre else math.nan, tre, 0.7,
            0.9, seconds, seconds, 10, 1)
        for pair, d in zip("abcdefghijklmnop", dice, strict=False)
    ]  # fmt: skip


def track(
    ndim: int = 2, name: str = "phantoms", pairs: Sequence[str] = "abcdef", title: str = "Phantoms"
) -> Track:
    """Pairs that are never read."""

    def read(index: int) -> Case:
        raise AssertionError(f"pair {index} was read")

    return Track(name, title, ndim, Cases(tuple(pairs), read), "none", "oasis2d", Source(name, Path("data")))


def measured(
    found: Sequence[tuple[Entry, Sequence[Row]]],
    timings: Sequence[Timing] = (),
    exhibits: Sequence[Exhibit] = (),
    tables: Sequence[Table] = (),
    training: Mapping[str, Path] | None = None,
    scaling: Sequence[Size] = (),
    machine: Mapping[str, str] | None = None,
    of: Track | None = None,
) -> Measured:
    """What a page is made from."""
    every = tuple(row for _, own in found for row in own)
    return Measured(
        of or track(), tuple(e for e, _ in found), every, tuple(timings), tuple(tables), tuple(exhibits),
        training or {}, tuple(scaling), machine or {}, 2, "pirate benchmark phantoms --data DATA --out OUT",
    )  # fmt: skip


def phantom(shape: tuple[int, ...], points: int = 0) -> tuple[Case, np.ndarray]:
    """A pair and its true field (d, *shape), voxels; with landmarks if asked for."""
    pair = brain_pair(shape)
    grid = pair.fixed.grid
    fixed = moving = None
    if points:
        voxels = np.random.default_rng(0).integers(4, min(shape) - 4, size=(points, len(shape)))
        fixed = grid.to_world(voxels)
        moving = grid.to_world(voxels + pair.field[(slice(None), *voxels.T)].T)
    return Case(
        "a", pair.fixed, pair.moving, pair.fixed_labels, pair.moving_labels, fixed, moving
    ), pair.field


def kept(entry: Entry, case: Case, field: np.ndarray, row: Row, snapshots: bool = False) -> Kept:
    """What a method that found `field` leaves."""
    image = torch.from_numpy(case.moving.data.astype(np.float32))[None, None]
    moved = warp(image, torch.from_numpy(field.astype(np.float32))[None])[0, 0].numpy()
    labels = None if case.moving_labels is None else case.moving_labels.data
    trace = np.zeros((0, 4))
    taken: dict[int, np.ndarray] = {}
    if snapshots:
        t = np.arange(20.0)
        trace = np.stack([t, 1 / (1 + t), 0.1 / (1 + t), 0.3 / (1 + t)], 1)
        taken = {0: image[0, 0].numpy(), 10: (image[0, 0].numpy() + moved) / 2, 20: moved}
    return Kept(entry, row, field.astype(np.float32), moved, labels, trace, taken)


def folded(field: np.ndarray, count: int = 1) -> np.ndarray:
    """The field with a peak in the middle at which it folds."""
    result = field.copy()
    middle = tuple(n // 2 for n in field.shape[1:])
    for i in range(count):
        at = (middle[0] + 4 * i, *middle[1:])
        result[(0, *at)] += 6.0
    return result


def history(folder: Path, columns: Sequence[str], lines: Sequence[Sequence[float | str]]) -> Path:
    """A training's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join([",".join(columns), *(",".join(map(str, line)) for line in lines)])
    (folder / "history.csv").write_text(text + "\n")
    return folder
