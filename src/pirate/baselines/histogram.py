"""One image's intensities mapped to another's by their histograms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def matched_histogram(
    moving: NDArray[np.float32], fixed: NDArray[np.float32], points: int = 7
) -> NDArray[np.float32]:
    """Map the intensities of `moving` so that its bright voxels have the quantiles of `fixed`'s.

    Bright is above an image's mean. The map is linear between the knots: smallest value, mean, `points` quantiles of
    the bright voxels, largest value. Quantiles are values that occur, so that the map takes them over exactly.

    Args:
        moving: any shape, any intensity unit.
        fixed: any shape, the unit of the result.
        points: quantiles between the mean and the largest value, evenly spaced.

    Returns:
        shape of `moving`, unit of `fixed`.
    """
    knots, values = _knots(moving, points), _knots(fixed, points)
    kept = np.concatenate([[True], np.diff(knots) > 0])  # equal knots have no slope between them
    matched: NDArray[np.float32] = np.interp(moving, knots[kept], values[kept]).astype(np.float32)
    return matched


def _knots(image: NDArray[np.float32], points: int) -> NDArray[np.float64]:
    mean = float(image.mean(dtype=np.float64))
    bright = image[image > mean]
    at = np.linspace(0, 1, points + 2)[1:-1]
    inner = np.quantile(bright, at, method="inverted_cdf") if bright.size else np.full(points, mean)
    return np.array([image.min(), mean, *inner, image.max()], dtype=np.float64)
