"""Windows that hardly count."""

from __future__ import annotations

import torch

from pirate import kernels
from pirate.energies.local import LocalCorrelation


def test_a_mask_that_fades_to_nothing_leaves_numbers() -> None:
    """Weights down to the smallest positive number: windows of such weight count for nothing, in both twins."""
    torch.manual_seed(0)
    fixed, moving = torch.rand(2, 1, 1, 16, 17, 18)
    mask = torch.zeros_like(fixed)
    mask[..., :6] = 1
    mask[..., 6:] = torch.logspace(-1, -44, 12)
    term = LocalCorrelation(fixed, mask, window=5, intensity=10.0)
    field = 0.3 * torch.randn(1, 3, 16, 17, 18)
    value, force = term.force(moving, field)
    with kernels.disabled():
        expected, slope = term.force(moving, field)
    assert bool(torch.isfinite(force).all())
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    assert (force - slope).abs().max() < 1e-4 * slope.abs().max()
