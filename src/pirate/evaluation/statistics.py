"""Intervals and tests for paired scores: the same pairs of images, two methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 10_000
"""Samples of the bootstrap."""

Subjects = Sequence[tuple[str, ...]]
"""For each value, whom it was measured on."""


@dataclass(frozen=True)
class Interval:
    """A mean and where it lies with 95 % confidence."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 is outside."""
        return self.low > 0 or self.high < 0

    def __format__(self, spec: str) -> str:
        """``mean [low, high]``, each number by `spec`."""
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def bootstrap(values: ArrayLike, subjects: Subjects | None = None, seed: int = 0) -> Interval:
    """The mean of `values` (n,) and its 95 % interval by resampling (percentiles).

    Args:
        values: scores, or differences of scores of the same pairs; values that are not finite are left out.
        subjects: for each value whom it was measured on, such as both subjects of a pair. Values that share somebody
            are not independent, and the interval is made as much wider as they vary together (`dependence`). None
            takes the values as independent.
        seed: of the resampling.
    """
    x = np.asarray(values, dtype=np.float64)
    keep = np.isfinite(x)
    if not keep.any():
        return Interval(np.nan, np.nan, np.nan)
    own = x[keep]
    drawn = np.random.default_rng(seed).integers(len(own), size=(DRAWS, len(own)))
    mean = float(own.mean())
    low, high = np.percentile(own[drawn].mean(1), [2.5, 97.5])
    wider = 1.0 if subjects is None else dependence(own, [subjects[i] for i in np.flatnonzero(keep)])
    return Interval(mean, float(mean + wider * (low - mean)), float(mean + wider * (high - mean)))


def dependence(values: ArrayLike, subjects: Subjects) -> float:
    """How much larger the standard error of the mean of `values` (n,) is because values share subjects; at least 1.

    ``sqrt(sum_ij s_ij e_i e_j / sum_i e_i^2)``, e the deviations from the mean, s_ij 1 if i and j share somebody, else
    0: the variance of a mean over pairs by Aronow, Samii and Assenova (2015) against that of independent values.
    """
    x = np.asarray(values, dtype=np.float64)
    deviation = x - x.mean()
    shared = np.array([[bool({*a} & {*b}) for b in subjects] for a in subjects], dtype=np.float64)
    alone = float(deviation @ deviation)
    together = float(deviation @ shared @ deviation)
    return math.sqrt(together / alone) if together > alone > 0 else 1.0


def paired(
    scores: ArrayLike, reference: ArrayLike, subjects: Subjects | None = None, seed: int = 0
) -> Interval:
    """Mean of ``scores - reference`` (n,) over the same pairs, with its interval as `bootstrap` has it."""
    return bootstrap(np.asarray(scores, np.float64) - np.asarray(reference, np.float64), subjects, seed)


def wilcoxon(scores: ArrayLike, reference: ArrayLike) -> float:
    """Two-sided p of the signed-rank test of equal scores; 1 where all differences are 0."""
    from scipy import stats

    difference = np.asarray(scores, np.float64) - np.asarray(reference, np.float64)
    difference = difference[np.isfinite(difference)]
    if not np.any(difference):
        return 1.0
    return float(stats.wilcoxon(difference).pvalue)


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's correction of p-values (m,): the k-th smallest times ``m - k + 1``, made monotone, at most 1."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values)
    scaled = values[order] * np.arange(len(values), 0, -1)
    result = np.empty_like(values)
    result[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return result
