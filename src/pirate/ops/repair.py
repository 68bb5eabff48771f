"""Unfolding: the smallest change, near the folds only, after which a field folds nowhere.

A determinant J (by central differences, or d! times the volume of a simplex, of which forward differences are
one) is a polynomial of the displacements at the few voxels of its stencil. All that are below epsilon are
raised together by Gauss-Newton steps of least length (`pirate.ops.unfold`),

    minimise |x|   subject to   J + grad J . x = 3/2 epsilon   for every J < epsilon,

in which only voxels near the folds are free to move. Where that does not end, the field is first diffused
there, in regions that grow from round to round. Where there is very much to do, or where that does not end
either, the field is blended with a smoothed copy of itself about the folds, a little more each time, and at
last scaled down until it cannot fold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from pirate.errors import reject
from pirate.ops.jacobian import mark_folds
from pirate.ops.smooth import gaussian
from pirate.ops.unfold import Region

FLOOR = 0.1
"""Part of epsilon that every determinant of a repaired field exceeds: rounding in a file cannot fold it."""

STEEP, ROUNDING = 20.0, 2e-6
"""Voxels from one to the next: a blended field steeper than that is blended on until its determinants exceed what
rounding in single precision makes of them, this times the steepest difference to the power d."""

MANY = 2000
"""Above so many marked voxels, or `DENSE` of all, the field is blended first: Gauss-Newton steps cost more."""

DENSE = 0.05
"""See `MANY`."""

SIGMA, GROWTH, GENTLE, HURRY = 0.6, 1.05, 25, 1.3
"""The first blend's sigma, voxels; what it grows by from one to the next; how often; what it grows by then."""

FEW = 300
"""So few voxels are worth Gauss-Newton steps even where the last round's did not halve their number."""

FURTHEST = 8
"""Voxels about a fold that Gauss-Newton steps may move: 2 in the first round, more later, at most this."""

ROUNDS = 60
"""The round that scales the field is this one."""

STEPS = 25
"""Gauss-Newton steps in a round."""


@dataclass(frozen=True, eq=False)
class Repair:
    """A field without folds, and what it took."""

    field: Tensor
    """(1, d, *shape), voxels; the very tensor that was given if nothing had to be done."""
    repaired: bool
    """Whether no voxel folds by central or forward differences and no simplex has a volume <= 0."""
    rounds: int
    """How many rounds were needed; 0 if nothing had to be done."""
    changed_voxels: int
    largest_change: float
    """Longest difference to the field that was given, voxels."""
    remaining: Tensor
    """(n, d), int64, voxel indices at which the field still folds: the voxel, or the first corner of a cell."""


def repair(field: Tensor, *, epsilon: float = 0.01, rounds: int = ROUNDS) -> Repair:
    """Change `field` as little as possible until it folds nowhere.

    Afterwards, on the numbers that are returned, every determinant by central and by forward differences and
    every simplex of every cell is above ``epsilon / 10``. A field for which that holds already is returned as
    it is.

    Args:
        field: (1, d, *shape), voxels, any device.
        epsilon: what a determinant that is too small is raised to.
        rounds: at most so many, few are usual. The very last scales the field down until it cannot fold, so
            that nothing remains, whatever was given; with fewer rounds voxels may remain.

    Returns:
        `Repair`.
    """
    _check(field, epsilon, rounds)
    count, marks = mark_folds(field, FLOOR * epsilon)
    if count == 0:
        return Repair(field, True, 0, 0, 0.0, _nothing(marks))
    if not all(math.isfinite(float(extreme)) for extreme in torch.aminmax(field.detach())):
        raise reject("field", "values that are not finite", "numbers", "Run the registration again.")
    with torch.no_grad():
        work = _Work(field.detach().clone(memory_format=torch.contiguous_format), epsilon)
        for number in range(1, rounds + 1):
            work.round(count, marks, field, last=number == ROUNDS)
            count, marks = mark_folds(work.field, FLOOR * epsilon)
            if count == 0 and work.touched is None and _steepest(work.field) > STEEP:
                count, marks = mark_folds(work.field.double(), work.least)
            if count == 0:
                break
        changed, most = work.change(field)
    remaining = mark_folds(work.field)[1].nonzero() if count else _nothing(marks)
    return Repair(work.field, len(remaining) == 0, number, changed, most, remaining)


