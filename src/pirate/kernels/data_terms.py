"""Data terms that compare two images voxel by voxel, compiled: value, derivative, and what to check them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pirate import kernels
from pirate.kernels.memory import at, dense, displacement, integers, like, sizes, target


class Moments(NamedTuple):
    """Sums over each image, (B,) float64: of the weights q (1 without masks), q f, q f^2, q w, q w^2."""

    weight: Tensor
    fixed: Tensor
    fixed_squares: Tensor
    warped: Tensor
    warped_squares: Tensor


class DataTerm(NamedTuple):
    """What a data term gives."""

    value: Tensor
    """g, (B,), float64."""
    gradient: Tensor
    """With a field, dg/dwarped times the central difference of warped, (B, d, *shape), per voxel; without one
    dg/dwarped, (B, 1, *shape); empty, (0,), where it was not wanted."""
    moments: Moments
    """An empty mask, a constant image or one that is not finite shows here; `value` is then worth nothing."""


class Pair(NamedTuple):
    """What a data term reads.

    With a field, ``warped = moving(x + field(x))``, and `moving_mask` is warped with it. Without one `moving`
    and `moving_mask` are warped already.
    """

    fixed: Tensor | None
    """(B, 1, *shape), any unit."""
    moving: Tensor
    """(B, 1, *shape), any unit."""
    field: Tensor | None = None
    """(B, d, *shape), voxels."""
    fixed_mask: Tensor | None = None
    """(B, 1, *shape), weights >= 0; 1 everywhere if None."""
    moving_mask: Tensor | None = None
    """(B, 1, *shape), weights >= 0; 1 everywhere if None."""


def gradient_product(warped: Tensor, coefficient: Tensor, out: Tensor | None = None) -> Tensor:
    """``coefficient * (warped(x + e_a) - warped(x - e_a)) / 2`` for each axis a, one-sided at the borders.

    Args:
        warped: (B, 1, *shape), any unit.
        coefficient: (B, 1, *shape), any unit.
        out: (B, d, *shape).

    Returns:
        (B, d, *shape), the product of both units per voxel; 0 along an axis of one voxel.
    """
    warped = dense("warped", warped, channels=1)
    coefficient = like("coefficient", coefficient, warped)
    shape = (len(warped), warped.ndim - 2, *warped.shape[2:])
    out = target(out, shape, warped, coefficient)
    for b in range(len(warped)):
        kernels._extension.gradient_product(sizes(warped), *at(b, warped, coefficient, out))
    return out


def squared_error(pair: Pair, out: Tensor | None = None, gradient: bool = True) -> DataTerm:
    """``g = sum q (w - f)^2 / sum q``, squared intensity; `out` and `gradient` as in `mutual_information`."""
    return _evaluate(lambda n, term, b: kernels._extension.squared_error(n, term), pair, out, gradient)


def correlation(pair: Pair, out: Tensor | None = None, gradient: bool = True) -> DataTerm:
    """``g = 1 - rho``, no unit, rho over all voxels; `out` and `gradient` as in `mutual_information`."""
    return _evaluate(lambda n, term, b: kernels._extension.correlation(n, term), pair, out, gradient)


def mutual_information(
    pair: Pair,
    rows: Tensor,
    bins: int,
    span: list[list[float]],
    out: Tensor | None = None,
    gradient: bool = True,
) -> DataTerm:
    """Minus the mutual information, nats, by the histogram of `pirate.energies.mutual`.

    Args:
        pair: the images; `fixed` is read for its moments only, and may be None: they are then 0.
        rows: (B, 1, *shape), int16, the bin of each voxel of the fixed image, 0 to ``bins - 1``.
        bins: for each image, 5 to 32767.
        span: lowest and highest intensity of moving, for each image of the batch.
        out: for the gradient: (B, d, *shape) with a field, (B, 1, *shape) without.
        gradient: whether it is wanted.
    """
    rows = integers("rows", rows, pair.moving)

    def call(n: list[int], term: list[int], b: int) -> tuple[float, ...]:
        address = rows.data_ptr() + 2 * b * rows.stride(0)
        found: tuple[float, ...] = kernels._extension.mutual_information(n, term, address, bins, *span[b])
        return found

    return _evaluate(call, pair, out, gradient)


def _evaluate(
    call: Callable[[list[int], list[int], int], tuple[float, ...]],
    pair: Pair,
    out: Tensor | None,
    gradient: bool,
) -> DataTerm:
    """One call for each image, with the addresses of `DataTerm` in data_term.hpp."""
    moving = dense("moving", pair.moving, channels=1)
    field = None if pair.field is None else displacement(pair.field, moving)
    fixed, fixed_mask, moving_mask = (
        None if x is None else like(name, x, moving)
        for name, x in (
            ("fixed", pair.fixed),
            ("fixed mask", pair.fixed_mask),
            ("moving mask", pair.moving_mask),
        )
    )
    read = [fixed, moving, field, fixed_mask, moving_mask]
    if gradient:
        shape = moving.shape if field is None else field.shape
        out = target(out, shape, *[x for x in read if x is not None])
    written = out if gradient else None
    found = []
    for b in range(len(moving)):
        term = [0 if x is None else at(b, x)[0] for x in (*read, written)]
        found.append(call(sizes(moving), term, b))
    value, *sums = torch.tensor(found, dtype=torch.float64).unbind(1)
    return DataTerm(value, torch.empty(0) if written is None else written, Moments(*sums))
