"""Anderson acceleration of ``x <- T(x)`` for a stationary map, with a safeguard.

With r_i = T(x_i) - x_i for the last `memory` points:

    a       = argmin |sum_i a_i r_i|^2 + ridge h |a|^2   subject to  sum_i a_i = 1
    x_next  = sum_i a_i (x_i + mixing r_i)

The Gram matrix H_ij = <r_i, r_j> is float64 and gains one row per evaluation; h is its mean diagonal, so the
ridge means the same whether residuals are 1e3 or 1e-6. With mu the multiplier of the constraint,

    | H + ridge h I   1 | |a |   |0|
    |       1^T       0 | |mu| = |1|
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pirate.solvers.fixed_point import measured, rests
from pirate.solvers.solution import Observer, Operator, Record, Solution, Status, norm, relative_change

CHUNK = 1 << 18  # numbers converted to float64 at a time


@torch.no_grad()
def accelerate(
    operator: Operator,
    field: Tensor,
    gamma: float,
    *,
    iterations: int,
    tolerance: float,
    memory: int = 5,
    mixing: float = 1.0,
    ridge: float = 1e-8,
    growth: float = 1.5,
    observe: Observer | None = None,
) -> Solution:
    """Find a fixed point of the stationary map ``x -> T(x, gamma)``.

    gamma is one number on purpose: residuals of different maps must not be mixed. Each element of the batch
    has its own history. Where a residual grows beyond `growth` times the smallest one in the history, or is
    not finite, the point is rejected: the element goes on with a plain step from its best point and an empty
    history. Memory: 2 `memory` states.

    Args:
        operator: (field, gamma) to (T(field), energy at field).
        field: (B, d, *shape), the start, finite; voxels. It is not changed.
        gamma: the step size handed to the operator, > 0.
        iterations: most evaluations of the operator, >= 1.
        tolerance: stop when ``|T(x) - x| / |T(x)|`` of every element is below it.
        memory: points in the history, >= 1; 1 is the plain (damped) iteration.
        mixing: share of the residual that is added, in (0, 1].
        ridge: regularisation relative to the mean diagonal of the Gram matrix, >= 0.
        growth: see above, >= 1; infinity accepts every finite point.
        observe: called with every record; returning True stops the iteration.

    Returns:
        The solution. Its field is a plain step T(x): from the point that met the tolerance, else from the
        best point of the history, so that no unverified extrapolation is returned.
    """
    _check(field, gamma, iterations, tolerance, memory, mixing, ridge, growth)
    histories = [_History(x.flatten(), min(memory, iterations)) for x in field]
    trace: list[Record] = []
    status = Status.EXHAUSTED
    for t in range(iterations):
        following, energy = operator(field, gamma)
        relative = relative_change(field, following)
        record = measured(t, gamma, energy, float(relative.max()))
        trace.append(record)
        stop = observe is not None and observe(record) is True
        finite = torch.isfinite(relative) & math.isfinite(energy)
        if bool(finite.all()) and rests(record, gamma, tolerance):
            return Solution(following, Status.CONVERGED, tuple(trace), len(trace))
        accepted = [
            known and history.offer(x.flatten(), following_x.flatten(), growth)
            for history, x, following_x, known in zip(
                histories, field, following, finite.tolist(), strict=True
            )
        ]
        if any(not history.size for history in histories):  # a plain step led to a point without a value
            status = Status.DIVERGED
            break
        if stop:
            status = Status.STOPPED
            break
        if t + 1 < iterations:
            steps = [
                h.mixed(mixing, ridge) if good else h.restart()
                for h, good in zip(histories, accepted, strict=True)
            ]
            field = torch.stack(steps).view_as(field)
    rest = [h.best_step() if h.size else x.flatten() for h, x in zip(histories, field, strict=True)]
    return Solution(torch.stack(rest).view_as(field), status, tuple(trace), len(trace))


class _History:
    """The last points x_i and residuals r_i of one element of the batch, (memory, n), and their Gram."""

    def __init__(self, x: Tensor, memory: int) -> None:
        self.points = x.new_empty((memory, x.numel()))
        self.residuals = torch.empty_like(self.points)
        self.gram = torch.zeros((memory, memory), dtype=torch.float64)
        self.count = 0

    @property
    def size(self) -> int:
        """Number of points held."""
        return min(self.count, len(self.points))

    def offer(self, x: Tensor, following: Tensor, growth: float) -> bool:
        """Take in x and T(x), (n,), unless the residual is longer than `growth` times the shortest held."""
        slot, size = self.count % len(self.points), self.size
        r = following - x
        shortest = math.sqrt(self.gram.diagonal()[:size].min()) if size else math.inf
        if float(norm(r[None])) > growth * shortest:
            return False
        self.points[slot], self.residuals[slot] = x, r
        self.count += 1
        row = _inner(self.residuals[: self.size], r)
        self.gram[slot, : self.size] = row
        self.gram[: self.size, slot] = row
        return True

    def best_step(self) -> Tensor:
        """Return x + r, (n,), of the point with the shortest residual."""
        best = int(self.gram.diagonal()[: self.size].argmin())
        return self.points[best] + self.residuals[best]

    def restart(self) -> Tensor:
        """Return `best_step` and forget everything."""
        following = self.best_step()
        self.count = 0
        return following

    def mixed(self, mixing: float, ridge: float) -> Tensor:
        """Return ``sum_i a_i (x_i + mixing r_i)``, (n,).

        As the weights sum to 1 this is ``x + sum_i a_i (x_i - x) + mixing sum_i a_i r_i`` with x the newest
        point: differences of near points are exact, so that large weights do not amplify rounding.
        """
        newest = (self.count - 1) % len(self.points)
        following = self.points[newest].clone()
        for i, a in enumerate(_weights(self.gram[: self.size, : self.size], ridge, newest)):
            following.add_(self.residuals[i], alpha=a * mixing)
            if i != newest:
                following.add_(self.points[i] - self.points[newest], alpha=a)
        return following


def _weights(gram: Tensor, ridge: float, newest: int) -> list[float]:
    """Minimise ``a^T H a + ridge h |a|^2`` over sum(a) = 1; the newest point alone if that is singular."""
    size, scale = len(gram), float(gram.diagonal().mean())
    if scale > 0:
        bordered = torch.ones((size + 1, size + 1), dtype=torch.float64)
        bordered[:size, :size] = gram / scale + ridge * torch.eye(size, dtype=torch.float64)
        bordered[size, size] = 0
        right = torch.zeros(size + 1, dtype=torch.float64)
        right[size] = 1
        solution, failed = torch.linalg.solve_ex(bordered, right)
        if not int(failed) and bool(torch.isfinite(solution).all()):
            return [float(a) for a in solution[:size]]
    return [float(i == newest) for i in range(size)]


def _inner(rows: Tensor, r: Tensor) -> Tensor:
    """Products of `rows` (m, n) with `r` (n,), formed and summed in float64 piece by piece: (m,)."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=r.device)
    for start in range(0, r.numel(), CHUNK):
        piece = slice(start, start + CHUNK)
        total += rows[:, piece].double() @ r[piece].double()
    return total.cpu()


def _check(
    field: Tensor,
    gamma: float,
    iterations: int,
    tolerance: float,
    memory: int,
    mixing: float,
    ridge: float,
    growth: float,
) -> None:
    """Refuse settings without meaning."""
    laws = {
        "the start must be finite": bool(torch.isfinite(field).all()),
        "gamma must be finite and above 0": math.isfinite(gamma) and gamma > 0,
        "iterations must be at least 1": iterations >= 1,
        "tolerance must not be negative": tolerance >= 0,
        "memory must be at least 1": memory >= 1,
        "mixing must lie in (0, 1]": 0 < mixing <= 1,
        "ridge must be finite and not negative": math.isfinite(ridge) and ridge >= 0,
        "growth must be at least 1": growth >= 1,
    }
    broken = [law for law, holds in laws.items() if not holds]
    if broken:
        raise ValueError("; ".join(broken))
