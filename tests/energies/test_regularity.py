"""Smoothness and folding: gradients against autograd and finite differences, known answers."""

import naive_energies as naive
import pytest
import torch

from pirate.energies import Folding, Smoothness
from pirate.errors import InputError
from pirate.ops.jacobian import determinant

SHAPES = [(5, 6), (4, 5, 6)]


def rough(shape, scale=1.0, batch=2):
    generator = torch.Generator().manual_seed(5)
    return scale * torch.randn(batch, len(shape), *shape, generator=generator, dtype=torch.float64)


def against_autograd(energy, twin, field):
    value, gradient = energy.value_and_gradient(field)
    leaf = field.clone().requires_grad_()
    expected = twin(leaf)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(gradient, slope, rtol=0, atol=1e-9 * float(slope.abs().max()))
    assert float(gradient.abs().max()) > 0


def against_differences(energy, field, step=1e-6):
    _, gradient = energy.value_and_gradient(field)
    for index in range(0, field[0].numel(), 7):
        bump = torch.zeros_like(field)
        bump.view(len(field), -1)[:, index] = step
        rise = energy.value_and_gradient(field + bump)[0] - energy.value_and_gradient(field - bump)[0]
        expected = gradient.flatten(1)[:, index]
        scale = float(gradient.abs().max())
        torch.testing.assert_close(rise / (2 * step), expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("shape", SHAPES)
def test_smoothness_gradient(shape):
    against_autograd(Smoothness(), naive.smoothness, rough(shape))
    against_differences(Smoothness(), rough(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("difference", ["forward", "central"])
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_folding_gradient(margin, difference, shape):
    energy = Folding(margin, difference)
    against_autograd(energy, lambda x: naive.folding(x, margin, difference), rough(shape))
    against_differences(energy, rough(shape))


@pytest.mark.parametrize(("shape", "factor"), [((9, 9), 1.0), ((7, 7, 7), 4 / 9)])
def test_smoothness_gradient_is_minus_the_laplacian_with_the_stated_factor(shape, factor):
    field = torch.zeros(1, len(shape), *shape, dtype=torch.float64)
    centre = tuple(n // 2 for n in shape)
    field[(0, 1, *centre)] = 1
    _, gradient = Smoothness().value_and_gradient(field)
    d, n = len(shape), field[0, 0].numel()
    assert gradient[(0, 1, *centre)] == pytest.approx(2 * d * factor / n, rel=1e-12)
    beside = (centre[0] + 1, *centre[1:])
    assert gradient[(0, 1, *beside)] == pytest.approx(-factor / n, rel=1e-12)
    assert gradient[:, 0].abs().max() == 0


def test_smoothness_of_a_ramp_is_known():
    """u_0 = 0.1 x_0 on 6 x 5 voxels: five of six differences are 0.1; S = 2/2 * 0.01 * 5/6 / 2."""
    field = torch.zeros(1, 2, 6, 5, dtype=torch.float64)
    field[:, 0] = 0.1 * torch.arange(6, dtype=torch.float64)[:, None]
    assert float(Smoothness().value_and_gradient(field)[0]) == pytest.approx(0.01 * 5 / 6 / 2, rel=1e-12)


def test_a_constant_field_is_perfectly_smooth_and_does_not_fold():
    field = torch.full((2, 3, 4, 5, 6), 7.3, dtype=torch.float32)
    for energy in (Smoothness(), Folding(), Folding(0.5, "forward")):
        value, gradient = energy.value_and_gradient(field)
        assert value.dtype == torch.float64
        assert gradient.dtype == torch.float32
        assert (value == 0).all()
        assert (gradient == 0).all()


@pytest.mark.parametrize("difference", ["forward", "central"])
def test_folding_of_a_mirrored_axis_is_known(difference):
    """u_0 = -3 x_0 mirrors and doubles axis 0: determinant -2 everywhere, loss 4 (margin 0), 6.25 (0.5)."""
    field = torch.zeros(1, 3, 5, 4, 3, dtype=torch.float64)
    field[:, 0] = -3 * torch.arange(5, dtype=torch.float64)[:, None, None]
    assert float(Folding(0.0, difference).value_and_gradient(field)[0]) == pytest.approx(4, rel=1e-12)
    assert float(Folding(0.5, difference).value_and_gradient(field)[0]) == pytest.approx(6.25, rel=1e-12)


def test_descending_the_folding_loss_unfolds_a_field():
    field = rough((8, 9), scale=0.6, batch=1)
    energy = Folding(0.1)
    assert (determinant(field) <= 0).any()
    for _ in range(300):
        field = field - 4 * energy.value_and_gradient(field)[1]
    assert (determinant(field) > 0).all()


@pytest.mark.parametrize("shape", [(1, 6), (5, 1, 4)])
@pytest.mark.parametrize("difference", ["forward", "central"])
def test_axes_of_one_voxel_are_allowed(difference, shape):
    field = rough(shape)
    for energy in (Smoothness(), Folding(0.5, difference)):
        against_differences(energy, field)


def test_an_unknown_difference_is_refused():
    with pytest.raises(InputError, match=r"^difference: it is 'backward'; expected 'forward' or 'central'"):
        Folding(difference="backward")
