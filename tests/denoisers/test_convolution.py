"""Convolutions by name: the numbers of torch's own, and their derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pirate.denoisers.convolution import CONVOLUTIONS, by_name, convolve, interleaved


def volume(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("stride", "padding", "side"), [(1, 0, 3), (1, 1, 3), (2, 1, 3), (2, 0, 2), (1, 2, 5)]
)
@pytest.mark.parametrize("ndim", [2, 3])
def test_it_is_the_convolution_of_torch(ndim, stride, padding, side):
    x, weight, bias = volume(2, 3, *[9] * ndim), volume(4, 3, *[side] * ndim, seed=1), volume(4, seed=2)
    plain = F.conv2d if ndim == 2 else F.conv3d
    expected = plain(x.double(), weight.double(), bias.double(), stride, padding)
    assert torch.allclose(convolve(x, weight, bias, stride, padding).double(), expected, atol=1e-4)
    mixed = convolve(interleaved(x), weight, bias, stride, padding)
    assert torch.allclose(mixed.double(), expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
def test_the_layer_is_the_layer_of_torch(mode):
    torch.manual_seed(0)
    plain = nn.Conv3d(2, 3, 3, padding=1, padding_mode=mode)
    ours = CONVOLUTIONS[3](2, 3, 3, padding=1, padding_mode=mode)
    ours.load_state_dict(plain.state_dict(), strict=True)
    x = volume(1, 2, 6, 7, 8)
    assert torch.allclose(ours(x), plain(x), atol=1e-5)
    assert torch.allclose(ours.double()(x.double()), plain.double()(x.double()), atol=1e-12)


def test_first_and_second_derivatives_are_those_of_torch():
    found = []
    for convolution in (convolve, F.conv3d):
        x, weight = volume(1, 2, 5, 5, 5).requires_grad_(), volume(3, 2, 3, 3, 3, seed=1).requires_grad_()
        (slope,) = torch.autograd.grad(convolution(x, weight).square().sum(), x, create_graph=True)
        found.append((slope, *torch.autograd.grad(slope.square().sum(), (x, weight))))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-2)


def test_double_precision_stays_with_torch():
    x, weight = volume(1, 1, 3, 3, 3), volume(1, 1, 3, 3, 3)
    assert not by_name(x.double(), weight.double())
    assert by_name(x, weight) is torch.backends.mkldnn.is_available()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not by_name(x, weight)


@pytest.mark.parametrize(
    "arguments",
    [{"stride": (1, 2, 2)}, {"padding": (0, 1, 1)}, {"padding": "same"}, {"groups": 2}, {"dilation": 2}],
)
def test_what_it_cannot_do_is_refused(arguments):
    layer = CONVOLUTIONS[3](2, 2, 3, **arguments)
    with pytest.raises(ValueError, match="this convolution has one"):
        layer(volume(1, 2, 6, 6, 6))
