"""Pictures of one registration: before and after, difference, deformation, determinant, convergence, labels.

Every function takes arrays on the fixed grid, writes one PNG whole or not at all, and returns its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.jacobian import determinant
from pirate.reporting.canvas import BLUE, LOUD, ORANGE, Sheet, letters, outline, show
from pirate.reporting.convergence import convergence
from pirate.reporting.display import Array, Display, View
from pirate.reporting.intensity import foreground, scaled, tissue_levels
from pirate.reporting.matplotlib_home import load_matplotlib
from pirate.solvers.solution import Record

SIDES = "neurological: the subject's left is on the left"
LATTICE = 24  # lines of the warped grid along the longer side of a view
FINER = 2  # parts of a voxel in which outlines of labels are drawn
PALETTE = ("#ee6677", "#ccbb44", "#66ccee", "#ee7733", "#aa3377", "#bbbbbb", "#228833", "#ee3377", "#33bbee",
           "#ddaa33", "#009988")  # fmt: skip


def write_all(
    folder: Path,
    fixed: Image,
    moving_on_fixed: Array,
    warped: Array,
    field: Array,
    trace: Sequence[Record],
    fixed_labels: Array | None = None,
    warped_labels: Array | None = None,
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

    Returns:
        the files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    load_matplotlib(folder)
    grid, data = fixed.grid, fixed.data
    written = [
        slices(folder / "slices.png", grid, data, moving_on_fixed, warped),
        difference(folder / "difference.png", grid, data, moving_on_fixed, warped),
        warped_grid(folder / "warped_grid.png", grid, warped, field),
        determinant_map(folder / "determinant.png", grid, data, field),
    ]
    if trace:
        written.append(convergence(folder / "convergence.png", trace))
    if fixed_labels is not None and warped_labels is not None:
        path = folder / "labels.png"
        written.append(label_overlay(path, grid, data, moving_on_fixed, warped, fixed_labels, warped_labels))
    return written


def slices(path: Path, grid: Grid, fixed: Array, moving_on_fixed: Array, warped: Array) -> Path:
    """Fixed, moving and warped image (*shape) in orthogonal planes, the contours of the fixed one on all."""
    display = Display.around(grid, foreground(fixed))
    sizes = [display.size_mm(view) for view in display.views]
    note = f"orange: contours of the fixed image, the same lines in every column · {SIDES}"
    sheet = Sheet("Before and after", note, [max(w for w, _ in sizes)] * 3, [h for _, h in sizes])
    levels = tissue_levels(fixed)
    images = [(scaled(image), name) for image, name in
              ((fixed, "fixed"), (moving_on_fixed, "moving, before"), (warped, "warped, after"))]  # fmt: skip
    for row, view in enumerate(display.views):
        sheet.side(row, view.name)
        guide = ndimage.gaussian_filter(display.plane(fixed, view).astype(np.float32), 0.6)
        for column, (image, name) in enumerate(images):
            panel = sheet.panels[row][column]
            show(panel, display.plane(image, view), display, view, limits=(0, 1.15))
            _centre(panel, display.size_mm(view)[0], max(w for w, _ in sizes))
            letters(panel, display, view)
            for level in levels:
                outline(panel, guide, level, display, view, ORANGE, 0.6)
            if row == 0:
                sheet.head(row, column, name)
    return sheet.save(path)


def difference(path: Path, grid: Grid, fixed: Array, moving_on_fixed: Array, warped: Array) -> Path:
    """Absolute difference from the fixed image before and after, (*shape) each, on one colour scale.

    Each image is divided by the 99th percentile of its foreground first.
    """
    inside = foreground(fixed)
    display = Display.around(grid, inside)
    sizes = [display.size_mm(view) for view in display.views]
    note = f"absolute difference of intensities, each image scaled by its 99th percentile · {SIDES}"
    widths, height = [w for w, _ in sizes], max(h for _, h in sizes)
    single = len(sizes) == 1  # one view: before and after side by side
    sheet = Sheet(
        "Difference from the fixed image",
        note,
        widths * 2 if single else widths,
        [height] * (2 - single),
        True,
    )
    target = scaled(fixed)
    for state, (name, image) in enumerate((("before", moving_on_fixed), ("after", warped))):
        gap = np.abs(scaled(image) - target)
        told = f"{name}, mean {gap[inside].mean():.3f}"
        for column, view in enumerate(display.views):
            panel = sheet.panels[0][state] if single else sheet.panels[state][column]
            drawn = show(panel, display.plane(gap, view), display, view, _shades("inferno"), (0, 0.6))
            _middle(panel, display.size_mm(view)[1], height)
            letters(panel, display, view)
            if not single and state == 0:
                sheet.head(0, column, view.name)
        if single:
            sheet.head(0, state, told)
        else:
            sheet.side(state, told)
    sheet.bar(drawn, "share of the 99th percentile")
    return sheet.save(path)


def warped_grid(path: Path, grid: Grid, warped: Array, field: Array) -> Path:
    """The moving image's straight lattice on the warped one: lines where ``x + field(x)`` is constant.

    `warped` (*shape), `field` (d, *shape) in voxels; each view uses the two components in its plane.
    """
    display = Display.around(grid, foreground(warped))
    sheet, sizes = _strip(
        display, "Deformation", f"the straight lattice of the moving image, warped · {SIDES}"
    )
    image = scaled(warped)
    pitch = max(max(s) for s in sizes) / LATTICE
    for column, view in enumerate(display.views):
        panel = sheet.panels[0][column]
        show(panel, display.plane(image, view), display, view, limits=(0, 1.6))
        width, height = display.size_mm(view)
        across, up = display.positions_mm(field, view)
        x = (np.arange(across.shape[1]) + 0.5) * width / across.shape[1]
        y = (np.arange(across.shape[0]) + 0.5) * height / across.shape[0]
        for part, extent in ((across, width), (up, height)):
            levels = np.arange(-4 * pitch, extent + 4 * pitch, pitch)
            panel.contour(x, y, part, levels=levels, colors=[BLUE], linewidths=0.8)
        _middle(panel, height, max(h for _, h in sizes))
        letters(panel, display, view)
        sheet.head(0, column, view.name)
    return sheet.save(path)


def determinant_map(path: Path, grid: Grid, fixed: Array, field: Array) -> Path:
    """Jacobian determinant of ``x + field(x)`` in the foreground of `fixed` (*shape); folds show everywhere.

    `field` (d, *shape), voxels; central differences; a logarithmic scale centred at 1 (no change of volume).
    """
    inside = foreground(fixed)
    display = Display.around(grid, inside)
    planes = [_determinant_plane(display, field, view) for view in display.views]
    folded = sum(int((plane <= 0).sum()) for plane in planes)
    told = (
        f"{folded:,} folded voxels in these planes, in green" if folded else "no folded voxel in these planes"
    )
    note = f"Jacobian determinant; above 1 a structure is larger in the moving image · {told} · {SIDES}"
    sheet, sizes = _strip(display, "Volume change", note, bar=True)
    for column, (view, values) in enumerate(zip(display.views, planes, strict=True)):
        panel = sheet.panels[0][column]
        folds = values <= 0
        shown = np.log2(np.where(folds, 1.0, values))
        shown = np.where(ndimage.binary_fill_holes(display.plane(inside, view)), shown, np.nan)
        drawn = show(panel, shown, display, view, "PuOr_r", (-2, 2))
        drawn.set_interpolation("nearest")
        if folds.any():
            show(panel, folds[..., None] * _rgba(LOUD), display, view)
        _middle(panel, display.size_mm(view)[1], max(h for _, h in sizes))
        letters(panel, display, view)
        sheet.head(0, column, view.name)
    sheet.bar(drawn, "determinant", [-2, -1, 0, 1, 2], ["≤1/4", "1/2", "1", "2", "≥4"])
    return sheet.save(path)


def label_overlay(
    path: Path,
    grid: Grid,
    fixed: Array,
    moving_on_fixed: Array,
    warped: Array,
    fixed_labels: Array,
    warped_labels: Array,
) -> Path:
    """Outlines of the fixed labels on the moving image before and after, and where the warped labels differ.

    All (*shape); images any intensity, labels integers.
    """
    display = Display.around(grid, foreground(fixed))
    sizes = [display.size_mm(view) for view in display.views]
    note = f"lines: structures of the fixed image; green: voxels whose warped label differs · {SIDES}"
    sheet = Sheet("Structures", note, [max(w for w, _ in sizes)] * 3, [h for _, h in sizes])
    images = [scaled(moving_on_fixed), scaled(warped), scaled(warped)]
    for row, view in enumerate(display.views):
        sheet.side(row, view.name)
        target = display.plane(fixed_labels, view)
        lines = _label_lines(target)
        wrong = display.plane(warped_labels, view) != target
        for column, image in enumerate(images):
            panel = sheet.panels[row][column]
            show(panel, display.plane(image, view), display, view, limits=(0, 1.2))
            show(panel, wrong[..., None] * _rgba(LOUD, 0.75) if column == 2 else lines, display, view)
            _centre(panel, display.size_mm(view)[0], max(w for w, _ in sizes))
            letters(panel, display, view)
            if row == 0:
                sheet.head(
                    row, column, ("moving, before", "warped, after", "labels that differ, after")[column]
                )
    return sheet.save(path)


def _strip(
    display: Display, title: str, note: str, bar: bool = False
) -> tuple[Sheet, list[tuple[float, float]]]:
    """One row of all views, and their sizes in mm."""
    sizes = [display.size_mm(view) for view in display.views]
    return Sheet(title, note, [w for w, _ in sizes], [max(h for _, h in sizes)], bar), sizes


def _shades(name: str) -> Any:
    """A colour map in 64 shades: as smooth to the eye, and the file is smaller."""
    from matplotlib import colormaps

    return colormaps[name].resampled(64)


def _centre(panel: Any, width: float, available: float) -> None:
    panel.set_xlim((width - available) / 2, (width + available) / 2)


def _middle(panel: Any, height: float, available: float) -> None:
    panel.set_ylim((height - available) / 2, (height + available) / 2)


def _determinant_plane(display: Display, field: Array, view: View) -> Array:
    """Determinant in one plane, from three planes of the field."""
    slab, inner, thin = display.slab(field, view)
    values = determinant(torch.from_numpy(np.ascontiguousarray(slab, dtype=np.float32))[None])[0].numpy()
    return thin.plane(values, inner)


def _label_lines(labels: Array) -> Array:
    """RGBA (vertical, horizontal, 4), finer than the plane: the rim of each label in the label's colour."""
    labels = np.kron(labels, np.ones((FINER, FINER), dtype=labels.dtype))
    padded = np.pad(labels, 1, mode="edge")
    core = padded[1:-1, 1:-1]
    edge = np.zeros(labels.shape, dtype=bool)
    for other in (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
        edge |= other != core
    table = np.stack([_rgba(colour) for colour in PALETTE])
    return np.asarray(table[labels % len(PALETTE)] * (edge & (labels != 0))[..., None])


def _rgba(colour: str, opacity: float = 1.0) -> Array:
    return np.array([*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)), opacity])
