"""GraDIRN: the authors' size, that a step descends, the warp that is differentiated twice, loss."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.baselines.pairs import SHAPES, pair, smooth_noise, stirred
from torch import Tensor, nn

from pirate.baselines.gradirn import Block, GraDIRN, GraDIRNLoss, warp_and_slope
from pirate.baselines.losses import diffusion
from pirate.energies.similarity import GlobalCorrelation, SquaredError
from pirate.errors import UsageError
from pirate.ops.warp import warp, warp_with_gradient
from pirate.training.hypergradient import data_gradient


def squares(fixed: Tensor, moving: Tensor, field: Tensor) -> float:
    return float((warp(moving, field) - fixed).square().sum())


def test_the_network_has_the_authors_size() -> None:
    """They have about 90 thousand parameters a level in 3-D, 0.27 million in all."""
    network = GraDIRN(3)
    assert sum(p.numel() for p in network.parameters()) == 269_964
    assert [float(10 * block.step.detach()) for block in network.blocks] == [0.5] * 3  # type: ignore[operator, union-attr]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_decreases_the_data_term_at_initialisation(shape: tuple[int, ...]) -> None:
    fixed, moving = pair(shape)
    block = Block(len(shape), 8, 3)
    field = torch.zeros(1, len(shape), *shape)
    energies = [squares(fixed, moving, field)]
    with torch.no_grad():
        for _ in range(4):
            field = block(field, fixed, moving)
            energies.append(squares(fixed, moving, field))
    assert all(after < before for before, after in itertools.pairwise(energies))
    with torch.no_grad():
        whole = GraDIRN(len(shape), width=8)(fixed, moving)
    assert squares(fixed, moving, whole) < 0.8 * energies[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_slope_is_the_projects_data_gradient(shape: tuple[int, ...]) -> None:
    """2 (w - f) slope is n dg/du of the mean squared error, value and derivative; the compiled one is the same."""
    fixed, moving = pair(shape)
    field = (smooth_noise(shape, 2.0) + 0.3).requires_grad_()
    warped, slope = warp_and_slope(moving, field)
    force = 2 * (warped - fixed) * slope
    expected = fixed[0].numel() * data_gradient(SquaredError(fixed), moving, field)
    torch.testing.assert_close(force, expected, rtol=1e-3, atol=1e-4)
    for found, wanted in zip(warp_with_gradient(moving, field.detach()), (warped, slope), strict=True):
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)
    change = smooth_noise(shape, 1.0, 3)
    (a,) = torch.autograd.grad((force * change).sum(), field)
    (b,) = torch.autograd.grad((expected * change).sum(), field)
    assert float((a - b).norm() / b.norm()) < 1e-3


def test_the_second_derivative_of_the_warp() -> None:
    """By finite differences in float64, at positions within cells and beyond the border."""
    random = torch.Generator().manual_seed(0)
    moving = torch.rand(1, 1, 5, 4, dtype=torch.float64, generator=random)
    field = 3 * torch.rand(1, 2, 5, 4, dtype=torch.float64, generator=random) - 1.5
    field.requires_grad_()
    assert torch.autograd.gradcheck(lambda u: warp_and_slope(moving, u), (field,))


@pytest.mark.parametrize("shape", SHAPES)
def test_training_differentiates_through_the_step(shape: tuple[int, ...]) -> None:
    """The gradient with respect to a step length of the coarsest level reaches through all others.

    In float64 and over so short a way that no voxel enters another cell, where the slope jumps.
    """
    torch.manual_seed(0)
    network = stirred(GraDIRN(len(shape), width=4, depth=2, repeats=2), 0.02).double()
    loss, images = GraDIRNLoss(smoothness=0.1), [x.double() for x in pair(shape)]
    step = network.blocks[0].step  # type: ignore[union-attr, index]
    (slope,) = torch.autograd.grad(loss(network, *images).value, step)  # type: ignore[arg-type]
    values = []
    for h in (-1e-7, 1e-7):
        with torch.no_grad():
            step.add_(h)  # type: ignore[operator, union-attr]
            values.append(float(loss(network, *images).value))
            step.sub_(h)  # type: ignore[operator, union-attr]
    assert (values[1] - values[0]) / 2e-7 == pytest.approx(float(slope), rel=1e-3)


def test_at_use_the_network_does_what_it_does_in_training() -> None:
    network, images = stirred(GraDIRN(2, width=4, depth=2), 0.02), pair((29, 34))
    with torch.no_grad():
        used = network(*images)
    torch.testing.assert_close(network(*images).detach(), used, rtol=1e-3, atol=1e-4)


class Given(nn.Module):
    def __init__(self, field: Tensor) -> None:
        super().__init__()
        self.field = field

    def forward(self, fixed: Tensor, moving: Tensor) -> Tensor:
        return self.field


def test_the_loss_by_hand() -> None:
    """A field that grows by 0.1 a voxel along axis 0, 10 of 11 planes having a difference: d = 0.01 10 / 11."""
    fixed, moving = pair((11, 20))
    ramp = torch.zeros(1, 2, 11, 20)
    ramp[:, 1] = 0.1 * torch.arange(11)[:, None]
    assert float(diffusion(ramp)) == pytest.approx(0.01 * 10 / 11)
    warped = warp(moving, ramp)
    scored = GraDIRNLoss(smoothness=2.0)(Given(ramp), fixed, moving)
    by_hand = float((warped - fixed).square().mean()) + 2 * 0.01 * 10 / 11
    assert float(scored.value) == pytest.approx(by_hand, rel=1e-5)
    rho = 1 - float(GlobalCorrelation(fixed).value(moving, ramp))
    found = GraDIRNLoss("ncc", 0.0)(Given(ramp), fixed, moving)
    assert float(found.value) == pytest.approx(1 - rho**2, rel=1e-4)


@pytest.mark.parametrize(
    "arguments", [{"width": 0}, {"depth": 1}, {"levels": 9}, {"repeats": True}, {"ndim": 5}]
)
def test_networks_that_cannot_be_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not "):
        GraDIRN(**({"ndim": 2} | arguments))  # type: ignore[arg-type]


def test_an_unknown_similarity_is_refused() -> None:
    with pytest.raises(UsageError, match="expected ncc or mse"):
        GraDIRNLoss("mi")  # type: ignore[arg-type]
