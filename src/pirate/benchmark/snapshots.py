"""How far the paper's iteration has come on its way, seen through its denoiser."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pirate.benchmark.cases import Case
from pirate.denoisers.plug import PROBE, Denoiser
from pirate.ops.resample import resize_field
from pirate.registration.apply import apply
from pirate.registration.pair import Pair, Sources
from pirate.registration.result import Registration
from pirate.transform import Affine, Displacement, Transform

MOMENTS = (5, 10, 25, 50, 100, 200, 400)
"""Evaluations of the operator after which the field is remembered."""

SHOWN = 5
"""At most so many of them are shown."""


@dataclass
class Recorder:
    """A denoiser that remembers some of the fields it is shown; calls on the field of `plug`'s probe do not count.

    Args:
        denoiser: does the work.
        fields: evaluations before it to the field (1, d, *shape), voxels of the grid on which the prior acts.
    """

    denoiser: Denoiser
    fields: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    calls: int = 0

    def __call__(self, field: Tensor, sigma: float) -> Tensor:
        """Denoise `field` (1, d, *shape), voxels."""
        if tuple(field.shape[2:]) != PROBE[: field.shape[1]]:
            if self.calls in MOMENTS:
                self.fields[self.calls] = field.detach().clone()
            self.calls += 1
        return self.denoiser(field, sigma)


def images_at(
    case: Case, start: Affine | None, fields: Mapping[int, Tensor]
) -> dict[int, NDArray[np.float32]]:
    """The moving image through each of the fields, at most `SHOWN` of them, spread over all.

    Args:
        case: the pair.
        start: the affine before the fields.
        fields: (1, d, *coarse), voxels of their own grid, which spans the fixed grid with its margins.

    Returns:
        (*shape) each, the moving image's unit.
    """
    order = sorted(fields)
    some = {order[round(i)] for i in np.linspace(0, len(order) - 1, min(SHOWN, len(order)))}
    pair = Pair.read(Sources(case.fixed, case.moving, affine="none" if start is None else start))
    grid = case.fixed.grid
    working = tuple(n + a + b for n, (a, b) in zip(grid.shape, pair.margins, strict=True))
    found = {}
    for t in sorted(some):
        field = pair.inside(resize_field(fields[t], working))[0].numpy()
        parts = (Displacement(grid, field), *pair.start.parts)
        found[t] = apply(case.moving, Transform(parts), grid, outside=float(case.moving.data.min())).data
    return found


def trace_of(result: Registration) -> NDArray[np.float64]:
    """(n, 4): t, energy, residual, residual divided by the step; (0, 4) for a method that tells nothing."""
    lines = [
        (float(r.t), r.energy, r.residual, r.residual_per_step)
        for r in result.trace
        if math.isfinite(r.energy)
    ]
    return np.array(lines, dtype=np.float64).reshape(-1, 4)
