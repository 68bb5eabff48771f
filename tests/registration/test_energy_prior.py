"""A prior with an energy: eq. (6) is then a gradient step on one explicit function."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.conftest import blobs

from pirate.denoisers.gradient_step import GradientStep
from pirate.energies.similarity import GlobalCorrelation
from pirate.registration.operator import Pirate


@pytest.mark.parametrize("shape", [(14, 12), (12, 10, 8)])
def test_the_step_is_along_the_gradient_of_the_energy_that_is_reported(shape: tuple[int, ...]) -> None:
    d = len(shape)
    torch.manual_seed(0)
    network = GradientStep(d, width=4, scales=1).double()
    fixed, moving = (torch.from_numpy(blobs(shape, seed)).double()[None, None] for seed in (0, 1))
    operator = Pirate(GlobalCorrelation(fixed), moving, None, network, alpha=0.3, tau=0.7, sigma=0.5)
    generator = torch.Generator().manual_seed(1)
    field = torch.randn(1, d, *shape, generator=generator, dtype=torch.float64)
    gamma, n = 1e-6, field[0, 0].numel()
    with torch.no_grad():
        step = (field - operator(field, gamma)[0]) / (gamma * n)  # the gradient of the energy
        for _ in range(3):
            towards = torch.randn(field.shape, generator=generator, dtype=torch.float64)
            h = 1e-6
            ahead, behind = (operator(field + s * h * towards, gamma)[1] for s in (1, -1))
            assert (ahead - behind) / (2 * h) == pytest.approx(float((step * towards).sum()), rel=1e-4)


def test_the_energy_falls_from_step_to_step() -> None:
    shape = (24, 20)
    torch.manual_seed(0)
    network = GradientStep(2, width=4, scales=1)
    fixed, moving = (torch.from_numpy(blobs(shape, seed))[None, None] for seed in (0, 1))
    operator = Pirate(GlobalCorrelation(fixed), moving, None, network, alpha=0.3, tau=0.1, sigma=0.5)
    field, energies = torch.zeros(1, 2, *shape), []
    with torch.no_grad():
        for _ in range(40):
            field, energy = operator(field, 0.1)
            energies.append(energy)
    assert all(after < before for before, after in itertools.pairwise(energies))
