"""What came of one pair with one method; a file of such rows that survives being interrupted."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pirate.io.atomic import write_text

Wanted = Mapping[tuple[str, str], str]
"""(entry, pair) to what its row must be `made_from`."""


@dataclass(frozen=True)
class Row:
    """One pair with one entry of the tables; numbers that do not exist are NaN.

    Args:
        entry: key of the entry.
        pair: name of the pair.
        dice_before: mean over the labels that both maps hold, at the start that every method is given.
        dice: after the method; labels by nearest neighbour.
        hd95: mm, mean over the labels.
        folds: voxels with determinant <= 0, central differences, percent ("negative JD").
        folds_forward: likewise by forward differences, percent.
        ndv: non-diffeomorphic volume, percent.
        sdlogj: standard deviation of the logarithm of the determinant.
        inverse_error: ``|inverse + field o (id + inverse)|``, voxels, at 99.9 % of the voxels.
        tre_before: mean distance of landmarks at the start, mm.
        tre: after the method, mm.
        similarity_before: Pearson's correlation of fixed and moving image at the start.
        similarity_after: after the method.
        seconds: of the method itself: its steps and its repair.
        total_seconds: with reading, inverting, resampling and measuring.
        iterations: evaluations of the operator, or the tool's own count.
        threads: CPU threads.
        error: why there are no numbers; empty if there are.
        made_from: hash of the pair, the entry and the threads.
    """

    entry: str
    pair: str
    dice_before: float = math.nan
    dice: float = math.nan
    hd95: float = math.nan
    folds: float = math.nan
    folds_forward: float = math.nan
    ndv: float = math.nan
    sdlogj: float = math.nan
    inverse_error: float = math.nan
    tre_before: float = math.nan
    tre: float = math.nan
    similarity_before: float = math.nan
    similarity_after: float = math.nan
    seconds: float = math.nan
    total_seconds: float = math.nan
    iterations: int = 0
    threads: int = 0
    error: str = ""
    made_from: str = ""


NAMES = tuple(f.name for f in fields(Row))
_KINDS = {"str": str, "int": int, "float": float}


def failed(entry: str, pair: str, error: str, threads: int = 0) -> Row:
    """A row without numbers that says why."""
    return Row(entry, pair, threads=threads, error=" ".join(error.split())[:500] or "no reason was given")


def read_rows(path: Path, wanted: Wanted | None = None) -> list[Row]:
    """The rows in a file; of several for one entry and pair, the last. A damaged line is left out.

    Args:
        path: need not exist.
        wanted: leave out rows that are not asked for, or were made from something else; None takes all.
    """
    if not path.is_file():
        return []
    found: dict[tuple[str, str], Row] = {}
    for cells in csv.reader(io.StringIO(path.read_text(encoding="utf-8", errors="replace"), newline="")):
        row = _parsed(cells)
        if row is not None and (wanted is None or wanted.get((row.entry, row.pair)) == row.made_from):
            found[row.entry, row.pair] = row
    return list(found.values())


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a whole file, in place of one that may end in a damaged line."""
    write_text(path, _lines([NAMES, *(_cells(row) for row in rows)]))


def append_row(path: Path, row: Row) -> None:
    """Add one row to a file that `write_rows` began; it is on the disk when this returns."""
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write(_lines([_cells(row)]))
        file.flush()
        os.fsync(file.fileno())


def _cells(row: Row) -> list[str]:
    return [repr(v) if isinstance(v, float) else str(v) for v in asdict(row).values()]


def _lines(lines: Iterable[Iterable[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()


def _parsed(cells: list[str]) -> Row | None:
    """The row of a line; None for the heading, a part of a line, or anything else."""
    if len(cells) != len(NAMES) or cells[0] == NAMES[0]:
        return None
    try:
        values = [_KINDS[str(f.type)](cell) for f, cell in zip(fields(Row), cells, strict=True)]
    except ValueError:
        return None
    return Row(*values) if values[-1] else None
