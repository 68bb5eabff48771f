"""How long and how much memory, said before the work starts, from a short probe."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pirate.ops.compose import longest
from pirate.registration.data_term import data_term
from pirate.registration.pyramid import Stage, Step
from pirate.registration.working import Box, Images
from pirate.settings import Settings

PROBES = 3
"""Steps taken on each level, of which the median counts."""

LARGEST_PROBE = 1_000_000
"""Voxels that are probed of a level: all, or a slab of it, large enough to leave the cache."""

SETTLES, SETTLES_LAST = 35, 42
"""Steps after which a level, or the finest one, usually stops by itself. Coarse: the median of training pairs of
brains. Finest: between the 37 and the 60 that were seen; `best`, which has most of them, is therefore expected at 0.75
to 1.55 times what it takes (docs/results/presets.md)."""

AROUND = 4
"""Cropping, the pyramid, the repair before the last level and the like take as long as so many of the finest steps."""

INTERPRETER = 300_000_000
"""Bytes of a process that has loaded everything and no image."""


@dataclass(frozen=True)
class Estimate:
    """What a registration will take.

    Args:
        seconds: for the steps of all levels.
        memory: bytes of the whole process.
    """

    seconds: float
    memory: int


def estimate(stages: Sequence[Stage], settings: Settings, memory: int) -> Estimate:
    """Time a few steps on every level, on a part of those that are large.

    Args:
        stages: the levels with their images, the coarsest first.
        settings: constants.
        memory: bytes that the arrays will need.
    """
    seconds = 0.0
    for stage in stages:
        last = stage is stages[-1]
        usual = SETTLES_LAST if last else SETTLES
        steps = min(stage.level.iterations, usual) if settings.tolerance > 0 else stage.level.iterations
        seconds += _seconds_per_step(stage, settings) * (steps + AROUND * last)
    return Estimate(seconds, memory + INTERPRETER)


def _seconds_per_step(stage: Stage, settings: Settings) -> float:
    """Of the whole level, from a step on a slab of it."""
    part = _slab(stage.images)
    step = Step(part, data_term(part, settings, stage.level), stage.level)
    field, spare, other = (part.fixed.new_zeros((1, len(part.shape), *part.shape)) for _ in range(3))
    times = []
    for _ in range(PROBES):
        start = time.perf_counter()
        step(field, spare, other, stage.level.step)
        longest(field)
        if field.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * math.prod(stage.images.shape) / math.prod(part.shape)


def _slab(images: Images) -> Images:
    """Planes across the first axis, so many that `LARGEST_PROBE` is kept; the images themselves if all are.

    Background costs less than tissue: the slab is the one whose share of background is nearest to that of the whole.
    """
    planes = max(1, min(images.shape[0], LARGEST_PROBE // math.prod(images.shape[1:])))
    if planes == images.shape[0]:
        return images
    tissue = (images.fixed[0, 0] != 0).flatten(1).double().mean(1)
    share = tissue.unfold(0, planes, 1).mean(1)  # of the slab that begins at each plane
    first = int((share - tissue.mean()).abs().argmin())
    box = Box((first, *[0] * (len(images.shape) - 1)), (first + planes, *images.shape[1:]), images.shape)
    return images.cut(box)
