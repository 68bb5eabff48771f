"""A small denoiser that is told the noise level.

    D(z, sigma) = z - N(z, sigma),    N(c z, c sigma) = c N(z, sigma)  for c > 0

N is bias-free with (leaky) ReLU and sees sigma as a constant channel, so the equation on the right is exact: the
network does not care in which unit field and sigma are given, and one network serves fields of all sizes.
"""

from __future__ import annotations

from torch import Tensor, nn

from pirate.denoisers.unet import Activation, UNet, levels

WIDTHS = {2: 28, 3: 16}
HOMOGENEOUS = ("leaky_relu", "relu")


class Conditional(nn.Module):
    """The noise-conditional, bias-free denoiser; 135 thousand parameters in 2-D, 155 thousand in 3-D.

    Args:
        ndim: 2 or 3, number of array axes and of field components.
        width: channels at the first scale; default 28 in 2-D and 16 in 3-D.
        scales: resolutions of the U-Net, the first being half the field's.
        activation: leaky_relu or relu; others would not keep D(c z, c sigma) = c D(z, sigma).
    """

    def __init__(
        self, ndim: int, width: int | None = None, scales: int = 3, activation: Activation = "leaky_relu"
    ) -> None:
        super().__init__()
        if activation not in HOMOGENEOUS:
            raise ValueError(f"activation is {' or '.join(HOMOGENEOUS)}, not {activation!r}")
        self.body = UNet(
            ndim, WIDTHS.get(ndim, 16) if width is None else width, scales, activation, start=0.03
        )
        self.ndim = ndim

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        body = self.body
        return {
            "kind": "conditional",
            "width": body.width,
            "scales": body.scales,
            "activation": body.activation,
        }

    def noise(self, field: Tensor, sigma: float | Tensor) -> Tensor:
        """Predict the noise N(z, sigma) in `field`, (B, d, *shape), voxels; `sigma` a number or (B,), voxels."""
        prediction: Tensor = self.body(field, levels(sigma, field))
        return prediction

    def forward(self, field: Tensor, sigma: float | Tensor) -> Tensor:
        """Denoise: ``D = z - N``; `field` and result (B, d, *shape), voxels; `sigma` a number or (B,), voxels."""
        return field - self.noise(field, sigma)
