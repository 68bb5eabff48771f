"""One plane of an exhibit pair: which one, which way up, and the region that is shown enlarged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pirate.benchmark.entries import START
from pirate.benchmark.kept import Exhibit, Kept
from pirate.grid import Grid
from pirate.registration.apply import apply
from pirate.reporting.display import Array, Display, View
from pirate.reporting.intensity import Shown
from pirate.transform import Transform

AXES = {"oasis2d": "LI"}
"""Where the array axes of a track point whose pairs come without orientation."""

SHARE, SMALL = 0.3, 0.6
"""Side of the enlarged square, of the shorter side of the plane; labels that fill less than `SMALL` of it fit in."""

MARGIN = 0.04
"""Around what is shown, of its size."""

NEAR_MM = 12.0
"""What is so near to a landmark is worth a look."""

_DIRECTIONS = {"R": (0, 1), "L": (0, -1), "A": (1, 1), "P": (1, -1), "S": (2, 1), "I": (2, -1)}


@dataclass(frozen=True, eq=False)
class Stage:
    """What the panels of one exhibit share.

    Args:
        exhibit: the pair and what every method made of it.
        display: turns and crops arrays on the fixed grid.
        view: the plane.
        fixed: the fixed image.
        moving: the moving image on the fixed grid at the start.
        moving_labels: (*shape), its labels likewise; None without.
        region: left, right, lower and upper edge of the enlarged square, mm.
    """

    exhibit: Exhibit
    display: Display
    view: View
    fixed: Shown
    moving: Shown
    moving_labels: Array | None
    region: tuple[float, float, float, float]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the plane, mm."""
        return self.display.size_mm(self.view)

    @property
    def spacing(self) -> tuple[float, float]:
        """Mm of a voxel along the horizontal and the vertical axis."""
        steps = self.display.grid.spacing
        across, up = (self.display.source[a] for a in (self.view.horizontal, self.view.vertical))
        return steps[across], steps[up]

    def plane(self, array: Array) -> Array:
        """The plane (vertical, horizontal) of an array (*shape), any unit."""
        return self.display.plane(array, self.view)

    def grey(self, image: Shown) -> Array:
        """The plane of an image: 0 black, 1 bright tissue."""
        return image.scaled(self.plane(image.image))

    @property
    def labels(self) -> Array | None:
        """The plane of the fixed labels; None without."""
        found = self.exhibit.case.fixed_labels
        return None if found is None else self.plane(found.data)

    @property
    def words(self) -> str:
        """Which pair and plane is shown."""
        shown = f"pair {self.exhibit.case.name}"
        if self.view.index is not None:
            shown += f", {self.view.name} plane"
        return f"{shown}, subject's left on the left" if 0 in self._world else shown

    @property
    def _world(self) -> tuple[int, ...]:
        return tuple(self.display.world[a] for a in (self.view.horizontal, self.view.vertical))


def set_up(exhibit: Exhibit, track: str = "") -> Stage:
    """Choose plane and region of a pair; `track` tells how its arrays are turned."""
    case = exhibit.case
    grid = oriented(case.fixed.grid, AXES.get(track, ""))
    fixed = Shown.of(case.fixed.data)
    content = fixed.foreground()
    labels = None if case.fixed_labels is None else case.fixed_labels.data
    whole = _tight(Display.around(grid, content), content)
    inner = whole if labels is None or not labels.any() else Display.around(grid, labels != 0)
    view = best_view(inner, content.astype(np.int16) if labels is None else labels)
    moving, moved = _start(exhibit)
    stage = Stage(exhibit, whole, view, fixed, Shown.of(moving), moved, (0, 0, 0, 0))
    return dataclasses.replace(stage, region=_region(_errors(stage, methods(exhibit)), stage))


