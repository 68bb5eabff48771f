"""GraDIRN (Qiu et al., MICCAI 2022): unrolled gradient descent whose regulariser is a network at each resolution.

On grids of 1/4, 1/2 and all of the resolution, `repeats` steps each with the same weights on one grid:

    u <- u - s dE/du - N(u, fixed, warped),      E = sum (warped - fixed)^2,   warped = moving(x + u(x))
    loss = mean (warped - fixed)^2 + smoothness d(u)      at the end;   d the sum of all squared forward differences

s is learned, 0.5 at first. Training differentiates through dE/du, hence the warp twice; see `warp_and_slope`. The last
layer of each N starts at zero, so that an untrained network is gradient descent on E (the authors draw it at random).
With similarity "ncc" the loss is 1 - rho^2, rho the correlation of the whole images, and 0.1 d(u).

Departures from the authors' code:

- outside the moving image there are zeros, in the steps and in the loss alike; theirs repeats the border in the steps;
- images keep their own size; theirs are cropped and resampled to 128^3, and the field is sought there.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.baselines.losses import data, diffusion
from pirate.baselines.parts import SLOPE, Fields, Scored, check, convolution, halved, resized
from pirate.denoisers.convolution import interleaved
from pirate.energies.similarity import GlobalCorrelation, SquaredError
from pirate.errors import UsageError
from pirate.ops.warp import identity, warp_with_gradient

STEP, STEP_SCALE = 0.5, 10.0
"""The first step length, and what its parameter is multiplied with, so that it learns ten times as fast."""


class Block(nn.Module):
    """One step of the descent at one resolution: the step length s and the network N.

    Args:
        ndim: 2 or 3.
        width: channels of N.
        depth: convolutions of N.
    """

    def __init__(self, ndim: int, width: int, depth: int) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.tensor(STEP / STEP_SCALE))
        channels = [ndim + 2, *[width] * (depth - 1), ndim]
        self.layers = nn.ModuleList(convolution(ndim, a, b) for a, b in itertools.pairwise(channels))
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, a=SLOPE)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        nn.init.zeros_(self.layers[-1].weight)  # type: ignore[arg-type]

    def forward(self, field: Tensor, fixed: Tensor, moving: Tensor) -> Tensor:
        """``u - s dE/du - N``: a field (B, d, *shape), voxels, and images (B, 1, *shape) to such a field."""
        warped, slope = warp_and_slope(moving, field)
        x = interleaved(torch.cat([field, fixed, warped], 1))
        for k, layer in enumerate(self.layers, 1):
            x = layer(x)
            x = F.leaky_relu(x, SLOPE, inplace=True) if k < len(self.layers) else x
        force: Tensor = 2 * (warped - fixed) * slope
        return field - STEP_SCALE * self.step * force - x


class GraDIRN(nn.Module):
    """The unrolled descent. Works for any size.

    Args:
        ndim: 2 or 3.
        width: channels of the networks N.
        depth: convolutions of each.
        levels: resolutions, the last being the images' own.
        repeats: steps at each resolution.
    """

    def __init__(self, ndim: int, width: int = 32, depth: int = 5, levels: int = 3, repeats: int = 3) -> None:
        super().__init__()
        check(
            ndim,
            {
                "width": (width, 1, 256),
                "depth": (depth, 2, 16),
                "levels": (levels, 1, 6),
                "repeats": (repeats, 1, 16),
            },
        )
        self.ndim, self.width, self.depth, self.levels, self.repeats = ndim, width, depth, levels, repeats
        self.blocks = nn.ModuleList(Block(ndim, width, depth) for _ in range(levels))

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        names = ("width", "depth", "levels", "repeats")
        return {"kind": "gradirn"} | {name: getattr(self, name) for name in names}

    def forward(self, fixed: Tensor, moving: Tensor) -> Tensor:
        """Align pairs.

        Args:
            fixed: (B, 1, *shape), intensities about 0 to 1.
            moving: (B, 1, *shape), likewise.

        Returns:
            (B, d, *shape), voxels.
        """
        pyramid = list(zip(_pyramid(fixed, self.levels), _pyramid(moving, self.levels), strict=True))
        coarsest = pyramid[0][0]
        field = coarsest.new_zeros(len(fixed), self.ndim, *coarsest.shape[2:])
        for block, (f, m) in zip(self.blocks, pyramid, strict=True):
            field = resized(field, f.shape[2:])
            for _ in range(self.repeats):
                field = block(field, f, m)
        return field

    def fields(self, fixed: Tensor, moving: Tensor) -> Fields:
        """Align pairs, (B, 1, *shape) each: (B, d, *shape), voxels; the method has no inverse."""
        return Fields(self(fixed, moving), None)


@dataclass(frozen=True)
class GraDIRNLoss:
    """The loss at the top of this file."""

    similarity: Literal["mse", "ncc"] = "mse"
    """Squared difference, or global correlation."""
    smoothness: float = 0.01
    """Weight of d; the authors' with ncc is 0.1."""

    def __post_init__(self) -> None:
        if self.similarity not in ("ncc", "mse"):
            raise UsageError(f"gradirn: similarity is {self.similarity!r}; expected ncc or mse.")

    def __call__(self, network: nn.Module, fixed: Tensor, moving: Tensor) -> Scored:
        """Score `network`, a `GraDIRN` or its wrapper, on pairs (B, 1, *shape) each, intensities about 0 to 1."""
        field = network(fixed, moving)
        if self.similarity == "mse":
            similarity = data(SquaredError(fixed), moving, field).mean()
        else:
            similarity = (1 - (1 - data(GlobalCorrelation(fixed), moving, field)).square()).mean()
        smoothness = diffusion(field).mean()
        terms = {"similarity": similarity.item(), "smoothness": smoothness.item()}
        return Scored(similarity + self.smoothness * smoothness, terms, field.detach())


