"""Energies: how unlike two images are, how irregular a field is; each with its analytic gradient."""

from pirate.energies.local import LocalCorrelation
from pirate.energies.mutual import MutualInformation
from pirate.energies.regularity import Folding, Smoothness
from pirate.energies.similarity import GlobalCorrelation, Similarity, SquaredError

__all__ = [
    "Folding",
    "GlobalCorrelation",
    "LocalCorrelation",
    "MutualInformation",
    "Similarity",
    "Smoothness",
    "SquaredError",
]
