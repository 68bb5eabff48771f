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
    corner = {c: _corner(field, c) for c in product((0, 1), repeat=d)}
    for c in product((0, 1), repeat=d):
        edges = []
        for a in range(d):
            other = tuple(1 - v if b == a else v for b, v in enumerate(c))
            edges.append((corner[other] - corner[c]) * (1 - 2 * c[a]))  # towards +a
        yield _determinant([[edges[a][:, k] for a in range(d)] for k in range(d)])
    if d == 3:
        for sign, base in (
            (-1, (0, 0, 0)),
            (1, (1, 1, 1)),
        ):  # on the identity the edges are left-, right-handed
            others = [tuple(v if b == a else 1 - v for b, v in enumerate(base)) for a in (2, 1, 0)]
            edges = [corner[o] - corner[base] for o in others]
            yield sign * _determinant([[edges[a][:, k] for a in range(3)] for k in range(3)])


def _corner(field: Tensor, corner: tuple[int, ...]) -> Tensor:
    """Positions (B, d, *(shape - 1)), relative to each cell's first corner, of the given corner's image."""
    region = tuple(slice(c, n - 1 + c) for c, n in zip(corner, field.shape[2:], strict=True))
    moved = field[(slice(None), slice(None), *region)]
    offset = torch.tensor(corner, dtype=field.dtype, device=field.device)
    return moved + offset.view(1, -1, *[1] * field.shape[1])


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
