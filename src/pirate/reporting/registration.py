"""The pictures of one registration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pirate.registration.register import moving_on_fixed
from pirate.registration.result import Registration
from pirate.reporting import figures


def draw(result: Registration, folder: Path) -> Sequence[Path]:
    """Draw slices, difference, grid, determinant, convergence and labels into `folder`; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = None
    if result.moving_labels is not None:
        labels = result.apply(result.moving_labels, labels=True).data
    return figures.write_all(
        folder,
        result.fixed,
        moving_on_fixed(result).data,
        result.warped.data,
        result.field,
        result.trace,
        None if result.fixed_labels is None else result.fixed_labels.data,
        labels,
    )
