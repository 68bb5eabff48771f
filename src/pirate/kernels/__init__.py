"""The operators of ``ops`` and the energies as compiled CPU loops, fused, without autograd.

One thin file over the extension ``_kernels`` (C++ in ``src/``). Callers ask `usable` first; where it says no,
the torch twins run. Results are the same bits for any number of threads. Threads: `set_threads`, else
``PIRATE_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the cores available. ``PIRATE_SIMD`` may name a slower
instruction set than the machine's best: ``baseline``, ``avx2``, ``avx512``.

Every function takes dense or strided CPU float32 tensors and returns new dense ones; where it has `out`, it
writes there and returns it: a new large tensor costs as much as the work, because the system hands out its
pages one by one.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pirate.kernels import data_terms
from pirate.kernels.memory import at, dense, displacement, flags, half_taps, like, sizes, target, window


def _load() -> Any:
    try:
        return importlib.import_module("pirate.kernels._kernels")
    except ImportError as error:
        logging.getLogger("pirate").warning("compiled kernels missing, slower torch code runs: %s", error)
        return None


_extension = _load()


def available() -> bool:
    """Whether the compiled extension is there."""
    return _extension is not None


_enabled = True


@contextmanager
def disabled() -> Iterator[None]:
    """Inside the block the torch twins run: to compare with them, or to time them."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels take these: CPU, float32, no derivative wanted, two voxels or more in a row."""
    return (available() and _enabled) and all(
        t.device.type == "cpu"
        and t.dtype == torch.float32
        and t.ndim in (4, 5)
        and t.shape[-1] >= 2
        and 0 < t.numel() < 2**31
        and not (torch.is_grad_enabled() and t.requires_grad)
        for t in tensors
    )


def threads() -> int:
    """Number of threads that the next kernel uses."""
    return int(_extension.threads()) if available() else torch.get_num_threads()


def set_threads(n: int) -> None:
    """Use `n` threads from now on; 0 returns to the environment's choice."""
    if available():
        _extension.set_threads(n)


def variant() -> str:
    """Instruction set in use: "baseline", "avx2" or "avx512"; "none" without the extension."""
    return str(_extension.variant()) if available() else "none"


def warp(
    image: Tensor, field: Tensor, padding: Literal["zeros", "border"] = "zeros", out: Tensor | None = None
) -> Tensor:
    """``image(x + field(x))``, linear: (B, C, *shape), (B, d, *shape) in voxels -> (B, C, *shape)."""
    image, field = dense("image", image), displacement(field, image)
    out = target(out, image.shape, image, field)
    for b in range(len(image)):
        _extension.warp(
            sizes(image), image.shape[1], *at(b, image, field), padding == "border", False, *at(b, out)
        )
    return out


