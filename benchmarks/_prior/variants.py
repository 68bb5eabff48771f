"""What is compared: iterations, priors, and their controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pirate.benchmark.controls import SIGMA, Denoise, built

__all__ = ["ALPHAS", "SIGMA", "TAUS", "Denoise", "Variant", "built", "default", "paper"]

TAUS = (0.02, 0.086, 0.3, 1.0)
"""The prior's weights of the Dice-against-folds curves; 0.086 is the paper's."""

ALPHAS = (0.25, 0.5, 0.75, 1.0, 1.2)
"""The smoothness's weights there, in units of the preset's."""


@dataclass(frozen=True)
class Variant:
    """One column of a comparison.

    Args:
        name: as the tables have it.
        preset: of `pirate register`.
        prior: a name that ``--prior`` takes; or ``random:NAME``, ``permuted:NAME`` or ``gaussian:NAME``: the network
            with fresh or with shuffled weights, and the Gaussian that changes a field as much as it does.
        changes: to the preset's settings.
        curve: the name of the curve it belongs to, if it is a point of one.
        supervised: whether labels took part in the training of the prior.
    """

    name: str
    preset: str
    prior: str = "none"
    changes: Mapping[str, Any] = field(default_factory=dict)
    curve: str = ""
    supervised: bool = False

    @property
    def key(self) -> str:
        """A name for files: unique among variants."""
        return f"{self.preset}/{self.name}"


def paper(alpha: float, of: str = "") -> list[Variant]:
    """The paper's ablation and the controls.

    Args:
        alpha: the preset's weight of the smoothness.
        of: what the names of the priors end with, where a data set has its own.
    """
    pirate, plus = f"pirate{of}", f"pirate-plus{of}"
    none, plain = {"alpha": 0.0}, {"schedule": "constant", "gamma": 0.581 / 2}
    return [
        Variant("P", "paper", "none", none),
        Variant("P+S", "paper", "none"),
        Variant("P+R", "paper", pirate, none),
        Variant("P+D", "paper", plus, none),
        Variant("P+R+S (PIRATE)", "paper", pirate),
        Variant("P+D+S (PIRATE+)", "paper", plus),
        Variant("PIRATE, fixed step", "paper", pirate, plain),
        Variant("PIRATE+, fixed step", "paper", plus, plain),
        Variant("TV for R", "paper", "tv"),
        Variant("random network for R", "paper", f"random:{pirate}"),
        Variant("permuted weights for R", "paper", f"permuted:{pirate}"),
        Variant("Gaussian as strong as R", "paper", f"gaussian:{pirate}"),
    ] + [
        Variant(f"{prior}, tau {tau:g}", "paper", prior, {"tau": tau}, f"{prior} over tau")
        for prior in (pirate, plus, f"gaussian:{pirate}")
        for tau in TAUS
        if tau != 0.086
    ] + [
        Variant(f"P+S, alpha {a * alpha:.3g}", "paper", "none", {"alpha": a * alpha}, "smoothness over alpha")
        for a in ALPHAS
        if a != 1
    ]  # fmt: skip


def default(of: str = "") -> list[Variant]:
    """The preset that users run, with every prior; `of` as in `paper`."""
    pirate, plus, anatomy = f"pirate{of}", f"pirate-plus{of}", f"anatomy{of}"
    return [
        Variant("none", "default"),
        Variant("Gaussian as strong as PIRATE", "default", f"gaussian:{pirate}"),
        Variant("PIRATE", "default", pirate),
        Variant("PIRATE+", "default", plus),
        Variant("anatomy (supervised)", "default", anatomy, supervised=True),
        Variant("anatomy, permuted weights", "default", f"permuted:{anatomy}"),
    ] + [
        Variant(f"smoothness {s:g}", "default", "none", {"smoothness": s}, "default over smoothness")
        for s in (0.2, 0.35, 0.65, 0.8)
    ]  # fmt: skip
