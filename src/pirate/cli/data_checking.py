"""``pirate data check``."""

from __future__ import annotations

from pathlib import Path

import typer

from pirate.data.checking import check
from pirate.errors import QualityError, printable


def run(source: Path) -> None:
    """Say what is in a folder of data, or a CSV of pairs; exit code 1 if something is missing."""
    report = check(source)
    for line in report.lines:
        typer.echo(printable(line))
    if report.missing:
        n = len(report.missing)
        found = "one thing is" if n == 1 else f"{n} things are"
        raise QualityError(f"{printable(source)}: {found} missing; the rest can be used.")
