"""Points as CSV: a header with x, y, z and any other columns, which are kept.

Coordinates are RAS mm unless another space is named: ``lps`` (mm, as ITK and ANTs write them) or ``voxel``
(positions on an image's grid).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pirate.errors import InputError, UsageError, reject
from pirate.grid import Array, Grid
from pirate.io.atomic import replacing
from pirate.io.files import read_limited
from pirate.io.geometry import LPS
from pirate.transform import frame

Space = Literal["ras", "lps", "voxel"]

_LARGEST_FILE = 1 << 28  # bytes


@dataclass(frozen=True, eq=False)
class PointTable:
    """Points and the table they came in.

    Args:
        world: (N, 3), RAS mm.
        header: names of all columns.
        rows: (N) rows of text as read, coordinates included.
    """

    world: Array
    header: tuple[str, ...] = ("x", "y", "z")
    rows: tuple[tuple[str, ...], ...] = ()

    def at(self, world: ArrayLike) -> PointTable:
        """Return the same table with other positions, (N, 3), RAS mm."""
        return replace(self, world=np.asarray(world, dtype=np.float64))


def read_points(path: Path, space: Space = "ras", grid: Grid | None = None) -> PointTable:
    """Read points from CSV.

    Args:
        path: UTF-8, comma-separated, the first line naming the columns.
        space: what x, y, z mean.
        grid: the grid that ``voxel`` counts on; on a plane the column z may be absent, and is then 0.
    """
    lines = _lines(path)
    if not lines:
        raise reject(path, "it is empty", "a line naming the columns x, y, z", "Add that line.")
    header = lines[0][1]
    columns = _columns(path, header, grid)
    coordinates = np.zeros((len(lines) - 1, 3))
    for row, (number, cells) in enumerate(lines[1:]):
        if len(cells) != len(header):
            raise _refused(
                path, number, f"there are {len(cells)} cells", f"{len(header)}, as in the first line"
            )
        for axis, column in enumerate(columns):
            coordinates[row, axis] = _number(path, number, header[column], cells[column])
    return PointTable(_to_world(coordinates, space, grid), header, tuple(cells for _, cells in lines[1:]))


def write_points(path: Path, points: PointTable, space: Space = "ras", grid: Grid | None = None) -> None:
    """Write points as CSV, coordinates to 10 digits; a quote defuses text that a spreadsheet would run."""
    columns = _columns(path, points.header, grid)
    values = _from_world(points.world, space, grid)
    stored = points.rows or tuple(("",) * len(points.header) for _ in range(len(values)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_defused(name) for name in points.header])
    for row, value in zip(stored, values, strict=True):
        cells = [_defused(cell) for cell in row]
        for axis, column in enumerate(columns):
            cells[column] = f"{value[axis]:.10g}"
        writer.writerow(cells)
    with replacing(path) as part:
        Path(part).write_text(text.getvalue(), encoding="utf-8")


def _lines(path: Path) -> list[tuple[int, tuple[str, ...]]]:
    """Line number and cells of every line that is not blank."""
    content = read_limited(Path(path), _LARGEST_FILE, "a CSV file of points", "Split it.")
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        return [
            (reader.line_num, tuple(c.strip() for c in cells))
            for cells in reader
            if any(c.strip() for c in cells)
        ]
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refused(path, line, "it is not UTF-8 text", "a CSV file in UTF-8") from error
    except csv.Error as error:
        raise _refused(path, reader.line_num, f"it is not CSV ({error})", "comma-separated cells") from error


def _columns(path: Path, header: tuple[str, ...], grid: Grid | None) -> list[int]:
    """Indices of the columns x, y, z (x, y on a plane without z)."""
    names = [name.lower() for name in header]
    wanted = ["x", "y"] if grid is not None and grid.ndim == 2 and "z" not in names else ["x", "y", "z"]
    if any(names.count(name) != 1 for name in wanted):
        raise _refused(
            path, 1, f"the columns are {', '.join(header)[:200]}", f"each of {', '.join(wanted)} once"
        )
    return [names.index(name) for name in wanted]


def _number(path: Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise _refused(path, line, f"{column} is {cell[:40]!r}", "a finite number")
    return value


def _refused(path: Path, line: int, finding: str, expected: str) -> InputError:
    return reject(path, f"line {line}: {finding}", expected, "Correct that line.")


def _to_world(coordinates: Array, space: Space, grid: Grid | None) -> Array:
    if space == "voxel":
        matrix = _frame(grid)
        return coordinates @ matrix[:3, :3].T + matrix[:3, 3]
    return coordinates @ LPS[:3, :3] if space == "lps" else coordinates


def _from_world(world: Array, space: Space, grid: Grid | None) -> Array:
    if space == "voxel":
        matrix = np.linalg.inv(_frame(grid))
        return np.asarray(world @ matrix[:3, :3].T + matrix[:3, 3])
    return world @ LPS[:3, :3] if space == "lps" else world


def _frame(grid: Grid | None) -> Array:
    if grid is None:
        raise UsageError(
            "Points in voxels need the image whose voxels they are; give it with --reference, or use --space ras."
        )
    return frame(grid)


def _defused(cell: str) -> str:
    """Put a quote before text that begins like a spreadsheet formula; numbers stay as they are."""
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
