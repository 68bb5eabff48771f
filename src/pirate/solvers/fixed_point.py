"""The plain iteration ``x <- T(x)`` of eq. (6)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from pirate.solvers.solution import Observer, Operator, Record, Solution, Status, relative_change


@torch.no_grad()
def iterate(
    operator: Operator,
    field: Tensor,
    steps: Iterable[float],
    tolerance: float,
    observe: Observer | None = None,
) -> Solution:
    """Apply `operator` until the field rests, diverges, or the steps run out.

    T moves by gamma_t times a direction, so ``|T(x) - x|`` vanishes with gamma_t wherever x is. Convergence
    is therefore judged on the change that the first step size would have made:

        residual_t * gamma_0 / gamma_t < tolerance,     residual_t = |T(x) - x| / |T(x)|

    With a constant step this is the usual test; a decaying schedule cannot pass it by decaying.

    Args:
        operator: (field, gamma) to (T(field), energy at field).
        field: (B, d, *shape), the start, finite; voxels. It is not changed.
        steps: gamma_t, each > 0.
        tolerance: see above; 0 spends every step (unless the field rests exactly).
        observe: called with every record; returning True stops the iteration after that step.

    Returns:
        The solution; its field is T(x) of the last evaluation, or x if that evaluation was not finite.
    """
    if not bool(torch.isfinite(field).all()):
        raise ValueError("the iteration must start from a finite field")
    trace: list[Record] = []
    gamma0 = 0.0
    for t, gamma in enumerate(steps):
        if not (math.isfinite(gamma) and gamma > 0):
            raise ValueError(f"step {t} must be finite and above 0, not {gamma}")
        gamma0 = gamma0 or gamma
        following, energy = operator(field, gamma)
        record = measured(t, gamma, energy, float(relative_change(field, following).max()))
        trace.append(record)
        stop = observe is not None and observe(record) is True
        if not (math.isfinite(record.residual) and math.isfinite(energy)):
            return Solution(field, Status.DIVERGED, tuple(trace), len(trace))
        field = following
        if rests(record, gamma0, tolerance):
            return Solution(field, Status.CONVERGED, tuple(trace), len(trace))
        if stop:
            return Solution(field, Status.STOPPED, tuple(trace), len(trace))
    return Solution(field, Status.EXHAUSTED, tuple(trace), len(trace))


def measured(t: int, gamma: float, energy: float, residual: float) -> Record:
    """Make the record of one evaluation; residual without unit."""
    return Record(t, gamma, float(energy), residual, residual / gamma)


def rests(record: Record, gamma0: float, tolerance: float) -> bool:
    """``residual * gamma_0 / gamma < tolerance``, or no change at all."""
    return record.residual == 0 or record.residual_per_step * gamma0 < tolerance
