import pytest
import torch

from pirate.denoisers.conditional import Conditional
from pirate.denoisers.unet import UNet, depth_to_space, space_to_depth


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def field_of(ndim, shape=(12, 9, 10), batch=2):
    return torch.randn(batch, ndim, *shape[:ndim], generator=generator(), dtype=torch.float64)


def network(ndim, activation="leaky_relu", scales=3):
    torch.manual_seed(1)
    built = Conditional(ndim, width=6, scales=scales, activation=activation).double()
    with torch.no_grad():
        built.body.tell.normal_()
        built.body.straight.weight.normal_(std=0.1)
    return built


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("activation", ["leaky_relu", "relu"])
def test_a_field_and_its_noise_level_in_another_unit_give_the_same_field_in_that_unit(ndim, activation):
    denoise, field = network(ndim, activation), field_of(ndim)
    for c in (1e-3, 0.37, 5.0):
        torch.testing.assert_close(
            denoise(c * field, c * 0.4), c * denoise(field, 0.4), rtol=1e-10, atol=1e-13
        )
    torch.testing.assert_close(denoise(4 * field, 4 * 0.4), 4 * denoise(field, 0.4), rtol=0, atol=0)


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_translation_is_not_noise(ndim):
    denoise, field = network(ndim), field_of(ndim)
    shift = torch.tensor([3.0, -5.0, 7.0][:ndim], dtype=torch.float64).reshape(1, -1, *[1] * ndim)
    torch.testing.assert_close(denoise(field + shift, 0.4), denoise(field, 0.4) + shift, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_noise_level_matters_and_each_element_has_its_own(ndim):
    denoise, field = network(ndim), field_of(ndim)
    together = denoise(field, torch.tensor([0.1, 0.9]))
    torch.testing.assert_close(together[:1], denoise(field[:1], 0.1))
    torch.testing.assert_close(together[1:], denoise(field[1:], 0.9))
    assert not torch.allclose(denoise(field, 0.1), denoise(field, 0.9))


@pytest.mark.parametrize(("ndim", "shape"), [(2, (5, 7)), (2, (16, 24)), (3, (5, 6, 9)), (3, (8, 8, 8))])
@pytest.mark.parametrize("scales", [1, 3])
def test_every_size_keeps_its_shape(ndim, shape, scales):
    field = field_of(ndim, shape)
    denoised = network(ndim, scales=scales)(field, 0.5)
    assert denoised.shape == field.shape
    assert torch.isfinite(denoised).all()


def test_the_zero_field_without_noise_stays_zero():
    assert not network(2)(torch.zeros(1, 2, 8, 8, dtype=torch.float64), 0.0).any()


@pytest.mark.parametrize("ndim", [2, 3])
def test_space_to_depth_is_undone_and_gathers_neighbours(ndim):
    x = torch.arange(2.0 * 3 * 4 * 6 * (4 if ndim == 3 else 1)).reshape(
        2, 3, 4, 6, *([4] if ndim == 3 else [])
    )
    folded = space_to_depth(x)
    assert folded.shape == (2, 3 * 2**ndim, *[n // 2 for n in x.shape[2:]])
    assert torch.equal(depth_to_space(folded, 3), x)
    corner = x[0, 1, :2, :2] if ndim == 2 else x[0, 1, :2, :2, :2]
    channels = slice(2**ndim, 2 * 2**ndim)
    assert torch.equal(folded[(0, channels, *[0] * ndim)], corner.flatten())


@pytest.mark.parametrize(("ndim", "parameters"), [(2, 135_172), (3, 154_960)])
def test_the_default_is_small_and_its_architecture_builds_it_again(ndim, parameters):
    built = Conditional(ndim)
    assert sum(p.numel() for p in built.parameters()) == parameters
    arguments = built.architecture()
    assert arguments.pop("kind") == "conditional"
    again = Conditional(ndim, **arguments)
    assert {n: p.shape for n, p in again.named_parameters()} == {
        n: p.shape for n, p in built.named_parameters()
    }
    assert not any("bias" in name for name, _ in built.named_parameters())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conditional(2, activation="elu"), "leaky_relu or relu"),
        (lambda: Conditional(4), "ndim is 2 or 3"),
        (lambda: Conditional(2, width=1), "width 2 to 512"),
        (lambda: Conditional(2, scales=6), "scales 1 to 5"),
        (lambda: Conditional(2, width=2.0), "whole numbers"),
        (lambda: UNet(2, 4, 1, "tanh"), "not 'tanh'"),
    ],
)
def test_networks_that_do_not_exist_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