def _check(field: Tensor, epsilon: float, rounds: int) -> None:
    if field.ndim not in (4, 5) or field.shape[0] != 1 or field.shape[1] != field.ndim - 2:
        raise reject(
            "field", f"shape {tuple(field.shape)}", "one field (1, d, *shape)", "Repair one at a time."
        )
    if not 0 < epsilon < 0.5:
        raise reject("epsilon", f"{epsilon}", "0 < epsilon < 0.5", "Leave it at 0.01.")
    if rounds < 1:
        raise reject("rounds", f"{rounds}", "1 or more", "Leave it at 60.")


def _steepest(field: Tensor) -> float:
    """Largest difference of a component of (1, d, *shape), voxels, from a voxel to the next."""
    axes = [a for a in range(2, field.ndim) if field.shape[a] > 1]
    return max(float(field.diff(dim=axis).abs_().amax()) for axis in axes)


def _nothing(marks: Tensor) -> Tensor:
    return torch.zeros((0, marks.ndim), dtype=torch.int64, device=marks.device)


class _Work:
    """A field on the way to one without folds, changed in place."""

    def __init__(self, field: Tensor, epsilon: float) -> None:
        self.field = field
        self.epsilon = epsilon
        self.limit = min(MANY, DENSE * field[0, 0].numel())  # marked voxels that Gauss-Newton steps are for
        self.before: int | None = None  # marked voxels before the last round, if it was one of those
        self.blends = 0
        self.turn = 0
        self.touched: list[Tensor] | None = []  # flattened indices of changed voxels; None: any

    def round(self, count: int, marks: Tensor, given: Tensor, last: bool) -> None:
        """One cure of the `count` marked voxels, the cheapest that may help."""
        if self.before is not None and count > max(FEW, self.before / 2):
            self.limit = count / 4  # too entangled: blend first
        self.before = None
        if last:
            self._shrink(given)
        elif count > self.limit:
            self._blend(marks)
        else:
            self.turn += 1
            if self.turn > 2 and self.turn % 2:  # move, move, blend, move, blend, move, ...
                self._blend(marks)
            else:
                self.before = count
                self._move(marks, reach=min(1 + self.turn, FURTHEST))

    def _move(self, marks: Tensor, reach: int) -> None:
        """Gauss-Newton steps near the marks."""
        region = Region(self.field, marks.flatten().nonzero()[:, 0], reach)
        region.project(self.epsilon, 2 * FLOOR * self.epsilon, STEPS)
        region.write(self.field)
        if self.touched is not None:
            self.touched.append(region.vertices[region.free])

    def _blend(self, marks: Tensor) -> None:
        """``u <- u + m (G_sigma u - u)``, m a bump about each mark: 1 there, 0 beyond three widths."""
        d, shape = self.field.shape[1], self.field.shape[2:]
        sigma = SIGMA * GROWTH ** min(self.blends, GENTLE) * HURRY ** max(self.blends - GENTLE, 0)
        sigma = min(sigma, float(max(shape)))
        self.blends += 1
        width = max(0.7, 0.7 * sigma)
        height = 2 * (math.sqrt(2 * math.pi) * width) ** d  # a lone mark's bump would peak at 2
        marked = (marks > 0).to(self.field.dtype)[None, None]
        bump = gaussian(marked, width).mul_(height).clamp_max_(1)
        self.field += gaussian(self.field, sigma).sub_(self.field).mul_(bump)
        self.touched = None

    @property
    def least(self) -> float:
        """What every determinant of a steep field must exceed so that nobody's rounding folds it."""
        return FLOOR * self.epsilon + ROUNDING * _steepest(self.field) ** self.field.shape[1]

    def _shrink(self, given: Tensor) -> None:
        """Scale the field so that every difference is at most 1/(4 d): then no determinant is near 0."""
        d = self.field.shape[1]
        if not bool(torch.isfinite(self.field).all()):  # numbers so large that smoothing overflowed
            self.field.copy_(given)
        self.field *= min(1.0, 1 / (4 * d * _steepest(self.field.double())))
        self.touched = None

    def change(self, given: Tensor) -> tuple[int, float]:
        """Number of voxels that differ from the field `given`, and the longest difference, voxels."""
        before, after = (x[0].reshape(x.shape[1], -1) for x in (given, self.field))
        if self.touched is not None:
            index = torch.cat(self.touched).unique()  # type: ignore[no-untyped-call]
            before, after = before[:, index], after[:, index]
        change = reduce(torch.hypot, after - before)
        return int(torch.count_nonzero(change)), float(change.max())
