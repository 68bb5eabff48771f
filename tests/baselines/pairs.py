"""Small pairs for the networks, and their weight files."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.conftest import blobs
from torch import Tensor, nn

from pirate.io.weights import Card, save_weights
from pirate.ops.smooth import gaussian

SHAPES = [(37, 42), (19, 22, 18)]


def pair(shape: tuple[int, ...], batch: int = 1) -> tuple[Tensor, Tensor]:
    """Fixed and moving, (batch, 1, *shape), the same blob moved by about a voxel."""
    fixed = [torch.from_numpy(blobs(shape, k)) for k in range(batch)]
    moving = [torch.from_numpy(blobs(shape, k, (1.2, -0.8, 0.6)[: len(shape)])) for k in range(batch)]
    return torch.stack(fixed)[:, None], torch.stack(moving)[:, None]


def smooth_noise(shape: tuple[int, ...], largest: float, seed: int = 0, sigma: float = 3.0) -> Tensor:
    """A smooth random field (1, d, *shape) whose largest component is `largest` voxels."""
    random = torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(seed))
    field = gaussian(random, sigma)
    return largest * field / field.abs().max()


def stirred(network: nn.Module, std: float = 0.05) -> nn.Module:
    """The network with noise on all its weights, so that it does something everywhere."""
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(std * torch.randn(parameter.shape, generator=random))
    return network


def saved(path: Path, network: nn.Module, ndim: int, resolution: float = 1, **changes: object) -> Path:
    """A weight file of the network."""
    architecture = network.architecture() | changes  # type: ignore[operator]
    card = Card("test", architecture, ndim, 0, 0, resolution, "none", False, "2026-01-01")
    save_weights(path, network.state_dict(), card)
    return path
