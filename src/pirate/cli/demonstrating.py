"""``pirate demo``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray

from pirate.cli.registering import report
from pirate.cli.terminal import Bar, configure_log
from pirate.data.phantom import brain_pair
from pirate.errors import QualityError
from pirate.evaluation.points import endpoint_error
from pirate.io.nifti import write_image
from pirate.registration.register import register
from pirate.registration.result import Registration, prepared
from pirate.reporting.registration import draw

SHAPE = (128, 144, 128)
"""Voxels of the generated pair."""


def run(out: Path, seed: int, threads: int | None, force: bool, quiet: bool) -> None:
    """Generate the pair, register it, and compare the field with the one that made it."""
    started = time.perf_counter()
    configure_log(quiet)
    pair = brain_pair(SHAPE, seed=seed)
    with prepared(out, force), Bar(quiet) as bar:
        result = register(
            pair.fixed, pair.moving, fixed_labels=pair.fixed_labels, moving_labels=pair.moving_labels,
            threads=threads, progress=bar,
        )  # fmt: skip
    folder = out / "pair"
    folder.mkdir(exist_ok=True)
    for name, image in (
        ("fixed", pair.fixed), ("moving", pair.moving),
        ("fixed_labels", pair.fixed_labels), ("moving_labels", pair.moving_labels),
    ):  # fmt: skip
        write_image(folder / f"{name}.nii.gz", image.data, image.grid)
    result.save(out, force=True, figures=draw, command=sys.argv)
    brain = pair.fixed_labels.data > 0
    before = endpoint_error(np.zeros_like(pair.field), pair.field, pair.fixed.grid.spacing, brain)
    after = endpoint_error(_found(result, brain), pair.field, pair.fixed.grid.spacing, brain)
    typer.echo(
        "true error of the field in the brain "
        f"{before['mean_voxels']:.2f} -> {after['mean_voxels']:.2f} voxels on average, "
        f"{before['p90_voxels']:.2f} -> {after['p90_voxels']:.2f} at the 90th percentile"
    )
    report(result, out, time.perf_counter() - started)
    if not quiet:
        typer.echo(f"look at {out / 'figures'}; the generated images are in {folder}", err=True)
    if result.flags:
        raise QualityError(" ".join(result.flags))


def _found(result: Registration, brain: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Displacement of field and affine together, (3, *shape) in voxels, 0 outside the brain."""
    grid, voxels = result.fixed.grid, np.argwhere(brain)
    there = grid.to_voxel(result.forward.map(grid.to_world(voxels)))
    found = np.zeros((3, *grid.shape), np.float32)
    found[:, brain] = (there - voxels).T
    return found
