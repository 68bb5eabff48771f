"""SyN (Avants et al. 2008) as ANTs has it, in a child process.

Two presets, because papers that say "SyN" mean either and they differ by 0.09 Dice on OASIS: ``cc``, the deformable
stage of ANTs' recommended script (antsRegistrationSyN.sh -t so), and ``antspy-default``, what ``ants.registration(f, m,
"SyNOnly")`` runs when nothing else is said, which never optimises at full resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pirate.baselines.child import Limits, Outcome, Tool, run_tool
from pirate.errors import reject
from pirate.registration.pair import Pair

ANTS = Tool("ants", "SyN", ("ants",), r"\dDIAGNOSTIC,\s+\d+,\s+([-+0-9.e]+),")


@dataclass(frozen=True)
class SynSettings:
    """Constants of antsRegistration, one stage; a tuple has one number for each level, the coarsest first."""

    metric: Literal["CC", "mattes", "meansquares"] = "CC"
    """Data term: squared local correlation, mutual information or the mean squared difference."""
    sampling: int = 4
    """Radius of the correlation's window, voxels; bins of the mutual information."""
    step: float = 0.1
    """Length of a step, voxels."""
    update_variance: float = 3.0
    """Of the Gaussian on each update, voxels squared: 3 is a sigma of 1.73."""
    total_variance: float = 0.0
    """Of the Gaussian on the whole field, voxels squared."""
    iterations: tuple[int, ...] = (100, 70, 50, 20)
    """At most so many on each level."""
    shrinks: tuple[int, ...] = (8, 4, 2, 1)
    """Shrink factor of each level."""
    sigmas: tuple[float, ...] = (3.0, 2.0, 1.0, 0.0)
    """Gaussian on the images of each level, voxels."""
    threshold: float = 1e-6
    """A level ends when the data term's slope is below this."""
    window: int = 10
    """Iterations over which the slope is taken."""
    winsorise: bool = True
    """Cut intensities off at their 0.5 % and 99.5 % quantiles."""
    double: bool = True
    """Compute in double precision."""

    def __post_init__(self) -> None:
        if not len(self.iterations) == len(self.shrinks) == len(self.sigmas) > 0:
            raise reject(
                "iterations", f"{len(self.iterations)} iterations, {len(self.shrinks)} shrinks, "
                f"{len(self.sigmas)} sigmas", "one of each for every level", "Correct the settings.",
            )  # fmt: skip
        if self.metric not in ("CC", "mattes", "meansquares"):
            raise reject("metric", repr(self.metric), "CC, mattes or meansquares", "Correct the setting.")


PRESETS = {
    "cc": SynSettings(),
    "antspy-default": SynSettings(
        metric="mattes", sampling=32, step=0.2, iterations=(40, 20, 0), shrinks=(4, 2, 1), sigmas=(2.0, 1.0, 0.0),
        threshold=1e-7, window=8, winsorise=False, double=False,
    ),
}  # fmt: skip


def words(settings: SynSettings, ndim: int) -> list[str]:
    """The arguments of antsRegistration without its output; {fixed} and {moving} stand for the files."""
    own = settings
    smooth = f"SyN[{own.step:g},{own.update_variance:g},{own.total_variance:g}]"
    return [
        "--dimensionality", str(ndim), "--float", "0" if own.double else "1", "--collapse-output-transforms", "1",
        *(["--winsorize-image-intensities", "[0.005,0.995]"] if own.winsorise else []),
        "--use-histogram-matching", "0",
        "--metric", f"{own.metric}[{{fixed}},{{moving}},1,{own.sampling}]", "--transform", smooth,
        "--convergence", f"[{_joined(own.iterations)},{own.threshold:g},{own.window}]",
        "--shrink-factors", _joined(own.shrinks), "--smoothing-sigmas", _joined(own.sigmas) + "vox",
    ]  # fmt: skip


def syn(pair: Pair, settings: SynSettings | None = None, limits: Limits | None = None) -> Outcome:
    """Register with antsRegistration; the field and its inverse are both the tool's own."""
    chosen = settings or SynSettings()
    return run_tool(ANTS, pair, {"words": words(chosen, pair.fixed.grid.ndim)}, limits or Limits())


def _joined(numbers: Sequence[float]) -> str:
    return "x".join(f"{n:g}" for n in numbers)
