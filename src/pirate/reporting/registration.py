"""The pictures of one registration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pirate.registration.result import Registration
from pirate.reporting import figures


def draw(result: Registration, folder: Path) -> Sequence[Path]:
    """Draw slices, difference, grid, determinant, convergence, labels and surprise into `folder`; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    fixed_labels, moving_labels = (result.images.get(f"{role}_labels") for role in ("fixed", "moving"))
    warped_labels = None if moving_labels is None else result.apply(moving_labels, labels=True).data
    return figures.write_all(
        folder,
        result.fixed,
        result.moving_on_fixed.data,
        result.warped.data,
        result.field,
        result.trace,
        None if fixed_labels is None else fixed_labels.data,
        warped_labels,
        result.maps["surprise"].data if "surprise" in result.maps else None,
    )
