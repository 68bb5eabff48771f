"""``pirate strip``."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import typer

from pirate.baselines.child import Limits
from pirate.cli.applying import refuse_overwrite
from pirate.data.stripping import strip
from pirate.errors import UsageError, printable
from pirate.io import nifti
from pirate.registration.process import using_threads


def run(
    image: Path, out: Path, mask: Path | None, threshold: float, threads: int | None, force: bool
) -> None:
    """Write the brain, and its mask if a file is named for it."""
    if mask is not None and mask.resolve() == out.resolve():
        raise UsageError("--mask and --out name the same file; expected two.")
    for path in (out, *([mask] if mask is not None else [])):
        refuse_overwrite(path, force)
    read = nifti.read_image(image)
    with using_threads(threads):
        found = strip(read, threshold, Limits(torch.get_num_threads()))
    nifti.write_image(out, found.brain.data, found.brain.grid, description="pirate strip")
    if mask is not None:
        nifti.write_image(mask, found.mask.data, found.mask.grid, description="pirate strip: mask")
    volume = float(found.mask.data.sum()) * math.prod(read.grid.spacing) / 1000
    typer.echo(f"brain {volume:.0f} ml, {found.seconds:.0f} s")
    typer.echo(printable(out))