def _tight(display: Display, content: Array) -> Display:
    """The display with a narrower margin around `content` (*shape), bool, where its own is wide for a small image."""
    turned = np.flip(np.transpose(content, display.source), [a for a, f in enumerate(display.flipped) if f])
    box = []
    for axis, old in enumerate(display.box):
        filled = np.flatnonzero(turned.any(axis=tuple(a for a in range(turned.ndim) if a != axis)))
        first, last = (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (old.start, old.stop)
        margin = int(np.ceil(MARGIN * (last - first)))
        box.append(slice(max(first - margin, old.start), min(last + margin, old.stop)))
    return dataclasses.replace(display, box=tuple(box))


def methods(exhibit: Exhibit, groups: Sequence[str] = ("main",)) -> list[Kept]:
    """What the methods of these groups made of the pair; the start is none."""
    return [k for k in exhibit.kept if k.entry.key != START and k.entry.group in groups]


def _start(exhibit: Exhibit) -> tuple[Array, Array | None]:
    """Moving image and labels (*shape) on the fixed grid at the start: as kept, else as the files place them."""
    case = exhibit.case
    known = next((k for k in exhibit.kept if k.entry.key == START), None)
    if known is not None:
        return known.warped, known.warped_labels
    here, grid = Transform(()), case.fixed.grid
    moving = apply(case.moving, here, grid, outside=float(case.moving.data.min())).data
    return moving, None if case.moving_labels is None else apply(
        case.moving_labels, here, grid, "nearest"
    ).data


def oriented(grid: Grid, axes: str) -> Grid:
    """The grid with its array axes along the world's `axes`, as in "LIA"; unchanged if it is turned already.

    A grid that comes from an array alone says right, anterior, superior whatever the array holds.
    """
    plain = np.allclose(grid.affine[:3, :3], np.diag(np.diag(grid.affine[:3, :3])))
    if len(axes) != grid.ndim or not plain or (np.diag(grid.affine[:3, :3]) < 0).any():
        return grid
    affine = np.zeros((4, 4))
    affine[3, 3] = 1.0
    for column, (letter, step) in enumerate(zip(axes, grid.spacing, strict=True)):
        world, sign = _DIRECTIONS[letter]
        affine[world, column] = sign * step
    for column in range(grid.ndim, 3):  # a plane: the axis that is left
        affine[int(np.flatnonzero(~affine[:3].any(1))[0]), column] = 1.0
    return Grid(grid.shape, affine)


def best_view(display: Display, labels: Array) -> View:
    """The plane with the most labels, among the middle ones; the larger labelled area if that is a draw."""

    def worth(view: View) -> tuple[int, float]:
        plane = display.plane(labels, view)
        width, height = display.size_mm(view)
        return len(np.unique(plane)), float((plane != 0).mean()) * width * height

    return max(display.views, key=worth)


def _errors(stage: Stage, kept: Sequence[Kept]) -> Array:
    """Share of the methods that err at each voxel, (vertical, horizontal); without labels their mean difference."""
    truth = stage.labels
    wrong = [stage.plane(k.warped_labels) != truth for k in kept if k.warped_labels is not None]
    if truth is not None and wrong:
        return np.asarray(np.mean(wrong, axis=0))
    target = stage.grey(stage.fixed)
    images = [stage.grey(Shown.of(k.warped)) for k in kept] or [stage.grey(stage.moving)]
    differences = np.mean([np.abs(image - target).clip(0, 1) for image in images], axis=0)
    return np.asarray(differences * _worth_a_look(stage))


def _worth_a_look(stage: Stage) -> Array:
    """Where to look without labels, (vertical, horizontal), bool: near landmarks; else within, away from the edges."""
    from scipy import ndimage

    case = stage.exhibit.case
    if case.fixed_points is None or not len(case.fixed_points):
        inner = np.zeros(stage.plane(case.fixed.data).shape, dtype=bool)
        rows, columns = max(1, len(inner) // 10), max(1, len(inner.T) // 10)
        inner[rows:-rows, columns:-columns] = True
        return np.asarray(inner & stage.plane(stage.fixed.foreground()))
    grid = case.fixed.grid
    at = np.clip(np.rint(grid.to_voxel(case.fixed_points)).astype(int), 0, np.array(grid.shape) - 1)
    away = np.ones(grid.shape, dtype=bool)
    away[tuple(at.T)] = False
    near = ndimage.distance_transform_edt(away, sampling=grid.spacing) < NEAR_MM
    found = stage.plane(near)
    return np.asarray(found if found.any() else np.ones_like(found))


def _region(errors: Array, stage: Stage) -> tuple[float, float, float, float]:
    """The square in which the methods err most on average: no method chooses it."""
    from scipy import ndimage

    across, up = stage.spacing
    side = _side(stage)
    window = [max(1, min(round(side / step), n)) for step, n in zip((up, across), errors.shape, strict=True)]
    mean = ndimage.uniform_filter(errors.astype(np.float64), window, mode="constant")
    low = [n // 2 for n in window]
    inside = mean[
        low[0] : errors.shape[0] - (window[0] - 1) // 2, low[1] : errors.shape[1] - (window[1] - 1) // 2
    ]
    row, column = np.unravel_index(int(inside.argmax()), inside.shape)
    left, bottom = float(column) * across, float(row) * up
    return left, left + window[1] * across, bottom, bottom + window[0] * up


def _side(stage: Stage) -> float:
    """Of the enlarged square, mm: a part of the plane, or what holds the labels if they are small."""
    short = min(stage.size)
    labels = stage.labels
    if labels is None or not labels.any():
        return SHARE * short
    up, across = np.nonzero(labels)
    extent = max((np.ptp(across) + 1) * stage.spacing[0], (np.ptp(up) + 1) * stage.spacing[1])
    return float(1.2 * extent if extent < SMALL * short else SHARE * short)
