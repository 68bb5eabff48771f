"""Which voxels are the subject, how bright is bright, and where tissues meet: for pictures only."""

from __future__ import annotations

import numpy as np

from pirate.reporting.display import Array

SAMPLES = 200_000


def foreground(image: Array) -> Array:
    """Voxels (*shape), bool, above the darkest value by 5 % of the robust range; all if that leaves none."""
    low, high = _range(image)
    mask = image > low + 0.05 * (high - low)
    return np.asarray(mask if mask.any() else np.ones(image.shape, dtype=bool))


def scaled(image: Array) -> Array:
    """Map the darkest value to 0 and the 99th percentile of the foreground to 1; float32 (*shape)."""
    low, high = _range(image)
    return ((image.astype(np.float32) - np.float32(low)) / np.float32(high - low)).astype(np.float32)


def tissue_levels(image: Array) -> list[float]:
    """Two intensities that part the foreground in three classes, by k-means; they guide contours."""
    values = _thinned(image)
    values = values[values > _range(image)[0] + 0.05 * np.ptp(_range(image))]
    if len(values) < 3 or np.ptp(values) == 0:
        return []
    centres = np.percentile(values, [10, 50, 90])
    for _ in range(20):
        cuts = (centres[:-1] + centres[1:]) / 2
        parts = np.split(np.sort(values), np.searchsorted(np.sort(values), cuts))
        centres = np.array([p.mean() if len(p) else c for p, c in zip(parts, centres, strict=True)])
    return [float(c) for c in (centres[:-1] + centres[1:]) / 2]


def _thinned(image: Array) -> Array:
    flat = image.reshape(-1)
    flat = flat[:: max(1, flat.size // SAMPLES)].astype(np.float64)
    return np.asarray(flat[np.isfinite(flat)])


def _range(image: Array) -> tuple[float, float]:
    """Darkest value and 99th percentile of what is brighter."""
    values = _thinned(image)
    low = float(values.min()) if values.size else 0.0
    above = values[values > low]
    high = float(np.percentile(above, 99)) if above.size else low + 1.0
    return low, high
