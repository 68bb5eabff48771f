import itertools

import pytest
import torch

from pirate.denoisers.gradient_step import GradientStep
from pirate.energies.similarity import GlobalCorrelation
from pirate.registration.operator import Pirate


def network(ndim, activation="elu", scales=2):
    torch.manual_seed(3)
    built = GradientStep(ndim, width=4, scales=scales, activation=activation).double()
    with torch.no_grad():
        built.body.exit.weight.mul_(6)  # so that the step is not tiny
    return built


def field_of(ndim, batch=1):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, ndim, *(6, 5, 4)[:ndim], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("activation", ["elu", "softplus"])
def test_the_jacobian_is_symmetric(ndim, activation):
    denoise, field = network(ndim, activation), field_of(ndim)[:, :, :4, :4, ...]
    jacobian = torch.autograd.functional.jacobian(lambda z: denoise(z, 0.7), field).reshape(field.numel(), -1)
    torch.testing.assert_close(jacobian, jacobian.T, rtol=0, atol=1e-12)
    assert (
        jacobian - torch.eye(field.numel())
    ).abs().max() > 0.01  # it is not symmetric for want of doing anything


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_residual_is_the_gradient_of_the_energy(ndim):
    denoise, field = network(ndim), field_of(ndim)
    residual = field - denoise(field, 0.3)
    direction = torch.randn_like(field)
    h = 1e-6
    difference = (denoise.energy(field + h * direction, 0.3) - denoise.energy(field - h * direction, 0.3)) / (
        2 * h
    )
    torch.testing.assert_close((residual * direction).sum(), difference[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_energy_is_half_the_squared_distance_to_the_network(ndim):
    denoise, field = network(ndim), field_of(ndim)
    distance = 0.3 * denoise.body(field / 0.3, torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(denoise.energy(field, 0.3), 0.5 * distance.square().sum()[None])


@pytest.mark.parametrize("ndim", [2, 3])
def test_another_unit_scales_the_field_and_squares_in_the_energy(ndim):
    denoise, field = network(ndim), field_of(ndim)
    torch.testing.assert_close(denoise(3 * field, 0.9), 3 * denoise(field, 0.3), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(denoise.energy(3 * field, 0.9), 9 * denoise.energy(field, 0.3))


def test_without_gradients_the_answer_is_the_same_and_carries_none():
    denoise, field = network(2), field_of(2)
    with torch.no_grad():
        quiet = denoise(field, 0.5)
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, denoise(field, 0.5), rtol=0, atol=0)
    assert not field.requires_grad


def test_the_weights_and_the_field_can_be_differentiated_through_it():
    denoise, field = network(2, "softplus"), field_of(2).requires_grad_()
    weight = denoise.body.exit.weight
    loss = denoise(field, 0.5).square().sum()
    slope, by_field = torch.autograd.grad(loss, (weight, field))
    h = 1e-6
    with torch.no_grad():
        for tensor, gradient in ((weight, slope), (field, by_field)):
            direction = torch.randn_like(tensor)
            values = []
            for sign in (1, -1):
                tensor.add_(sign * h * direction)
                values.append(denoise(field, 0.5).square().sum())
                tensor.sub_(sign * h * direction)
            torch.testing.assert_close(
                (gradient * direction).sum(), (values[0] - values[1]) / (2 * h), rtol=1e-5, atol=0
            )


def test_descending_the_energy_lowers_it_at_every_step():
    denoise, field = network(2), field_of(2)
    energies = []
    for _ in range(30):
        energies.append(float(denoise.energy(field, 0.5).detach()))
        field = (field - 0.02 * (field - denoise(field, 0.5))).detach()
    assert all(b < a for a, b in itertools.pairwise(energies))


def test_each_element_of_a_batch_has_its_own_level_and_energy():
    denoise, field = network(2), field_of(2, batch=2)
    level = torch.tensor([0.2, 0.8], dtype=torch.float64)
    torch.testing.assert_close(denoise(field, level)[1:], denoise(field[1:], 0.8))
    torch.testing.assert_close(denoise.energy(field, level)[:1], denoise.energy(field[:1], 0.2))
    assert denoise.energy(field.float().double(), level).dtype == torch.float64


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="elu or softplus"):
        GradientStep(2, activation="relu")
    with pytest.raises(ValueError, match="above 0"):
        network(2)(field_of(2), 0.0)


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_architecture_builds_it_again(ndim):
    built = GradientStep(ndim)
    arguments = built.architecture()
    assert arguments.pop("kind") == "gradient-step"
    again = GradientStep(ndim, **arguments)
    assert {n: p.shape for n, p in again.named_parameters()} == {
        n: p.shape for n, p in built.named_parameters()
    }


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_iteration_descends_data_smoothness_and_tau_over_n_times_the_energy(ndim):
    """With n voxels, eq. (6) in dimensionless form is a step on ``g + alpha r + tau / n g_sigma``."""
    generator = torch.Generator().manual_seed(2)
    shape = (10, 9, 8)[:ndim]
    fixed, moving = torch.rand(2, 1, 1, *shape, generator=generator, dtype=torch.float64)
    field = 0.3 * torch.randn(1, ndim, *shape, generator=generator, dtype=torch.float64)
    denoise, alpha, tau, sigma = network(ndim), 0.4, 0.7, 0.5
    n = field[0, 0].numel()

    def energy(z):
        with torch.no_grad():
            plain = Pirate(GlobalCorrelation(fixed), moving, None, None, alpha, tau, sigma)
            return plain(z, 0.1)[1] + tau / n * float(denoise.energy(z, sigma))

    with torch.no_grad():
        operator = Pirate(GlobalCorrelation(fixed), moving, None, denoise, alpha, tau, sigma)
        step = (field - operator(field, 0.1)[0]) / 0.1
    direction = torch.randn(field.shape, generator=generator, dtype=torch.float64)
    h = 1e-6
    slope = (energy(field + h * direction) - energy(field - h * direction)) / (2 * h)
    assert float((step * direction).sum()) == pytest.approx(n * slope, rel=1e-4)
