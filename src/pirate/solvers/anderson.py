"""Anderson acceleration of ``x <- T(x)`` for a stationary map, with a safeguard.

With r_i = T(x_i) - x_i for the last `memory` points:

    a       = argmin |sum_i a_i r_i|^2 + ridge h |a|^2   subject to  sum_i a_i = 1
    x_next  = sum_i a_i (x_i + mixing r_i)

The Gram matrix H_ij = <r_i, r_j> is float64 and gains one row per evaluation; h is its mean diagonal, so the
ridge means the same whether residuals are 1e3 or 1e-6. The minimiser is a = y / sum(y), (H + ridge h I) y = 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pirate.solvers.fixed_point import measured, rests
from pirate.solvers.solution import Observer, Operator, Record, Solution, Status, relative_change

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
    history = _History(field, min(memory, iterations))
    trace: list[Record] = []
    for t in range(iterations):
        following, energy = operator(field, gamma)
        residuals = relative_change(field, following)
        record = measured(t, gamma, energy, float(residuals.max()))
        trace.append(record)
        stop = observe is not None and observe(record) is True
        finite = torch.isfinite(residuals) & math.isfinite(energy)
        if rests(record, gamma, tolerance) and bool(finite.all()):
            return Solution(following, Status.CONVERGED, tuple(trace), len(trace))
        refused = history.add(field, following, finite.tolist(), growth)
        if any(bad and history.empty(b) for b, bad in enumerate(refused)):
            return Solution(history.fallback(field), Status.DIVERGED, tuple(trace), len(trace))
        if stop or t == iterations - 1:
            status = Status.STOPPED if stop else Status.EXHAUSTED
            return Solution(history.best_step(), status, tuple(trace), len(trace))
        field = history.mixed(refused, mixing, ridge)
    raise AssertionError("unreachable")
