"""``pirate convert``."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import typer

from pirate.cli.applying import refuse_overwrite
from pirate.errors import UsageError, printable
from pirate.grid import Grid
from pirate.io import nifti
from pirate.io.convert import Format, convert


def run(
    source: Path, out: Path, to: str, source_format: str, fixed: Path | None, moving: Path | None, force: bool
) -> None:
    """Check the formats' names, read the images' grids, convert."""
    refuse_overwrite(out, force)
    target = _format("--to", to)
    origin = None if source_format == "auto" else _format("--from", source_format)
    convert(source, out, target, fixed=_grid(fixed), moving=_grid(moving), source_format=origin)
    typer.echo(printable(out))


def _format(option: str, name: str) -> Format:
    if name not in get_args(Format):
        raise UsageError(f"{option} {name}: expected one of {', '.join(get_args(Format))}.")
    return name  # type: ignore[return-value]


def _grid(path: Path | None) -> Grid | None:
    return None if path is None else nifti.read_image(path).grid
