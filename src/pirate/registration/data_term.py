"""Which data term the settings name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pirate.energies.local import LocalCorrelation
from pirate.energies.mutual import MutualInformation
from pirate.energies.similarity import GlobalCorrelation, Similarity, SquaredError
from pirate.errors import InputError
from pirate.registration.working import Images
from pirate.settings import Level, Settings


def data_term(images: Images, settings: Settings, level: Level) -> Similarity:
    """The data term g of a level."""
    fixed, mask = images.fixed, images.fixed_mask
    if settings.penalty == "global":
        return GlobalCorrelation(fixed, mask)
    if settings.penalty == "local":
        return LocalCorrelation(
            fixed,
            mask,
            window=level.window,
            squared=settings.squared_correlation,
            intensity=settings.intensity,
        )
    if settings.penalty == "squared":
        return SquaredError(fixed, mask)
    return MutualInformation.between(fixed, images.moving, mask, bins=settings.bins)


def penalties(images: Images, settings: Settings, field: Tensor) -> dict[str, Any]:
    """Name of the data term, and its value on the finest level before and after; None where the field has left.

    Args:
        images: the pair.
        settings: which data term.
        field: (1, d, *shape), voxels.
    """
    term = data_term(images, settings, settings.level(len(settings.levels) - 1))
    values: dict[str, Any] = {"penalty": settings.penalty}
    for name, at in (("penalty_before", torch.zeros_like(field)), ("penalty_after", field)):
        try:
            with torch.no_grad():
                values[name] = float(term.value(images.moving, at, images.moving_mask)[0])
        except InputError:
            values[name] = None
    return values
