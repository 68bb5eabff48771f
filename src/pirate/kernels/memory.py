"""Tensors as memory for the compiled loops: checked here, before an address is handed over."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pirate.errors import InputError, reject

_REMEDY = "Ask kernels.usable first and use the torch function where it says no."


def dense(name: str, x: Tensor, channels: int | None = None) -> Tensor:
    """`x` (B, C, *shape), copied only where it is not contiguous; refused if it is not CPU float32."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        raise reject(name, f"{x.dtype} on {x.device}", "torch.float32 on cpu", _REMEDY)
    if x.ndim not in (4, 5) or x.shape[-1] < 2 or x.numel() == 0:
        raise _shape(name, x, "(B, C, *shape) with two or three axes and two voxels or more along the last")
    if channels is not None and x.shape[1] != channels:
        raise _shape(name, x, f"{channels} channel(s)")
    return x.detach().contiguous()


def like(name: str, x: Tensor, other: Tensor) -> Tensor:
    """`x` dense, of the shape of `other`."""
    x = dense(name, x)
    if x.shape != other.shape:
        raise _shape(name, x, f"the shape {tuple(other.shape)}")
    return x


def displacement(field: Tensor, image: Tensor, any_resolution: bool = False) -> Tensor:
    """`field` (B, d, *shape) dense, one channel for each axis, on the grid of `image` unless any will do."""
    field = dense("field", field, channels=field.ndim - 2)
    if field.shape[0] != image.shape[0] or field.ndim != image.ndim:
        raise _shape("field", field, f"the batch and number of axes of {tuple(image.shape)}")
    if not any_resolution and field.shape[2:] != image.shape[2:]:
        raise _shape("field", field, f"the grid of {tuple(image.shape)}")
    return field


def flags(name: str, x: Tensor, field: Tensor) -> Tensor:
    """`x` (*shape), dense uint8 on the CPU, one for each voxel of the one field (1, d, *shape)."""
    if x.device.type != "cpu" or x.dtype != torch.uint8 or not x.is_contiguous():
        raise reject(
            name, f"{x.dtype} on {x.device}, strides {x.stride()}", "dense torch.uint8 on cpu", _REMEDY
        )
    if len(field) != 1 or x.shape != field.shape[2:]:
        raise _shape(name, x, f"the grid of one field, {tuple(field.shape)}")
    return x


def integers(name: str, x: Tensor, image: Tensor) -> Tensor:
    """`x` (B, 1, *shape), dense int16 on the CPU, one for each voxel of `image`."""
    if x.device.type != "cpu" or x.dtype != torch.int16 or not x.is_contiguous():
        raise reject(
            name, f"{x.dtype} on {x.device}, strides {x.stride()}", "dense torch.int16 on cpu", _REMEDY
        )
    if x.shape != image.shape:
        raise _shape(name, x, f"the shape {tuple(image.shape)}")
    return x


def target(out: Tensor | None, shape: Sequence[int], *inputs: Tensor) -> Tensor:
    """`out`, checked to be dense, of this shape and apart from the inputs; or a new tensor."""
    if out is None:
        return torch.empty(tuple(shape), dtype=torch.float32)
    if out.device.type != "cpu" or out.dtype != torch.float32 or not out.is_contiguous():
        raise reject(
            "out",
            f"{out.dtype} on {out.device}, strides {out.stride()}",
            "dense torch.float32 on cpu",
            _REMEDY,
        )
    if tuple(out.shape) != tuple(shape):
        raise _shape("out", out, f"the shape {tuple(shape)}")
    if any(_overlap(out, x) for x in inputs):
        raise reject("out", "memory shared with an input", "memory of its own", "Pass another tensor.")
    return out


def sizes(x: Tensor) -> list[int]:
    """Voxels along each axis of (B, C, *shape)."""
    return list(x.shape[2:])


def at(b: int, *tensors: Tensor) -> list[int]:
    """Address of item `b` of the batch of each dense tensor."""
    return [x.data_ptr() + 4 * b * x.stride(0) for x in tensors]


def window(radius: int, epsilon: float) -> None:
    """Refuse a box or a constant that local correlation cannot use."""
    if not 1 <= radius <= 64:
        raise reject("radius", f"{radius}", "1 to 64 voxels", "Choose another window.")
    if not epsilon > 0:
        raise reject("epsilon", f"{epsilon}", "more than 0", "It keeps flat windows from dividing by 0.")


def half_taps(sigma: float, truncate: float) -> list[float]:
    """Centre to edge of a sampled, normalised Gaussian of `sigma` voxels, cut; [] for sigma 0."""
    if sigma <= 0:
        return []
    radius = max(1, math.ceil(truncate * sigma))
    half = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(radius + 1)]
    total = math.fsum(half + half[1:])
    return [h / total for h in half]


def _overlap(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() < b.data_ptr() + 4 * b.numel() and b.data_ptr() < a.data_ptr() + 4 * a.numel()


def _shape(name: str, x: Tensor, expected: str) -> InputError:
    return reject(name, f"shape {tuple(x.shape)}", expected, "Check the order of the arguments.")
