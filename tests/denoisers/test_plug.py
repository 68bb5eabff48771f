import math
import sys
import types

import pytest
import torch

from pirate.denoisers import (
    Conditional,
    DnCNN,
    Gaussian,
    GradientStep,
    Identity,
    Learned,
    LearnedEnergy,
    TotalVariation,
    call,
    load,
    load_denoiser,
)  # fmt: skip
from pirate.denoisers.corrector import Corrector
from pirate.errors import InputError, UsageError
from pirate.io.weights import Card, save_weights

FIELD = torch.randn(1, 2, 6, 7, generator=torch.Generator().manual_seed(0))


def card_for(network):
    return Card(
        task="field denoising",
        architecture=network.architecture(),
        ndim=network.ndim,
        sigma_min=0.2,
        sigma_max=0.8,
        resolution=1,
        training_data="none",
        labels_used=False,
        date="2025-01-31",
    )


@pytest.fixture
def module():
    """A module of the user's own, importable as `own_priors`."""
    own = types.ModuleType("own_priors")
    sys.modules["own_priors"] = own
    yield own
    del sys.modules["own_priors"]


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize(
    ("prior", "kind"), [("none", Identity), ("gaussian", Gaussian), ("tv", TotalVariation)]
)
def test_the_named_priors(prior, kind, ndim):
    assert isinstance(load(prior, ndim, "cpu"), kind)


def test_a_loaded_prior_carries_nothing_over_from_its_probe():
    loaded = load("tv", 2)
    assert torch.equal(loaded(FIELD, 0.3), TotalVariation()(FIELD, 0.3))


@pytest.mark.parametrize("prior", ["", "TV", "dncnn", "weights.pt", "tv "])
def test_an_unknown_name_lists_what_is_possible(prior):
    with pytest.raises(
        UsageError, match=r"none, gaussian, tv, pirate, pirate-plus, anatomy, .*, a weight file FILE"
    ):
        load(prior, 2)


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("padding", ["zeros", "replicate"])
def test_a_weight_file_gives_the_network_back(tmp_path, ndim, padding):
    network = DnCNN(ndim, depth=3, width=4, activation="leaky_relu", bias=False, padding=padding)
    path = tmp_path / "prior.safetensors"
    save_weights(path, network.state_dict(), card_for(network))
    learned = load(str(path), ndim, "cpu")
    field = torch.randn(1, ndim, *(6, 5, 4)[:ndim])
    assert isinstance(learned, Learned)
    torch.testing.assert_close(learned(field, 0.5), network(field, 0.5))
    assert not learned.network.training
    assert not any(p.requires_grad for p in learned.network.parameters())
    assert not any(p.is_meta for p in learned.network.parameters())


def test_a_learned_prior_keeps_the_type_of_the_field_and_knows_its_range(tmp_path):
    network = DnCNN(2, depth=2, width=3)
    save_weights(tmp_path / "a.safetensors", network.state_dict(), card_for(network))
    learned = load_denoiser(tmp_path / "a.safetensors", 2)
    assert call(learned, FIELD.double(), 0.5).dtype == torch.float64
    assert learned.covers(0.2)
    assert learned.covers(0.8)
    assert not learned.covers(0.1)
    assert not learned.covers(0.9)


def test_a_weight_file_in_another_dimension_is_refused(tmp_path):
    network = DnCNN(2, depth=2, width=3)
    save_weights(tmp_path / "a.safetensors", network.state_dict(), card_for(network))
    with pytest.raises(InputError, match="denoises 2-D fields; expected one for 3-D fields"):
        load(str(tmp_path / "a.safetensors"), 3)


def test_weights_of_another_resolution_are_refused(tmp_path):
    network = DnCNN(2, depth=2, width=3)
    path = tmp_path / "a.safetensors"
    save_weights(path, network.state_dict(), card_for(network))  # resolution 1
    assert load(str(path), 2, resolution=1)
    assert load(str(path), 2, resolution=1.3)
    with pytest.raises(InputError, match="trained on grids of resolution 1; expected 2, of the grid"):
        load(str(path), 2, resolution=2)
    with pytest.raises(InputError, match=r"resolution 1; expected 0\.5"):
        load_denoiser(path, 2, resolution=0.5)


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_conditional_network_comes_back(tmp_path, ndim):
    network = Conditional(ndim, width=4, scales=2)
    path = tmp_path / "a.safetensors"
    save_weights(path, network.state_dict(), card_for(network))
    field = torch.randn(1, ndim, *(6, 5, 4)[:ndim])
    torch.testing.assert_close(load(str(path), ndim)(field, 0.5), network(field, 0.5))


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_gradient_step_network_comes_back_with_its_energy(tmp_path, ndim):
    network = GradientStep(ndim, width=4, scales=2)
    path = tmp_path / "a.safetensors"
    save_weights(path, network.state_dict(), card_for(network))
    learned = load(str(path), ndim)
    field = torch.randn(1, ndim, *(6, 5, 4)[:ndim])
    assert isinstance(learned, LearnedEnergy)
    torch.testing.assert_close(learned(field, 0.5), network(field, 0.5).detach())
    torch.testing.assert_close(learned.energy(field, 0.5), network.energy(field, 0.5).detach())
    assert not learned.energy(field, 0.5).requires_grad


