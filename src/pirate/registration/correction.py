"""The last word of the anatomy-aware prior: a few gated corrections after the finest level.

A `Corrector` is no denoiser of noise: called again and again it drifts. So it is not called within the levels but
`CALLS` times at the end, on a grid as coarse as that of its training, and a correction is kept only if

    at most `MENDED` of the voxels fold that did not   and   g(after) - g(solver) <= `WORSE` (g(0) - g(solver)),

g being the data term on that grid (of large ones on the next coarser level), g(0) its value without any field. Else
three quarters and a half of it are tried, and then none. The few voxels that were folded are unfolded when the
registration is finished, as all are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from pirate.denoisers.corrector import Corrector
from pirate.denoisers.learned import Learned
from pirate.denoisers.planes import AS_TRAINED, PlaneCorrector, SliceCorrector, coronal
from pirate.denoisers.plug import Denoiser, ImageDenoiser
from pirate.energies.similarity import Similarity
from pirate.errors import InputError, UsageError
from pirate.grid import Grid
from pirate.ops.compose import compose
from pirate.ops.jacobian import mark_folds
from pirate.ops.repair import MANY
from pirate.ops.resample import resize_field
from pirate.ops.warp import warp
from pirate.registration.data_term import data_term
from pirate.registration.working import Images
from pirate.settings import Level, Settings

if TYPE_CHECKING:
    from pirate.registration.pyramid import Stage

CALLS = 1
"""Corrections in a row."""

WORSE = 0.1
"""A correction may give back so much of what the solver has gained from the data term."""

MENDED = 0.002
"""Part of the voxels that a correction may fold, and `repair` then unfolds; one that folds more is no good."""

SCALES = (1.0, 0.75, 0.5)
"""Parts of a correction that are tried, in this order."""

LONGEST = 1.5
"""Voxels may be so many times as long as those of a corrector's training."""

COARSER = 1.001 * LONGEST  # headers round

LARGE = 1_000_000
"""Voxels; on larger grids the data term is judged on the next coarser level, for it costs as much as a step."""


@dataclass(frozen=True)
class Outcome:
    """One call and what the gate said.

    Args:
        scale: part of the correction that was kept; 0 if none.
        folds: voxels that fold, before and after what was tried last.
        data: the data term, before and after what was tried last.
    """

    scale: float
    folds: tuple[int, int]
    data: tuple[float, float]

    @property
    def remark(self) -> str:
        """What happened, as a sentence."""
        part = "" if self.scale in (0, 1) else f", {100 * self.scale:.0f} % of it"
        verdict = f"kept{part}" if self.scale else "dropped"
        mended = " (they are mended)" if self.scale and self.folds[1] > self.folds[0] else ""
        return (
            f"the anatomy-aware prior's correction is {verdict}: voxels that fold {self.folds[0]} -> "
            f"{self.folds[1]}{mended}, data term on its grid {self.data[0]:.4f} -> {self.data[1]:.4f}"
        )


AnyCorrector: TypeAlias = Corrector | PlaneCorrector | SliceCorrector


def corrector_in(denoiser: Denoiser | ImageDenoiser | None) -> AnyCorrector | None:
    """The corrector, also where it came from a weight file; None if the denoiser is of another kind."""
    inner = getattr(denoiser, "network", denoiser)
    return inner if isinstance(inner, AnyCorrector) else None


def fitted(denoiser: Denoiser | ImageDenoiser | None, grid: Grid) -> Denoiser | ImageDenoiser | None:
    """The denoiser for images on `grid`: a corrector is turned to how the arrays lie in the world, if that is known.

    One for finer voxels than these is refused: what it learned in voxels would be too long in mm.
    """
    inner = corrector_in(denoiser)
    if inner is None:
        return denoiser
    turned = _turned(inner, grid)
    seen = turned.view.axes[:2] if isinstance(turned, PlaneCorrector) else range(grid.ndim)
    coarsest = max(grid.spacing[axis] for axis in seen)
    if inner.spacing and coarsest > COARSER * inner.spacing:
        where = "coronal planes" if isinstance(inner, PlaneCorrector) else "images"
        raise UsageError(
            f"the anatomy-aware prior has learned {where} of {inner.spacing:g} mm voxels, here the longest side of one "
            f"is {coarsest:.3g} mm; expected at most {LONGEST * inner.spacing:g}. Leave --prior out, or choose another."
        )
    if turned is inner:
        return denoiser
    return dataclasses.replace(denoiser, network=turned) if isinstance(denoiser, Learned) else turned


