"""The convolutions that all networks are built from.

For one small volume on one thread torch picks a plain loop (`slow_conv3d`) where oneDNN, which it brings along, is
twice as fast or more. It is asked for by name here; everywhere else the choice stays torch's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0
) -> Tensor:
    """Convolve (B, C, *shape) with (C', C, *sides), zeros outside; any unit, differentiable any number of times.

    Args:
        x: (B, C, *shape), 2-D or 3-D.
        weight: (C', C, *sides).
        bias: (C',).
        stride: along each axis.
        padding: zeros on each side of each axis.
    """
    if x.ndim == 4:
        return F.conv2d(x, weight, bias, stride, padding)
    if not by_name(x, weight):
        return F.conv3d(x, weight, bias, stride, padding)
    result: Tensor = torch.ops.aten.mkldnn_convolution(
        x, weight, bias, [padding] * 3, [stride] * 3, [1, 1, 1], 1
    )
    return result


def by_name(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN takes these: single precision on the CPU of a torch that has it."""
    single = x.dtype == weight.dtype == torch.float32
    autocast = torch.is_autocast_enabled("cpu")
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return single and x.device.type == "cpu" and not autocast and there


class Convolution3d(nn.Conv3d):
    """`torch.nn.Conv3d` through `convolve`; same names, same numbers up to rounding."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        sides = self.padding
        if isinstance(sides, str) or len({*sides}) > 1 or len({*self.stride}) > 1:
            raise ValueError("this convolution has one number as padding and one as stride")
        if self.groups != 1 or {*self.dilation} != {1}:
            raise ValueError("this convolution has one group and no dilation")
        padding = sides[0]
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, [int(padding)] * 6, mode=self.padding_mode), 0
        return convolve(input, weight, bias, self.stride[0], int(padding))


CONVOLUTIONS: dict[int, type[nn.Conv2d] | type[nn.Conv3d]] = {2: nn.Conv2d, 3: Convolution3d}
"""By the number of axes."""


def interleaved(x: Tensor) -> Tensor:
    """The same (B, C, *shape), any unit, with a voxel's channels side by side in memory: convolutions are faster so."""
    return x.contiguous(memory_format=torch.channels_last if x.ndim == 4 else torch.channels_last_3d)
