"""A denoiser that is one gradient step on an energy of its own (Hurault et al., ICLR 2022).

    D(z, sigma) = z - grad g_sigma(z),    g_sigma(z) = 1/2 |z - N(z, sigma)|^2

So RED's term z - D(z) is the gradient of a function that can be evaluated, the Jacobian of D is symmetric, and
eq. (6) descends the explicit energy  f + tau g_sigma  for steps that are short enough, f convex or not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pirate.denoisers.unet import Activation, UNet, levels

WIDTHS = {2: 28, 3: 16}
SMOOTH = ("elu", "softplus")


class GradientStep(nn.Module):
    """``D = z - grad g``, with N(z, sigma) = z - sigma U(z / sigma, 1), U a bias-free U-Net.

    Dividing by sigma makes g_{c sigma}(c z) = c^2 g_sigma(z) and so D(c z, c sigma) = c D(z, sigma) exact, which
    smooth activations would not keep otherwise. The gradient is taken by automatic differentiation; a call costs
    two to three times one of U.

    Args:
        ndim: 2 or 3, number of array axes and of field components.
        width: channels at the first scale; default 28 in 2-D and 16 in 3-D.
        scales: resolutions of the U-Net, the first being half the field's.
        activation: elu (gradient continuous) or softplus (infinitely smooth).
    """

    def __init__(
        self, ndim: int, width: int | None = None, scales: int = 3, activation: Activation = "elu"
    ) -> None:
        super().__init__()
        if activation not in SMOOTH:
            raise ValueError(f"activation is {' or '.join(SMOOTH)}, not {activation!r}")
        self.body = UNet(
            ndim, WIDTHS.get(ndim, 16) if width is None else width, scales, activation, start=0.05
        )
        self.ndim = ndim

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        body = self.body
        return {
            "kind": "gradient-step",
            "width": body.width,
            "scales": body.scales,
            "activation": body.activation,
        }

    def energy(self, field: Tensor, sigma: float | Tensor) -> Tensor:
        """``g_sigma(z) = 1/2 |z - N|^2 = 1/2 |sigma U(z / sigma, 1)|^2``, summed over components and voxels.

        Args:
            field: (B, d, *shape), voxels.
            sigma: a number or (B,), voxels, above 0.

        Returns:
            (B,), voxels squared, float64.
        """
        level = levels(sigma, field)
        if not bool((level > 0).all()):
            raise ValueError(f"the gradient-step denoiser needs a noise level above 0, not {sigma}")
        unit = level.reshape(-1, *[1] * (field.ndim - 1))
        distance: Tensor = unit * self.body(field / unit, torch.ones_like(level))
        return 0.5 * distance.double().square().flatten(1).sum(1)

    def forward(self, field: Tensor, sigma: float | Tensor) -> Tensor:
        """Denoise: ``D = z - grad g``; `field` and result (B, d, *shape), voxels; `sigma` a number or (B,).

        Works where gradients are switched off; where they are on, the result can be differentiated again, by the
        weights and by `field`.
        """
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            z = field if again and field.requires_grad else field.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.energy(z, sigma).sum(), z, create_graph=again)
        return field - slope
