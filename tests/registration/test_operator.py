"""T of eq. (6), against the equation written out with autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pirate.denoisers.classical import Gaussian
from pirate.energies.similarity import GlobalCorrelation
from pirate.ops.warp import warp
from pirate.registration.operator import Pirate


def equation_6(
    field: Tensor, fixed: Tensor, moving: Tensor, gamma: float, alpha: float, tau: float, sigma: float
) -> Tensor:
    """One step with gamma n and tau / n in place of the paper's constants, all gradients by autograd."""
    d, n = field.shape[1], field[0, 0].numel()
    phi = field.clone().requires_grad_()
    mode = "bilinear" if d == 2 else "trilinear"
    full = F.interpolate(phi, size=fixed.shape[2:], mode=mode, align_corners=True)
    factors = [(a - 1) / (b - 1) for a, b in zip(fixed.shape[2:], field.shape[2:], strict=True)]
    scale = torch.tensor(factors, dtype=field.dtype)
    warped = warp(moving, full * scale.view(1, -1, *[1] * d))
    g = 1 - torch.corrcoef(torch.stack([fixed.flatten(), warped.flatten()]))[0, 1]
    r = sum(phi.diff(dim=a + 2).square().sum() for a in range(d)) * 2 / d / phi.numel()
    (slope,) = torch.autograd.grad(g + alpha * r, phi)
    with torch.no_grad():
        prior = tau / n * (phi - Gaussian()(phi, sigma))
        return field - gamma * n * (slope + prior)


@pytest.mark.parametrize("shape", [(12, 15), (8, 11, 10)])
@pytest.mark.parametrize("terms", ["P", "P+S", "P+R", "P+R+S"])
def test_a_step_is_equation_6(shape: tuple[int, ...], terms: str) -> None:
    torch.manual_seed(1)
    fixed, moving = torch.rand(2, 1, 1, *shape, dtype=torch.float64)
    field = torch.randn(1, len(shape), *[(n + 1) // 2 for n in shape], dtype=torch.float64)
    alpha = 0.3 if "S" in terms else 0.0
    denoiser = Gaussian() if "R" in terms else None
    step = Pirate(GlobalCorrelation(fixed), moving, None, denoiser, alpha, 0.086, 0.7)
    expected = equation_6(field, fixed, moving, 0.581, alpha, 0.086 if "R" in terms else 0.0, 0.7)
    got, energy = step(field, 0.581)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)
    assert energy > 0


def test_a_prior_that_wants_images_gets_fixed_and_warped() -> None:
    fixed, moving = torch.rand(2, 1, 1, 12, 12, dtype=torch.float64)
    field = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    seen = {}

    class Looking:
        wants_images = True

        def __call__(self, field: Tensor, sigma: float, fixed: Tensor, warped: Tensor) -> Tensor:
            seen.update(sigma=sigma, fixed=fixed, warped=warped)
            return field.clone()

    Pirate(GlobalCorrelation(fixed), moving, None, Looking(), 0.0, 0.1, 0.7)(field, 0.1)
    assert seen["sigma"] == 0.7
    assert seen["fixed"].shape == seen["warped"].shape == (1, 1, 6, 6)
    torch.testing.assert_close(seen["fixed"][0, 0, 0, 0], fixed[0, 0, 0, 0])
