"""Pictures of one registration: before and after, difference, deformation, determinant, convergence, labels, surprise.

Every function takes arrays on the fixed grid, writes one PNG whole or not at all, and returns its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.jacobian import determinant
from pirate.reporting.canvas import (
    BLUE,
    LOUD,
    ORANGE,
    Panel,
    Sheet,
    contours,
    draw_lines,
    letters,
    overlay,
    show,
)
from pirate.reporting.convergence import convergence
from pirate.reporting.display import Array, Display, View
from pirate.reporting.intensity import Shown, smoothed, without_holes
from pirate.reporting.shades import FIRE, GREY, PURPLE_ORANGE, rgb
from pirate.solvers.solution import Record

SIDES = "neurological: the subject's left is on the left"
SURPRISING = 1.0  # voxels; most of a good field has a tenth of it
LATTICE = 24  # lines of the warped grid along the longer side of a view
FINER = 2  # parts of a voxel in which outlines of labels are drawn
PALETTE = ("#ee6677", "#ccbb44", "#66ccee", "#ee7733", "#aa3377", "#bbbbbb", "#228833", "#ee3377", "#33bbee",
           "#ddaa33", "#009988")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Scene:
    """The images of a registration, all on one grid, and the planes in which they are shown.

    Args:
        fixed: the fixed image.
        moving: the moving image resampled on the fixed grid before registration.
        warped: after it.
        inside: (*shape), bool, foreground of the fixed image.
        display: the planes, around that.
    """

    fixed: Shown
    moving: Shown
    warped: Shown
    inside: Array
    display: Display

    @classmethod
    def of(cls, grid: Grid, fixed: Array, moving_on_fixed: Array, warped: Array) -> Scene:
        """Look at three images (*shape), any intensity."""
        shown = Shown.of(fixed)
        inside = shown.foreground()
        display = Display.around(grid, inside)
        return cls(shown, Shown.of(moving_on_fixed), Shown.of(warped), inside, display)


def write_all(
    folder: Path,
    fixed: Image,
    moving_on_fixed: Array,
    warped: Array,
    field: Array,
    trace: Sequence[Record],
    fixed_labels: Array | None = None,
    warped_labels: Array | None = None,
    surprise: Array | None = None,
) -> list[Path]:
    """Draw every figure into `folder`, which is made if it is missing.

    Args:
        folder: where to.
        fixed: the fixed image.
        moving_on_fixed: (*shape), the moving image resampled on the fixed grid before registration.
        warped: (*shape), after it.
        field: (d, *shape), voxels.
        trace: what the solver recorded; without records there is no figure of the convergence.
        fixed_labels: (*shape), integers.
        warped_labels: (*shape), integers; the figure of the labels needs both.
        surprise: (*shape), voxels, how much the shipped prior would change the field.

    Returns:
        the files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scene = Scene.of(fixed.grid, fixed.data, moving_on_fixed, warped)
    written = [
        slices(folder / "slices.png", scene),
        difference(folder / "difference.png", scene),
        warped_grid(folder / "warped_grid.png", scene, field),
        determinant_map(folder / "determinant.png", scene, field),
    ]
    if trace:
        written.append(convergence(folder / "convergence.png", trace))
    if fixed_labels is not None and warped_labels is not None:
        written.append(label_overlay(folder / "labels.png", scene, fixed_labels, warped_labels))
    if surprise is not None:
        written.append(surprise_map(folder / "surprise.png", scene, surprise))
    return written


def slices(path: Path, scene: Scene) -> Path:
    """Fixed, moving and warped image in orthogonal planes, the contours of the fixed one on all."""
    display = scene.display
    sheet = _rows(
        display, "Before and after", "orange: contours of the fixed image, the same lines in every column"
    )
    levels = scene.fixed.tissue_levels()
    images = ((scene.fixed, "fixed"), (scene.moving, "moving, before"), (scene.warped, "warped, after"))
    for row, view in enumerate(display.views):
        sheet.side(row, view.name)
        guide = smoothed(display.plane(scene.fixed.image, view), 0.6)
        lines = contours(guide, levels)
        for column, (image, name) in enumerate(images):
            panel = sheet.panels[row][column]
            _grey(sheet, panel, image, display, view, 1.15)
            draw_lines(sheet, panel, lines, guide.shape, display, view, ORANGE, 0.6)
            letters(sheet, panel, display, view)
            if row == 0:
                sheet.head(row, column, name)
    return sheet.save(path)


