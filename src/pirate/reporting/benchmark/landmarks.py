"""How far landmarks are from where they belong, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pirate.benchmark.cases import Case
from pirate.benchmark.kept import Exhibit
from pirate.reporting.benchmark import boxes, style
from pirate.reporting.benchmark.scores import Score
from pirate.reporting.display import Array

WIDTH = 11.6  # inches


def errors_mm(case: Case, field: Array) -> Array:
    """Distance (n,), mm, of each landmark from where the field (d, *shape), voxels, takes its partner.

    ``|x + field(x) - y|`` in the world, x a landmark of the fixed image, y the same of the moving one.
    """
    from scipy import ndimage

    if case.fixed_points is None or case.moving_points is None:
        return np.zeros(0)
    grid = case.fixed.grid
    at = grid.to_voxel(case.fixed_points)
    moved = np.stack([ndimage.map_coordinates(part, at.T, order=1, mode="nearest") for part in field], 1)
    return np.asarray(np.linalg.norm(grid.to_world(at + moved) - case.moving_points, axis=1))


def of_each(found: Sequence[Score], exhibits: Sequence[Exhibit]) -> tuple[dict[str, Array], str]:
    """Errors, mm, for each entry, and what one of them is.

    One pair is all there is: the error of every landmark. Else the mean error of every pair.
    """
    single = {row.pair for score in found for row in score.rows} == {e.case.name for e in exhibits[:1]}
    each = {k.entry.key: errors_mm(exhibits[0].case, k.field) for k in exhibits[0].kept} if single else {}
    if any(len(values) for values in each.values()):
        return {key: values for key, values in each.items() if len(values)}, "landmark"
    return {s.entry.key: s.values("tre") for s in found if len(s.values("tre"))}, "pair"


def landmarks(
    path: Path, found: Sequence[Score], errors: Mapping[str, Array], start: Array, texts: tuple[str, str]
) -> Path:
    """The landmark error of each method, best mean on top, with the start as the last line.

    Args:
        path: of the picture.
        found: the methods.
        errors: mm, for the keys of their entries.
        start: (n,), mm, before registration.
        texts: title of the picture, and what one point is.
    """
    order = sorted((s for s in found if s.entry.key in errors), key=lambda s: errors[s.entry.key].mean())
    started = len(start) > 0
    height = boxes.TOP + boxes.BOTTOM + boxes.LINE * max(len(order) + started, 4)
    marks = style.legend([s.entry for s in order])
    note = " · ".join(filter(None, [f"a point is one {texts[1]}; white diamond and number: mean", marks]))
    figure = style.sheet(WIDTH, height, texts[0], note)
    inner = height - boxes.TOP - boxes.BOTTOM
    axes = style.box(figure, boxes.NAMES, boxes.BOTTOM, WIDTH - boxes.NAMES - 1.0, inner)
    for line, score in enumerate(order):
        boxes.distribution(axes, line, errors[score.entry.key], score.entry)
        boxes.beside(axes, line, f"{errors[score.entry.key].mean():.2f} mm")
    if started:
        boxes.distribution(axes, len(order), start, None)
        boxes.beside(axes, len(order), f"{start.mean():.2f} mm")
        axes.axvline(float(start.mean()), color=style.BEFORE, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    boxes.name_lines(axes, [s.entry for s in order], started)
    axes.set_xlim(left=0)
    axes.set_xlabel("landmark error, mm")
    return style.save(figure, path)
