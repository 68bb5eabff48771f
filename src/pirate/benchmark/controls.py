"""Controls for a prior: something that is as large, as strong, or as smooth, and has learned nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pirate.denoisers import plug
from pirate.denoisers.classical import Gaussian
from pirate.denoisers.learned import Learned
from pirate.errors import UsageError

Denoise = Callable[..., Tensor]

SIGMA = 0.5
"""Voxels: the noise level at which strengths are compared and priors are called."""

WIDEST = 8.0
"""Voxels: of the Gaussians that are tried."""


def built(prior: str, ndim: int, resolution: float | None, fields: Sequence[Tensor]) -> str | Denoise:
    """What to hand to `register`: the name itself, or the control that it asks for.

    Args:
        prior: a name that ``--prior`` takes; or ``random:NAME``, ``permuted:NAME`` or ``gaussian:NAME``: the network
            with fresh or with shuffled weights, and the Gaussian that changes a field as much as it does.
        ndim: 2 or 3.
        resolution: of the grid on which the prior acts; None for the finest.
        fields: (1, d, *shape), voxels of that grid, on which strengths are compared.
    """
    kind, _, name = prior.rpartition(":")
    if not kind:
        return prior
    learned = plug.load(name, ndim, resolution=resolution)
    if not isinstance(learned, Learned):
        raise UsageError(f"{prior}: {name} is not a network; expected a learned prior.")
    if kind == "gaussian":
        return Gaussian(equal_width(learned, fields) / SIGMA)
    generator = torch.Generator().manual_seed(0)
    if kind == "permuted":
        for weight in learned.network.parameters():
            order = torch.randperm(weight.numel(), generator=generator)
            weight.data = weight.data.flatten()[order].reshape(weight.shape)
        return learned
    if kind != "random":
        raise UsageError(f"{prior}: there is no control {kind!r}; expected gaussian, permuted or random.")
    torch.manual_seed(0)
    for module in learned.network.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]
    return learned


def equal_width(learned: Learned, fields: Sequence[Tensor]) -> float:
    """Sigma of the Gaussian, voxels, for which the rms of ``z - D(z)`` over `fields` is the network's.

    Args:
        learned: D, called at `SIGMA`.
        fields: (1, d, *shape), voxels.
    """
    if not fields:
        raise UsageError("a Gaussian as strong as a network needs fields to compare them on.")
    with torch.no_grad():
        wanted = strength(lambda z: learned(z, SIGMA), fields)
        low, high = 0.0, WIDEST
        for _ in range(30):
            middle = (low + high) / 2
            small = strength(lambda z, width=middle: Gaussian(1.0)(z, width), fields) < wanted  # type: ignore[misc]
            low, high = (middle, high) if small else (low, middle)
    return middle


def strength(denoise: Callable[[Tensor], Tensor], fields: Sequence[Tensor]) -> float:
    """Rms of ``z - D(z)`` over all voxels of `fields`, (1, d, *shape) each, voxels."""
    squares = [float((z - denoise(z)).square().mean(dtype=torch.float64)) for z in fields]
    return float((sum(squares) / len(squares)) ** 0.5)