def test_a_network_that_wants_images_gets_them_from_its_file(tmp_path):
    network = Corrector(2, width=4, depth=1)
    with torch.no_grad():
        network.outlet.weight.normal_(std=0.1)
    path = tmp_path / "a.safetensors"
    save_weights(path, network.state_dict(), card_for(network))
    learned = load(str(path), 2)
    fixed, warped = torch.rand(2, 1, 1, 6, 7)
    assert learned.wants_images
    found = call(learned, FIELD.double(), 0.5, fixed.double(), warped.double())
    torch.testing.assert_close(found.float(), network(FIELD, 0.5, fixed, warped).detach())


def test_a_function_of_the_user(module):
    module.halve = lambda field, sigma: field / 2
    assert torch.equal(call(load("own_priors:halve", 3), FIELD, 1.0), FIELD / 2)


def test_a_prior_that_wants_images_gets_them(module):
    def guided(field, sigma, fixed, warped):
        return field * fixed + sigma * warped

    guided.wants_images = True
    module.guided = guided
    denoiser = load("own_priors:guided", 2)
    fixed, warped = torch.rand(1, 1, 6, 7), torch.rand(1, 1, 6, 7)
    torch.testing.assert_close(call(denoiser, FIELD, 0.5, fixed, warped), FIELD * fixed + 0.5 * warped)
    with pytest.raises(UsageError, match="own_priors:guided wants the fixed and the warped image"):
        call(denoiser, FIELD, 0.5, name="own_priors:guided")


def test_a_prior_that_does_not_want_images_is_not_given_them():
    assert torch.equal(call(lambda field, sigma: field, FIELD, 1.0, FIELD, FIELD), FIELD)


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (lambda field, sigma: None, "returned NoneType, not a tensor"),
        (lambda field, sigma: field[:, :1], "returned .1, 1, "),
        (lambda field, sigma: field.transpose(2, 3), "returned .1, 2, "),
        (lambda field, sigma: field.double(), "torch.float64"),
        (lambda field, sigma: field.to("meta"), "on meta"),
        (lambda field, sigma: field / 0, "returned NaN or Inf"),
        (lambda field, sigma: field * math.nan, "returned NaN or Inf"),
        (lambda field: field, "failed .TypeError"),
        (lambda field, sigma: 1 / 0, "failed .ZeroDivisionError"),
        (lambda field, sigma: field.mul_(0.5), "changed its argument in place"),
        (5, "is not callable"),
    ],
)
def test_a_function_that_does_not_keep_the_contract_is_refused_by_name(module, answer, finding):
    module.broken = answer
    with pytest.raises(InputError, match=finding) as caught:
        load("own_priors:broken", 2)
    assert str(caught.value).startswith("own_priors:broken: ")
    assert "; expected " in str(caught.value)


@pytest.mark.parametrize(
    "prior",
    ["own_priors:nothing", "no_such_package.at_all:f", ":f", "own_priors:", ".relative:f", "own priors:f"],
)
def test_a_function_that_cannot_be_imported(module, prior):
    with pytest.raises(InputError, match="cannot be imported"):
        load(prior, 2)


def test_a_module_that_fails_while_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "fails_on_import.py").write_text("raise RuntimeError('no\\nlicence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"RuntimeError: no\\nlicence"):
        load("fails_on_import:f", 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_voxel_that_is_not_finite_is_noticed(value):
    def spoil(field, sigma):
        field = field.clone()
        field[0, 1, 3, 3] = value
        return field

    with pytest.raises(InputError, match="the prior: the prior returned NaN or Inf"):
        call(spoil, FIELD, 1.0)


def test_large_finite_values_are_not_mistaken_for_infinity():
    huge = torch.full((1, 2, 50, 50), 3e38)
    assert torch.equal(call(Identity(), huge, 1.0), huge)


def test_gradients_pass_through_call():
    field = FIELD.clone().requires_grad_()
    call(Gaussian(), field, 1.0).sum().backward()
    torch.testing.assert_close(field.grad.sum(), torch.tensor(float(FIELD.numel())))
