"""A neighbourhood of folds as lists of voxels and determinants, moved until no determinant is too small."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

CHUNK = 1 << 16
"""So many cells or voxels are evaluated at once."""

LONGEST, SHORTEST = 0.5, 0.01
"""Voxels: the longest change that one determinant may ask for at a time, and where it is not worth it."""

MU = 0.05
"""Added to the diagonal of G G^T, which is 1."""

ITERATIONS, TOLERANCE = 12, 0.1
"""Of conjugate gradients: at most so many, or until this share of the residual is left."""


@dataclass(frozen=True)
class Simplices:
    """The simplices of a cell: the d columns of each lead from a corner to another, numbered as in `corners`."""

    corners: list[tuple[int, ...]]
    start: Tensor
    """(simplices, d), int64: where each column begins."""
    end: Tensor
    """(simplices, d), int64: where it ends."""
    offset: Tensor
    """(simplices, d, d), float64: end - start in the undeformed cell, [simplex, column, component]."""
    sign: Tensor
    """(simplices,), float64: what makes the determinant of the undeformed cell positive."""

    @classmethod
    def of(cls, d: int, device: torch.device) -> Simplices:
        """The 2^d simplices of edges that meet in a corner and, for d = 3, the two inner ones."""
        corners = list(product((0, 1), repeat=d))
        number = {c: i for i, c in enumerate(corners)}
        start, end, sign = [], [], []
        for c in corners:
            start.append([number[*c[:a], 0, *c[a + 1 :]] for a in range(d)])
            end.append([number[*c[:a], 1, *c[a + 1 :]] for a in range(d)])
            sign.append(1.0)
        for handed, base in ((-1.0, 0), (1.0, 1)) if d == 3 else ():
            start.append([number[base, base, base]] * 3)
            end.append([number[tuple(base if b == a else 1 - base for b in range(3))] for a in (2, 1, 0)])
            sign.append(handed)
        first, last = torch.tensor(start, device=device), torch.tensor(end, device=device)
        place = torch.tensor(corners, dtype=torch.float64, device=device)
        signs = torch.tensor(sign, dtype=torch.float64, device=device)
        return cls(corners, first, last, place[last] - place[first], signs)


class Region:
    """The voxels near some folds, and every determinant that depends on one of them.

    Args:
        field: (1, d, *shape), voxels, dense; read here, changed by `write` only.
        folds: (n,), int64, indices into the flattened grid: voxels, or first corners of cells.
        reach: voxels up to so far from a fold's stencil are free to move.
    """

    def __init__(self, field: Tensor, folds: Tensor, reach: int) -> None:
        self.shape = tuple(field.shape[2:])
        self.d = len(self.shape)
        self.strides = [field.stride(2 + a) for a in range(self.d)]
        free = self._dilated(folds, -reach, reach + 1)
        sites = self._dilated(free, -1, 1)
        self.vertices = self._dilated(sites, -1, 1)
        self.values = field[0].reshape(self.d, -1)[:, self.vertices].double()
        """(d, vertices), voxels."""
        local = torch.empty(field[0, 0].numel(), dtype=torch.int64, device=field.device)
        local[self.vertices] = torch.arange(len(self.vertices), device=field.device)
        self.free = local[free]
        self.movable = torch.zeros(len(self.vertices), dtype=torch.float64, device=field.device)
        self.movable[self.free] = 1
        self.simplices = Simplices.of(self.d, field.device)
        self._link(sites, local)

    def _coordinate(self, index: Tensor, axis: int) -> Tensor:
        return torch.div(index, self.strides[axis], rounding_mode="floor") % self.shape[axis]

    def _dilated(self, index: Tensor, low: int, high: int) -> Tensor:
        """Indices of the voxels within a box of `low` to `high` about the given ones, sorted."""
        for axis in range(self.d):
            at, stride, n = self._coordinate(index, axis), self.strides[axis], self.shape[axis]
            moved = [index[(at >= -o) & (at < n - o)] + o * stride for o in range(low, high + 1)]
            index = torch.cat(moved).unique()  # type: ignore[no-untyped-call]
        return index

    def _link(self, sites: Tensor, local: Tensor) -> None:
        """Where the neighbours of each site and the corners of each cell stand among the vertices."""
        at = [self._coordinate(sites, a) for a in range(self.d)]
        up = [x < n - 1 for x, n in zip(at, self.shape, strict=True)]
        down = [x > 0 for x in at]
        self.after = torch.stack([local[sites + s * u] for s, u in zip(self.strides, up, strict=True)])
        self.before = torch.stack([local[sites - s * d] for s, d in zip(self.strides, down, strict=True)])
        halves = [torch.where(u & d, 0.5, 1.0).double() for u, d in zip(up, down, strict=True)]
        self.half = torch.stack(halves)
        cells = sites[torch.stack(up).all(0)]
        offsets = [
            sum(c * s for c, s in zip(corner, self.strides, strict=True)) for corner in self.simplices.corners
        ]
        self.sites = local[sites]
        self.corners = torch.stack([local[cells + o] for o in offsets])

    def central(self, sites: Tensor) -> Tensor:
        """Determinants by central differences at some sites, (n,)."""
        u, values = self.values, [self.values.new_zeros(0)]
        for part in _chunks(sites):
            columns = []
            for a in range(self.d):
                column = self.half[a, part] * (u[:, self.after[a, part]] - u[:, self.before[a, part]])
                column[a] += 1
                columns.append(column)
            values.append(determinant(columns))
        return torch.cat(values)

    def of_simplices(self, cells: Tensor) -> Tensor:
        """d! times the oriented volumes of the simplices of some cells, (simplices, n)."""
        d, s = self.d, self.simplices
        found = [self.values.new_zeros((len(s.sign), 0))]
        for part in _chunks(cells):
            p = self.values[:, self.corners[:, part]]  # (d, 2^d, n)
            grid = p.reshape(d, *[2] * d, -1)
            edges = []
            for a in range(d):
                edge = (grid.select(a + 1, 1) - grid.select(a + 1, 0)).unsqueeze(
                    a + 1
                )  # the same for both ends
                edge[a] += 1
                edges.append(edge)
            values = [determinant(edges).reshape(2**d, -1)]
            for t in range(2**d, len(s.sign)):
                columns = [
                    p[:, s.end[t, a]] - p[:, s.start[t, a]] + s.offset[t, a, :, None] for a in range(d)
                ]
                values.append(s.sign[t] * determinant(columns)[None])
            found.append(torch.cat(values))
        return torch.cat(found, 1)

    def project(self, epsilon: float, enough: float, steps: int) -> bool:
        """Move the free voxels until every determinant exceeds `enough`; whether that was reached.

        A step that does not lessen the sum of what all determinants lack is taken back and tried again half
        as long, until steps are too short to be worth it.
        """
        device = self.values.device
        central = self.central(torch.arange(len(self.sites), device=device))
        simplex = self.of_simplices(torch.arange(self.corners.shape[1], device=device))
        bad, longest = _count(central, simplex, enough), LONGEST
        for _ in range(steps):
            if bad == 0 or longest < SHORTEST:
                break
            vertices, change = self._constraints(central, simplex, epsilon, longest).least_change(longest)
            values, (sites, cells) = self.values, self._depending_on(vertices)
            self.values = values.index_add(1, vertices, change)
            old, new = (central[sites], simplex[:, cells]), (self.central(sites), self.of_simplices(cells))
            if _lacking(*new, epsilon) < _lacking(*old, epsilon):
                central[sites], simplex[:, cells] = new
                bad += _count(*new, enough) - _count(*old, enough)
                longest = min(1.5 * longest, LONGEST)
            else:
                self.values = values
                longest /= 2
        return bad == 0

    def _depending_on(self, vertices: Tensor) -> tuple[Tensor, Tensor]:
        """Sites and cells whose determinants change with the given vertices."""
        moved = torch.zeros_like(self.movable, dtype=torch.bool)
        moved[vertices] = True
        sites = (moved[self.after] | moved[self.before]).any(0).nonzero()[:, 0]
        return sites, moved[self.corners].any(0).nonzero()[:, 0]

    def _constraints(self, central: Tensor, simplex: Tensor, epsilon: float, longest: float) -> Constraints:
        """Everything below `epsilon`, with the voxels it depends on and its slope there."""
        d, u, s = self.d, self.values, self.simplices
        at = (~(central >= epsilon)).nonzero()[:, 0]
        t, cell = (~(simplex >= epsilon)).nonzero(as_tuple=True)
        high = torch.cat([self.after[:, at], self.corners[s.end[t].T, cell]], 1)  # (d, m)
        low = torch.cat([self.before[:, at], self.corners[s.start[t].T, cell]], 1)
        weight = torch.cat([self.half[:, at], s.sign.new_ones((d, len(t)))], 1)
        eye = torch.eye(d, dtype=u.dtype, device=u.device)[:, :, None]
        offset = torch.cat([eye.expand(d, d, len(at)), s.offset[t].permute(1, 2, 0)], 2)
        sign = torch.cat([torch.ones_like(central[at]), s.sign[t]])
        columns = [weight[a] * (u[:, high[a]] - u[:, low[a]]) + offset[a] for a in range(d)]
        slopes = torch.stack(cofactors(columns), 1) * weight * sign  # (component, column, m)
        value = torch.cat([central[at], simplex[t, cell]])
        ends = torch.cat([high, low])
        return Constraints.of(
            1.5 * epsilon - value, ends, torch.cat([slopes, -slopes], 1) * self.movable[ends], longest
        )

    def write(self, field: Tensor) -> None:
        """Put the voxels that were free to move into `field` (1, d, *shape)."""
        field[0].view(self.d, -1)[:, self.vertices[self.free]] = self.values[:, self.free].to(field.dtype)


@dataclass(frozen=True)
class Constraints:
    """Rows of ``G x = r``: what each determinant lacks, linear in the displacements, scaled to |row| = 1.

    A row's entries stand at the 2 d ends of the columns of its matrix; where ends coincide, entries add up.
    """

    lacking: Tensor
    """r, (m,), voxels: the length of the shortest change that a row asks for."""
    vertices: Tensor
    """(n,), int64: which vertices of the region have a column in G."""
    ends: Tensor
    """(2 d, m), int64, indices into `vertices`."""
    entries: Tensor
    """(d, 2 d, m), [component, end, row]."""

    @classmethod
    def of(cls, lacking: Tensor, ends: Tensor, slopes: Tensor, longest: float) -> Constraints:
        """From what determinants lack (m,), the vertices (2 d, m) and their slopes there (d, 2 d, m).

        A row that asks for more than `longest` is cut: so far away its determinant is not linear.
        """
        square = torch.zeros_like(lacking)
        for a in range(len(ends)):  # |row|^2, coinciding ends added
            square += (slopes[:, a, None] * slopes * (ends[a] == ends)).sum((0, 1))
        length = square.clamp_min(0).sqrt() + 1e-9
        vertices, ends = ends.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return cls((lacking / length).clamp_max(longest), vertices, ends, slopes / length)

    def least_change(self, longest: float) -> tuple[Tensor, Tensor]:
        """Shortest x, nearly, with ``G x = r``: ``x = G^T y`` where ``(G G^T + mu) y = r``.

        y comes from conjugate gradients. mu keeps rows that depend on one another apart: a cell has more
        simplices than its corners have freedom.

        Returns:
            vertices (n,) of the region; x (d, n), voxels.
        """
        y = torch.zeros_like(self.lacking)
        residual = self.lacking.clone()
        direction, square = residual.clone(), float(residual @ residual)
        enough = TOLERANCE**2 * square
        for _ in range(ITERATIONS):
            image = self._gathered(self._spread(direction)) + MU * direction
            step = square / float(direction @ image)
            y += step * direction
            residual -= step * image
            before, square = square, float(residual @ residual)
            if square < enough:
                break
            direction = residual + (square / before) * direction
        change = self._spread(y)
        return self.vertices, change * min(1.0, 2 * longest / (float(change.abs().max()) + 1e-12))

    def _spread(self, y: Tensor) -> Tensor:
        """``G^T y``, (d, n)."""
        total = y.new_zeros((len(self.entries), len(self.vertices)))
        return total.index_add_(1, self.ends.flatten(), (self.entries * y).flatten(1))

    def _gathered(self, x: Tensor) -> Tensor:
        """``G x``, (m,)."""
        return (self.entries * x[:, self.ends]).sum((0, 1))


def _lacking(central: Tensor, simplex: Tensor, epsilon: float) -> float:
    """Sum of ``max(epsilon - J, 0)`` over all determinants J."""
    return sum(float((epsilon - x).clamp_min(0).sum()) for x in (central, simplex))


def _count(central: Tensor, simplex: Tensor, enough: float) -> int:
    """How many determinants are not above `enough`."""
    return sum(int((~(x > enough)).sum()) for x in (central, simplex))


def _chunks(index: Tensor) -> list[Tensor]:
    return [index[start : start + CHUNK] for start in range(0, len(index), CHUNK)]


def determinant(columns: list[Tensor]) -> Tensor:
    """Of matrices whose d columns are (d, ...): (...)."""
    if len(columns) == 2:
        x, y = columns
        return x[0] * y[1] - x[1] * y[0]
    x, y, z = columns
    return (
        x[0] * (y[1] * z[2] - y[2] * z[1])
        + x[1] * (y[2] * z[0] - y[0] * z[2])
        + x[2] * (y[0] * z[1] - y[1] * z[0])
    )


def cofactors(columns: list[Tensor]) -> list[Tensor]:
    """Derivatives of `determinant` by each column, each (d, m)."""
    if len(columns) == 2:
        x, y = columns
        return [torch.stack([y[1], -y[0]]), torch.stack([-x[1], x[0]])]
    x, y, z = columns
    return [torch.linalg.cross(a, b, dim=0) for a, b in ((y, z), (z, x), (x, y))]
