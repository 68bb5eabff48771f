"""VoxelMorph (Balakrishnan et al., TMI 2019; Dalca et al., MedIA 2019): a U-Net from a pair to a field.

Diffeomorphic, the authors' default: the network's output, taken to half resolution, is a stationary velocity v,

    field = R exp(v),    inverse = R exp(-v)         R to full resolution, exp by 7 squarings
    loss  = g + smoothness 2 m(v),    m = mean over axes, components and voxels of (forward difference)^2

Displacement (`squarings` 0): the output is the field itself, and m is of the field. The factor 2 is the authors'. g is
one minus the mean squared local correlation (window 9, smoothness 1), or the mean squared difference (smoothness 0.01).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.baselines.losses import data, mean_square_slope
from pirate.baselines.parts import (
    SLOPE,
    Fields,
    Scored,
    check,
    convolution,
    cut,
    flows,
    padded,
    resized,
    widths,
)
from pirate.denoisers.convolution import interleaved
from pirate.energies.local import LocalCorrelation
from pirate.energies.similarity import Similarity, SquaredError
from pirate.errors import UsageError
from pirate.ops.resample import half_shape

LOSS_FACTOR = 2.0
"""The authors' factor on the smoothness, their `int_downsize`."""

START = 1e-5
"""Standard deviation of the last layer's first weights."""


class VoxelMorph(nn.Module):
    """A U-Net with one convolution 3^d and leaky ReLU a level, max-pooling, nearest upsampling and concatenation.

    Args:
        ndim: 2 or 3.
        encoder: channels of the levels on the way down.
        decoder: channels on the way up, one for each level, then of further convolutions at full resolution. The
            default is the authors' "vxm-2" of today; "32,32,32,32,8,8" is "vxm-1".
        squarings: of the exponential; 0 for the displacement model.
    """

    def __init__(
        self,
        ndim: int,
        encoder: str = "16,32,32,32",
        decoder: str = "32,32,32,32,32,16,16",
        squarings: int = 7,
    ) -> None:
        super().__init__()
        check(ndim, {"squarings": (squarings, 0, 16)})
        down, up = widths(encoder, "encoder"), widths(decoder, "decoder")
        if not len(down) <= min(len(up), 6):
            raise ValueError(
                f"there are at most 6 levels, each with a decoder, not {encoder!r} and {decoder!r}"
            )
        self.ndim, self.encoder, self.decoder, self.squarings = ndim, encoder, decoder, squarings
        self.down = nn.ModuleList(convolution(ndim, a, b) for a, b in itertools.pairwise([2, *down]))
        self.up = nn.ModuleList()
        channels = down[-1]
        for level, width in enumerate(up):
            self.up.append(convolution(ndim, channels, width))
            channels = width + (down[-1 - level] if level < len(down) else 0)
        self.head = convolution(ndim, channels, ndim)
        nn.init.normal_(self.head.weight, std=START)  # type: ignore[arg-type]
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        return {
            "kind": "voxelmorph",
            "encoder": self.encoder,
            "decoder": self.decoder,
            "squarings": self.squarings,
        }

    def forward(self, fixed: Tensor, moving: Tensor) -> Tensor:
        """The velocity on the half-resolution grid, or the field where there are no squarings.

        Args:
            fixed: (B, 1, *shape), intensities about 0 to 1.
            moving: (B, 1, *shape), likewise.

        Returns:
            (B, d, *half_shape) or (B, d, *shape), voxels of that grid.
        """
        shape = tuple(fixed.shape[2:])
        x = interleaved(padded(torch.cat([moving, fixed], 1), 2 ** len(self.down)))
        kept: list[Tensor] = []
        for layer in self.down:
            kept.append(F.leaky_relu(layer(x), SLOPE, inplace=True))
            x = (F.max_pool2d if self.ndim == 2 else F.max_pool3d)(kept[-1], 2)
        for layer in self.up:
            x = F.leaky_relu(layer(x), SLOPE, inplace=True)
            if kept:
                x = torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), kept.pop()], 1)
        flow = cut(self.head(x), shape).to(fixed.dtype)  # which a training in half precision has left
        return resized(flow, half_shape(shape)) if self.squarings else flow

    def displacement(self, flow: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The field (B, d, *shape), voxels, of what `forward` returned."""
        return resized(flows([flow], self.squarings)[0], shape) if self.squarings else flow

    def fields(self, fixed: Tensor, moving: Tensor) -> Fields:
        """Align pairs, (B, 1, *shape) each; (B, d, *shape), voxels, with the inverse unless `squarings` is 0."""
        flow, shape = self(fixed, moving), tuple(fixed.shape[2:])
        if not self.squarings:
            return Fields(flow, None)
        there, back = flows([flow, -flow], self.squarings)
        return Fields(resized(there, shape), resized(back, shape))


@dataclass(frozen=True)
class VoxelMorphLoss:
    """The loss at the top of this file."""

    similarity: Literal["ncc", "mse"] = "ncc"
    """Local correlation, or squared difference."""
    window: int = 9
    """Of the local correlation, voxels, odd."""
    smoothness: float = 1.0
    """Weight of 2 m; the authors' with mse is 0.01."""

    def __post_init__(self) -> None:
        if self.similarity not in ("ncc", "mse"):
            raise UsageError(f"voxelmorph: similarity is {self.similarity!r}; expected ncc or mse.")

    def __call__(self, network: nn.Module, fixed: Tensor, moving: Tensor) -> Scored:
        """Score `network`, a `VoxelMorph` or its wrapper, on pairs (B, 1, *shape) each, intensities about 0 to 1."""
        model = cast(VoxelMorph, getattr(network, "module", network))
        flow = network(fixed, moving)
        field = model.displacement(flow, tuple(fixed.shape[2:]))
        penalty: Similarity = SquaredError(fixed)
        if self.similarity == "ncc":
            penalty = LocalCorrelation(fixed, window=self.window)
        similarity, smoothness = data(penalty, moving, field).mean(), mean_square_slope(flow).mean()
        terms = {"similarity": similarity.item(), "smoothness": smoothness.item()}
        return Scored(similarity + self.smoothness * LOSS_FACTOR * smoothness, terms, field.detach())
