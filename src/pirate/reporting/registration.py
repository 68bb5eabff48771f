"""The pictures of one registration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pirate.registration.register import moving_on_fixed
from pirate.registration.result import Registration
from pirate.reporting import figures


def draw(result: Registration, folder: Path) -> Sequence[Path]:
    """Draw slices, difference, warped grid, determinant and convergence into `folder`; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    return figures.write_all(
        folder, result.fixed, moving_on_fixed(result).data, result.warped.data, result.field, result.trace
    )
