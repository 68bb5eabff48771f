"""Greedy (Yushkevich et al.), a tool of its own, in a child process; 2-D and 3-D.

Greedy's licence is not ours: it is never linked, only run, and only where the user has installed it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pirate.baselines.child import Limits, Outcome, Tool, run_tool
from pirate.errors import reject
from pirate.registration.pair import Pair

GREEDY = Tool("greedy", "greedy", ("picsl_greedy", "SimpleITK"))


def _is_length(text: str) -> bool:
    number = text.removesuffix("mm").removesuffix("vox")
    try:
        return text != number and 0 <= float(number) < 1000
    except ValueError:
        return False


@dataclass(frozen=True)
class GreedySettings:
    """Constants of greedy; a tuple has one number for each level, the coarsest first."""

    metric: Literal["NCC", "WNCC", "SSD"] = "WNCC"
    """Data term: local correlation, the same weighted by the mask of both images, or squared difference."""
    radius: int = 2
    """Of the correlation's window, voxels."""
    iterations: tuple[int, ...] = (100, 100, 40)
    """At most so many on each level, each twice as fine as the one before, the last at full resolution; levels that
    would leave an axis fewer than four voxels, which greedy refuses, are left out."""
    metric_sigma: str = "1.5mm"
    """Gaussian on the data term's gradient: a number and vox or mm."""
    warp_sigma: str = "0.5mm"
    """Gaussian on the warp after every step, likewise."""
    stationary: bool = False
    """Optimise a stationary velocity (-sv) instead of composing warps."""

    def __post_init__(self) -> None:
        if self.metric not in ("NCC", "WNCC", "SSD"):
            raise reject("metric", repr(self.metric), "NCC, WNCC or SSD", "Correct the setting.")
        for name in ("metric_sigma", "warp_sigma"):
            if not _is_length(getattr(self, name)):
                raise reject(
                    name, repr(getattr(self, name)), "a number and vox or mm", "Write for example 1.5mm."
                )
        if not self.iterations or min(self.iterations) < 0:
            raise reject(
                "iterations", str(self.iterations), "one number from 0 for each level", "Correct it."
            )


PRESETS = {
    "wncc": GreedySettings(),
    "ncc": GreedySettings(
        metric="NCC", iterations=(100, 50, 10), metric_sigma="1.732vox", warp_sigma="0.7071vox"
    ),
    "ncc-s": GreedySettings(metric="NCC", iterations=(100, 50, 10)),
    "sv": GreedySettings(stationary=True),
}
"""wncc: the OASIS command of a published comparison (methods 2.7); ncc: greedy's own sigmas; sv: log-domain."""


LEAST_SIZE = 4
"""Voxels along an axis that greedy needs on every level."""


def options(settings: GreedySettings, shape: Sequence[int]) -> str:
    """What stands on greedy's command line besides the images, the fixed one of `shape`."""
    own, ndim = settings, len(shape)
    fits = 1 + int(math.log2(max(min(shape) / LEAST_SIZE, 1)))
    window = "x".join([str(own.radius)] * ndim)
    metric = own.metric if own.metric == "SSD" else f"{own.metric} {window}"
    steps = "x".join(map(str, own.iterations[-fits:]))
    velocity = " -sv" if own.stationary else ""
    return f"-d {ndim} -m {metric} -n {steps} -s {own.metric_sigma} {own.warp_sigma}{velocity}"


def greedy(pair: Pair, settings: GreedySettings | None = None, limits: Limits | None = None) -> Outcome:
    """Register with greedy; it gives no inverse."""
    chosen = settings or GreedySettings()
    sign = 1 if chosen.metric == "SSD" else -1
    parameters = {"options": options(chosen, pair.fixed.grid.shape), "sign": sign}
    return run_tool(GREEDY, pair, parameters, limits or Limits())
