"""The learned denoiser of the paper: a plain convolutional network that predicts the noise.

    D(z, sigma) = z - N(z),    so that RED's term  z - D(z) = N(z)

There is no batch normalisation: its statistics differ between training and use, and it has no bound that a
fixed-point iteration could rely on.
"""

from __future__ import annotations

import itertools
from typing import Literal

from torch import Tensor, nn

from pirate.denoisers.convolution import CONVOLUTIONS

Activation = Literal["elu", "relu", "leaky_relu"]
Padding = Literal["zeros", "replicate"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU}
DEEPEST, WIDEST = 64, 1024  # a card from a stranger must not ask for more


class DnCNN(nn.Module):
    """`depth` convolutions 3^d with `width` channels between them; the last one is linear.

    The receptive field is 2 depth + 1 voxels per axis. sigma is accepted and ignored: the network is blind
    to the noise level and serves the range it was trained on.

    Args:
        ndim: 2 or 3, number of array axes and of field components.
        depth: number of convolutions, 2 to 64.
        width: channels between them, 1 to 1024.
        activation: after every convolution but the last.
        bias: whether convolutions have one. Without biases and with (leaky) ReLU, D(c z) = c D(z) for c > 0.
        padding: what lies outside the grid; "replicate" does not fight translations, "zeros" does.
    """

    def __init__(
        self,
        ndim: int,
        depth: int = 6,
        width: int = 64,
        activation: Activation = "elu",
        bias: bool = True,
        padding: Padding = "zeros",
    ) -> None:
        super().__init__()
        _check(ndim, depth, width, activation, padding)
        self.ndim, self.depth, self.width = ndim, depth, width
        self.activation, self.bias, self.padding = activation, bool(bias), padding
        channels = [ndim] + [width] * (depth - 1) + [ndim]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(channels):
            layers.append(
                CONVOLUTIONS[ndim](before, after, 3, padding=1, bias=self.bias, padding_mode=padding)
            )
            layers.append(ACTIVATIONS[activation](inplace=True))
        self.layers = nn.Sequential(*layers[:-1])

    @classmethod
    def paper(cls, ndim: int) -> DnCNN:
        """Build the DnCNN the paper cites: 17 layers, 64 channels, ReLU; batch normalisation left out."""
        return cls(ndim, depth=17, width=64, activation="relu", bias=True, padding="zeros")

    @classmethod
    def released(cls, ndim: int) -> DnCNN:
        """Build the network of the authors' code: 6 layers, 64 channels, ELU; 453 059 parameters in 3-D."""
        return cls(ndim, depth=6, width=64, activation="elu", bias=True, padding="zeros")

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        return {
            "kind": "dncnn",
            "depth": self.depth,
            "width": self.width,
            "activation": self.activation,
            "bias": self.bias,
            "padding": self.padding,
        }

    def noise(self, field: Tensor) -> Tensor:
        """Predict the noise N(z) in `field`; both (B, d, *shape), voxels."""
        prediction: Tensor = self.layers(field)
        return prediction

    def forward(self, field: Tensor, sigma: float) -> Tensor:
        """Denoise: ``D(z) = z - N(z)``; `field` and result (B, d, *shape), voxels; `sigma` is not used."""
        return field - self.noise(field)


def _check(ndim: int, depth: int, width: int, activation: str, padding: str) -> None:
    """Refuse arguments for which there is no such network."""
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (ndim, depth, width))
    if not whole or ndim not in CONVOLUTIONS:
        raise ValueError(
            f"ndim is 2 or 3 and depth and width are whole numbers, not {ndim}, {depth}, {width}"
        )
    if not (2 <= depth <= DEEPEST and 1 <= width <= WIDEST):
        raise ValueError(f"depth is 2 to {DEEPEST} and width 1 to {WIDEST}, not {depth} and {width}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    if padding not in ("zeros", "replicate"):
        raise ValueError(f"padding is 'zeros' or 'replicate', not {padding!r}")
