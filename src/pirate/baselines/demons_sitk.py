"""SimpleITK's demons, in a child process: fast symmetric forces, and diffeomorphic (Vercauteren et al. 2007).

``fast-symmetric`` with these constants is what a published comparison ran under the name of log-domain demons;
SimpleITK has no log-domain filter, `log_demons` is ours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from pirate.baselines.child import Limits, Outcome, Tool, run_tool
from pirate.errors import reject
from pirate.registration.pair import Pair

SITK = Tool("demons", "demons-sitk", ("SimpleITK",))

FILTERS = {
    "fast-symmetric": "FastSymmetricForcesDemonsRegistrationFilter",
    "diffeomorphic": "DiffeomorphicDemonsRegistrationFilter",
}


@dataclass(frozen=True)
class SitkSettings:
    """Constants of the filter, which works at one resolution."""

    forces: Literal["fast-symmetric", "diffeomorphic"] = "fast-symmetric"
    """Which filter."""
    iterations: int = 200
    """So many; SimpleITK's own default, 10, hardly moves anything."""
    displacement_sigma: float = 1.0
    """Gaussian on the field after every step, voxels; SimpleITK's."""
    update_sigma: float = 0.0
    """Gaussian on each update, voxels; 0, SimpleITK's, is none."""
    step: float = 0.5
    """The longest update, voxels; SimpleITK's."""
    matching: bool = True
    """Match the moving image's histogram to the fixed one's first."""
    histogram_levels: int = 1024
    """Of the matching."""
    match_points: int = 7
    """Of the matching."""

    def __post_init__(self) -> None:
        if self.forces not in FILTERS:
            raise reject("forces", repr(self.forces), " or ".join(FILTERS), "Correct the setting.")
        if self.iterations < 1 or min(self.displacement_sigma, self.update_sigma, self.step) < 0:
            raise reject(
                "iterations", f"{self.iterations}, with sigmas {self.displacement_sigma} and {self.update_sigma}",
                "at least 1, and sigmas from 0", "Correct the settings.",
            )  # fmt: skip


PRESETS = {
    "fast-symmetric": SitkSettings(),
    "diffeomorphic": SitkSettings(forces="diffeomorphic"),
}


def demons_sitk(pair: Pair, settings: SitkSettings | None = None, limits: Limits | None = None) -> Outcome:
    """Register with one of SimpleITK's filters; they give no inverse."""
    chosen = settings or SitkSettings()
    parameters = asdict(chosen) | {"filter": FILTERS[chosen.forces]}
    return run_tool(SITK, pair, parameters, limits or Limits())