def difference(path: Path, scene: Scene) -> Path:
    """Absolute difference from the fixed image before and after, on one colour scale.

    Each image is divided by the 99th percentile of its foreground first.
    """
    display, fixed = scene.display, scene.fixed
    sizes = [display.size_mm(view) for view in display.views]
    note = f"absolute difference of intensities, each image scaled by its 99th percentile · {SIDES}"
    widths, height = [w for w, _ in sizes], max(h for _, h in sizes)
    single = len(sizes) == 1  # one view: before and after side by side
    title = "Difference from the fixed image"
    sheet = Sheet(title, note, widths * 2 if single else widths, [height] * (2 - single), True)
    target = fixed.scaled(fixed.image[scene.inside])
    for state, (name, image) in enumerate((("before", scene.moving), ("after", scene.warped))):
        told = f"{name}, mean {np.abs(image.scaled(image.image[scene.inside]) - target).mean():.3f}"
        for column, view in enumerate(display.views):
            panel = sheet.panels[0][state] if single else sheet.panels[state][column]
            planes = [shown.scaled(display.plane(shown.image, view)) for shown in (image, fixed)]
            show(sheet, panel, np.abs(planes[0] - planes[1]), display, view, FIRE, (0, 0.6))
            letters(sheet, panel, display, view)
            if not single and state == 0:
                sheet.head(0, column, view.name)
        if single:
            sheet.head(0, state, told)
        else:
            sheet.side(state, told)
    ticks = [i / 10 for i in range(7)]
    sheet.bar(FIRE, (0, 0.6), "share of the 99th percentile", ticks, [f"{tick:.1f}" for tick in ticks])
    return sheet.save(path)


def warped_grid(path: Path, scene: Scene, field: Array) -> Path:
    """The moving image's straight lattice on the warped one: lines where ``x + field(x)`` is constant.

    `field` (d, *shape) in voxels; each view uses the two components in its plane.
    """
    display = Display.around(scene.display.grid, scene.warped.foreground())
    sheet = _strip(display, "Deformation", f"the straight lattice of the moving image, warped · {SIDES}")
    pitch = max(max(display.size_mm(view)) for view in display.views) / LATTICE
    for column, view in enumerate(display.views):
        panel = sheet.panels[0][column]
        _grey(sheet, panel, scene.warped, display, view, 1.6)
        lines = []
        for part, extent in zip(display.positions_mm(field, view), display.size_mm(view), strict=True):
            lines += contours(part, list(np.arange(-4 * pitch, extent + 4 * pitch, pitch)))
        shape = display.plane(scene.warped.image, view).shape
        draw_lines(sheet, panel, lines, shape, display, view, BLUE, 0.8)
        letters(sheet, panel, display, view)
        sheet.head(0, column, view.name)
    return sheet.save(path)


def determinant_map(path: Path, scene: Scene, field: Array) -> Path:
    """Jacobian determinant of ``x + field(x)`` in the foreground of the fixed image; folds show everywhere.

    `field` (d, *shape), voxels; central differences; a logarithmic scale centred at 1 (no change of volume).
    """
    display = scene.display
    planes = [_determinant_plane(display, field, view) for view in display.views]
    folded = sum(int((plane <= 0).sum()) for plane in planes)
    told = (
        f"{folded:,} folded voxels in these planes, in green" if folded else "no folded voxel in these planes"
    )
    note = f"Jacobian determinant; above 1 a structure is larger in the moving image · {told} · {SIDES}"
    sheet = _strip(display, "Volume change", note, bar=True)
    for column, (view, values) in enumerate(zip(display.views, planes, strict=True)):
        panel = sheet.panels[0][column]
        folds = values <= 0
        shown = np.log2(np.where(folds, 1.0, values))
        shown = np.where(without_holes(display.plane(scene.inside, view)), shown, np.nan)
        show(sheet, panel, shown, display, view, PURPLE_ORANGE, (-2, 2), smooth=False)
        overlay(sheet, panel, folds, rgb(LOUD), display, view)
        letters(sheet, panel, display, view)
        sheet.head(0, column, view.name)
    sheet.bar(PURPLE_ORANGE, (-2, 2), "determinant", [-2, -1, 0, 1, 2], ["≤1/4", "1/2", "1", "2", "≥4"])
    return sheet.save(path)


