"""Small smooth pairs and a contracting prior, in float64, for which fixed points can be found to rounding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pirate.denoisers.dncnn import DnCNN
from pirate.settings import Settings
from pirate.training.equilibrium import Regulariser, equilibrium_settings


def blob(shape: tuple[int, ...], shift: tuple[float, ...] | None = None) -> Tensor:
    """A smooth blob with a wave in it, moved by `shift` voxels: (1, 1, *shape)."""
    axes = torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in shape], indexing="ij")
    centres = [(n - 1) / 2 + s for n, s in zip(shape, shift or (0.0,) * len(shape), strict=True)]
    square = sum((((x - c) / 3) ** 2 for x, c in zip(axes, centres, strict=True)), torch.zeros(shape))
    wave = 1 + 0.3 * torch.sin(0.8 * (axes[0] - centres[0]))
    return (torch.exp(-square) * wave)[None, None]


def pair(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Fixed and moving, (1, 1, *shape)."""
    return blob(shape), blob(shape, (0.6, 0.4, 0.5)[: len(shape)])


class Shrinking(nn.Module):
    """``D(z) = rest + factor N(z)`` with the N of a small DnCNN: z - D(z) pulls to `rest`, the iteration contracts.

    `rest`, half a voxel of the images, keeps the field away from whole numbers, where the warp has kinks.
    """

    def __init__(self, ndim: int, factor: float = 0.5, rest: float = 0.22) -> None:
        super().__init__()
        torch.manual_seed(ndim)
        self.inner = DnCNN(ndim, depth=3, width=4, activation="elu", padding="replicate").double()
        self.factor, self.rest = factor, rest

    def forward(self, field: Tensor, sigma: float | Tensor) -> Tensor:
        """`sigma` scales the field before the network sees it, so that the result depends on it."""
        return self.rest + self.factor * self.inner.noise(field * sigma)


def prior(ndim: int, learn: tuple[str, ...] = ()) -> Regulariser:
    """A contracting prior with tau 0.5 and settings that find the fixed point to rounding."""
    return Regulariser(Shrinking(ndim), settings(ndim), learn).double()


def settings(ndim: int, **changes: object) -> Settings:
    """Settings that find the fixed point to rounding."""
    tight = {"tau": 0.5, "gamma": 0.3, "iterations": 400, "tolerance": 1e-12, "sigma": 0.8}
    return equilibrium_settings(ndim, tight | changes)
