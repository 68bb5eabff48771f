"""The affine start: rigid, similarity or affine alignment of two images in world coordinates.

Coarse to fine. At the coarsest level many starts are tried, three positions times a set of rotations; the best of
them, and the identity, are refined as rigid motions; the better ones among those then go on as what was asked for.
Nothing is random: the same images give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch

from pirate.errors import reject
from pirate.grid import Array
from pirate.image import Image
from pirate.registration.affine_images import Frame, Pose, Working
from pirate.registration.affine_penalty import Penalty, Samples
from pirate.registration.affine_steps import Candidate, Kind, exponential, refine, skew
from pirate.transform import Affine

Progress = Callable[[str, int, int], None]
"""Called with ("align", levels done, levels)."""

VOXELS = 1 << 20
"""At most about so many voxels at the finest level: 2 mm for a head."""

COARSE_EXTENT = 16
"""A level is halved again while it is so many voxels wide."""

POINTS = (1 << 12, 1 << 13, 1 << 15, 1 << 16)
"""Points for choosing among the starts, at the coarser levels, at the last but one, and at the finest."""

ROTATION_STEP, ROTATION_RADIUS = 18.0, 41.0
"""Degrees: rotation vectors tried lie on a lattice of this step, in a ball of this radius."""

SCALES = (0.5, 2.0)
"""A result that stretches anything by more or less than this is refused."""

REFINED = 5  # starts refined as rigid motions, besides the identity
FINALISTS = 2  # of them, refined as what was asked for
NEAR = 0.3  # part of the radius: poses that differ by less lead to the same place
AGREED = 3  # starts that lead to the same place; then no more are tried
STEPS = 15  # of the optimiser at each level


@dataclass(frozen=True)
class Alignment:
    """What `align` found.

    Args:
        affine: fixed world to moving world, RAS mm.
        penalty_before: of the identity at the finest level, ``1 - correlation`` or minus the mutual information
            in nats; 1 or 0 where the images hardly overlap.
        penalty_after: of `affine`, likewise; never larger.
        kind: what was asked for.
        start: the start that led here.
        note: a sentence where the result is not what was asked for.
    """

    affine: Affine
    penalty_before: float
    penalty_after: float
    kind: Kind
    start: str
    note: str | None = None


def align(
    fixed: Image,
    moving: Image,
    kind: Kind = "affine",
    *,
    penalty: Penalty = "correlation",
    fixed_mask: Image | None = None,
    moving_mask: Image | None = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008 - immutable
    progress: Progress | None = None,
) -> Alignment:
    """Find the affine that brings `moving` onto `fixed`; a plane stays in its plane.

    Args:
        fixed: intensities, 2-D or 3-D, any spacing, size and orientation.
        moving: intensities, as many axes.
        kind: "rigid", "similarity" (one scale) or "affine".
        penalty: "correlation", or "mutual" (information) for images of different contrast.
        fixed_mask: weights in [0, 1] on the grid of `fixed`: what counts.
        moving_mask: weights in [0, 1] on the grid of `moving`.
        device: where to compute.
        progress: called after each level.

    Returns:
        `Alignment`; the identity where nothing better was found.

    Raises:
        InputError: the images have not the same number of axes, or one is too thin or has no contrast.
    """
    _check(fixed, fixed_mask, "fixed")
    _check(moving, moving_mask, "moving")
    if fixed.grid.ndim != moving.grid.ndim:
        raise reject(
            moving.name, f"is {moving.grid.ndim}-D while the fixed image is {fixed.grid.ndim}-D",
            "two images of one dimension", "Extract the matching slice, or give both volumes.",
        )  # fmt: skip
    with torch.no_grad():
        pyramid = _pyramid(Working.of(fixed, fixed_mask, device), Working.of(moving, moving_mask, device))
        frame = Frame.of(fixed.grid, pyramid[0][0].centre())
        starts = _starts(*pyramid[0], frame)
        levels = [
            Samples.between(f, m, frame, penalty, min(count, 2 * f.grid.voxels))
            for count, (f, m) in zip((POINTS[0], *_counts(len(pyramid))), (pyramid[0], *pyramid), strict=True)
        ]
        found, before, note = _aligned(levels, starts, kind, progress)
    return Alignment(frame.affine(found.pose), before, found.value, kind, found.start, note)


def _aligned(
    levels: list[Samples], starts: list[Candidate], kind: Kind, progress: Progress | None
) -> tuple[Candidate, float, str | None]:
    """The best pose, its penalty before (that of the identity), and a note."""
    rigid = _rigid(levels[1], _leading(levels[0], starts))
    pool = _distinct(levels[1], rigid, FINALISTS)
    for index, level in enumerate(levels[1:]):
        pool = _distinct(level, [refine(level, c, kind, STEPS) for c in pool], FINALISTS if index == 0 else 1)
        if progress is not None:
            progress("align", index + 1, len(levels) - 1)
    best, note = pool[0], None
    stretch = np.linalg.svd(best.pose.linear, compute_uv=False)
    if stretch.min() < SCALES[0] or stretch.max() > SCALES[1]:
        best = _distinct(levels[1], rigid, 1)[0]
        note = (
            f"the {kind} alignment stretched the image by {stretch.min():.2f} to {stretch.max():.2f}, beyond "
            f"{SCALES[0]:g} to {SCALES[1]:g}, and was dropped for the rigid one of its start."
        )
    before, after = levels[-1].values([starts[0].pose, best.pose])
    if after < before:
        return replace(best, value=after), before, note
    note = "no alignment was better than the images' own positions, which were kept."
    return replace(starts[0], value=before), before, note


def _rigid(level: Samples, leading: list[Candidate]) -> list[Candidate]:
    """The candidates refined as rigid motions, in turn, until `AGREED` of them have led to the best place."""
    found: list[Candidate] = []
    for candidate in leading:
        found.append(refine(level, candidate, "rigid", STEPS))
        best = _distinct(level, found, 1)[0]
        if sum(not _apart(level, best, c) for c in found) == AGREED:
            break
    return found


def _leading(level: Samples, starts: list[Candidate]) -> list[Candidate]:
    """The identity, which comes first, and the best starts that are not close to each other."""
    values = level.values([c.pose for c in starts])
    valued = [replace(c, value=v) for c, v in zip(starts, values, strict=True)]
    return [valued[0], *_distinct(level, valued[1:], REFINED)]


def _distinct(level: Samples, candidates: list[Candidate], count: int) -> list[Candidate]:
    """At most `count` candidates, best first, whose poses differ by more than `NEAR` of the radius."""
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: round(c.value, 4)):
        if len(chosen) < count and all(_apart(level, candidate, c) for c in chosen):
            chosen.append(candidate)
    return chosen


def _apart(level: Samples, a: Candidate, b: Candidate) -> bool:
    """Whether points at the radius differ by more than `NEAR` of it, in the mean square."""
    d = len(a.pose.shift)
    turn = np.square(a.pose.linear - b.pose.linear).sum() / d  # of the mean square over directions
    shift = np.square(a.pose.shift - b.pose.shift).sum() / level.radius**2
    return bool(turn + shift > NEAR**2)


def _check(image: Image, mask: Image | None, role: str) -> None:
    """Refuse an image that is too thin, or has no contrast where it counts."""
    if min(image.grid.shape) < 4:
        raise reject(
            image.name, f"the {role} image is {'x'.join(map(str, image.grid.shape))} voxels",
            "at least 4 along each axis", "Give the whole image, or a single slice as a 2-D image.",
        )  # fmt: skip
    shown = image.data if mask is None else image.data[mask.data > 0]
    if shown.size == 0 or float(np.ptp(shown)) == 0:
        raise reject(
            image.name, f"the {role} image is constant" + (" inside its mask" if mask is not None else ""),
            "an image with contrast", "Check the files.",
        )  # fmt: skip


def _pyramid(fixed: Working, moving: Working) -> list[tuple[Working, Working]]:
    """Both images at each level, coarsest first."""
    d = fixed.grid.ndim
    box = float(np.prod([n * s for n, s in zip(fixed.grid.shape, fixed.grid.spacing, strict=True)]))
    spacing = max((box / VOXELS) ** (1 / d), min(fixed.grid.spacing))
    levels = [(fixed.at(spacing), moving.at(spacing))]
    while box ** (1 / d) / (2 * spacing) >= COARSE_EXTENT:
        spacing *= 2
        fine = levels[-1]
        levels.append((fine[0].at(spacing), fine[1].at(spacing)))
    return levels[::-1]


def _counts(levels: int) -> list[int]:
    """Points at each level, coarsest first."""
    return [POINTS[max(1, len(POINTS) - levels + index)] for index in range(levels)]


def _starts(fixed: Working, moving: Working, frame: Frame) -> list[Candidate]:
    """Three positions times all rotations; the identity first."""
    d = fixed.grid.ndim
    pivots = [("identity", frame.centre, frame.centre)]
    for name, a, b in (
        ("centre of geometry", fixed.middle(), moving.middle()),
        ("centre of mass", frame.centre, moving.centre()),
    ):
        step = min(fixed.grid.spacing)
        if all(np.linalg.norm((b - a) - (q - p)) > 0.5 * step for _, p, q in pivots):
            pivots.append((name, a, b))
    starts = []
    turns = [(turn, exponential(skew(np.deg2rad(turn)))) for turn in _rotation_vectors(d)]
    for name, a, b in pivots:
        for turn, rotation in turns:
            text = ", ".join(f"{t:g}" for t in turn)
            start = name if not turn.any() else f"{name}, turned by ({text}) degrees"
            shift = frame.coordinates(b) - rotation @ frame.coordinates(a)
            starts.append(Candidate(Pose(rotation, shift), np.inf, start))
    return starts


def _rotation_vectors(d: int) -> list[Array]:
    """Rotation vectors, 3 entries or 1, degrees; none first, then the smaller ones."""
    reach = range(-int(ROTATION_RADIUS // ROTATION_STEP), int(ROTATION_RADIUS // ROTATION_STEP) + 1)
    lattice = [ROTATION_STEP * np.array(v) for v in product(reach, repeat=3 if d == 3 else 1)]
    return sorted((v for v in lattice if np.linalg.norm(v) <= ROTATION_RADIUS), key=lambda v: float(v @ v))
