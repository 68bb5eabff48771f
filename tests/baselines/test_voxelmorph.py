"""VoxelMorph: the authors' size, folding, inverse, loss."""

from __future__ import annotations

import pytest
import torch
from tests.baselines.pairs import SHAPES, pair, smooth_noise, stirred
from torch import nn

from pirate.baselines.losses import mean_square_slope
from pirate.baselines.voxelmorph import VoxelMorph, VoxelMorphLoss
from pirate.energies.local import LocalCorrelation
from pirate.errors import UsageError
from pirate.ops.compose import compose
from pirate.ops.jacobian import folding_ratio
from pirate.ops.resample import half_shape


def test_the_network_has_the_authors_size() -> None:
    def count(network: nn.Module) -> int:
        return sum(p.numel() for p in network.parameters())

    assert count(VoxelMorph(3)) == 327_331
    first = VoxelMorph(3, decoder="32,32,32,32,8,8")
    assert [layer.weight.shape[0] for layer in first.up] == [32, 32, 32, 32, 8, 8]  # type: ignore[union-attr, index]
    assert first.head.weight.shape[1] == 8  # type: ignore[union-attr, index]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("squarings", [0, 7])
def test_an_untrained_network_leaves_the_image_where_it_is(shape: tuple[int, ...], squarings: int) -> None:
    fixed, moving = pair(shape)
    with torch.no_grad():
        found = VoxelMorph(len(shape), squarings=squarings).fields(fixed, moving)
    assert found.field.shape == (1, len(shape), *shape)
    assert float(found.field.abs().max()) < 1e-3


@pytest.mark.parametrize("shape", [(48, 44), (24, 22, 20)])
def test_the_exponential_folds_less_than_the_displacement(shape: tuple[int, ...]) -> None:
    """Equal weights, so equal outputs of the network, of an amplitude at which displacements fold."""
    torch.manual_seed(0)
    d = len(shape)
    plain = stirred(VoxelMorph(d, "4,8,8,8", "8,8,8,8,8,4", squarings=0), 0.1)
    smooth = VoxelMorph(d, "4,8,8,8", "8,8,8,8,8,4", squarings=7)
    smooth.load_state_dict(plain.state_dict())
    random = torch.Generator().manual_seed(1)
    fixed, moving = (torch.rand(1, 1, *shape, generator=random) for _ in range(2))
    with torch.no_grad():
        scale = 8 / float(plain(fixed, moving).abs().max())
        for network in (plain, smooth):
            network.head.weight.mul_(scale)  # type: ignore[union-attr, operator]
            network.head.bias.mul_(scale)  # type: ignore[union-attr, operator]
        displaced, flowed = (network.fields(fixed, moving) for network in (plain, smooth))
    assert displaced.inverse is None
    assert float(flowed.field.abs().max()) > 1
    assert float(folding_ratio(displaced.field)) > 0.05
    assert float(folding_ratio(flowed.field)) < 0.1 * float(folding_ratio(displaced.field))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_inverse_is_one(shape: tuple[int, ...]) -> None:
    """A smooth velocity of two voxels at half resolution: there and back within a tenth of a voxel inside."""

    class Given(VoxelMorph):
        def forward(self, fixed: torch.Tensor, moving: torch.Tensor) -> torch.Tensor:
            return smooth_noise(half_shape(shape), 2.0)

    there, back = Given(len(shape)).fields(*pair(shape))
    assert back is not None
    inside = (slice(None), slice(None), *[slice(4, n - 4) for n in shape])
    assert float(there.abs().max()) > 2
    assert float(compose(there, back)[inside].abs().max()) < 0.1


def test_the_loss_by_hand() -> None:
    """A velocity that grows by 0.1 a voxel along axis 0 alone, in one of two components: m = 0.1^2 / 4."""
    shape = (32, 28)
    ramp = torch.zeros(1, 2, 16, 14)
    ramp[:, 0] = 0.1 * torch.arange(16)[:, None]
    assert float(mean_square_slope(ramp)) == pytest.approx(0.01 / 4)

    class Given(VoxelMorph):
        def forward(self, fixed: torch.Tensor, moving: torch.Tensor) -> torch.Tensor:
            return ramp

    fixed, moving = pair(shape)
    network = Given(2)
    field = network.fields(fixed, moving).field
    g = float(LocalCorrelation(fixed, window=9).value(moving, field))
    scored = VoxelMorphLoss(smoothness=3.0)(network, fixed, moving)
    assert scored.terms["similarity"] == pytest.approx(g, rel=1e-5)
    assert float(scored.value) == pytest.approx(g + 3 * 2 * 0.01 / 4, rel=1e-5)
    torch.testing.assert_close(scored.field, field)
    still = VoxelMorphLoss("mse", smoothness=0.01)(VoxelMorph(2, squarings=0), fixed, moving)
    assert float(still.value.detach()) == pytest.approx(float((fixed - moving).square().mean()), rel=1e-3)


@pytest.mark.parametrize("squarings", [0, 3])
def test_the_gradient_is_that_of_the_loss(squarings: int) -> None:
    network = stirred(VoxelMorph(2, "4,4", "4,4,4", squarings), 0.02)
    loss, images = VoxelMorphLoss(window=5), pair((20, 24), 2)
    bias = network.head.bias
    (slope,) = torch.autograd.grad(loss(network, *images).value, bias)  # type: ignore[arg-type]
    values = []
    for h in (-0.01, 0.01):
        with torch.no_grad():
            bias.add_(h * slope / slope.norm())  # type: ignore[operator, union-attr]
            values.append(float(loss(network, *images).value))
            bias.sub_(h * slope / slope.norm())  # type: ignore[operator, union-attr]
    assert (values[1] - values[0]) / 0.02 == pytest.approx(float(slope.norm()), rel=0.05)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ndim": 4}, {"ndim": 2, "squarings": -1}, {"ndim": 2, "encoder": "16;32"}, {"ndim": 2, "encoder": "512"},
        {"ndim": 2, "encoder": "8,8,8", "decoder": "8,8"}, {"ndim": 2, "decoder": 8}, {"ndim": 2.0},
    ],
)  # fmt: skip
def test_networks_that_cannot_be_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not "):
        VoxelMorph(**arguments)  # type: ignore[arg-type]


def test_an_unknown_similarity_is_refused() -> None:
    with pytest.raises(UsageError, match="expected ncc or mse"):
        VoxelMorphLoss("mi")  # type: ignore[arg-type]
