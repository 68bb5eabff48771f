"""What a solver returns, and why it stopped."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate import kernels

Operator = Callable[[Tensor, float], tuple[Tensor, float]]
"""(field, gamma) to T(field), of the same shape, and the energy AT `field`; leaves its argument unchanged."""


class Status(enum.Enum):
    """Why the iteration stopped; the value is the sentence for the user."""

    CONVERGED = "the field changed by less than the tolerance"
    EXHAUSTED = "all iterations were spent before the tolerance was met"
    DIVERGED = "the field or its energy stopped being finite; the last finite field is returned"
    STOPPED = "the iteration was asked to stop before the tolerance was met"
    SETTLED = "on every level the data term stopped improving"
    FINISHED = "the steps were spent before the data term stopped improving on every level"
    OVERTIME = "the time budget was spent; the field is the best so far"
    ENDED = "the method ended by its own rule"


@dataclass(frozen=True)
class Record:
    """One evaluation of the operator.

    Args:
        t: its index, from 0.
        gamma: the step size it was given.
        energy: at the field it was given.
        residual: ``|T(x) - x| / |T(x)|``, the largest of the batch, without unit; the compositional scheme takes
            the longest vectors, before the field is smoothed.
        residual_per_step: residual / gamma; this does not vanish just because the step does.
    """

    t: int
    gamma: float
    energy: float
    residual: float
    residual_per_step: float


Observer = Callable[[Record], bool | None]
"""Called after every evaluation; returning True asks the solver to stop."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the iteration ended.

    Args:
        field: (B, d, *shape), voxels (or whatever the operator works on).
        status: why it stopped.
        trace: one record per evaluation, rejected ones included.
        evaluations: how often the operator was called.
        notes: sentences about what else was done.
    """

    field: Tensor
    status: Status
    trace: tuple[Record, ...]
    evaluations: int
    notes: tuple[str, ...] = ()


def relative_change(field: Tensor, following: Tensor) -> Tensor:
    """``|T(x) - x| / |T(x)|`` for each element of the batch, with sums in float64.

    Where T(x) is 0 the norm of x takes its place (so the ratio is 1), and where both are 0 it is 0.

    Args:
        field: x, (B, ...), any unit.
        following: T(x), (B, ...), same unit.

    Returns:
        (B,), float64, without unit.
    """
    if kernels.usable(field, following):
        change, length = kernels.change(field, following)
    else:
        change, length = norm(following - field), norm(following)
    scale = length if bool((length > 0).all()) else torch.where(length > 0, length, norm(field))
    return torch.where(change > 0, change / scale, change)


def norm(x: Tensor) -> Tensor:
    """Euclidean length of each element of the batch, summed in float64: (B, ...) to (B,), the unit of `x`."""
    length: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64)
    return length
