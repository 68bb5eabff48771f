"""Priors on displacement fields: callables ``D(field, sigma) -> field`` that take noise away.

A field is (B, d, *shape) in voxels of its own grid, sigma the noise standard deviation in the same voxels.
RED's term is ``field - D(field, sigma)``.
"""

from pirate.denoisers.classical import Gaussian, Identity
from pirate.denoisers.conditional import Conditional
from pirate.denoisers.dncnn import DnCNN
from pirate.denoisers.gradient_step import GradientStep
from pirate.denoisers.learned import Learned, LearnedEnergy, load_denoiser
from pirate.denoisers.plug import Denoiser, ImageDenoiser, call, load
from pirate.denoisers.total_variation import TotalVariation

__all__ = [
    "Conditional",
    "Denoiser",
    "DnCNN",
    "Gaussian",
    "GradientStep",
    "Identity",
    "ImageDenoiser",
    "Learned",
    "LearnedEnergy",
    "TotalVariation",
    "call",
    "load",
    "load_denoiser",
]
