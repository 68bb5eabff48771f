"""``pirate repair``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pirate.cli.applying import refuse_overwrite
from pirate.cli.terminal import configure_log
from pirate.errors import QualityError, UsageError, printable
from pirate.io import nifti
from pirate.io.atomic import write_json
from pirate.io.composite import write_composite
from pirate.io.fields import write_field
from pirate.io.itk import read_affine
from pirate.io.transforms import read_transform
from pirate.registration.process import using_threads
from pirate.registration.repair import WINDOW, FieldRepair, Repaired, repair_transform, similarity
from pirate.transform import Displacement, Transform

log = logging.getLogger("pirate")

SHOWN = 5
"""So many of the voxels that remain are listed."""


@dataclass(frozen=True)
class Request:
    """The options of ``pirate repair``, as typed."""

    warp: Path
    out: Path
    fixed: Path | None
    moving: Path | None
    affine: Path | None
    report: Path | None
    rounds: int
    threads: int | None
    force: bool
    quiet: bool


def run(request: Request) -> None:
    """Read the warp, repair it, write it in the same form, say what changed."""
    configure_log(request.quiet)
    _check(request)
    log.info("reading %s", printable(request.warp))
    given = read_transform(request.warp)
    _check_form(request.out, given)
    log.info("repairing")
    with using_threads(request.threads):
        repaired = repair_transform(given, request.rounds)
        alike = _similarities(request, given, repaired.transform)
    log.info("writing")
    _write(request.out, repaired.transform)
    record = _record(request, repaired, alike)
    if request.report is not None:
        write_json(request.report, record)
    _say(repaired, alike)
    typer.echo(printable(request.out))
    if repaired.remaining:
        raise _failed(repaired)


def _check(request: Request) -> None:
    """Refuse what cannot be done before anything is read."""
    if not request.out.name.lower().endswith((".nii", ".nii.gz", ".h5", ".hdf5")):
        raise UsageError(f"--out {printable(request.out)}: expected .nii, .nii.gz, .h5 or .hdf5.")
    if (request.fixed is None) != (request.moving is None):
        raise UsageError("give both --fixed and --moving, or neither.")
    if request.affine is not None and request.fixed is None:
        raise UsageError("--affine is only used to compare the images; add --fixed and --moving.")
    for path in (request.out, request.report):
        if path is not None:
            refuse_overwrite(path, request.force)


def _check_form(out: Path, transform: Transform) -> None:
    """A displacement file holds one field and nothing else."""
    if not _is_composite(out) and len(transform.parts) != 1:
        raise UsageError(
            f"--out {printable(out)}: the transform has {len(transform.parts)} parts, "
            "which only a composite keeps; choose a name that ends in .h5."
        )


def _is_composite(path: Path) -> bool:
    return path.name.lower().endswith((".h5", ".hdf5"))


def _similarities(request: Request, given: Transform, repaired: Transform) -> dict[str, Any]:
    if request.fixed is None or request.moving is None:
        return {}
    fixed, moving = nifti.read_image(request.fixed), nifti.read_image(request.moving)
    rest = Transform() if request.affine is None else Transform((read_affine(request.affine),))
    log.info("comparing the images")
    return {
        "before": similarity(fixed, moving, given.then(rest)),
        "after": similarity(fixed, moving, repaired.then(rest)),
    }


def _write(out: Path, transform: Transform) -> None:
    if _is_composite(out):
        write_composite(out, transform)
        return
    for part in transform.parts:
        if isinstance(part, Displacement):
            write_field(out, part)


def _record(request: Request, repaired: Repaired, alike: dict[str, Any]) -> dict[str, Any]:
    fields = [
        {
            "before": field.before,
            "after": field.after,
            "voxels": field.voxels,
            "changed_voxels": field.changed_voxels,
            "largest_change_mm": field.largest_change_mm,
            "rounds": field.rounds,
            "remaining": field.remaining.tolist(),
        }
        for field in repaired.fields
    ]
    return {
        "warp": str(request.warp),
        "out": str(request.out),
        "fields": fields,
        "similarity": alike or None,
        "local_correlation_window": WINDOW,
    }


def _say(repaired: Repaired, alike: dict[str, Any]) -> None:
    for field in repaired.fields:
        _say_field(field)
    if alike:
        before, after = alike["before"], alike["after"]
        typer.echo(
            f"correlation {before['correlation']:.4f} -> {after['correlation']:.4f}, "
            f"local correlation (window {WINDOW}) "
            f"{before['local_correlation']:.4f} -> {after['local_correlation']:.4f}"
        )


def _say_field(field: FieldRepair) -> None:
    a, b = field.before, field.after
    if field.rounds == 0:
        typer.echo(
            f"nothing folds: the smallest determinant is {a['min_determinant']:.3f}; nothing was changed"
        )
        return
    typer.echo(
        f"folded voxels {a['folds_percent']:.4f} -> {b['folds_percent']:.4f} % (central), "
        f"{a['folds_forward_percent']:.4f} -> {b['folds_forward_percent']:.4f} % (forward), "
        f"NDV {a['ndv_percent']:.4f} -> {b['ndv_percent']:.4f} %"
    )
    typer.echo(
        f"cells that are not diffeomorphic {a['nondiffeomorphic_cells']:.0f} -> {b['nondiffeomorphic_cells']:.0f}, "
        f"smallest determinant {a['min_determinant']:.3f} -> {b['min_determinant']:.3f}"
    )
    typer.echo(
        f"changed {field.changed_voxels} voxels ({100 * field.changed_voxels / field.voxels:.2f} %), "
        f"by {field.largest_change_mm:.2f} mm at most"
    )


def _failed(repaired: Repaired) -> QualityError:
    first = [tuple(index) for field in repaired.fields for index in field.remaining[:SHOWN].tolist()][:SHOWN]
    listed = ", ".join(str(index) for index in first)
    return QualityError(
        f"{repaired.remaining} voxels still fold, the first at {listed}. The warp was written all the same; "
        "allow more --rounds."
    )
