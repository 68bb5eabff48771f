"""The anatomy-aware prior: a network that sees fixed, warped and field, and corrects the field. Supervised.

    r = G N(fixed, warped, field - mean),    D(field) = field o (id - r) - r

N is a U-Net, G a Gaussian of one voxel. The correction is composed, not added: a small smooth r is a diffeomorphism,
and composing it cannot fold. The last layer starts at zero, so that D starts as the identity. The network is trained
with anatomical labels (`pirate.training.corrector`) and belongs among supervised methods.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.denoisers.convolution import CONVOLUTIONS
from pirate.denoisers.unet import depth_to_space, space_to_depth
from pirate.ops.compose import compose
from pirate.ops.smooth import gaussian

AROUND = 4.0
"""Sigma in voxels of the local mean that is taken off the field: only what differs from it matters."""

SLOPE = 0.1
"""Of the leaky ReLU."""

DEEPEST, WIDEST = 5, 256  # a card from a stranger must not ask for more


class UNet(nn.Module):
    """`depth` halvings of the grid, (B, `channels`, *shape) to (B, `width`, *shape), sizes multiples of 2^depth.

    Every level has two convolutions 3^d on the way down and one on the way up, with `width` channels on the first and
    twice that on the others; on the way up the levels are added.
    """

    def __init__(self, ndim: int, channels: int, width: int, depth: int) -> None:
        super().__init__()
        conv = CONVOLUTIONS[ndim]
        widths = [width] + [2 * width] * depth
        self.inlet = conv(channels, width, 3, padding=1)
        self.first = conv(width, width, 3, padding=1)
        self.down = nn.ModuleList(conv(a, b, 3, stride=2, padding=1) for a, b in itertools.pairwise(widths))
        self.middle = nn.ModuleList(conv(b, b, 3, padding=1) for b in widths[1:])
        self.up = nn.ModuleList(conv(b, a, 3, padding=1) for a, b in itertools.pairwise(widths))
        self.last = conv(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, *shape) to (B, width, *shape), no unit."""
        x = _active(self.inlet(x))
        x = _active(x + self.first(x))
        skips = []
        for down, middle in zip(self.down, self.middle, strict=True):
            skips.append(x)
            x = _active(down(x))
            x = _active(x + middle(x))
        for up, skip in zip(reversed(self.up), reversed(skips), strict=True):
            x = _active(skip + F.interpolate(up(x), scale_factor=2, mode="nearest"))
        return _active(x + self.last(x))


class Corrector(nn.Module):
    """A U-Net behind space-to-depth by 2; D(field, sigma, fixed, warped) -> field. Works for any size.

    Args:
        ndim: 2 or 3.
        width: channels of a U-Net's first level, 1 to 256.
        depth: levels below the first, 1 to 5.
        smoothing: sigma of the Gaussian G, voxels.
        spacing: mm of a voxel of the grid on which the network was trained; finer images are halved until they
            are about as coarse. 0: whatever is given.
    """

    wants_images = True

    def __init__(
        self,
        ndim: int,
        width: int = 24,
        depth: int = 3,
        smoothing: float = 1.0,
        spacing: float = 0.0,
    ) -> None:
        super().__init__()
        _check(ndim, width, depth, smoothing, spacing)
        self.ndim, self.width, self.depth = ndim, width, depth
        self.smoothing, self.spacing = float(smoothing), float(spacing)
        conv = CONVOLUTIONS[ndim]
        block = 2**ndim
        self.trunk = UNet(ndim, (2 + ndim) * block, width, depth)
        self.outlet = conv(width, ndim * block, 3, padding=1)
        nn.init.zeros_(self.outlet.weight)
        nn.init.zeros_(self.outlet.bias)  # type: ignore[arg-type]

    def architecture(self) -> dict[str, str | int | float | bool]:
        """Return what a weight file's card records: the kind and the constructor arguments but `ndim`."""
        return {
            "kind": "corrector",
            "width": self.width,
            "depth": self.depth,
            "smoothing": self.smoothing,
            "spacing": self.spacing,
        }

    def forward(self, field: Tensor, sigma: float, fixed: Tensor, warped: Tensor) -> Tensor:
        """D(field) = field o (id - r) - r.

        Args:
            field: (B, d, *shape), voxels.
            sigma: not used.
            fixed: (B, 1, *shape), background 0, about 1 at most.
            warped: (B, 1, *shape), likewise.

        Returns:
            (B, d, *shape), voxels.
        """
        return compose(field, -self.correction(field, fixed, warped))

    def correction(self, field: Tensor, fixed: Tensor, warped: Tensor) -> Tensor:
        """The smoothed correction r, (B, d, *shape), voxels; arguments as in `forward`."""
        relative = field - gaussian(field, AROUND)
        stacked = self._padded(torch.cat([fixed, warped, relative], 1))
        raw = depth_to_space(self.outlet(self.trunk(space_to_depth(stacked))), self.ndim)
        inside = (slice(None), slice(None), *[slice(0, n) for n in field.shape[2:]])
        return gaussian(raw[inside], self.smoothing)

    def _padded(self, x: Tensor) -> Tensor:
        """Zeros behind the last voxel of each axis, up to a multiple of what the levels divide by."""
        unit = 2 ** (self.depth + 1)
        pads = [p for n in reversed(x.shape[2:]) for p in (0, -n % unit)]
        return F.pad(x, pads) if any(pads) else x


def _active(x: Tensor) -> Tensor:
    return F.leaky_relu(x, SLOPE)


def _check(ndim: int, width: int, depth: int, smoothing: float, spacing: float) -> None:
    """Refuse arguments for which there is no such network."""
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (ndim, width, depth))
    if not whole or ndim not in CONVOLUTIONS:
        raise ValueError(f"ndim is 2 or 3, the rest whole numbers, not {ndim}, {width}, {depth}")
    if not (1 <= width <= WIDEST and 1 <= depth <= DEEPEST):
        raise ValueError(f"width is 1 to {WIDEST} and depth 1 to {DEEPEST}, not {width} and {depth}")
    if not (0 <= smoothing <= 16 and 0 <= spacing <= 1000):
        raise ValueError(
            f"smoothing is 0 to 16 voxels and spacing 0 to 1000 mm, not {smoothing} and {spacing}"
        )