def _turned(inner: AnyCorrector, grid: Grid) -> AnyCorrector:
    """The corrector as it has to look at arrays on `grid`; a slice without a volume is taken as it is."""
    if isinstance(inner, PlaneCorrector):
        return inner.facing(grid.axes)
    if grid.ndim == 3 or grid.slice_axis is None or not isinstance(inner, Corrector):
        return inner
    view = coronal(grid.affine[:3, :3])
    if view.axes[2] != 2:
        raise UsageError(
            "the anatomy-aware prior for slices has learned coronal ones, this one is not; expected a coronal slice. "
            "Leave --prior out, or choose another."
        )
    return inner if view == coronal(AS_TRAINED) else SliceCorrector(inner, view)


def grid_for(stages: Sequence[Stage], spacing: float) -> tuple[Level, Images]:
    """The pair on a grid of about `spacing` mm, and the constants of the level that is about as coarse.

    That is the finest stage without an axis that `Images.shrunk` would halve; where there is none the coarsest is
    shrunk. With a spacing of 0 it is the finest.
    """
    for stage in reversed(stages):
        if all(1.5 * h >= spacing for h in stage.images.spacing):
            return stage.level, stage.images
    return stages[0].level, stages[0].images.shrunk(spacing)


@dataclass(frozen=True, eq=False)
class Correction:
    """A corrector and the pair it corrects.

    Args:
        corrector: the network.
        images: the pair on the finest grid.
        coarse: the pair on the corrector's grid.
        judged: the pair on the grid on which the data term is judged.
        term: the data term there.
    """

    corrector: AnyCorrector
    images: Images
    coarse: Images
    judged: Images
    term: Similarity

    @staticmethod
    def of(corrector: AnyCorrector, stages: Sequence[Stage], settings: Settings) -> Correction:
        """Find the pair on the corrector's grid among the stages, or make it from the finest, the last."""
        level, coarse = grid_for(stages, corrector.spacing)
        corrector = corrector.on(coarse.spacing) if isinstance(corrector, PlaneCorrector) else corrector
        judged = coarse
        here = next((i for i, stage in enumerate(stages) if stage.images is coarse), 0)
        if here > 0 and math.prod(coarse.shape) > LARGE:
            level, judged = stages[here - 1].level, stages[here - 1].images
        return Correction(corrector, stages[-1].images, coarse, judged, data_term(judged, settings, level))

    def __call__(self, field: Tensor, calls: int = CALLS) -> tuple[Tensor, list[Outcome]]:
        """Correct `field` (1, d, *shape), voxels of the finest grid; a call that is dropped is the last."""
        outcomes: list[Outcome] = []
        with torch.no_grad():
            folds, value = mark_folds(field)[0], self._data(field)
            gained = max(self._data(torch.zeros_like(field)) - value, 0.0)
            limits = folds + min(MENDED * field[0, 0].numel(), MANY), value + WORSE * gained
            corrected = field
            for _ in range(calls):
                corrected, outcome = self._once(corrected, (folds, value), limits)
                outcomes.append(outcome)
                if outcome.scale == 0:
                    break
                folds, value = outcome.folds[1], outcome.data[1]
            return corrected, outcomes

    def _once(
        self, field: Tensor, here: tuple[int, float], limits: tuple[float, float]
    ) -> tuple[Tensor, Outcome]:
        """One call; `here` and `limits` are folded voxels and data term, as they are and as they may become."""
        low = _on(self.coarse, field)
        r = self.corrector.correction(low, self.coarse.fixed, warp(self.coarse.moving, low))
        r = resize_field(r, self.images.shape) if low.shape != field.shape else r
        outcome = Outcome(0.0, (here[0], here[0]), (here[1], math.nan))
        if not math.isfinite(float(r.sum())):  # a float32 sum, five times as fast: corrections are short
            return field, outcome
        for scale in SCALES:
            following = compose(field, r * -scale)
            folds, _ = mark_folds(following)
            value = self._data(following) if folds <= limits[0] else math.inf
            outcome = Outcome(scale if value <= limits[1] else 0.0, (here[0], folds), (here[1], value))
            if outcome.scale:
                return following, outcome
        return field, outcome

    def _data(self, field: Tensor) -> float:
        """g of a field (1, d, *shape), voxels; infinite where the field has left the image."""
        here = self.judged
        try:
            return float(self.term.value(here.moving, _on(here, field), here.moving_mask)[0])
        except InputError:
            return math.inf


def _on(images: Images, field: Tensor) -> Tensor:
    """The field (1, d, *shape), voxels, on the grid of `images`, in voxels of it."""
    return field if images.shape == tuple(field.shape[2:]) else resize_field(field, images.shape)
