import pytest
import torch

from pirate.denoisers import DnCNN


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def test_the_released_network_has_453059_parameters():
    assert parameters(DnCNN.released(3)) == 453_059


def test_the_layouts_by_formula():
    for ndim in (2, 3):
        k = 3**ndim
        ends = k * ndim * 64 + 64 + k * 64 * ndim + ndim
        assert parameters(DnCNN.released(ndim)) == ends + 4 * (k * 64 * 64 + 64)
        assert parameters(DnCNN.paper(ndim)) == ends + 15 * (k * 64 * 64 + 64)


def test_the_named_layouts_say_what_they_are():
    assert DnCNN.paper(2).architecture() == {
        "kind": "dncnn", "depth": 17, "width": 64, "activation": "relu", "bias": True, "padding": "zeros",
    }  # fmt: skip
    assert DnCNN.released(3).architecture()["activation"] == "elu"
    assert not any("norm" in type(m).__name__.lower() for m in DnCNN.paper(2).modules())


@pytest.mark.parametrize("activation", ["elu", "relu", "leaky_relu"])
@pytest.mark.parametrize("padding", ["zeros", "replicate"])
@pytest.mark.parametrize("shape", [(9, 8), (7, 6, 5)])
def test_what_is_predicted_is_the_noise(shape, padding, activation):
    network = DnCNN(len(shape), depth=3, width=4, activation=activation, padding=padding)
    field = torch.randn(2, len(shape), *shape)
    denoised = network(field, 0.7)
    assert denoised.shape == field.shape
    torch.testing.assert_close(field - denoised, network.noise(field))
    assert torch.equal(denoised, network(field, 3.0))  # blind to sigma


def test_the_last_layer_is_linear_and_zero_weights_are_the_identity():
    network = DnCNN(2, depth=4, width=8)
    last = network.layers[-1]
    assert isinstance(last, torch.nn.Conv2d)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    field = torch.randn(1, 2, 6, 7)
    assert torch.equal(network(field, 1.0), field)


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_receptive_field_is_two_depth_plus_one(depth):
    torch.manual_seed(0)
    network = DnCNN(2, depth=depth, width=6).double()
    field = torch.randn(1, 2, 25, 25, dtype=torch.float64)
    other = field.clone()
    other[0, 0, 12, 12] += 1
    changed = (network.noise(field) != network.noise(other)).any(1)[0].nonzero()
    assert changed.min() == 12 - depth
    assert changed.max() == 12 + depth


def test_without_bias_and_with_relu_the_denoiser_is_homogeneous():
    torch.manual_seed(1)
    network = DnCNN(3, depth=3, width=5, activation="relu", bias=False).double()
    field = torch.randn(1, 3, 5, 6, 7, dtype=torch.float64)
    torch.testing.assert_close(network(3.5 * field, 1.0), 3.5 * network(field, 1.0))


def test_replicate_padding_treats_a_translation_alike_everywhere_and_zeros_do_not():
    torch.manual_seed(2)
    for padding, even in (("replicate", True), ("zeros", False)):
        noise = DnCNN(2, depth=3, width=5, padding=padding).double().noise(torch.ones(1, 2, 9, 9).double())
        assert bool((noise - noise[..., 4:5, 4:5]).abs().max() < 1e-12) is even


@pytest.mark.parametrize("activation", ["elu", "leaky_relu"])
def test_gradients_pass_through_field_and_weights(activation):
    torch.manual_seed(3)
    network = DnCNN(2, depth=3, width=3, activation=activation).double()
    field = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: network(x, 1.0), field)
    network(field, 1.0).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ndim": 4}, "ndim is 2 or 3"),
        ({"depth": 2.5}, "whole numbers"),
        ({"depth": True}, "whole numbers"),
        ({"depth": 1}, "depth is 2 to 64"),
        ({"depth": 10**9}, "depth is 2 to 64"),
        ({"width": 0}, "width 1 to 1024"),
        ({"width": 10**9}, "width 1 to 1024"),
        ({"activation": "tanh"}, "activation is one of elu, relu, leaky_relu"),
        ({"padding": "circular"}, "padding is 'zeros' or 'replicate'"),
    ],
)
def test_arguments_without_a_network_are_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        DnCNN(**({"ndim": 2} | change))
