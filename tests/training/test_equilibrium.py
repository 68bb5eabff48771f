"""PIRATE+: fixed points of the registration's own operator, and training at them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from small_pairs import Shrinking, blob, pair, prior, settings
from torch import Tensor, nn

from pirate.denoisers.dncnn import DnCNN
from pirate.energies import GlobalCorrelation
from pirate.errors import InputError, UsageError
from pirate.registration.operator import Pirate
from pirate.solvers.solution import Status
from pirate.training.equilibrium import Equilibrium, EquilibriumTask, Regulariser, equilibrium_settings
from pirate.training.hypergradient import Backward
from pirate.training.loop import train
from pirate.training.objective import Objective
from pirate.training.plan import Plan, generator

SHAPES = [(12, 13), (8, 9, 8)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("learn", [(), ("alpha", "tau", "sigma")])
def test_the_differentiable_step_is_the_registrations(shape: tuple[int, ...], learn: tuple[str, ...]) -> None:
    fixed, moving = pair(shape)
    d = len(shape)
    torch.manual_seed(2)
    field = 0.4 * torch.randn(1, d, *[(n + 1) // 2 for n in shape], dtype=torch.float64)
    network, own = prior(d, learn), settings(d)
    operator = Pirate(GlobalCorrelation(fixed), moving, None, network.denoiser, own.alpha, 0.5, 0.8)
    expected, _ = operator(field.clone(), own.gamma)
    equilibrium = Equilibrium(network, fixed, moving, own)
    for curvature in (True, False):
        got = equilibrium.step(field.clone().requires_grad_(), curvature)
        torch.testing.assert_close(got.detach(), expected.detach(), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("resolution", [1, 2])
def test_the_solution_is_a_fixed_point(shape: tuple[int, ...], resolution: int) -> None:
    fixed, moving = pair(shape)
    own = settings(len(shape), resolution=resolution, tolerance=1e-4)
    equilibrium = Equilibrium(prior(len(shape)), fixed, moving, own)
    solution = equilibrium.solve()
    assert solution.status is Status.CONVERGED
    following = equilibrium.step(solution.field.clone().requires_grad_()).detach()
    assert float((following - solution.field).norm() / following.norm()) < 2e-4


def task(images: list[Tensor], **changes: object) -> EquilibriumTask:
    own = settings(2, tolerance=1e-4, iterations=80)
    held_out = [(pair((12, 12))[0][0], pair((12, 12))[1][0])]
    return EquilibriumTask(prior(2), images, held_out, own, **changes)  # type: ignore[arg-type]


def images(count: int) -> list[Tensor]:
    return [blob((12, 12), (0.5 * i, 0.4 * i))[0] for i in range(count)]


def test_an_example_is_a_pair_of_one_source_that_the_generator_decides() -> None:
    subjects = images(5)
    drawn = task(subjects, sources=["a", "b", "a", "b", "c"])
    seen = set()
    for step in range(40):
        example = drawn.example(generator(0, step))
        fixed, moving = (
            next(i for i, x in enumerate(subjects) if x is example[key]) for key in ("fixed", "moving")
        )
        seen.add((fixed, moving))
    assert seen == {(0, 2), (2, 0), (1, 3), (3, 1)}
    again = [drawn.example(generator(7, 1))["fixed"] for _ in range(2)]
    assert again[0] is again[1]


def test_the_value_is_the_loss_and_a_batch_is_the_mean_of_its_pairs() -> None:
    subjects = images(3)
    work = task(subjects, objective=Objective(window=5, margin=0.9))
    work.settings = settings(2, tolerance=1e-7)
    batches = [
        {
            "fixed": torch.stack([subjects[i] for i in first]),
            "moving": torch.stack([subjects[i] for i in second]),
        }
        for first, second in (([0], [1]), ([1], [2]), ([0, 1], [1, 2]))
    ]
    results = []
    for batch in batches:
        work.network.zero_grad()
        loss, log = work.loss(work.network, batch)
        loss.backward()
        gradient = nn.utils.parameters_to_vector([p.grad for p in work.network.parameters()])  # type: ignore[misc]
        results.append((loss.item(), gradient))
        assert loss.item() == pytest.approx(log["similarity"] + 5 * log["smoothness"] + log["folding"])
        assert log["nfe"] >= 2
        assert log["pull"] > 0
    assert results[2][0] == pytest.approx((results[0][0] + results[1][0]) / 2, rel=1e-5)
    torch.testing.assert_close(results[2][1], (results[0][1] + results[1][1]) / 2, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("backward", [Backward("jfb"), Backward("k-step"), Backward("exact")])
def test_training_lowers_the_loss_of_held_out_pairs(tmp_path: Path, backward: Backward) -> None:
    work = task(images(4), objective=Objective(window=5, margin=0.9), backward=backward)
    plan = Plan(steps=6, batch=1, learning_rate=3e-3, schedule="constant", validate_every=6)
    trained = train(work, plan, tmp_path)
    first, last = trained.history[0], trained.history[-1]
    assert last["validation_loss"] < first["validation_loss"]
    assert {"gradient_norm", "nfe", "residual", "adjoint", "tau"} <= set(last)
    assert {"validation_folds_percent", "validation_nfe", "validation_similarity"} <= set(last)
    assert ("products" in last) == (backward.mode == "exact")


def test_a_volume_goes_the_same_way() -> None:
    fixed, moving = pair((8, 9, 8))
    own = settings(3, tolerance=1e-5)
    work = EquilibriumTask(prior(3), [fixed[0], moving[0]], [(fixed[0], moving[0])], own)
    loss, _ = work.loss(work.network, {"fixed": fixed, "moving": moving})
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in work.network.parameters())
    assert work.validate(work.network)["loss"] == pytest.approx(loss.item(), rel=1e-6)


class Growing(nn.Module):
    """``D(z) = factor z`` with a factor that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((1, 1, 1, 1), 1.5, dtype=torch.float64))

    def forward(self, field: Tensor, sigma: float | Tensor) -> Tensor:
        return self.factor * field


