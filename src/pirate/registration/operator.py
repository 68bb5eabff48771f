"""The operator T of eq. (6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pirate.denoisers.plug import Denoiser, EnergyDenoiser, ImageDenoiser, call
from pirate.energies.regularity import Smoothness
from pirate.energies.similarity import Similarity
from pirate.errors import InputError
from pirate.ops.resample import resize, resize_field
from pirate.ops.warp import warp


@dataclass(frozen=True)
class Pirate:
    """One step of the iteration, eq. (6), in dimensionless form.

        T(phi) = phi - gamma [ c n grad g(f, m o phi) + alpha n grad r(phi) + tau (phi - D(phi, sigma)) ]

    If the prior has an energy, phi - D(phi, sigma) = grad h(phi), then T is a gradient step of length gamma n on

        g + alpha r + (tau / n) h

    with n the number of voxels of the field and c = 1 unless masks are used. Each term is switchable: alpha = 0
    drops r, a denoiser of None drops the prior; the ablation's P, P+S, P+R and P+R+S are the four combinations.

    Args:
        penalty: g with the fixed image, on the image's grid.
        moving: (B, 1, *shape), on the fixed grid.
        moving_mask: (B, 1, *shape) weights in [0, 1], or None.
        denoiser: D, or None.
        alpha: weight of the smoothness.
        tau: weight of the prior.
        sigma: noise level for D, voxels of the field's grid.
        coverage: c, which keeps the data term's curvature, and so the stability of the step, when masks leave
            only a part of the image to count; see `registration.additive.coverage`.
    """

    penalty: Similarity
    moving: Tensor
    moving_mask: Tensor | None
    denoiser: Denoiser | ImageDenoiser | None
    alpha: float
    tau: float
    sigma: float
    coverage: float = 1.0

    def __call__(self, field: Tensor, gamma: float) -> tuple[Tensor, float]:
        """Return T(field), (B, d, *field shape), and the energy g + alpha r at `field`, with the prior's if known."""
        n = field[0, 0].numel()
        try:
            value, slope = self.penalty.on_field(self.moving, field, self.moving_mask)
        except InputError:
            if not field.any():
                raise  # the images themselves are at fault
            return torch.full_like(field, math.nan), math.nan  # the field has left the image
        step = slope.mul_(self.coverage * n)
        if self.alpha > 0:
            roughness, slope = Smoothness().value_and_gradient(field)
            value = value + self.alpha * roughness
            step.add_(slope, alpha=self.alpha * n)
        if self.denoiser is not None:
            noise = field - self.denoised(self.denoiser, field)
            step.add_(noise, alpha=self.tau)
            if isinstance(self.denoiser, EnergyDenoiser):
                value = value + self.tau / n * self.denoiser.energy(field, self.sigma).to(value)
        return torch.add(field, step, alpha=-gamma), float(value.sum())

    def denoised(self, denoiser: Denoiser | ImageDenoiser, field: Tensor) -> Tensor:
        """D(field, sigma); a denoiser that asks for them gets fixed and warped on the field's grid."""
        if not getattr(denoiser, "wants_images", False):
            return call(denoiser, field, self.sigma)
        warped = warp(self.moving, resize_field(field, self.moving.shape[2:]))
        images = (resize(image, field.shape[2:]) for image in (self.penalty.fixed, warped))
        return call(denoiser, field, self.sigma, *images)
