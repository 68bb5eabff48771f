"""Which planes of an image to show, and which way up.

Arrays are turned to the world axes nearest to their own (right, anterior, superior), never resampled. The
display is neurological: the subject's left is on the left. Planes are (vertical, horizontal), the first row
at the bottom.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.grid import Grid

Array = NDArray[Any]
LETTERS = (("L", "R"), ("P", "A"), ("I", "S"))
MARGIN_MM = 8.0
OFFSET_MM = 10.0  # the sagittal plane lies beside the midline, where there is something to see


@dataclass(frozen=True)
class View:
    """One plane: its name, the two axes shown (of the turned array), and the index along the third."""

    name: str
    horizontal: int
    vertical: int
    index: int | None


@dataclass(frozen=True)
class Display:
    """How arrays on one grid are cropped and turned.

    Args:
        grid: of the arrays.
        source: for each axis of the turned array, the array axis it comes from.
        world: for each axis of the turned array, the world axis it follows: 0 right, 1 anterior, 2 superior.
        flipped: for each axis of the turned array, whether the array axis runs the other way.
        box: region shown, in indices of the turned array.
        views: the planes.
    """

    grid: Grid
    source: tuple[int, ...]
    world: tuple[int, ...]
    flipped: tuple[bool, ...]
    box: tuple[slice, ...]
    views: tuple[View, ...]

    @classmethod
    def around(cls, grid: Grid, foreground: Array) -> Display:
        """Show what `foreground` (*shape), bool, covers, with a margin; everything if it is empty."""
        source, world, flipped = _turn(grid)
        mask = _turned(foreground, source, flipped)
        spacing = [grid.spacing[a] for a in source]
        box, middle = [], []
        for axis, n in enumerate(mask.shape):
            others = tuple(a for a in range(mask.ndim) if a != axis)
            filled = np.flatnonzero(mask.any(axis=others)) if mask.any() else np.array([0, n - 1])
            margin = int(np.ceil(MARGIN_MM / spacing[axis]))
            low, high = max(int(filled[0]) - margin, 0), min(int(filled[-1]) + margin + 1, n)
            box.append(slice(low, high))
            middle.append((int(filled[0]) + int(filled[-1])) // 2)
        if 0 in world and mask.ndim == 3:
            x = world.index(0)
            width = (box[x].stop - box[x].start) * spacing[x]
            middle[x] += round(min(OFFSET_MM, 0.12 * width) / spacing[x])
        return cls(grid, source, world, flipped, tuple(box), _views(world, middle))

    def plane(self, array: Array, view: View) -> Array:
        """Cut one plane out of an array (*shape): (vertical, horizontal), cropped."""
        return self._cut(_turned(array, self.source, self.flipped), view)

    def _cut(self, turned: Array, view: View) -> Array:
        where: list[slice | int] = list(self.box)
        if view.index is not None:
            where[3 - view.horizontal - view.vertical] = view.index
        return np.asarray(turned[tuple(where)].T)

    def slab(self, array: Array, view: View) -> tuple[Array, View, Display]:
        """Cut three planes around a view from (..., *shape).

        Derivatives across the plane need its neighbours, not the whole volume. The view and the display that
        come with the planes find the middle one again.
        """
        if view.index is None:
            return array, view, self
        axis = 3 - view.horizontal - view.vertical
        n = self.grid.shape[self.source[axis]]
        low, high = max(view.index - 1, 0), min(view.index + 2, n)
        planes = slice(n - high, n - low) if self.flipped[axis] else slice(low, high)
        where = [slice(None)] * (array.ndim - 3) + [slice(None)] * 3
        where[array.ndim - 3 + self.source[axis]] = planes
        shape = tuple(high - low if a == self.source[axis] else m for a, m in enumerate(self.grid.shape))
        inner = View(view.name, view.horizontal, view.vertical, view.index - low)
        thin = Display(
            Grid(shape, self.grid.affine), self.source, self.world, self.flipped, self.box, (inner,)
        )
        return array[tuple(where)], inner, thin

    def positions_mm(self, field: Array, view: View) -> tuple[Array, Array]:
        """In-plane parts of ``x + field(x)``, field (d, *shape), voxels.

        Returns:
            horizontal and vertical position, (vertical, horizontal) each, mm from the corner of the box.
        """
        parts = []
        for axis in (view.horizontal, view.vertical):
            moved = self.plane(field[self.source[axis]], view) * (-1.0 if self.flipped[axis] else 1.0)
            steps = np.arange(moved.shape[1 if axis == view.horizontal else 0]) + 0.5
            steps = steps if axis == view.horizontal else steps[:, None]
            parts.append((moved + steps) * self.grid.spacing[self.source[axis]])
        return parts[0], parts[1]

    def size_mm(self, view: View) -> tuple[float, float]:
        """Width and height of a view, mm."""
        width, height = (
            (self.box[a].stop - self.box[a].start) * self.grid.spacing[self.source[a]]
            for a in (view.horizontal, view.vertical)
        )
        return width, height

    def letters(self, view: View) -> tuple[str, str, str, str]:
        """Letters for the left, right, lower and upper edge of a view."""
        return (*LETTERS[self.world[view.horizontal]], *LETTERS[self.world[view.vertical]])


def _turn(grid: Grid) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]:
    """Source axis, world axis and flip of each axis of the turned array: right, anterior, superior."""
    directions = grid.axes / np.linalg.norm(grid.axes, axis=0)
    best = max(
        permutations(range(3), grid.ndim), key=lambda p: sum(abs(directions[w, a]) for a, w in enumerate(p))
    )
    source = tuple(sorted(range(grid.ndim), key=lambda a: best[a]))
    return source, tuple(best[a] for a in source), tuple(bool(directions[best[a], a] < 0) for a in source)


def _turned(array: Array, source: tuple[int, ...], flipped: tuple[bool, ...]) -> Array:
    return np.flip(np.transpose(array, source), [axis for axis, f in enumerate(flipped) if f])


def _views(world: tuple[int, ...], middle: list[int]) -> tuple[View, ...]:
    """Planes by name; a flat image without orientation looks axial, so that one is called a slice."""
    if len(world) == 2:
        return (View({0: "sagittal", 1: "coronal"}.get(({0, 1, 2} - set(world)).pop(), "slice"), 0, 1, None),)
    return (
        View("axial", 0, 1, middle[2]),
        View("coronal", 0, 2, middle[1]),
        View("sagittal", 1, 2, middle[0]),
    )
