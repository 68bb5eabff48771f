"""Rows to means, to Markdown and to CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

COLUMNS: dict[str, tuple[str, str]] = {
    "dice": ("Dice", ".4f"),
    "dice_vote": ("Dice (vote)", ".4f"),
    "hd95_mm": ("HD95 mm", ".3f"),
    "folds_percent": ("folds %", "fold"),
    "folds_forward_percent": ("forward %", "fold"),
    "ndv_percent": ("NDV %", "fold"),
    "nondiffeomorphic_cells": ("cells", "count"),
    "sd_log_jacobian": ("SDlogJ", ".3f"),
    "registration_s": ("registration s", "time"),
    "whole_s": ("whole s", "time"),
    "peak_mb": ("MB", ".0f"),
}
"""Name of a number in a row to its heading and format."""

MORE = (
    "labels", "min_determinant", "max_determinant", "agreement", "optimisation_s", "cpu_s", "repeats", "reused",
    "when", "error",
)  # fmt: skip


def shown(value: float | None, form: str) -> str:
    """A number as a table shows it; a share that is not exactly 0 never reads as 0."""
    if value is None:
        return "-"
    if form == "fold":
        return "0" if value == 0 else f"{value:.4f}" if value >= 5e-5 else f"{value:.0e}"
    if form == "count":
        return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
    if form == "time":
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{value:{form}}"


def good(rows: Sequence[Row], method: str, group: str | None = None) -> dict[str, Row]:
    """Pair to the row of `method`, failures left out, of one group or of all."""
    return {
        r["pair"]: r
        for r in rows
        if r["method"] == method and "error" not in r and group in (None, r["group"])
    }


def mean(rows: Sequence[Row], name: str) -> float | None:
    """Mean of a number over rows that have it; None if none has."""
    values = [r[name] for r in rows if r.get(name) is not None]
    return sum(values) / len(values) if values else None


def means(rows: Sequence[Row], method: str, group: str) -> dict[str, float | None]:
    """Mean of every column over the pairs of a group that `method` registered."""
    own = list(good(rows, method, group).values())
    return {name: mean(own, name) for name in COLUMNS}


def order(rows: Sequence[Row]) -> list[str]:
    """Methods in the order in which they first appear."""
    return list(dict.fromkeys(r["method"] for r in rows))


def mean_table(rows: Sequence[Row], group: str) -> list[str]:
    """One line for each method: how many pairs, then the means; a method without a result says why."""
    names = order(rows)
    total = len({r["pair"] for r in rows if r["group"] == group})
    lines = [f"| method | pairs | {' | '.join(head for head, _ in COLUMNS.values())} |"]
    lines.append("|---|---" + "|---" * len(COLUMNS) + "|")
    for name in names:
        own = good(rows, name, group)
        count = f"{len(own)} of {total}" if len(own) != total else f"{total}"
        values = means(rows, name, group)
        cells = [shown(values[column], form) for column, (_, form) in COLUMNS.items()]
        lines.append(f"| {name} | {count} | {' | '.join(cells)} |")
    return lines


def partial(rows: Sequence[Row], group: str, ours: str | None) -> list[str]:
    """A sentence for each method that lacks pairs of the group, with ours on the same pairs."""
    total = len({r["pair"] for r in rows if r["group"] == group})
    lines = []
    for name in order(rows):
        own = good(rows, name, group)
        failed = [r for r in rows if r["method"] == name and r["group"] == group and "error" in r]
        if len(own) == total:
            continue
        text = f"- `{name}` has {len(own)} of {total} pairs"
        if own:
            text += f" ({', '.join(own)}), so its means do not compare with the others'"
            other = good(rows, ours, group) if ours else {}
            if ours and ours != name and all(pair in other for pair in own):
                mine = mean([other[pair] for pair in own], "dice")
                theirs = mean(list(own.values()), "dice")
                text += f"; on these pairs Dice {shown(theirs, '.4f')}, `{ours}` {shown(mine, '.4f')}"
        lines.append(text + "." + "".join(f" Failed on {r['pair']}: {cell(r['error'])}." for r in failed))
    return lines


def pair_table(rows: Sequence[Row], pair: str) -> list[str]:
    """One line for each method on one pair."""
    lines = [f"| method | {' | '.join(head for head, _ in COLUMNS.values())} |"]
    lines.append("|---" + "|---" * len(COLUMNS) + "|")
    for r in rows:
        if r["pair"] != pair:
            continue
        if "error" in r:
            lines.append(f"| {r['method']} | failed: {cell(r['error'])} |{' |' * (len(COLUMNS) - 1)}")
            continue
        cells = [shown(r.get(column), form) for column, (_, form) in COLUMNS.items()]
        lines.append(f"| {r['method']} | {' | '.join(cells)} |")
    return lines


def cell(text: str) -> str:
    """Text that cannot break a Markdown table."""
    return " ".join(text.split()).replace("|", "/").rstrip(".")


def as_csv(rows: Sequence[Row]) -> str:
    """Everything that is known of every run, unrounded."""
    names = ["pair", "group", "method", *COLUMNS, *MORE]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
