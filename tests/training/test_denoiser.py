import math

import pytest
import torch

from pirate.denoisers import Conditional, Identity
from pirate.denoisers.noise import Noise
from pirate.training.denoiser import NETWORKS, PAPER_SIGMAS, PRESETS, Denoising, best_of, share_left
from pirate.training.loop import train
from pirate.training.plan import Plan, generator


class Nothing(torch.nn.Module):
    """Takes nothing off."""

    def forward(self, field, sigma):
        return field


def waves(count=6, shape=(24, 20)):
    grid = torch.meshgrid(*[torch.linspace(0, 2 * math.pi, n) for n in shape], indexing="ij")
    return [torch.stack([(g + k).sin() * (1 + k) for g in grid]) for k in range(count)]


def task(network=None, noise=None, patch=16, symmetries=True, shape=(24, 20)):
    fields = waves(shape=shape)
    return Denoising(
        network or Nothing(), fields[:4], fields[4:], noise or Noise(0.1, 1.0), patch, symmetries
    )


@pytest.mark.parametrize("shape", [(24, 20), (12, 10, 9)])
def test_an_example_is_a_patch_with_noise_of_its_level(shape):
    given = task(shape=shape, noise=Noise(0.3, 0.4))
    for seed in range(5):
        example = given.example(generator(seed))
        edge = min(16, *shape)
        assert example["clean"].shape == example["noisy"].shape == (len(shape), *[edge] * len(shape))
        assert 0.3 <= example["sigma"] <= 0.4
        noise = example["noisy"] - example["clean"]
        assert float(noise.std()) == pytest.approx(float(example["sigma"]), rel=0.15)


def test_calm_examples_have_less_noise_than_they_say_and_count_by_all_of_it():
    given = task(noise=Noise(0.5, 0.5, calm=0.5))
    examples = [given.example(generator(seed)) for seed in range(200)]
    left = torch.stack([(e["noisy"] - e["clean"]).square().mean() / e["power"] for e in examples]).sqrt()
    calm = left < 0.999
    assert 70 < int(calm.sum()) < 130
    assert float(left[~calm].min()) == pytest.approx(1, rel=1e-4)
    assert float(left[calm].min()) < 0.1
    assert all(float(e["sigma"]) == 0.5 for e in examples)
    batch = {k: torch.stack([e[k] for e in examples]) for k in examples[0]}
    assert float(given.loss(Nothing(), batch)[0]) == pytest.approx(float(left.square().mean()), rel=1e-4)


def test_an_example_depends_on_its_generator_alone():
    given = task()
    first, again, other = (given.example(generator(s)) for s in (1, 1, 2))
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["noisy"], other["noisy"])


def test_without_symmetries_the_patches_are_parts_of_the_fields():
    given = task(symmetries=False)
    patch = given.example(generator(3))["clean"]
    found = any(
        torch.equal(field[:, i : i + 16, j : j + 16], patch)
        for field in given.training
        for i in range(9)
        for j in range(5)
    )
    assert found


def test_the_loss_is_the_share_of_the_noise_that_is_left():
    given = task()
    batch = [given.example(generator(s)) for s in range(4)]
    batch = {k: torch.stack([e[k] for e in batch]) for k in batch[0]}
    assert float(given.loss(Nothing(), batch)[0]) == pytest.approx(1)

    class Half(torch.nn.Module):
        def forward(self, field, sigma):
            return batch["clean"] + 0.5 * (field - batch["clean"])

    assert float(given.loss(Half(), batch)[0]) == pytest.approx(0.25, rel=1e-5)


def test_validation_is_at_fixed_levels_on_the_held_out_fields():
    found = task().validate(Nothing())
    assert found == pytest.approx({"loss": 1, "left_0.1": 1, "left_0.5": 1, "left_1": 1}, rel=1e-4)
    assert task(noise=Noise(3.0, 3.0)).validate(Nothing()) == pytest.approx(
        {"loss": 1, "left_3": 1}, rel=1e-4
    )
    held = waves()[4:]
    exact = {float(f[0, 0, 0]): f for f in held}
    seen = []

    class Oracle(torch.nn.Module):
        def forward(self, field, sigma):
            seen.append(sigma)
            clean = min(exact.values(), key=lambda f: float((f - field[0]).square().sum()))
            return clean[None]

    assert share_left(Oracle(), held, Noise(0.5, 0.5)) < 1e-10
    assert seen == [0.5, 0.5]
    assert share_left(Nothing(), held, Noise(0.5, 0.5)) == share_left(Nothing(), held, Noise(0.5, 0.5))


@pytest.mark.parametrize("kind", ["conditional", "gradient-step"])
def test_a_network_learns_and_the_loop_resumes_it(tmp_path, kind):
    torch.manual_seed(0)
    network = NETWORKS[kind](2) if kind == "gradient-step" else Conditional(2, width=8, scales=2)
    plan = Plan(steps=60, batch=4, learning_rate=5e-3, validate_every=30)
    trained = train(task(network, Noise(0.2, 0.8)), plan, tmp_path)
    assert trained.history[-1]["validation_loss"] < 0.75 * trained.history[0]["validation_loss"]
    again = train(task(network, Noise(0.2, 0.8)), plan, tmp_path)
    assert again.step == 60


def test_the_paper_tries_ten_levels_and_keeps_the_best():
    assert tuple(range(1, 11)) == PAPER_SIGMAS
    fitted = []

    def fit(sigma):
        fitted.append(sigma)
        return Identity()

    best, network, scores = best_of(PAPER_SIGMAS, fit, lambda network, sigma: -((sigma - 4) ** 2))
    assert best == 4
    assert fitted == list(PAPER_SIGMAS)
    assert scores[3.0] == -1
    assert isinstance(network, Identity)
    with pytest.raises(ValueError, match="no noise level"):
        best_of([], fit, lambda network, sigma: 0.0)


def test_the_presets_are_what_their_names_say():
    paper, released = PRESETS["paper"], PRESETS["released"]
    assert NETWORKS[paper.network](2).depth == 17
    assert NETWORKS[released.network](3).activation == "elu"
    for preset in (paper, released):
        assert preset.plan.learning_rate == 1e-4
        assert preset.plan.batch == 1
        assert preset.noise.width_max == 0
        assert not preset.symmetries
    assert PRESETS["small"].noise.width_max > 0
    assert hasattr(NETWORKS[PRESETS["gradient-step"].network](2), "energy")


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match="fields to learn from"):
        Denoising(Nothing(), [], waves(), Noise(1, 1), 16, True)
    with pytest.raises(ValueError, match="fields to learn from"):
        Denoising(Nothing(), waves(), [], Noise(1, 1), 16, True)
    with pytest.raises(ValueError, match="6 voxels along an axis and need 8"):
        Denoising(Nothing(), waves(shape=(20, 6)), waves(), Noise(1, 1), 16, True)
