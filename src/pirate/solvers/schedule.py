"""Step sizes gamma_t, t = 0 ... iterations - 1."""

from __future__ import annotations

import math


def constant(gamma: float, iterations: int) -> tuple[float, ...]:
    """``gamma_t = gamma``."""
    _check(gamma, iterations)
    return (gamma,) * iterations


def cosine(gamma0: float, iterations: int) -> tuple[float, ...]:
    """Eq. (16): ``gamma_t = gamma0 / 2 * (1 + cos(pi t / t_max))`` with t from 0 and t_max = `iterations`.

    The first step is gamma0; the step at t_max, which would be 0, is not taken.
    """
    _check(gamma0, iterations)
    return tuple(gamma0 / 2 * (1 + math.cos(math.pi * t / iterations)) for t in range(iterations))


def _check(gamma: float, iterations: int) -> None:
    """Refuse a schedule that cannot move."""
    if not (math.isfinite(gamma) and gamma > 0 and iterations >= 1):
        raise ValueError(f"a schedule needs gamma > 0 and iterations >= 1, not {gamma} and {iterations}")
