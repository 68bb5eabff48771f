"""The convolutional body that the noise-conditional denoisers share: a small U-Net behind space-to-depth.

Space-to-depth moves the 2^d neighbours of a voxel into channels: the network works on half the resolution, at
about 1 / 2^d of the cost, and loses nothing. The noise level enters as a constant channel. No convolution has a
bias, and the border voxel is repeated outside, so that a translation is not fought at the borders.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.denoisers.convolution import CONVOLUTIONS, convolve, interleaved

Activation = Literal["leaky_relu", "relu", "elu", "softplus"]

TRANSPOSED: dict[int, type[nn.ConvTranspose2d] | type[nn.ConvTranspose3d]] = {
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}
SLOPE = 0.1  # of the leaky ReLU below 0
WIDEST, DEEPEST = 512, 5  # channels and scales; a card from a stranger must not ask for more


class UNet(nn.Module):
    """(B, d, *shape) and a level (B,) to (B, d, *shape), bias-free.

    Scale s has ``width (s + 2) // 2`` channels: width, 3/2 width, 2 width, ... On the way down there is one
    convolution 3^d at each scale (two at the first) and a strided 2^d one to the next; on the way up a transposed
    2^d one, the sum with what was there, and one convolution 3^d. The last convolution is linear, and another one
    goes straight from the field to the result. The field is seen through differences only: the weights on each
    component have the sum 0, so that the result is the same for a field that is translated,
    N(z + t, sigma) = N(z, sigma) for a constant vector t. The level is added to the first channels, each with a
    weight of its own (a constant channel of the field, convolved, is no more than that).

    Args:
        ndim: 2 or 3, number of array axes and of components.
        width: channels at the first scale, 2 to 512.
        scales: 1 to 5 resolutions, the first being half the field's.
        activation: between convolutions; leaky_relu and relu keep N(c z, c sigma) = c N(z, sigma) for c > 0.
        start: factor on the initial weights of the last convolution, small for a small first answer.
    """

    def __init__(
        self, ndim: int, width: int, scales: int, activation: Activation = "leaky_relu", start: float = 1.0
    ) -> None:
        super().__init__()
        check(ndim, width, scales, activation)
        self.ndim, self.width, self.scales, self.activation = ndim, width, scales, activation
        channels = [width * (s + 2) // 2 for s in range(scales)]
        folded = ndim * 2**ndim
        self.entry = _convolution(ndim, folded, channels[0])
        self.tell = nn.Parameter(0.5 * torch.randn(channels[0]))
        self.exit = _convolution(ndim, channels[0], folded)
        self.straight = _convolution(ndim, folded, folded)
        self.down = nn.ModuleList(_convolution(ndim, c, c) for c in channels)
        self.up = nn.ModuleList(_convolution(ndim, c, c) for c in channels)
        steps = list(itertools.pairwise(channels))
        self.shrink = nn.ModuleList(CONVOLUTIONS[ndim](a, b, 2, stride=2, bias=False) for a, b in steps)
        self.grow = nn.ModuleList(TRANSPOSED[ndim](b, a, 2, stride=2, bias=False) for a, b in steps)
        for part in (self.entry, self.exit, *self.down, *self.up, *self.shrink, *self.grow):
            _begin(part, start if part is self.exit else 1.0)
        nn.init.zeros_(self.straight.weight)

    def forward(self, field: Tensor, level: Tensor) -> Tensor:
        """Map `field` (B, d, *shape) and the noise `level` (B,), both voxels, to (B, d, *shape), voxels."""
        padded = _padded(field, 2**self.scales)
        folded = interleaved(space_to_depth(padded))
        told = level.reshape(-1, *[1] * (folded.ndim - 1)) * self.tell.reshape(-1, *[1] * self.ndim)
        x = self._bent(self._differences(folded, self.entry) + told)
        kept: list[Tensor] = []
        for s in range(self.scales):
            x = self._bent(self.down[s](x))
            if s + 1 < self.scales:
                kept.append(x)
                x = self._bent(self.shrink[s](x))
        for s in reversed(range(self.scales)):
            x = self._bent(self.up[s](x))
            if s > 0:
                x = self.grow[s - 1](x) + kept[s - 1]
        wide = depth_to_space(self.exit(x) + self._differences(folded, self.straight), self.ndim)
        for axis, size in enumerate(field.shape[2:], start=2):
            wide = wide.narrow(axis, 0, size)
        return wide

    def _differences(self, folded: Tensor, part: nn.Module) -> Tensor:
        """A convolution 3^d whose weights on each component of the field have the sum 0 (see the class)."""
        d, weight = self.ndim, cast(Tensor, part.weight)
        by_component = weight.reshape(len(weight), d, 2**d, *weight.shape[2:])
        centred = by_component - by_component.flatten(2).mean(2).reshape(-1, d, 1, *[1] * d)
        padded = F.pad(folded, [1] * (2 * d), mode="replicate")
        return convolve(padded, centred.flatten(1, 2))

    def _bent(self, x: Tensor) -> Tensor:
        if self.activation == "leaky_relu":
            return F.leaky_relu(x, SLOPE)
        if self.activation == "relu":
            return F.relu(x)
        return F.elu(x) if self.activation == "elu" else F.softplus(x) - math.log(2)


def levels(sigma: float | Tensor, field: Tensor) -> Tensor:
    """Return `sigma`, one number or (B,), voxels, as (B,) in the type of `field` (B, d, *shape)."""
    level = torch.as_tensor(sigma, dtype=field.dtype, device=field.device)
    return level.reshape(-1).expand(len(field))


def space_to_depth(x: Tensor) -> Tensor:
    """(B, C, *shape), even sizes, any unit, to (B, C 2^d, *shape / 2): neighbours become channels."""
    d = x.ndim - 2
    halves = [n for size in x.shape[2:] for n in (size // 2, 2)]
    split = x.reshape(*x.shape[:2], *halves)
    order = [0, 1, *range(3, 3 + 2 * d, 2), *range(2, 2 + 2 * d, 2)]
    return split.permute(order).reshape(len(x), -1, *[n // 2 for n in x.shape[2:]])


def depth_to_space(x: Tensor, channels: int) -> Tensor:
    """(B, C 2^d, *shape), any unit, to (B, C, 2 *shape): the inverse of `space_to_depth`, C = `channels`."""
    d = x.ndim - 2
    split = x.reshape(len(x), channels, *[2] * d, *x.shape[2:])
    order = [0, 1, *[axis for a in range(d) for axis in (2 + d + a, 2 + a)]]
    return split.permute(order).reshape(len(x), channels, *[2 * n for n in x.shape[2:]])


def check(ndim: int, width: int, scales: int, activation: str) -> None:
    """Refuse arguments for which there is no such network."""
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in (ndim, width, scales)):
        raise ValueError(f"ndim, width and scales are whole numbers, not {ndim}, {width}, {scales}")
    if ndim not in CONVOLUTIONS or not (2 <= width <= WIDEST and 1 <= scales <= DEEPEST):
        raise ValueError(
            f"ndim is 2 or 3, width 2 to {WIDEST} and scales 1 to {DEEPEST}, not {ndim}, {width}, {scales}"
        )
    if activation not in ("leaky_relu", "relu", "elu", "softplus"):
        raise ValueError(f"activation is leaky_relu, relu, elu or softplus, not {activation!r}")


def _begin(part: nn.Module, factor: float) -> None:
    """Draw weights that keep the variance from layer to layer (He), times `factor`."""
    weight = cast(Tensor, part.weight)
    transposed = isinstance(part, nn.ConvTranspose2d | nn.ConvTranspose3d)
    feeds = weight.shape[0] if transposed else weight[0].numel()  # numbers summed for one of the result
    with torch.no_grad():
        weight.normal_(0.0, factor * math.sqrt(2 / feeds))


def _convolution(ndim: int, before: int, after: int) -> nn.Conv2d | nn.Conv3d:
    return CONVOLUTIONS[ndim](before, after, 3, padding=1, bias=False, padding_mode="replicate")


def _padded(x: Tensor, multiple: int) -> Tensor:
    """Repeat the last voxel along each axis until its size is a multiple of `multiple`."""
    more = [-n % multiple for n in x.shape[2:]]
    return F.pad(x, [n for m in reversed(more) for n in (0, m)], mode="replicate") if any(more) else x