def warp_with_gradient(image: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
    """Warped image and the derivative of its interpolant at ``x + field(x)``, zeros outside.

    Args:
        image: (B, 1, *shape), any unit.
        field: (B, d, *shape), voxels.

    Returns:
        warped (B, 1, *shape), unit of `image`; gradient (B, d, *shape), unit of `image` per voxel.
    """
    image = dense("image", image, channels=1)
    field = displacement(field, image)
    warped, gradient = torch.empty_like(image), torch.empty_like(field)
    for b in range(len(image)):
        _extension.warp_with_gradient(sizes(image), *at(b, image, field, warped, gradient))
    return warped, gradient


def global_correlation(
    fixed: Tensor, moving: Tensor, field: Tensor, weight: Tensor | None = None, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``g = 1 - rho(fixed, warped)`` and its derivative with respect to the field, at the field's resolution.

    ``warped = warp(moving, resize_field(field, shape))``; rho is the (weighted) correlation over all
    voxels. A constant image has g = 1 and gradient 0.

    Args:
        fixed: (B, 1, *shape), any unit.
        moving: (B, 1, *shape), any unit.
        field: (B, d, *grid), voxels of its own grid.
        weight: (B, 1, *shape), >= 0, or None for 1 everywhere.
        out: (B, d, *grid) for the gradient.

    Returns:
        value (B,) float64; gradient (B, d, *grid), per voxel of the field's grid.
    """
    fixed = dense("fixed", fixed, channels=1)
    moving, weight = like("moving", moving, fixed), None if weight is None else like("weight", weight, fixed)
    field = displacement(field, fixed, any_resolution=True)
    shape, grid = fixed.shape[2:], field.shape[2:]
    if shape != grid and not (
        4 * math.prod(grid) <= math.prod(shape) and all(g <= n for g, n in zip(grid, shape, strict=True))
    ):
        value, force = global_correlation(fixed, moving, resize_field(field, shape), weight)
        return value, resize_field_adjoint(force, grid, out)
    gradient = target(out, field.shape, fixed, moving, field)
    value = torch.empty(len(fixed), dtype=torch.float64)
    for b in range(len(fixed)):
        (q,) = (0,) if weight is None else at(b, weight)
        value[b] = _extension.global_correlation(
            sizes(fixed), sizes(field), *at(b, fixed, moving, field), q, *at(b, gradient)
        )
    return value, gradient


def local_correlation(
    fixed: Tensor,
    warped: Tensor,
    radius: int,
    squared: bool = True,
    epsilon: float = 1e-5,
    weight: Tensor | None = None,
    out: Tensor | None = None,
    intensity: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """``1 - mean of local (squared) correlation`` in boxes, and its exact derivative by `warped`.

    Args:
        fixed: (B, 1, *shape), any unit.
        warped: (B, 1, *shape), any unit.
        radius: the box has ``2 radius + 1`` voxels along each axis; 1 to 64.
        squared: ``cross^2 / (vf vw + epsilon)`` or ``cross / sqrt(vf vw + epsilon)``.
        epsilon: > 0, unit of intensity to the fourth power.
        weight: (B, 1, *shape), >= 0, or None for 1 everywhere.
        out: (B, 1, *shape) for the gradient.
        intensity: >= 0; adds so many times the mean of ``(warped - fixed)^2``, taken as 0 where fixed is 0.

    Returns:
        value (B,) float64; gradient (B, 1, *shape).
    """
    window(radius, epsilon)
    fixed = dense("fixed", fixed, channels=1)
    warped, weight = like("warped", warped, fixed), None if weight is None else like("weight", weight, fixed)
    gradient = target(out, fixed.shape, fixed, warped)
    value = torch.empty(len(fixed), dtype=torch.float64)
    for b in range(len(fixed)):
        (q,) = (0,) if weight is None else at(b, weight)
        value[b] = _extension.local_correlation(
            sizes(fixed), *at(b, fixed, warped), q, radius, squared, epsilon, intensity, *at(b, gradient)
        )
    return value, gradient


def local_correlation_force(
    fixed: Tensor,
    moving: Tensor,
    field: Tensor,
    radius: int,
    squared: bool = True,
    epsilon: float = 1e-5,
    scheme: Literal["additive", "compositional"] = "compositional",
    out: Tensor | None = None,
    weight: Tensor | None = None,
    intensity: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`local_correlation` of fixed and warped, and its gradient times the gradient of the image.

    Args:
        fixed: (B, 1, *shape), any unit; where it is exactly 0 in a whole box there is no work.
        moving: (B, 1, *shape), any unit.
        field: (B, d, *shape), voxels.
        radius: the box has ``2 radius + 1`` voxels along each axis; 1 to 64.
        squared: see `local_correlation`.
        epsilon: see `local_correlation`.
        scheme: "additive" multiplies with the derivative of `moving` at ``x + field(x)``: the exact
            derivative of the value by the field; "compositional" with the central difference of the warped image.
        out: (B, d, *shape) for the force.
        weight: (B, 1, *shape), >= 0, on the grid of fixed, or None for 1 everywhere.
        intensity: see `local_correlation`.

    Returns:
        value (B,) float64; force (B, d, *shape), per voxel.
    """
    window(radius, epsilon)
    fixed = dense("fixed", fixed, channels=1)
    moving, field = like("moving", moving, fixed), displacement(field, fixed)
    weight = None if weight is None else like("weight", weight, fixed)
    force = target(out, field.shape, fixed, moving, field)
    value = torch.empty(len(fixed), dtype=torch.float64)
    for b in range(len(fixed)):
        value[b] = _extension.local_correlation_force(
            sizes(fixed),
            *at(b, fixed, moving, field),
            radius,
            squared,
            epsilon,
            intensity,
            scheme == "compositional",
            *at(b, force),
            *([0] if weight is None else at(b, weight)),
        )
    return value, force


def gaussian(
    x: Tensor, sigma: float | Sequence[float], truncate: float = 3.0, out: Tensor | None = None
) -> Tensor:
    """Gaussian of `sigma` voxels (one, or one per axis; 0: none) on (B, C, *shape), border repeated."""
    x = dense("x", x)
    taps = _taps(x, sigma, truncate)
    out = target(out, x.shape, x)
    for b in range(len(x)):
        _extension.correlate(sizes(x), x.shape[1], *at(b, x), taps, *at(b, out))
    return out


def _taps(x: Tensor, sigma: float | Sequence[float], truncate: float) -> list[list[float]]:
    sigmas = [sigma] * (x.ndim - 2) if isinstance(sigma, int | float) else sigma
    return [half_taps(float(s), truncate) for s in sigmas]


def compose(outer: Tensor, inner: Tensor, out: Tensor | None = None) -> Tensor:
    """``inner + outer(x + inner)``, the border of `outer` repeated; all (B, d, *shape), voxels."""
    outer = dense("outer", outer)
    inner = displacement(inner, outer)
    out = target(out, outer.shape, outer, inner)
    for b in range(len(outer)):
        _extension.warp(sizes(outer), outer.shape[1], *at(b, outer, inner), True, True, *at(b, out))
    return out


def compose_adjoint(
    outer: Tensor, inner: Tensor, cotangent: Tensor, wanted: tuple[bool, bool] = (True, True)
) -> tuple[Tensor | None, Tensor | None]:
    """Derivatives of a number by the arguments of `compose`, from that by its result.

    Args:
        outer: (B, d, *shape), voxels.
        inner: (B, d, *shape), voxels.
        cotangent: (B, d, *shape), the derivative by ``compose(outer, inner)``, per voxel.
        wanted: by which of the two; None is returned for the other.

    Returns:
        The derivatives by `outer` and by `inner`, (B, d, *shape) each, per voxel. On the border and outside, where
        the border of `outer` is repeated, its slope is 0.
    """
    outer = dense("outer", outer)
    inner, cotangent = displacement(inner, outer), like("cotangent", cotangent, outer)
    found = [torch.empty_like(outer) if want else None for want in wanted]
    places = [0 if x is None else x.data_ptr() for x in found]
    _extension.compose_adjoint(sizes(outer), len(outer), *at(0, outer, inner, cotangent), *places)
    return found[0], found[1]


def compose_small(
    field: Tensor, update: Tensor, scale: Sequence[float] | None = None, out: Tensor | None = None
) -> Tensor:
    """``field(x + d) + d`` for steps up to one voxel, by an upwind star instead of interpolation.

    ``u(x) + sum over a of |d_a| (u(x + sign(d_a) e_a) - u(x)) + d``, ``|d_a| <= 1``, border repeated, with
    ``d_a = scale_a update_a``.

    Args:
        field: u, (B, d, *shape), voxels.
        update: (B, d, *shape), applied first.
        scale: a factor for each component of the update, 1 by default.
        out: (B, d, *shape), neither of the two.

    Returns:
        (B, d, *shape), voxels.
    """
    field = dense("field", field)
    update = displacement(update, field)
    factors = [1.0] * field.shape[1] if scale is None else [float(s) for s in scale]
    out = target(out, field.shape, field, update)
    for b in range(len(field)):
        _extension.compose_small(sizes(field), *at(b, field, update), factors, *at(b, out))
    return out


def longest(x: Tensor, weight: Sequence[float] | None = None) -> float:
    """Largest ``sum over a of |weight_a x_a|`` over the voxels: (B, d, *shape), a weight for each component."""
    x = displacement(x, x)
    weights = [1.0] * x.shape[1] if weight is None else [float(w) for w in weight]
    return float(max(_extension.longest(sizes(x), *at(b, x), weights) for b in range(len(x))))


def determinant(field: Tensor, scheme: Literal["central", "forward"] = "central") -> Tensor:
    """Jacobian determinant of ``x + field(x)``: (B, d, *shape), voxels -> (B, *shape), no unit."""
    field = displacement(field, field)
    out = field.new_empty((len(field), *field.shape[2:]))
    for b in range(len(field)):
        _extension.determinant(sizes(field), *at(b, field), scheme == "forward", *at(b, out))
    return out


class Folds(NamedTuple):
    """Folded voxels of one field."""

    central: int
    """Voxels with determinant <= 0 by central differences."""
    forward: int
    """The same by forward differences, not counted in the last plane of each axis."""
    least: float
    """Least determinant by central differences."""


def folds(field: Tensor) -> list[Folds]:
    """Count folded voxels of each field of (B, d, *shape), voxels."""
    field = displacement(field, field)
    return [Folds(*_extension.folds(sizes(field), *at(b, field))) for b in range(len(field))]


class FoldSums(NamedTuple):
    """Counts and sums over the voxels and cells of one field; a cell counts where its first corner does."""

    voxels: int
    folds: int
    """Voxels whose determinant by central differences is not positive."""
    cells: int
    forward_folds: int
    """Cells whose determinant by forward differences is not positive."""
    bad_cells: int
    """Cells with a simplex whose volume is not positive."""
    volume: float
    """Half the sum of the negative simplex volumes, voxels."""
    logs: float
    """Sum of ``log(max(determinant, 1e-9))`` over the voxels, central differences."""
    squares: float
    """Sum of the same squared."""
    least: float
    largest: float
    """Least and largest determinant by central differences."""
    finite: bool
    """Whether every number of the field is finite, inside the mask or not."""


def fold_sums(field: Tensor, mask: Tensor | None = None) -> FoldSums:
    """Measure the folding of one field (1, d, *shape), voxels, where `mask` (*shape), bool, holds."""
    field = displacement(field, field)
    inside = None if mask is None else flags("mask", mask.to(torch.uint8), field)
    return FoldSums(
        *_extension.fold_sums(sizes(field), *at(0, field), 0 if inside is None else inside.data_ptr())
    )


def mark_folds(field: Tensor, epsilon: float, out: Tensor | None = None) -> tuple[int, Tensor]:
    """Mark where one field (1, d, *shape), voxels, folds; see `pirate.ops.jacobian.mark_folds`.

    Args:
        field: (1, d, *shape), voxels.
        epsilon: what a determinant must exceed.
        out: (*shape), uint8, to write to.

    Returns:
        number of marked voxels; marks (*shape), uint8.
    """
    field = displacement(field, field)
    out = torch.empty(field.shape[2:], dtype=torch.uint8) if out is None else flags("out", out, field)
    return int(_extension.mark_folds(sizes(field), *at(0, field), epsilon, out.data_ptr())), out


def resize_field(field: Tensor, shape: Sequence[int], out: Tensor | None = None) -> Tensor:
    """Field (B, d, *source), voxels, at another resolution: (B, d, *shape), voxels of that grid."""
    field = displacement(field, field)
    out = target(out, (*field.shape[:2], *shape), field)
    for b in range(len(field)):
        _extension.resize_field(sizes(field), sizes(out), *at(b, field, out))
    return out


def resize_field_adjoint(force: Tensor, shape: Sequence[int], out: Tensor | None = None) -> Tensor:
    """Adjoint of `resize_field`: a gradient (B, d, *source) to one at (B, d, *shape)."""
    force = displacement(force, force)
    out = target(out, (*force.shape[:2], *shape), force)
    for b in range(len(force)):
        _extension.resize_field_adjoint(sizes(force), sizes(out), *at(b, force, out))
    return out


def smoothness_gradient(field: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum of squared forward differences, (B,) float64, and ``sum of D^T D field``, (B, d, *shape)."""
    field = displacement(field, field)
    out = target(out, field.shape, field)
    value = torch.empty(len(field), dtype=torch.float64)
    for b in range(len(field)):
        value[b] = _extension.smoothness_gradient(sizes(field), *at(b, field, out))
    return value, out


def invert(field: Tensor, iterations: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """Inverse of each field by a damped fixed-point iteration, every voxel until it is exact enough.

    Args:
        field: (B, d, *shape), voxels; its border continues outside.
        iterations: at most so many for a voxel.
        tolerance: error in voxels at which a voxel is left alone.

    Returns:
        inverse (B, d, *shape), voxels; error ``|v + field(x + v)|`` (B, *shape), voxels.
    """
    field = displacement(field, field)
    inverse, error = torch.empty_like(field), field.new_empty((len(field), *field.shape[2:]))
    for b in range(len(field)):
        _extension.invert(sizes(field), *at(b, field), iterations, tolerance, *at(b, inverse, error))
    return inverse, error


def change(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """``|after - before|`` and ``|after|`` of each element: (B, C, *shape) -> (B,), (B,) float64."""
    before, after = dense("before", before), like("after", after, before)
    squares = [_extension.change(before[0].numel(), *at(b, before, after)) for b in range(len(before))]
    lengths = torch.tensor(squares, dtype=torch.float64).sqrt()
    return lengths[:, 0], lengths[:, 1]


DataTerm = data_terms.DataTerm
Moments = data_terms.Moments
Pair = data_terms.Pair
gradient_product = data_terms.gradient_product
squared_error = data_terms.squared_error
correlation = data_terms.correlation
mutual_information = data_terms.mutual_information