def warp_and_slope(moving: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
    """Warp by linear interpolation, zeros outside, and the interpolant's slope; both can be differentiated.

    In a cell with the corner values m_c and the position t in it, the value is ``sum_c m_c prod_a w_a``, w_a = t_a or
    1 - t_a; the slope along axis b has the derivative of w_b, 1 or -1, in its place. Autograd differentiates both
    through t, so that the second derivative of the warp is exact within cells; `moving` is a constant.

    Args:
        moving: (B, 1, *shape), any intensity unit.
        field: (B, d, *shape), voxels.

    Returns:
        warped, (B, 1, *shape), the unit of `moving`; slope, (B, d, *shape), that unit per voxel.
    """
    if not field.requires_grad:
        return warp_with_gradient(moving, field)
    d = field.shape[1]
    wide = F.pad(moving, [2, 2] * d)
    sizes = wide.shape[2:]
    last = torch.tensor([n - 2 for n in sizes], dtype=field.dtype, device=field.device).view(1, -1, *[1] * d)
    positions = (identity(field) + field + 2).clamp_min(0).minimum(last)
    lower = positions.detach().nan_to_num().floor()
    t = positions - lower
    strides = [prod(sizes[axis + 1 :]) for axis in range(d)]
    start = sum((lower[:, a].long() * strides[a] for a in range(d)), torch.zeros_like(lower[:, 0]).long())
    warped, *slopes = _interpolant(wide.flatten(1), start, t, strides)
    return warped[:, None], torch.stack(slopes, 1)


def _interpolant(values: Tensor, start: Tensor, t: Tensor, strides: list[int]) -> list[Tensor]:
    """Value and slopes along the last ``len(strides)`` axes: ``low + t (high - low)`` and ``high - low``."""
    if not strides:
        return [values.gather(1, start.flatten(1)).view_as(start)]
    low = _interpolant(values, start, t, strides[1:])
    high = _interpolant(values, start + strides[0], t, strides[1:])
    along = t[:, -len(strides)]
    value, *others = (torch.lerp(a, b, along) for a, b in zip(low, high, strict=True))
    return [value, high[0] - low[0], *others]


def _pyramid(image: Tensor, levels: int) -> list[Tensor]:
    """The image (B, 1, *shape) at `levels` resolutions, coarsest first, each half of the next."""
    found = [image]
    for _ in range(levels - 1):
        found.insert(0, halved(found[0]))
    return found
