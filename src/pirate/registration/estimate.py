"""How long and how much memory, said before the work starts, from a short probe."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pirate.registration.data_term import data_term
from pirate.registration.pyramid import Stage, Step
from pirate.settings import Settings

PROBES = 3
"""Steps taken on the probed level, of which the fastest counts."""

LARGEST_PROBE = 1_500_000
"""Voxels of the largest level that is probed; larger ones are extrapolated."""

PER_VOXEL = 1.15
"""A voxel of a level too large for the cache costs so much more than one of the probed level."""

AROUND = 5
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
    """Time a few steps on the largest level that is quick, and extrapolate to the others by voxels.

    Args:
        stages: the levels with their images, the coarsest first.
        settings: constants.
        memory: bytes that the arrays will need.
    """
    small = [s for s in stages if math.prod(s.images.shape) <= LARGEST_PROBE]
    probed = small[-1] if small else stages[0]
    rate = _seconds_per_step(probed, settings) / math.prod(probed.images.shape)
    seconds = 0.0
    for stage in stages:
        factor = 1.0 if stage in small else PER_VOXEL
        steps = stage.level.iterations + (AROUND if stage is stages[-1] else 0)
        seconds += factor * rate * math.prod(stage.images.shape) * steps
    return Estimate(seconds, memory + INTERPRETER)


def _seconds_per_step(stage: Stage, settings: Settings) -> float:
    step = Step(stage.images, data_term(stage.images, settings, stage.level), stage.level)
    shape = (1, len(stage.images.shape), *stage.images.shape)
    field, spare, other = (stage.images.fixed.new_zeros(shape) for _ in range(3))
    times = []
    for _ in range(PROBES):
        start = time.perf_counter()
        step(field, spare, other, stage.level.step)
        if field.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
