"""A small copy of the data folder: slices of 32 x 40, four of them for validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import blobs, labels_of

from pirate.benchmark.crew import Named
from pirate.benchmark.entries import Entry, entries
from pirate.benchmark.plan import Plan
from pirate.benchmark.rows import Row
from pirate.benchmark.tracks import Source, of
from pirate.benchmark.working import Done, Job, Worker


def write_slices(folder: Path) -> None:
    """``oasis2d.npz`` of eight training and four validation slices."""
    moved = [blobs((32, 40), seed=1, shift=(0.7 * (i % 4) - 1, 1 - 0.6 * (i % 3))) for i in range(12)]
    norm = np.stack([255 * image / image.max() for image in moved]).astype(np.uint8)
    labels = np.stack([labels_of(image) for image in moved]).astype(np.uint8)
    ids, split = np.array([f"s{i:02d}" for i in range(12)]), np.array(["train"] * 8 + ["validation"] * 4)
    np.savez_compressed(folder / "oasis2d.npz", ids=ids, split=split, norm=norm, seg24=labels, seg4=labels)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_slices(folder)
    return folder


@pytest.fixture
def plan_of(data: Path, tmp_path: Path) -> Callable[..., Plan]:
    """Makes a plan of these entries on the first pairs of the slices, one thread, one job."""

    def make(*chosen: Entry, pairs: int = 4, sizes: tuple[tuple[int, ...], ...] = ()) -> Plan:
        track = replace(of(Source("oasis2d", data, pairs)), sizes=sizes)
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        return Plan(track, chosen, out, 1, 1, 0)

    return make


def entry(key: str) -> Entry:
    """The entry of the tables with this key."""
    return next(e for e in entries() if e.key == key)


def row(key: str, pair: str, dice: float, **more: object) -> Row:
    """A row with some numbers."""
    numbers = {
        "dice_before": 0.5,
        "hd95": 2.0,
        "folds": 0.0,
        "ndv": 0.0,
        "sdlogj": 0.4,
        "seconds": 1.0,
    } | more
    return replace(Row(key, pair, dice=dice, made_from="x"), **numbers)  # type: ignore[arg-type]


class Inline:
    """In place of `Crew` where processes of their own are not what is tested: the same jobs, done here."""

    def __init__(self, count: int, source: Source, out: Path, threads: int, tick: Callable[[], None]) -> None:
        self.worker = Worker(source, out, threads)

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *arguments: object) -> None:
        pass

    def do(self, jobs: Iterator[Named]) -> Iterator[tuple[Job, Done]]:
        for job, pair in jobs:
            yield job, self.worker(job, pair)
