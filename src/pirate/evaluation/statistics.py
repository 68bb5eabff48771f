"""Intervals and tests for paired scores: the same pairs of images, two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 10_000
"""Samples of the bootstrap."""


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


def bootstrap(values: ArrayLike, seed: int = 0, groups: Sequence[object] | None = None) -> Interval:
    """The mean of `values` (n,) and its 95 % interval by resampling (percentiles).

    Args:
        values: scores, or differences of scores of the same pairs; values that are not finite are left out.
        seed: of the resampling.
        groups: one for each value; whole groups are drawn instead of single values, for values that share a
            subject are not independent. None draws single values.
    """
    x = np.asarray(values, dtype=np.float64)
    keep = np.isfinite(x)
    if not keep.any():
        return Interval(np.nan, np.nan, np.nan)
    named = [i if groups is None else groups[i] for i in np.flatnonzero(keep)]
    order = {name: k for k, name in enumerate(dict.fromkeys(named))}
    member = np.array([order[name] for name in named])
    sums = np.bincount(member, x[keep])
    sizes = np.bincount(member)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(DRAWS, len(sums)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(x[keep].mean()), float(low), float(high))


def paired(scores: ArrayLike, reference: ArrayLike, seed: int = 0) -> Interval:
    """Mean of ``scores - reference`` (n,) over the same pairs, with its bootstrap interval."""
    return bootstrap(np.asarray(scores, np.float64) - np.asarray(reference, np.float64), seed)


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
