"""``pirate apply``."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import typer

from pirate.errors import OutputError, UsageError, printable
from pirate.grid import Array, Grid
from pirate.io import nifti
from pirate.io.points import Space, read_points, write_points
from pirate.io.transforms import read_transform, recorded_grid
from pirate.registration.apply import Interpolation, apply, apply_points, points_outside
from pirate.transform import Displacement, Transform


def run(
    transform: Path, source: Path, out: Path, labels: bool, vote: bool, inverse: bool, reference: Path | None,
    space: str, force: bool,
) -> None:  # fmt: skip
    """Read the transform in the direction asked for, move the image, labels or points, write the result."""
    refuse_overwrite(out, force)
    if vote and not labels:
        raise UsageError("--vote is for label maps; add --labels.")
    if source.suffix.lower() == ".csv":
        if labels or out.suffix.lower() != ".csv":
            raise UsageError("points stay points: give --out NAME.csv, and no --labels.")
        _points(transform, source, out, inverse, reference, space)
    else:
        _image(transform, source, out, labels, vote, inverse, reference)
    typer.echo(printable(out))


def refuse_overwrite(out: Path, force: bool) -> None:
    """An existing file is replaced only on request."""
    if out.exists() and not force:
        raise OutputError(
            f"{printable(out)}: exists already; expected a new name. Add --force to replace it."
        )


def _image(
    transform: Path, source: Path, out: Path, labels: bool, vote: bool, inverse: bool, reference: Path | None
) -> None:
    image = nifti.read_labels(source) if labels else nifti.read_image(source)
    route = read_transform(transform, inverse)
    grid = nifti.read_image(reference).grid if reference is not None else own_grid(transform, route, inverse)
    how: Interpolation = "vote" if vote else "nearest" if labels else "linear"
    moved = apply(image, route, grid, how, outside=0.0 if labels else float(image.data.min()))
    nifti.write_image(out, moved.data, moved.grid, description="pirate apply")


def _points(
    transform: Path, source: Path, out: Path, inverse: bool, reference: Path | None, space: str
) -> None:
    """Points move with their image: against the direction in which images are read."""
    if space not in get_args(Space):
        raise UsageError(f"--space {space}: expected one of {', '.join(get_args(Space))}.")
    chosen: Space = space  # type: ignore[assignment]
    grid = nifti.read_image(reference).grid if reference is not None else None
    table = read_points(source, chosen, grid)
    route = read_transform(transform, inverse=not inverse)
    warn_outside(table.world, route)
    write_points(out, table.at(apply_points(table.world, route)), chosen, grid)


def warn_outside(points: Array, transform: Transform) -> None:
    """Say how many points (N, 3), RAS mm, lie where a displacement field says nothing."""
    outside = points_outside(points, transform)
    if outside:
        typer.echo(
            f"note: {outside} of {len(points)} points lie outside the field and are not displaced.", err=True
        )


def own_grid(path: Path, transform: Transform, inverse: bool) -> Grid:
    """The grid the result belongs on: fixed, or moving for the inverse of a registration's folder."""
    if path.is_dir():
        return recorded_grid(path, "moving" if inverse else "fixed")
    first = transform.parts[0] if transform.parts else None
    if not inverse and isinstance(first, Displacement):
        return first.grid
    raise UsageError(
        "the transform does not say which grid the result gets; give an image on it with --reference."
    )
