"""A user's own pairs: a CSV with the columns fixed, moving and, where there are any, labels and points.

Relative paths count from the table's folder. Columns that are not known are refused: a misspelt one would be ignored.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from pirate.data.listing import PairFiles, stem
from pirate.errors import InputError, reject
from pirate.io.files import read_limited

NEEDED = ("fixed", "moving")
OPTIONAL = ("fixed_labels", "moving_labels", "fixed_points", "moving_points")
ALSO = ("name", "split")
LARGEST = 1 << 26  # bytes


def read_pairs(path: Path) -> list[PairFiles]:
    """Read the table; every file that it names must be there, every name once.

    Args:
        path: UTF-8, comma-separated, the first line naming the columns: fixed, moving; and any of fixed_labels,
            moving_labels, fixed_points, moving_points, name, split.
    """
    path = Path(path)
    pairs = []
    for line, row in _rows(path):
        pair = _pair(path, line, row)
        absent = next(((role, p) for role, p in pair.files.items() if not p.is_file()), None)
        if absent is not None:
            raise _refused(path, line, f"{absent[0]} is {absent[1]}, which is not there", "a file")
        pairs.append(pair)
    names = [pair.name for pair in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise reject(
            path, f"the pair {twice} is there twice", "each pair once", "Remove one, or name them apart."
        )
    return pairs


def absent_files(path: Path) -> tuple[int, list[str]]:
    """Number of pairs in a table, and a sentence for every file that it names and that is not there."""
    rows = list(_rows(Path(path)))
    sentences = [
        f"line {line}: {role} is {file}, which is not there."
        for line, row in rows
        for role, file in _pair(Path(path), line, row).files.items()
        if not file.is_file()
    ]
    return len(rows), sentences


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Line number and cells by column, blank lines left out."""
    content = read_limited(path, LARGEST, "a CSV table of pairs", "Split it.")
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        lines = [
            (reader.line_num, [c.strip() for c in cells]) for cells in reader if any(c.strip() for c in cells)
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise reject(path, f"it cannot be read ({error})", "a CSV table in UTF-8", "Save it again.") from None
    header = lines[0][1] if lines else []
    known = (*NEEDED, *OPTIONAL, *ALSO)
    if not set(NEEDED) <= set(header) or not set(header) <= set(known) or len(set(header)) < len(header):
        raise reject(
            path, f"its columns are {', '.join(header)[:200] or 'not there'}",
            f"fixed and moving, and any of {', '.join((*OPTIONAL, *ALSO))}, once each", "Correct the first line.",
        )  # fmt: skip
    if len(lines) < 2:
        raise reject(path, "it lists no pair", "a line for each pair", "Add the pairs.")
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise _refused(
                path, line, f"there are {len(cells)} cells", f"{len(header)}, as in the first line"
            )
    return [(line, dict(zip(header, cells, strict=True))) for line, cells in lines[1:]]


def _pair(path: Path, line: int, row: dict[str, str]) -> PairFiles:
    for side in NEEDED:
        if not row[side]:
            raise _refused(path, line, f"{side} is empty", "the path of an image")
    for what in ("labels", "points"):
        if bool(row.get(f"fixed_{what}")) != bool(row.get(f"moving_{what}")):
            raise _refused(path, line, f"{what} of one image only", f"{what} of both or of neither")
    split = row.get("split") or None
    if split not in (None, "train", "validation"):
        raise _refused(path, line, f"the split is {split!r}", "train, validation or nothing")
    files = {role: path.parent / row[role] for role in (*NEEDED, *OPTIONAL) if row.get(role)}
    name = row.get("name") or f"{stem(files['fixed'])}<-{stem(files['moving'])}"
    return PairFiles(name, split=split, **files)


def _refused(path: Path, line: int, finding: str, expected: str) -> InputError:
    return reject(path, f"line {line}: {finding}", expected, "Correct that line.")
