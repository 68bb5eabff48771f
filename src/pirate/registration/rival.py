"""Which other method made a field, for the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pirate.errors import printable
from pirate.settings import Settings

DATA_TERM = ("penalty", "window", "squared_correlation", "intensity", "bins")
"""Settings that say by which data term a rival is measured."""


@dataclass(frozen=True)
class Rival:
    """A method that is not pirate's, and what it was run with.

    Args:
        name: METHOD or METHOD:PRESET.
        options: every constant of it.
        weights: the file of a trained network; None for a method without.
        weights_sha256: of that file, hexadecimal.
        packages: the other tool's packages and their versions.
    """

    name: str
    options: Mapping[str, Any]
    weights: Path | None = None
    weights_sha256: str | None = None
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def told(self) -> dict[str, Any]:
        """For ``metrics.json``: whose the numbers are."""
        weights = None if self.weights is None else printable(self.weights)
        return {
            "method": self.name, "options": dict(self.options), "weights": weights,
            "weights_sha256": self.weights_sha256,
        }  # fmt: skip

    def record(self, judge: Settings) -> dict[str, Any]:
        """For ``run.json``: the method, its constants and seeds, and the data term that it is measured by."""
        told = self.told
        return {
            "method": told["method"], "settings": told["options"], "weights": told["weights"],
            "weights_sha256": told["weights_sha256"], "measured_by": {n: getattr(judge, n) for n in DATA_TERM},
            "seeds": [self.options["seed"]] if "seed" in self.options else [],
        }  # fmt: skip
