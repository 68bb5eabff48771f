"""The pictures of the exhibited pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from pirate.benchmark.kept import Exhibit, Kept
from pirate.benchmark.measured import Measured
from pirate.reporting.benchmark.convergence import convergence, traced
from pirate.reporting.benchmark.grids import grids
from pirate.reporting.benchmark.images import warped
from pirate.reporting.benchmark.jacobian import jacobians
from pirate.reporting.benchmark.stage import Stage, methods, set_up
from pirate.reporting.benchmark.style import Figure

WHOLE = ("pirate", "pirate-plus")
"""Entries of the main table that belong to the ablation too."""

VARIANTS = ("ablation", "control", "tv")
MOST = 12
"""Methods in one picture; if there are more, `LESSER` are left out of it."""

LESSER = ("fast", "best", "syn-default", "demons-sitk")
REGION = "The framed square, enlarged, is where the methods err most on average; no method chooses it."
FOLDS = "Folded: Jacobian determinant not above 0, central differences."
PARTS = "PIRATE = P+R+S, PIRATE+ = P+D+S."


def of_methods(measured: Measured, folder: Path) -> Iterator[Figure]:
    """Images, grids, determinants and convergence on a typical pair; images on the pair with the smallest gain."""
    typical = shown(measured.exhibits)
    if typical is None:
        return
    stage = set_up(typical, measured.track.name)
    kept = selected(methods(typical))
    role = role_of(typical)
    if kept:
        what = "Warped images" if stage.labels is None else "Warped images and labels"
        yield _warped(folder / "warped.png", stage, kept, (what, role))
        path = grids(folder / "grids.png", stage, kept, "Warped grids")
        caption = (
            f"The straight lattice of the moving image, warped, on {role}. SDlogJ: standard deviation of the "
        )
        yield Figure(path, "Warped grids", f"{caption}logarithm of the determinant; less is smoother.")
        path = jacobians(folder / "jacobian.png", stage, kept, "Negative Jacobian determinants")
        yield Figure(path, "Negative JD", f"Jacobian determinant on {role}; folded voxels in red. {FOLDS}")
    recorded = traced(typical.kept)
    if recorded:
        path = convergence(
            folder / "convergence.png", stage, recorded, "Convergence of the paper's iteration"
        )
        caption = "Residual divided by the step size, and data term, at every iteration; |fixed − warped| on the way, "
        yield Figure(path, "Convergence", f"{caption}each image scaled to its bright tissue, with its mean.")
    corner = next((e for e in measured.exhibits if e.role == "smallest gain"), None)
    if corner is not None and methods(corner):
        stage = set_up(corner, measured.track.name)
        yield _warped(
            folder / "corner.png", stage, selected(methods(corner)), ("Corner case", role_of(corner))
        )


def of_variants(measured: Measured, folder: Path) -> Iterator[Figure]:
    """The ablation, the step size and the other denoiser on the typical pair."""
    typical = shown(measured.exhibits)
    if typical is None or not any(k.entry.group != "main" for k in typical.kept):
        return
    stage = set_up(typical, measured.track.name)
    role = role_of(typical)
    kept = _of_groups(typical, VARIANTS)
    if kept:
        path = grids(folder / "ablation-grids.png", stage, kept, "Ablation: warped grids")
        yield Figure(path, "Ablation, warped grids", f"The variants on {role}. {PARTS}")
        path = jacobians(
            folder / "ablation-jacobian.png", stage, kept, "Ablation: negative Jacobian determinants"
        )
        yield Figure(path, "Ablation, negative JD", f"The variants on {role}. {PARTS} {FOLDS}")
    for group, title in (("step", "Fixed and dynamic step size"), ("tv", "TV and DnCNN denoiser")):
        kept = _of_groups(typical, (group,))
        if kept:
            yield _warped(folder / f"{group}.png", stage, kept, (title, role))


def shown(exhibits: Sequence[Exhibit]) -> Exhibit | None:
    """The pair that stands for all: the typical one, else the first."""
    order = {"typical": 0, "first": 1}
    return min(exhibits, key=lambda e: order.get(e.role, 2), default=None)


def selected(kept: Sequence[Kept]) -> list[Kept]:
    """As many as a picture can hold: presets and variants of methods that are there anyway go first."""
    if len(kept) <= MOST:
        return list(kept)
    return [k for k in kept if k.entry.key not in LESSER]


def role_of(exhibit: Exhibit) -> str:
    """Which pair it is."""
    words = {"typical": "the pair of median gain", "smallest gain": "the pair on which default gains least"}
    return words.get(exhibit.role, "the first pair")


def _of_groups(exhibit: Exhibit, groups: Sequence[str]) -> list[Kept]:
    """The variants of these groups and the whole methods; nothing if there is no variant."""
    variants = methods(exhibit, groups)
    whole = [k for k in exhibit.kept if k.entry.key in (WHOLE if groups != ("tv",) else WHOLE[:1])]
    plain = [dataclasses.replace(k, entry=dataclasses.replace(k.entry, ours=False)) for k in variants]
    return [*plain, *whole] if variants else []


def _warped(path: Path, stage: Stage, kept: Sequence[Kept], texts: tuple[str, str]) -> Figure:
    """Draw; `texts` are the title and which pair it is."""
    title, role = texts
    warped(path, stage, kept, title)
    if stage.labels is None:
        return Figure(path, title, f"Warped images on {role}. The framed square is shown enlarged.")
    return Figure(path, title, f"Warped images on {role}. Lines: outlines of the labels. {REGION}")
