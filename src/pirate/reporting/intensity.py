"""Which voxels are the subject, how bright is bright, and where tissues meet: for pictures only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pirate.reporting.display import Array

SAMPLES = 200_000


@dataclass(frozen=True, eq=False)
class Shown:
    """An image (*shape), its darkest value, and the 99th percentile of what is brighter."""

    image: Array
    low: float
    high: float

    @classmethod
    def of(cls, image: Array) -> Shown:
        """Find the range from at most `SAMPLES` to twice as many voxels."""
        values = _thinned(image)
        low = float(values.min()) if values.size else 0.0
        above = values[values > low]
        return cls(image, low, float(np.percentile(above, 99)) if above.size else low + 1.0)

    @property
    def edge(self) -> float:
        """What is brighter is the subject: above the darkest value by 5 % of the range."""
        return self.low + 0.05 * (self.high - self.low)

    def foreground(self) -> Array:
        """Voxels (*shape), bool, of the subject; all if that leaves none."""
        mask = self.image > self.edge
        return np.asarray(mask if mask.any() else np.ones(self.image.shape, dtype=bool))

    def scaled(self, part: Array) -> Array:
        """Map the darkest value to 0 and the 99th percentile to 1, for any `part` of the image; float32."""
        return ((part.astype(np.float32) - np.float32(self.low)) / np.float32(self.high - self.low)).astype(
            np.float32
        )

    def tissue_levels(self) -> list[float]:
        """Two intensities that part the foreground in three classes, by k-means; they guide contours."""
        values = _thinned(self.image)
        values = np.sort(values[values > self.edge])
        if len(values) < 3 or np.ptp(values) == 0:
            return []
        centres = np.percentile(values, [10, 50, 90])
        for _ in range(20):
            parts = np.split(values, np.searchsorted(values, (centres[:-1] + centres[1:]) / 2))
            centres = np.array([p.mean() if len(p) else c for p, c in zip(parts, centres, strict=True)])
        return [float(c) for c in (centres[:-1] + centres[1:]) / 2]


def _thinned(image: Array) -> Array:
    flat = image.reshape(-1)
    flat = flat[:: max(1, flat.size // SAMPLES)].astype(np.float64)
    return np.asarray(flat[np.isfinite(flat)])


def smoothed(plane: Array, sigma: float) -> Array:
    """Gaussian of `sigma` pixels on (rows, columns), float32; the border is mirrored."""
    radius = int(4 * sigma + 0.5)
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).astype(np.float32)
    taps /= taps.sum()
    result = plane.astype(np.float32)
    for axis in range(2):
        padded = np.pad(
            result, [(radius, radius) if a == axis else (0, 0) for a in range(2)], mode="symmetric"
        )
        n = result.shape[axis]
        result = np.sum([tap * np.take(padded, range(i, i + n), axis) for i, tap in enumerate(taps)], axis=0)
    return np.asarray(result)


def without_holes(mask: Array) -> Array:
    """A mask (rows, columns), bool, with what it encloses, along rows and columns, filled in.

    From the border, everything that can be reached through the gaps is outside; reaching goes along whole runs of
    gaps in a row, then in a column, until nothing is added.
    """
    gaps = np.pad(~mask, 1, constant_values=True)
    reached = np.zeros_like(gaps)
    reached[0] = True
    before = 0
    while (count := int(reached.sum())) != before:
        before = count
        reached = _along_rows(reached, gaps)
        reached = _along_rows(reached.T, gaps.T).T
    return np.asarray(~reached[1:-1, 1:-1])


def _along_rows(reached: Array, gaps: Array) -> Array:
    """All gaps of each run of gaps in a row of which one is reached."""
    starts = gaps & ~np.pad(gaps, ((0, 0), (1, 0)))[:, :-1]
    run = np.cumsum(starts.ravel()).reshape(gaps.shape)  # gaps of one run bear one number
    hit = np.zeros(int(run.max()) + 1, dtype=bool)
    hit[run[reached & gaps]] = True
    return np.asarray(hit[run] & gaps)
