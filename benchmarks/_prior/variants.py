"""What is compared: iterations, priors, and their controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pirate.benchmark.controls import SIGMA, Denoise, built
from pirate.denoisers import zoo
from pirate.io.atomic import sha256_of

__all__ = [
    "ALPHAS", "CONTRASTS", "GAUSSIAN", "PIRATE", "PLUS", "SIGMA", "SMOOTHER", "TAUS", "Denoise", "Variant", "built",
    "default", "paper",
]  # fmt: skip

TAUS = (0.02, 0.086, 0.3, 1.0)
"""The prior's weights of the Dice-against-folds curves; 0.086 is the paper's."""

ALPHAS = (0.25, 0.5, 0.75)
"""The smoothness's weights there, in units of the preset's, besides 1 and `SMOOTHER_ALPHA`."""

SMOOTHER_ALPHA = 1.2
"""As much smoothness as the step allows, about: what can be had without a denoiser."""

PIRATE, PLUS, GAUSSIAN = "P+R+S (PIRATE)", "P+D+S (PIRATE+)", "Gaussian as strong as R"
SMOOTHER = f"P+S, {SMOOTHER_ALPHA} times the smoothness"
CONTRASTS = {
    "paper": ((PLUS, PIRATE), (PIRATE, SMOOTHER), (PLUS, SMOOTHER), (PIRATE, GAUSSIAN), (PLUS, GAUSSIAN)),
    "default": (("anatomy (supervised)", "anatomy, permuted weights"),),
}
"""Pairs of variants of a preset that are compared with each other."""


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
        through: the name of the curve that goes through it.
        entry: the row of `pirate benchmark` that is the same registration; empty if there is none.
    """

    name: str
    preset: str
    prior: str = "none"
    changes: Mapping[str, Any] = field(default_factory=dict)
    curve: str = ""
    supervised: bool = False
    through: str = ""
    entry: str = ""

    @property
    def key(self) -> str:
        """A name for files: unique among variants."""
        return f"{self.preset}/{self.name}"

    def weights(self, ndim: int) -> str:
        """SHA-256 of the network that it is made with; empty where there is none."""
        name = self.prior.rpartition(":")[2]
        if name.endswith(".safetensors"):
            return sha256_of(Path(name))
        return " ".join(e.sha256 for e in zoo.shipped() if e.name == name and e.ndim == ndim)


def paper(alpha: float, of: str = "") -> list[Variant]:
    """The paper's ablation and the controls.

    Args:
        alpha: the preset's weight of the smoothness.
        of: what the names of the priors end with, where a data set has its own.
    """
    pirate, plus = f"pirate{of}", f"pirate-plus{of}"
    none, plain = {"alpha": 0.0}, {"schedule": "constant", "gamma": 0.581 / 2}
    return [
        Variant("P", "paper", "none", none, entry="p"),
        Variant("P+S", "paper", "none", through="smoothness over alpha", entry="p+s"),
        Variant(SMOOTHER, "paper", "none", {"alpha": SMOOTHER_ALPHA * alpha}, through="smoothness over alpha"),
        Variant("P+R", "paper", pirate, none, entry="p+r"),
        Variant("P+D", "paper", plus, none, entry="p+d"),
        Variant(PIRATE, "paper", pirate, through=f"{pirate} over tau", entry="pirate"),
        Variant(PLUS, "paper", plus, through=f"{plus} over tau", entry="pirate-plus-cosine"),
        Variant("PIRATE, fixed step", "paper", pirate, plain, entry="pirate-fixed"),
        Variant("PIRATE+, fixed step", "paper", plus, plain, entry="pirate-plus-fixed"),
        Variant("TV for R", "paper", "tv", entry="tv"),
        Variant("random network for R", "paper", f"random:{pirate}", entry="random"),
        Variant("permuted weights for R", "paper", f"permuted:{pirate}", entry="permuted"),
        Variant(
            GAUSSIAN, "paper", f"gaussian:{pirate}", through=f"gaussian:{pirate} over tau", entry="gaussian"
        ),
    ] + [
        Variant(f"{prior}, tau {tau:g}", "paper", prior, {"tau": tau}, f"{prior} over tau")
        for prior in (pirate, plus, f"gaussian:{pirate}")
        for tau in TAUS
        if tau != 0.086
    ] + [
        Variant(f"P+S, alpha {a * alpha:.3g}", "paper", "none", {"alpha": a * alpha}, "smoothness over alpha")
        for a in ALPHAS
    ]  # fmt: skip


def default(of: str = "") -> list[Variant]:
    """The preset that users run, with every prior; `of` as in `paper`."""
    pirate, plus, anatomy = f"pirate{of}", f"pirate-plus{of}", f"anatomy{of}"
    return [
        Variant("none", "default", through="default over smoothness", entry="default"),
        Variant("Gaussian as strong as PIRATE", "default", f"gaussian:{pirate}"),
        Variant("PIRATE", "default", pirate),
        Variant("PIRATE+", "default", plus),
        Variant("anatomy (supervised)", "default", anatomy, supervised=True, entry="default-anatomy"),
        Variant("anatomy, permuted weights", "default", f"permuted:{anatomy}"),
    ] + [
        Variant(f"smoothness {s:g}", "default", "none", {"smoothness": s}, "default over smoothness")
        for s in (0.2, 0.35, 0.65, 0.8)
    ]  # fmt: skip