def surprise_map(path: Path, scene: Scene, surprise: Array) -> Path:
    """How far the learned prior would move each voxel, ``|phi - D(phi)|``; `surprise` (*shape), voxels."""
    display = scene.display
    note = f"how far the learned prior would change the field: bright where it is unusual · {SIDES}"
    sheet = _strip(display, "Surprise of the prior", note, bar=True)
    for column, view in enumerate(display.views):
        panel = sheet.panels[0][column]
        inside = without_holes(display.plane(scene.inside, view))
        shown = np.where(inside, display.plane(surprise, view), 0.0)
        show(sheet, panel, shown, display, view, FIRE, (0, SURPRISING))
        letters(sheet, panel, display, view)
        sheet.head(0, column, view.name)
    ticks = [SURPRISING * i / 5 for i in range(6)]
    sheet.bar(
        FIRE, (0, SURPRISING), "voxels", ticks, [f"{tick:.1f}" for tick in ticks[:-1]] + [f"≥{SURPRISING:g}"]
    )
    return sheet.save(path)


def label_overlay(path: Path, scene: Scene, fixed_labels: Array, warped_labels: Array) -> Path:
    """Outlines of the fixed labels on the moving image before and after, and where the warped labels differ.

    Labels (*shape), integers.
    """
    display = scene.display
    sheet = _rows(
        display,
        "Structures",
        "lines: structures of the fixed image; green: voxels whose warped label differs",
    )
    images = (
        (scene.moving, "moving, before"),
        (scene.warped, "warped, after"),
        (scene.warped, "labels that differ, after"),
    )
    for row, view in enumerate(display.views):
        sheet.side(row, view.name)
        target = display.plane(fixed_labels, view)
        rims, colours = _label_lines(target)
        for column, (image, name) in enumerate(images):
            panel = sheet.panels[row][column]
            _grey(sheet, panel, image, display, view, 1.2)
            if column == 2:
                wrong = display.plane(warped_labels, view) != target
                overlay(sheet, panel, wrong, rgb(LOUD), display, view, 0.75)
            else:
                overlay(sheet, panel, rims, colours, display, view)
            letters(sheet, panel, display, view)
            if row == 0:
                sheet.head(row, column, name)
    return sheet.save(path)


def _rows(display: Display, title: str, note: str) -> Sheet:
    """Three columns, a row for each view."""
    sizes = [display.size_mm(view) for view in display.views]
    return Sheet(title, f"{note} · {SIDES}", [max(w for w, _ in sizes)] * 3, [h for _, h in sizes])


def _strip(display: Display, title: str, note: str, bar: bool = False) -> Sheet:
    """One row of all views."""
    sizes = [display.size_mm(view) for view in display.views]
    return Sheet(title, note, [w for w, _ in sizes], [max(h for _, h in sizes)], bar)


def _grey(sheet: Sheet, panel: Panel, image: Shown, display: Display, view: View, white: float) -> None:
    """Draw a plane of an image; `white` is the scaled intensity that becomes white."""
    show(sheet, panel, image.scaled(display.plane(image.image, view)), display, view, GREY, (0, white))


def _determinant_plane(display: Display, field: Array, view: View) -> Array:
    """Determinant in one plane, from three planes of the field."""
    slab, inner, thin = display.slab(field, view)
    values = determinant(torch.from_numpy(np.ascontiguousarray(slab, dtype=np.float32))[None])[0].numpy()
    return thin.plane(values, inner)


def _label_lines(labels: Array) -> tuple[Array, Array]:
    """Rims of the labels, bool, and their colours, (..., 3), uint8; both finer than the plane."""
    labels = np.kron(labels, np.ones((FINER, FINER), dtype=labels.dtype))
    padded = np.pad(labels, 1, mode="edge")
    core = padded[1:-1, 1:-1]
    edge = np.zeros(labels.shape, dtype=bool)
    for other in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
        edge |= other != core
    table = np.stack([rgb(colour) for colour in PALETTE])
    return edge & (labels != 0), table[labels % len(PALETTE)]
