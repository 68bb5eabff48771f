"""From a field to a `Registration`: the steps that every method shares, ours or a rival's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pirate.image import Image
from pirate.ops.compose import Inverse, invert
from pirate.ops.jacobian import mark_folds
from pirate.ops.repair import Repair
from pirate.ops.warp import warp
from pirate.registration.apply import apply
from pirate.registration.data_term import penalties
from pirate.registration.measure import judge, measure
from pirate.registration.pair import Pair
from pirate.registration.process import Clock, peak_memory
from pirate.registration.result import Registration
from pirate.registration.working import Images
from pirate.settings import Settings
from pirate.solvers.solution import Solution


@dataclass(frozen=True, eq=False)
class Found:
    """What a method has found, before it is inverted, applied and measured.

    Args:
        images: the pair that the data term is measured on.
        solution: its field, (1, d, *shape of `images`), in voxels.
        mended: the field on the fixed grid, repaired or as it is.
        inverse: the method's own inverse, (1, d, *fixed shape), voxels; None to compute it.
        peak_memory: bytes, of the process that did the work; None for this one.
    """

    images: Images
    solution: Solution
    mended: Repair
    inverse: Tensor | None = None
    peak_memory: int | None = None


def as_it_is(field: Tensor) -> Repair:
    """A field (1, d, *shape), voxels, with the folds that it has."""
    count, marks = mark_folds(field)
    return Repair(field, count == 0, 0, 0, 0.0, marks.nonzero())


def with_error(field: Tensor, inverse: Tensor) -> Inverse:
    """A method's own inverse, (1, d, *shape), voxels, and its error ``|inverse + field o (id + inverse)|``."""
    residual = inverse + warp(field, inverse.contiguous(), padding="border")
    return Inverse(inverse, torch.linalg.vector_norm(residual, dim=1))


def finish(
    pair: Pair,
    found: Found,
    settings: Settings,
    clock: Clock,
    remarks: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
    maps: Mapping[str, Image] | None = None,
) -> Registration:
    """Invert, resample, measure and judge.

    Args:
        pair: the images as read.
        found: the field.
        settings: name the data term that is measured; for our own methods, what they ran with.
        clock: goes on counting.
        remarks: sentences for the notes.
        more: further metrics.
        maps: images on the fixed grid that tell about the field.
    """
    field, solution = found.mended.field, found.solution
    with clock.stage("invert"):
        inverse = invert(field) if found.inverse is None else with_error(field, found.inverse)
    with clock.stage("resample"):
        forward, backward = pair.transforms(field, inverse.field)
        warped = apply(pair.moving, forward, pair.fixed.grid, outside=float(pair.moving.data.min()))
    with clock.stage("measure"):
        metrics: dict[str, Any] = {"identical": bool(torch.equal(found.images.fixed, found.images.moving))}
        metrics |= penalties(found.images, settings, solution.field)
        metrics |= measure(pair, solution, found.mended, inverse, forward)
        metrics |= more or {}
    return Registration(
        pair.fixed, pair.moving, warped, forward, backward, metrics, solution.status, solution.trace, settings,
        clock.seconds, found.peak_memory if found.peak_memory is not None else peak_memory(),
        torch.get_num_threads(), judge(solution.status, metrics), (*pair.notes, *remarks), pair.images,
        maps or {},
    )  # fmt: skip