def test_a_denoiser_that_expands_at_the_fixed_point_is_penalised() -> None:
    fixed, moving = pair((10, 11))
    own = settings(2, tolerance=1e-5)
    losses, slopes = [], []
    for weight in (0.0, 2.0):
        network = Regulariser(Growing(), own).double()
        work = EquilibriumTask(
            network,
            [fixed[0], moving[0]],
            [(fixed[0], moving[0])],
            own,
            objective=Objective(expansion=weight),
        )
        loss, log = work.loss(network, {"fixed": fixed, "moving": moving})
        loss.backward()
        losses.append(loss.item())
        slopes.append(float(network.denoiser.factor.grad))  # type: ignore[union-attr, arg-type]
        assert ("growth" in log) == (weight > 0)
        assert work.validate(network)["growth"] == pytest.approx(1.5, rel=1e-6)
    assert losses[1] - losses[0] == pytest.approx(2 * 0.5**2, rel=1e-6)
    assert slopes[1] - slopes[0] == pytest.approx(2 * 2 * 0.5, rel=1e-6)


def test_a_fixed_point_that_was_not_found_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    work, subjects = task(images(2)), images(2)
    lost = dataclasses.replace(
        Equilibrium(work.network, subjects[0][None], subjects[1][None], work.settings).solve(),
        status=Status.DIVERGED,
    )
    monkeypatch.setattr(Equilibrium, "solve", lambda self: lost)
    loss, log = work.loss(work.network, {"fixed": subjects[0][None], "moving": subjects[1][None]})
    assert log["diverged"] == 1
    loss.backward()
    assert not any(bool(p.grad.any()) for p in work.network.parameters() if p.grad is not None)


def test_a_learned_alpha_shortens_the_step_but_keeps_it_stable() -> None:
    fixed, moving = pair((12, 12))
    network = Regulariser(Shrinking(2), settings(2), ("alpha",)).double()
    with torch.no_grad():
        network.get_parameter("log_alpha").fill_(3.0)
    equilibrium = Equilibrium(network, fixed, moving, settings(2))
    assert equilibrium.gamma * network.scalars()["alpha"] * 8 < 2
    assert equilibrium.solve().status is not Status.DIVERGED


def test_scalars_are_learned_only_where_they_can_be() -> None:
    assert set(dict(prior(2, ("tau",)).named_parameters())) > {"log_tau"}
    assert not {"log_tau", "tau"} & set(prior(2).state_dict())
    learned = prior(2, ("sigma",))
    learned(torch.randn(1, 2, 8, 8, dtype=torch.float64)).sum().backward()
    assert float(learned.get_parameter("log_sigma").grad) != 0
    assert learned.scalars()["sigma"] == pytest.approx(0.8)
    with pytest.raises(UsageError, match="does not depend on sigma"):
        Regulariser(DnCNN(2, depth=2, width=2), settings(2), ("sigma",))
    with pytest.raises(UsageError, match="'gamma' cannot be learned"):
        Regulariser(DnCNN(2, depth=2, width=2), settings(2), ("gamma",))
    with pytest.raises(UsageError, match="alpha starts at 0"):
        Regulariser(DnCNN(2, depth=2, width=2), settings(2, alpha=0.0), ("alpha",))


def test_settings_and_subjects_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="additive scheme by Anderson"):
        equilibrium_settings(2, {"solver": "fixed-point"})
    with pytest.raises(UsageError, match="diverges in 2-D"):
        equilibrium_settings(2, {"alpha": 1.0})
    with pytest.raises(InputError, match="1 training images and 1 pairs"):
        task(images(1))
    with pytest.raises(InputError, match="two or more training images of one source"):
        task(images(2), sources=["a", "b"])
