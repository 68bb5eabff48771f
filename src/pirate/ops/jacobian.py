"""Does the field fold? Determinants of ``d(x + field(x))/dx``, and the digital-diffeomorphism test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

from pirate import kernels
from pirate.ops.derivative import central_difference, forward_difference


def determinant(field: Tensor, difference: Callable[[Tensor, int], Tensor] = central_difference) -> Tensor:
    """Jacobian determinant of ``positions = identity + field``.

    Args:
        field: (B, d, *shape), voxels, d = 2 or 3.
        difference: how derivatives are taken, `central_difference` or `forward_difference`.

    Returns:
        (B, *shape), no unit: local volume change; <= 0 is a fold.
    """
    d = field.shape[1]
    if kernels.usable(field) and difference in (central_difference, forward_difference):
        return kernels.determinant(field, "central" if difference is central_difference else "forward")
    columns = [difference(field, axis) for axis in range(d)]  # columns[a][:, c] = d field_c / d x_a
    return _determinant([[columns[a][:, c] + (1.0 if a == c else 0.0) for a in range(d)] for c in range(d)])


def _determinant(m: list[list[Tensor]]) -> Tensor:
    if len(m) == 2:
        return m[0][0] * m[1][1] - m[0][1] * m[1][0]
    return (
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
        - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    )


def folding_ratio(field: Tensor, difference: Callable[[Tensor, int], Tensor] = central_difference) -> Tensor:
    """Share of voxels with determinant <= 0, (B,), a fraction.

    Forward differences are not taken in the last plane of each axis, where there is no next voxel.
    """
    values = determinant(field, difference)
    if difference is forward_difference:
        values = values[(slice(None), *[slice(0, max(n - 1, 1)) for n in field.shape[2:]])]
    return (values <= 0).flatten(1).double().mean(1)


def simplex_determinants(field: Tensor) -> Iterator[Tensor]:
    """Oriented volumes of the images of all simplices of each grid cell (Liu et al., IJCV 2024).

    A cell of d = 2 has four corner triangles; of d = 3 eight corner tetrahedra and the two inner ones
    that complete its two splits into five. The field is a digital diffeomorphism where all are positive.

    Args:
        field: (B, d, *shape), voxels.

    Yields:
        (B, *(shape - 1)), d! times the oriented volume: 1 for a corner of the identity, 2 for an inner one.
    """
    d = field.shape[1]
    corners = list(product((0, 1), repeat=d))
    moved = {c: _corner(field, c) for c in corners}

    def edge(start: tuple[int, ...], end: tuple[int, ...]) -> list[Tensor]:
        """Components of the image of an edge: differences first, so that a large shift costs no digits."""
        step = moved[end] - moved[start]
        return [step[:, k] + float(end[k] - start[k]) for k in range(d)]

    for c in corners:
        yield _determinant(
            _columns([edge((*c[:a], 0, *c[a + 1 :]), (*c[:a], 1, *c[a + 1 :])) for a in range(d)])
        )
    if d == 3:
        for sign, v in ((-1, 0), (1, 1)):  # on the identity the edges are left-, right-handed
            ends = [tuple(v if b == a else 1 - v for b in range(3)) for a in (2, 1, 0)]
            yield sign * _determinant(_columns([edge((v, v, v), end) for end in ends]))


def _columns(edges: list[list[Tensor]]) -> list[list[Tensor]]:
    """Rows of the matrix whose columns are the edges."""
    return [list(row) for row in zip(*edges, strict=True)]


def _corner(field: Tensor, corner: tuple[int, ...]) -> Tensor:
    """Displacements (B, d, *(shape - 1)) of the given corner of each cell."""
    region = tuple(slice(c, n - 1 + c) for c, n in zip(corner, field.shape[2:], strict=True))
    return field[(slice(None), slice(None), *region)]


def nondiffeomorphic(field: Tensor) -> tuple[Tensor, Tensor]:
    """Count and volume of the cells that are not digitally diffeomorphic.

    Args:
        field: (B, d, *shape), voxels.

    Returns:
        cells with a simplex of volume <= 0, (B,), count; non-diffeomorphic volume NDV, (B,), voxels:
        half the sum of the negative simplex volumes (each cell is split in two ways).
    """
    if field.shape[1] not in (2, 3):
        raise ValueError("a field has two or three components")
    factorial = {2: 2.0, 3: 6.0}[field.shape[1]]
    cells = [n - 1 for n in field.shape[2:]]
    bad = torch.zeros(field.shape[0], *cells, dtype=torch.bool, device=field.device)
    volume = torch.zeros(field.shape[0], dtype=torch.float64, device=field.device)
    for value in simplex_determinants(field):
        bad |= value <= 0
        volume += (-value).clamp_min(0).flatten(1).double().sum(1) / factorial / 2
    return bad.flatten(1).sum(1), volume


CENTRAL_FOLD = 1
"""Mark of a voxel whose determinant by central differences is too small."""

CELL_FOLD = 2
"""Mark of the first corner of a cell with a simplex whose volume is too small; forward differences are one."""


def mark_folds(field: Tensor, epsilon: float = 0.0) -> tuple[int, Tensor]:
    """Find every voxel at which the field folds, by central differences, forward differences or simplices.

    The determinant by forward differences is that of the first simplex of the cell, so that a field
    without marks has no fold by either difference and no non-diffeomorphic volume.

    Args:
        field: (1, d, *shape), voxels, any device.
        epsilon: a determinant, or d! times a simplex volume, that is not above it is marked, NaN too.

    Returns:
        number of marked voxels; marks (*shape), uint8: the sum of `CENTRAL_FOLD` at the voxel and of
        `CELL_FOLD` at the first corner of the cell, 0 where all is well.
    """
    if kernels.usable(field):
        return kernels.mark_folds(field, epsilon)
    with torch.no_grad():
        marks = (~(determinant(field)[0] > epsilon)).to(torch.uint8) * CENTRAL_FOLD
        if min(field.shape[2:]) > 1:
            cells = marks[tuple(slice(0, n - 1) for n in field.shape[2:])]
            bad = torch.zeros_like(cells, dtype=torch.bool)
            for value in simplex_determinants(field):
                bad |= ~(value[0] > epsilon)
            cells += CELL_FOLD * bad.to(torch.uint8)
    return int((marks > 0).sum()), marks
