"""How well a network serves as the prior of eq. (6): the choice among noise levels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from pirate.data import subjects as readers
from pirate.errors import UsageError, printable
from pirate.registration.register import register

TRACKS = ("oasis2d", "hippocampus", "brain3d")


def dice_of(data: Path, track: str, count: int, resolution: int) -> Callable[[nn.Module, float], float]:
    """Return a function (network, sigma in voxels) -> mean Dice of `count` validation pairs, paper preset.

    Args:
        data: the data folder.
        track: oasis2d, hippocampus or brain3d.
        count: pairs of validation subjects.
        resolution: of the field's grid.
    """
    if track not in TRACKS:
        raise UsageError(f"--track {printable(track)}: expected one of {', '.join(TRACKS)}.")
    people = [s for s in _people(data, track) if s.labels is not None]
    drawn = readers.pairs(people, count, seed=0)

    def score(network: nn.Module, sigma: float) -> float:
        values = [_dice(fixed, moving, network, sigma, resolution) for fixed, moving in drawn]
        return float(np.mean(values))

    return score


def _people(data: Path, track: str) -> list[readers.Subject]:
    if track == "oasis2d":
        return readers.oasis2d(data, split="validation")
    return (readers.hippocampus if track == "hippocampus" else readers.brain3d)(data, split="validation")


def _dice(
    fixed: readers.Subject, moving: readers.Subject, network: nn.Module, sigma: float, resolution: int
) -> float:
    images = [(s.image[0].numpy(), s.grid.affine) for s in (fixed, moving)]
    labels = [(np.asarray(s.labels), s.grid.affine) for s in (fixed, moving)]
    result = register(
        *images, preset="paper", prior=network, affine="none", fixed_labels=labels[0], moving_labels=labels[1],
        settings={"sigma": sigma, "resolution": resolution},
    )  # fmt: skip
    return float(result.metrics["dice"])
