"""How well a pose brings the moving image onto the fixed one: value, gradient and curvature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pirate.energies.mutual import MutualInformation
from pirate.grid import Array
from pirate.registration.affine_images import Frame, Pose, Working, read, read_with_slope, scattered

Penalty = Literal["correlation", "mutual"]

LEAST_OVERLAP = 0.3
"""Share of the smaller of both images that must be seen; below it a pose counts as unrelated."""

FILLS_32_BINS = 1 << 14
"""So many points or more are counted in 32 x 32 bins, fewer in 16 x 16."""

LEAST_CONTRAST = 1e-6
"""Part of an image's variance that must be left in what is seen; below it a pose counts as unrelated."""

BLOCK = 1024
"""Points whose products are added up at once."""


@dataclass(frozen=True)
class Moments:
    """Weighted means, standard deviations and correlation of the moving and the fixed intensities."""

    moving_mean: float
    fixed_mean: float
    moving_deviation: float
    fixed_deviation: float
    correlation: float


@dataclass(frozen=True, eq=False)
class Samples:
    """One level: the fixed image at points, to be compared with the moving image where a pose takes them.

    Outside the moving image, and where a mask is 0, there is no data: such points have no weight.

    Args:
        points: (d + 1, N), mm, coordinates y, and a row of ones.
        fixed: (N,), intensities there.
        weight: (N,), weights in [0, 1] of the fixed mask.
        moving: the moving image at this level.
        to_voxel: (d, d + 1): coordinates q (mm) and 1 to voxels of `moving`.
        penalty: "correlation", ``1 - rho`` in [0, 2], or "mutual", minus the mutual information in nats.
        least: weight that must be seen.
        bins: of the histogram.
    """

    points: Tensor
    fixed: Tensor
    weight: Tensor
    moving: Working
    to_voxel: Array
    penalty: Penalty
    least: float
    bins: int

    @classmethod
    def between(cls, fixed: Working, moving: Working, frame: Frame, penalty: Penalty, count: int) -> Samples:
        """Scatter points over the fixed image, about `count` of them where it has weight."""
        d, grid = fixed.grid.ndim, fixed.grid
        if fixed.mask is not None:
            count = int(count / max(float(fixed.mask.double().mean()), 1 / 8))
        voxel = scattered(count, d) * (np.array(grid.shape)[:, None] - 1)
        points = np.ones((d + 1, count))
        points[:d] = frame.basis.T @ grid.axes @ voxel + frame.coordinates(grid.origin)[:, None]
        where, y = (torch.from_numpy(x).to(fixed.image) for x in (voxel, points))
        value = read(fixed.image, where)
        weight = torch.ones_like(value)
        if fixed.mask is not None:
            weight = read(fixed.mask, where)
            kept = weight > 1e-3
            y, value, weight = y[:, kept].contiguous(), value[kept], weight[kept]
        inverse = np.linalg.pinv(moving.grid.axes)
        offset = inverse @ (frame.centre - moving.grid.origin)
        to_voxel = np.concatenate([inverse @ frame.basis, offset[:, None]], 1)
        share = LEAST_OVERLAP * min(1.0, moving.volume / max(fixed.volume, 1e-30))
        bins = 32 if count >= FILLS_32_BINS else 16
        return cls(y, value, weight, moving, to_voxel, penalty, share * float(weight.sum()), bins)

    @property
    def unrelated(self) -> float:
        """The penalty of images that have nothing in common."""
        return 1.0 if self.penalty == "correlation" else 0.0

    @property
    def spacing(self) -> float:
        """mm between voxels of this level."""
        return 2 * self.moving.sigma

    @cached_property
    def radius(self) -> float:
        """mm: of the ball whose points are as far from the centre, in the mean square, as these."""
        y = self.points[:-1].double()
        return float((y.square().sum(0).mean() * (1 + 2 / len(y))).sqrt())

    @cached_property
    def floors(self) -> tuple[float, float]:
        """Least variance of the moving and the fixed intensities in what is seen."""
        moving, fixed = (LEAST_CONTRAST * float(x.double().var()) for x in (self.moving.image, self.fixed))
        return moving, fixed

    def values(self, poses: list[Pose]) -> list[float]:
        """The penalty at each pose; `unrelated` where too little is seen."""
        where = torch.stack([self._positions(pose) for pose in poses], 1)  # (d, B, N)
        result = []
        for w, weight in zip(read(self.moving.image, where), self._weight(where), strict=True):
            moments = self._moments(w, weight)
            if moments is None:
                result.append(self.unrelated)
            elif self.penalty == "correlation":
                result.append(1 - moments.correlation)
            else:
                result.append(
                    float(self._information.value_and_gradient(w[None, None], weight[None, None])[0])
                )
        return result

    def equations(self, pose: Pose) -> tuple[float, Array, Array]:
        """The penalty, its gradient (m,) and a curvature (m, m), for the m = d (d + 1) entries of the pose.

        The entries are those of ``(linear, shift)``, row by row; by them the moving intensity at the point y
        changes by ``J = slope (y, 1)^T``, slope per mm.
        """
        where = self._positions(pose)
        w, slope = read_with_slope(self.moving.image, where)
        weight = self._weight(where)
        moments = self._moments(w, weight)
        m = self.to_voxel.size
        if moments is None:
            return self.unrelated, np.zeros(m), np.eye(m)
        slope = torch.from_numpy(np.ascontiguousarray(self.to_voxel[:, :-1].T)).to(slope) @ slope
        jacobian = (slope[:, None] * self.points).flatten(0, 1)
        if self.penalty == "correlation":
            return self._correlation(w, weight, jacobian, moments)
        return self._mutual(w, weight, jacobian)

    def _correlation(
        self, w: Tensor, weight: Tensor, jacobian: Tensor, moments: Moments
    ) -> tuple[float, Array, Array]:
        """Gauss-Newton for ``g = 1 - rho = 1/2 <f - w, f - w>``, <a, b> the weighted mean of a b.

        Here f and w are scaled to mean 0 and variance 1. With J centred and c the standard deviation of the
        moving intensities, the derivative of w is ``(J - w <w, J>) / c``, and

            gradient  = -(<f, J> - rho <w, J>) / c
            curvature = (<J, J> - <w, J>^T <w, J>) / c^2
        """
        rows = torch.cat([jacobian, torch.stack([self.fixed, w, torch.ones_like(w)])])
        products = _products(rows * weight, rows)
        jj, (jf, jw, j) = products[:-3, :-3] / products[-1, -1], products[-3:, :-3] / products[-1, -1]
        c, rho = moments.moving_deviation, moments.correlation
        jw = (jw - moments.moving_mean * j) / c
        jf = (jf - moments.fixed_mean * j) / moments.fixed_deviation
        return 1 - rho, (rho * jw - jf) / c, (jj - np.outer(j, j)) / c**2 - np.outer(jw, jw) / c**2

    def _mutual(self, w: Tensor, weight: Tensor, jacobian: Tensor) -> tuple[float, Array, Array]:
        """The exact gradient; the curvature as if intensities were normal within a bin of the fixed image.

        curvature = <J / v, J>,   v the variance of w in the bin of f, plus a bin's width squared
        """
        value, force = self._information.value_and_gradient(w[None, None], weight[None, None])
        share, x, row = weight.double() / weight.double().sum(), w.double(), self._row
        count, first, second = (torch.bincount(row, share * x**k, self.bins) for k in range(3))
        count = count.clamp_min(1e-30)
        width = float(self._information.moving_range.diff()) / self.bins
        variance = (second / count - (first / count).square()).clamp_min(0) + width**2
        curvature = _products(jacobian * (share / variance[row]).to(w), jacobian)
        return float(value), _products(jacobian, force[0])[:, 0], curvature

    @cached_property
    def _information(self) -> MutualInformation:
        spans = [torch.stack(x.double().aminmax())[None] for x in (self.fixed, self.moving.image)]
        return MutualInformation(
            self.fixed[None, None], fixed_range=spans[0], moving_range=spans[1], bins=self.bins
        )

    @cached_property
    def _row(self) -> Tensor:
        """(N,): the bin of each fixed intensity."""
        low, high = self._information.fixed_range[0]
        share = (self.fixed.double() - low) / (high - low)
        row: Tensor = (share * self.bins).long().clamp_(0, self.bins - 1)
        return row

    @cached_property
    def _fixed_rows(self) -> Tensor:
        """(2, N), float64: the fixed intensities and 1."""
        f = self.fixed.double()
        return torch.stack([f, torch.ones_like(f)])

    def _moments(self, w: Tensor, weight: Tensor) -> Moments | None:
        """From intensities (N,) and weights (N,); None where too little is seen. Sums run in float64."""
        rows = torch.cat([w.double()[None], self._fixed_rows])
        sums = _products(rows * weight, rows)
        if sums[2, 2] < max(self.least, 1e-30):
            return None
        means = sums[2, :2] / sums[2, 2]
        covariance = sums[:2, :2] / sums[2, 2] - np.outer(means, means)
        if (np.diag(covariance) <= self.floors).any():
            return None
        deviations = np.sqrt(np.diag(covariance))
        rho = covariance[0, 1] / deviations.prod()
        return Moments(*(float(v) for v in (*means, *deviations, rho)))

    def _positions(self, pose: Pose) -> Tensor:
        """(d, N), voxels of the moving image: where the points go."""
        matrix = self.to_voxel[:, :-1] @ np.column_stack([pose.linear, pose.shift])
        matrix[:, -1] += self.to_voxel[:, -1]
        return torch.from_numpy(matrix).to(self.points) @ self.points

    def _weight(self, where: Tensor) -> Tensor:
        """Weight at positions (d, ..., N), voxels of the moving image; 0 outside it, (..., N)."""
        weight = self.weight.expand_as(where[0])
        for position, n in zip(where, self.moving.grid.shape, strict=True):
            weight = weight * ((position - (n - 1) / 2).abs() <= (n - 1) / 2)
        return weight if self.moving.mask is None else weight * read(self.moving.mask, where)


def _products(a: Tensor, b: Tensor) -> Array:
    """``a b^T``, (m, n), of (m, N) and (n, N), added up in float64 over blocks of fixed size.

    A library's own product divides the sum over N among its threads; this one has the same bits for any number.
    """
    count = -(-a.shape[-1] // BLOCK)
    left, right = (
        pad(x, (0, count * BLOCK - x.shape[-1])).reshape(-1, count, BLOCK).transpose(0, 1) for x in (a, b)
    )
    return np.asarray((left @ right.transpose(1, 2)).double().sum(0).cpu().numpy())
