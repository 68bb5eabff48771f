"""SYMNet (Mok and Chung, CVPR 2020): both images of a pair meet half-way, along two velocities.

From moving M and fixed F the network predicts v_M and v_F; h_M = exp(v_M) and h_F = exp(v_F) warp them to the middle:

    field   = h_M o exp(-v_F),      inverse = h_F o exp(-v_M)                   o as maps, x -> x + u(x)
    loss    = g(M o h_M, F o h_F) + g(F, M o field) + g(M, F o inverse)
              + magnitude | mean |h_M| - mean |h_F| | + orientation (p(field) + p(inverse))
              + smoothness (m(v_M) + m(v_F))

g is one minus the mean squared local correlation, p = mean relu(-|J|), m the mean squared forward difference. As in the
authors' code, and unlike their paper, the warp to the middle is the flow at time 1, not 1/2. The last layers start near
zero, so that training starts at the identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.baselines.losses import data, mean_square_slope, midway, orientation
from pirate.baselines.parts import Fields, Scored, check, convolution, cut, flows, padded
from pirate.denoisers.convolution import CONVOLUTIONS, interleaved
from pirate.denoisers.unet import TRANSPOSED
from pirate.energies.local import LocalCorrelation
from pirate.ops.compose import compose

SCALES = 4
"""Halvings of the grid."""

START = 1e-5
"""Standard deviation of the last layers' first weights."""


class SYMNet(nn.Module):
    """A U-Net with two convolutions 3^d and ReLU a level, strided on the way down, transposed 2^d ones on the way up.

    Two heads 5^d without bias end in Softsign, times `reach`: no velocity is longer along an axis.

    Args:
        ndim: 2 or 3.
        width: channels at full resolution; they double with every halving. The authors' for OASIS is 7.
        squarings: of the exponentials.
        reach: largest component of a velocity, voxels.
    """

    def __init__(self, ndim: int, width: int = 7, squarings: int = 7, reach: float = 100.0) -> None:
        super().__init__()
        check(ndim, {"width": (width, 1, 32), "squarings": (squarings, 1, 16)})
        if not 0 < reach <= 1000:
            raise ValueError(f"reach is a number of voxels up to 1000, not {reach!r}")
        self.ndim, self.width, self.squarings, self.reach = ndim, width, squarings, float(reach)
        w = width
        self.down = nn.ModuleList([_two(ndim, (2, w, w))])
        for level in range(1, SCALES):
            self.down.append(_two(ndim, (w * 2 ** (level - 1), w * 2**level, w * 2**level), stride=2))
        self.down.append(_two(ndim, (8 * w, 16 * w, 8 * w), stride=2))
        self.grow = nn.ModuleList(TRANSPOSED[ndim](n * w, n * w, 2, stride=2) for n in (8, 4, 2, 2))
        self.up = nn.ModuleList(
            _two(ndim, (a * w, b * w, c * w)) for a, b, c in ((16, 8, 4), (8, 4, 2), (4, 4, 2), (3, 2, 2))
        )
        self.heads = nn.ModuleList(
            CONVOLUTIONS[ndim](2 * w, ndim, 5, padding=2, bias=False) for _ in range(2)
        )
        for head in self.heads:
            nn.init.normal_(head.weight, std=START)  # type: ignore[arg-type]

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        return {"kind": "symnet", "width": self.width, "squarings": self.squarings, "reach": self.reach}

    def forward(self, fixed: Tensor, moving: Tensor) -> tuple[Tensor, Tensor]:
        """The velocities v_M and v_F.

        Args:
            fixed: (B, 1, *shape), intensities about 0 to 1.
            moving: (B, 1, *shape), likewise.

        Returns:
            (B, d, *shape) each, voxels.
        """
        x = interleaved(padded(torch.cat([moving, fixed], 1), 2**SCALES))
        kept: list[Tensor] = []
        for level in self.down:
            x = level(x)
            kept.append(x)
        kept.pop()
        for grow, level in zip(self.grow, self.up, strict=True):
            x = level(torch.cat([F.relu(grow(x)), kept.pop()], 1))
        reached = (F.softsign(head(x).to(fixed.dtype)) for head in self.heads)  # not in half precision
        first, second = (cut(self.reach * r, fixed.shape[2:]) for r in reached)
        return first, second

    def fields(self, fixed: Tensor, moving: Tensor) -> Fields:
        """Align pairs, (B, 1, *shape) each: both ways, (B, d, *shape), voxels."""
        velocities = self(fixed, moving)
        way = meet(velocities, self.squarings)
        return Fields(way.field, way.inverse)


class Meeting(NamedTuple):
    """What two velocities make."""

    halves: tuple[Tensor, Tensor]
    """h_M and h_F, (B, d, *shape) each, voxels."""
    field: Tensor
    """All the way, (B, d, *shape), voxels."""
    inverse: Tensor
    """And back, likewise."""


def meet(velocities: tuple[Tensor, Tensor], squarings: int) -> Meeting:
    """Both halves of the way, and all of it, from v_M and v_F, (B, d, *shape) each, voxels."""
    there = [*velocities, *(-v for v in velocities)]
    moving_half, fixed_half, moving_back, fixed_back = flows(there, squarings)
    return Meeting(
        (moving_half, fixed_half), compose(moving_half, fixed_back), compose(fixed_half, moving_back)
    )


@dataclass(frozen=True)
class SYMNetLoss:
    """The loss at the top of this file, with the constants of the authors' script for OASIS."""

    window: int = 5
    """Of the local correlation, voxels, odd; 7 in the authors' general script."""
    magnitude: float = 0.1
    """Weight of the difference between the two halves."""
    orientation: float = 100.0
    """Weight of p."""
    smoothness: float = 3.0
    """Weight of m."""

    def __call__(self, network: nn.Module, fixed: Tensor, moving: Tensor) -> Scored:
        """Score `network`, a `SYMNet` or its wrapper, on pairs (B, 1, *shape) each, intensities about 0 to 1."""
        model = cast(SYMNet, getattr(network, "module", network))
        velocities = network(fixed, moving)
        way = meet(velocities, model.squarings)
        ways = ((fixed, moving, way.field), (moving, fixed, way.inverse))
        terms = {
            "middle": midway((moving, fixed), way.halves, self.window),
            "similarity": torch.stack(
                [data(LocalCorrelation(f, window=self.window), m, u) for f, m, u in ways]
            ).sum(0),
            "magnitude": (_length(way.halves[0]) - _length(way.halves[1])).abs(),
            "orientation": orientation(way.field) + orientation(way.inverse),
            "smoothness": mean_square_slope(velocities[0]) + mean_square_slope(velocities[1]),
        }
        weights = {
            "magnitude": self.magnitude,
            "orientation": self.orientation,
            "smoothness": self.smoothness,
        }
        total = torch.stack([weights.get(name, 1.0) * value.mean() for name, value in terms.items()]).sum()
        return Scored(total, {name: value.mean().item() for name, value in terms.items()}, way.field.detach())


def _length(field: Tensor) -> Tensor:
    return field.abs().flatten(1).mean(1)


def _two(ndim: int, channels: tuple[int, int, int], stride: int = 1) -> nn.Sequential:
    """Two convolutions, each followed by ReLU; the first may halve the grid."""
    a, b, c = channels
    return nn.Sequential(convolution(ndim, a, b, stride), nn.ReLU(), convolution(ndim, b, c), nn.ReLU())
