"""Weight files of the networks: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.baselines.pairs import SHAPES, pair, saved, stirred
from torch import nn

from pirate.baselines.gradirn import GraDIRN
from pirate.baselines.symnet import SYMNet
from pirate.baselines.trained import coarsened, load_network, scaled
from pirate.baselines.voxelmorph import VoxelMorph
from pirate.denoisers.dncnn import DnCNN
from pirate.denoisers.learned import load_denoiser
from pirate.errors import InputError
from pirate.io.weights import Card, save_weights
from pirate.ops.resample import half_shape, resize_field

KINDS = ["voxelmorph", "displacement", "symnet", "gradirn"]


def network_of(kind: str, ndim: int) -> nn.Module:
    torch.manual_seed(0)
    made = {
        "voxelmorph": lambda: VoxelMorph(ndim, "4,4,4", "4,4,4,4"),
        "displacement": lambda: VoxelMorph(ndim, "4,4,4", "4,4,4,4", squarings=0),
        "symnet": lambda: SYMNet(ndim, width=2, reach=20.0),
        "gradirn": lambda: GraDIRN(ndim, width=4, depth=3, levels=2),
    }[kind]()
    return stirred(made, 0.05)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_the_same_field(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    d = len(shape)
    network = network_of(kind, d)
    loaded = load_network(saved(tmp_path / "w.safetensors", network, d), d)
    fixed, moving = pair(shape)
    with torch.no_grad():
        expected = network.fields(scaled(fixed), scaled(moving))  # type: ignore[operator]
    found = loaded.fields(fixed, moving)
    assert found.field.shape == (1, d, *shape)
    assert float(found.field.abs().max()) > 1e-3
    torch.testing.assert_close(found.field, expected.field, rtol=0, atol=0)
    torch.testing.assert_close(loaded.field(fixed, moving), found.field, rtol=0, atol=0)
    assert (found.inverse is None) == (kind in ("displacement", "gradirn"))
    assert loaded.method == ("voxelmorph" if kind == "displacement" else kind)
    assert not any(p.requires_grad for p in loaded.network.parameters())
    if found.inverse is not None:
        torch.testing.assert_close(found.inverse, expected.inverse, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_of_the_intensities_does_not_matter(kind: str, tmp_path: Path) -> None:
    loaded = load_network(saved(tmp_path / "w.safetensors", network_of(kind, 2), 2), 2)
    fixed, moving = pair((30, 26))
    torch.testing.assert_close(
        loaded.field(1000 * fixed + 7, 0.01 * moving), loaded.field(fixed, moving), rtol=1e-3, atol=1e-3
    )


def test_a_network_of_half_the_resolution(tmp_path: Path) -> None:
    shape = (33, 42)
    network = network_of("symnet", 2)
    loaded = load_network(saved(tmp_path / "w.safetensors", network, 2, resolution=2), 2)
    images = pair(shape)
    found = loaded.fields(*images)
    coarse = [coarsened(scaled(image), 2) for image in images]
    assert coarse[0].shape[2:] == half_shape(shape)
    with torch.no_grad():
        expected = network.fields(*coarse)  # type: ignore[operator]
    torch.testing.assert_close(found.field, resize_field(expected.field, shape))
    assert found.inverse is not None
    torch.testing.assert_close(found.inverse, resize_field(expected.inverse, shape))


def test_a_card_of_another_kind_is_refused(tmp_path: Path) -> None:
    denoiser = DnCNN(2, depth=2, width=4)
    path = saved(tmp_path / "denoiser.safetensors", denoiser, 2)
    with pytest.raises(
        InputError, match="names the architecture 'dncnn'; expected voxelmorph or symnet or gradirn"
    ):
        load_network(path, 2)
    path = saved(tmp_path / "symnet.safetensors", network_of("symnet", 2), 2)
    with pytest.raises(InputError, match="names the architecture 'symnet'; expected voxelmorph"):
        load_network(path, 2, "voxelmorph")
    with pytest.raises(InputError, match="names the architecture 'symnet'"):
        load_denoiser(path, 2)
    with pytest.raises(InputError, match="aligns 2-D images"):
        load_network(path, 3)
    with pytest.raises(InputError, match="another sha256"):
        load_network(path, 2, sha256="0" * 64)
    with pytest.raises(InputError, match="resolution 3"):
        load_network(saved(tmp_path / "odd.safetensors", network_of("symnet", 2), 2, resolution=3), 2)


def test_weights_that_are_not_those_of_the_card_are_refused(tmp_path: Path) -> None:
    network = network_of("gradirn", 2)
    with pytest.raises(
        InputError, match=r"tensor blocks.0.layers.0.bias has shape \(4,\), in the network \(5,\)"
    ):
        load_network(saved(tmp_path / "a.safetensors", network, 2, width=5), 2)
    with pytest.raises(InputError, match="cannot be built"):
        load_network(saved(tmp_path / "b.safetensors", network, 2, width=100_000), 2)
    with pytest.raises(InputError, match="cannot be built"):
        load_network(saved(tmp_path / "c.safetensors", network, 2, colour="red"), 2)
    card = Card("test", network.architecture(), 2, 0, 0, 1, "none", False, "2026-01-01")  # type: ignore[operator]
    save_weights(tmp_path / "d.safetensors", network.state_dict() | {"more": torch.zeros(2)}, card)
    with pytest.raises(InputError, match=r"tensor more has shape \(2,\), in the network None"):
        load_network(tmp_path / "d.safetensors", 2)


def test_images_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    loaded = load_network(saved(tmp_path / "w.safetensors", network_of("gradirn", 2), 2), 2)
    fixed, moving = pair((20, 24))
    with pytest.raises(InputError, match="fixed: the shape is"):
        loaded.field(fixed[0], moving[0])
    with pytest.raises(InputError, match="moving: the shape is"):
        loaded.field(fixed, moving[:, :, :-1])
    with pytest.raises(InputError, match="moving: it is constant"):
        loaded.field(fixed, torch.ones_like(moving))
    with pytest.raises(InputError, match="fixed: it is constant or not finite"):
        loaded.field(fixed * float("nan"), moving)
