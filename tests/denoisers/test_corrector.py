"""Laws of the anatomy-aware prior's network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pirate.denoisers.corrector import Corrector
from pirate.denoisers.plug import call
from pirate.denoisers.unet import depth_to_space, space_to_depth
from pirate.ops.compose import compose
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity, warp
from pirate.training.warping_augment import flip_field

SHAPES = [(22, 19), (13, 10, 11)]


def awake(ndim: int, size: float = 0.3) -> Corrector:
    """A corrector whose last layer is not zero."""
    torch.manual_seed(ndim)
    network = Corrector(ndim, width=4, depth=2)
    torch.nn.init.normal_(network.outlet.weight, std=size)
    return network.eval().requires_grad_(False)


def scene(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """A smooth field and two images."""
    generator = torch.Generator().manual_seed(3)
    field = gaussian(torch.randn(1, len(shape), *shape, generator=generator), 2.0) * 3
    images = torch.rand(2, 1, 1, *shape, generator=generator)
    return field, images[0], images[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_starts_as_the_identity(shape: tuple[int, ...]) -> None:
    field, fixed, warped = scene(shape)
    with torch.no_grad():
        found = Corrector(len(shape), width=4, depth=2)(field, 0.5, fixed, warped)
    torch.testing.assert_close(found, field, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_correction_is_composed(shape: tuple[int, ...]) -> None:
    """D(u) maps x to (id + u)(x - r(x)): warping by D(u) is warping by u and then by -r."""
    field, fixed, warped = scene(shape)
    network = awake(len(shape))
    r = network.correction(field, fixed, warped)
    found = network(field, 0.0, fixed, warped)
    assert float(r.abs().max()) > 0.05
    where = identity(field)
    expected = where - r + warp(field, -r, padding="border")
    torch.testing.assert_close(where + found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found, compose(field, -r), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_correction_is_smooth(shape: tuple[int, ...]) -> None:
    """G is inside: without it the correction of the same weights is rougher."""
    field, fixed, warped = scene(shape)
    network = awake(len(shape))
    smooth = network.correction(field, fixed, warped)
    network.smoothing = 0.0
    raw = network.correction(field, fixed, warped)
    torch.testing.assert_close(smooth, gaussian(raw, 1.0), rtol=0, atol=1e-6)
    assert float(smooth.diff(dim=2).square().mean()) < 0.3 * float(raw.diff(dim=2).square().mean())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_translation_of_the_field_changes_no_correction(shape: tuple[int, ...]) -> None:
    field, fixed, warped = scene(shape)
    network = awake(len(shape))
    found = network.correction(field + 7.0, fixed, warped)
    torch.testing.assert_close(found, network.correction(field, fixed, warped), rtol=0, atol=1e-4)


@pytest.mark.parametrize("ndim", [2, 3])
def test_depth_and_space_are_inverse(ndim: int) -> None:
    x = torch.randn(2, 3, *(8, 6, 4)[:ndim])
    deep = space_to_depth(x)
    assert deep.shape == (2, 3 * 2**ndim, *(4, 3, 2)[:ndim])
    assert torch.equal(depth_to_space(deep, x.shape[1]), x)
    if ndim == 2:
        assert torch.equal(deep, torch.nn.functional.pixel_unshuffle(x, 2))


def test_every_input_counts() -> None:
    field, fixed, warped = scene((22, 19))
    network = awake(2)
    base = network.correction(field, fixed, warped)
    for changed in ((field * 2, fixed, warped), (field, fixed * 2, warped), (field, fixed, warped * 2)):
        assert float((network.correction(*changed) - base).abs().max()) > 1e-3


def test_what_the_plug_asks_for() -> None:
    field, fixed, warped = scene((13, 10, 11))
    network = awake(3)
    assert network.wants_images
    assert torch.equal(call(network, field, 0.5, fixed, warped), network(field, 0.5, fixed, warped))


def test_the_card_builds_the_same_network() -> None:
    network = Corrector(3, width=6, depth=2, smoothing=0.5, spacing=2.0)
    arguments = network.architecture()
    assert arguments.pop("kind") == "corrector"
    again = Corrector(3, **arguments)  # type: ignore[arg-type]
    assert again.architecture() == network.architecture()
    again.load_state_dict(network.state_dict())


@pytest.mark.parametrize(
    "arguments",
    [{"ndim": 4}, {"ndim": 2, "width": True}, {"ndim": 2, "width": 1000}, {"ndim": 3, "depth": 0},
     {"ndim": 2, "smoothing": -1.0}, {"ndim": 2, "spacing": float("nan")}],
)  # fmt: skip
def test_impossible_networks_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="not"):
        Corrector(**arguments)


def test_mirrored_inputs_give_a_field_of_the_same_grid() -> None:
    """The input of a mirrored pair is the mirrored input: a network that knows mirrors could not tell."""
    field, moving, _ = scene((16, 16))
    direct = warp(moving, field).flip(2)
    mirrored = warp(moving.flip(2), flip_field(field, 0))
    torch.testing.assert_close(mirrored, direct, rtol=0, atol=1e-5)
