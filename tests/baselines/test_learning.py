"""Training of the networks on generated pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs, labels_of
from torch import nn

from pirate.baselines.gradirn import GraDIRN, GraDIRNLoss
from pirate.baselines.learning import (
    METHODS,
    SCHEDULES,
    Learner,
    Loss,
    PairTask,
    Posed,
    learner,
    plan,
    posed,
    untrained,
)
from pirate.baselines.symnet import SYMNet, SYMNetLoss
from pirate.baselines.voxelmorph import VoxelMorph, VoxelMorphLoss
from pirate.errors import InputError, UsageError
from pirate.training.loop import Plan, train
from pirate.training.plan import generator

SHAPE = (28, 26)


def person(shift: tuple[float, ...], name: str, source: str = "one", shape: tuple[int, ...] = SHAPE) -> Posed:
    image = blobs(shape, 1, shift)
    return Posed(
        name, source, torch.from_numpy(image)[None], torch.from_numpy(labels_of(image)), (1.0,) * len(shape)
    )


def people() -> list[Learner]:
    return [learner(person((0.9 * (k - 2), 0.6 * k), f"s{k}")) for k in range(5)]


def small(method: str) -> tuple[nn.Module, Loss]:
    torch.manual_seed(0)
    return {
        "voxelmorph": (VoxelMorph(2, "8,8,8", "8,8,8,8"), VoxelMorphLoss(window=7, smoothness=0.1)),
        "symnet": (SYMNet(2, width=4), SYMNetLoss(smoothness=0.3)),
        "gradirn": (GraDIRN(2, width=8, depth=3), GraDIRNLoss()),
    }[method]


def task(method: str) -> PairTask:
    found = people()
    return PairTask(*small(method), found[:3], [(found[3], found[4]), (found[4], found[3])])


@pytest.mark.parametrize("method", METHODS)
def test_a_few_steps_lower_the_loss(method: str, tmp_path: Path) -> None:
    made = task(method)
    rate = 4e-3 if method == "symnet" else 1e-2
    trained = train(made, Plan(30, 2, rate, warmup=3, clip=1.0, validate_every=30), tmp_path)
    first, last = trained.history[0], trained.history[-1]
    assert last["validation_loss"] < 0.97 * first["validation_loss"]
    assert last["validation_dice"] > first["validation_dice"]
    assert sum(trained.losses[-5:]) < sum(trained.losses[:5])
    assert {"similarity", "smoothness", "validation_similarity", "validation_folds_percent"} <= set(last)


def test_examples_are_pairs_of_different_subjects_of_one_source() -> None:
    found = [learner(person((k, 0.0), f"s{k}", "one" if k < 3 else "two")) for k in range(5)]
    lonely = learner(person((0.0, 3.0), "alone", "three"))
    made = PairTask(*small("voxelmorph"), [*found, lonely], [(found[0], found[1])])
    seen = set()
    for k in range(60):
        example = made.example(generator(0, k))
        a, b = (
            next(s.name for s in [*found, lonely] if s.image is example[role]) for role in ("fixed", "moving")
        )
        assert a != b
        assert ({a, b} <= {"s0", "s1", "s2"}) or ({a, b} == {"s3", "s4"})
        seen.add((a, b))
    assert len(seen) == 8  # 3 * 2 + 2 ordered pairs
    again = made.example(generator(0, 5))
    assert again["fixed"] is made.example(generator(0, 5))["fixed"]


def test_examples_are_the_pairs_that_are_allowed() -> None:
    found = people()
    made = PairTask(*small("voxelmorph"), found, [(found[0], found[1])], [(0, 3), (4, 2)])
    drawn = {
        tuple(next(s.name for s in found if s.image is made.example(generator(0, k))[role]) for role in roles)
        for k in range(20)
        for roles in [("fixed", "moving")]
    }
    assert drawn == {("s0", "s3"), ("s4", "s2")}


def test_a_pose_is_found_in_the_world_that_the_axes_tell() -> None:
    """The same subject with two axes of its array reversed: the turn is undone, which no affine near 1 could do."""
    whole = person((1.0, 0.5, -0.5), "a", shape=(24, 26, 22))
    turned = Posed("b", "one", whole.image.flip(1, 2), None, (1.0, 1.0, 1.0), np.diag([-1.0, -1.0, 1.0]))
    found = posed(turned, replace(whole, axes=np.eye(3)), "rigid")
    assert float((found.image - whole.image).abs().mean()) < 0.02
    assert found.axes is not None
    np.testing.assert_array_equal(found.axes, np.eye(3))


def test_dice_is_measured_at_full_resolution() -> None:
    """The same subject twice: Dice 1 at any resolution of the training; no labels, no Dice."""
    whole = person((0.0, 0.0), "s", shape=(40, 36))
    half = learner(whole, 2)
    assert half.image.shape == (1, 20, 18)
    made = PairTask(*small("gradirn"), [half, half], [(half, half)])
    row = made.validate(made.network)
    assert row["dice"] == pytest.approx(1.0)
    assert row["loss"] == pytest.approx(0.0, abs=1e-6)
    bare = Learner("bare", "one", half.image, None)
    assert "dice" not in made.measured(made.network, bare, half)
    empty = Learner("empty", "one", half.image, torch.zeros(40, 36, dtype=torch.int16))
    assert "dice" not in made.measured(made.network, empty, half)


def test_a_subject_takes_the_pose_of_another() -> None:
    shape = (24, 26, 22)
    reference, other = person((0.0, 0.0, 0.0), "a", shape=shape), person((2.0, -1.5, 1.0), "b", shape=shape)
    found = posed(other, reference, "rigid")
    before = float((other.image - reference.image).square().mean())
    assert float((found.image - reference.image).square().mean()) < 0.1 * before
    assert found.labels is not None
    assert reference.labels is not None
    assert float((found.labels == reference.labels).float().mean()) > 0.9
    assert (found.name, found.source, found.spacing) == ("b", "one", (1.0, 1.0, 1.0))
    bare = Posed("c", "one", other.image, None, other.spacing)
    assert posed(bare, reference, "rigid").labels is None


def test_every_method_has_its_schedules() -> None:
    for method in METHODS:
        for ndim in (2, 3):
            authors, reduced = (plan(method, schedule, ndim) for schedule in SCHEDULES)
            assert authors.learning_rate == 1e-4
            assert authors.schedule == "constant"
            assert reduced.steps < authors.steps
            assert reduced.patience > 0
            network, _ = untrained(method, ndim)
            assert network.architecture()["kind"] == method  # type: ignore[operator, index]
    assert plan("voxelmorph", "authors", 3).steps == 150_000
    assert untrained("voxelmorph", 2, displacement=True)[0].squarings == 0
    assert untrained("voxelmorph", 2, "mse")[1] == VoxelMorphLoss("mse", 9, 0.01)
    assert untrained("gradirn", 2, "ncc")[1] == GraDIRNLoss("ncc", 0.1)


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no schedule slow of symnet in 2-D"):
        plan("symnet", "slow", 2)
    with pytest.raises(UsageError, match="there is no symnet with mse"):
        untrained("symnet", 2, "mse")
    with pytest.raises(UsageError, match="there is no moon with any similarity"):
        untrained("moon", 2)
    with pytest.raises(UsageError, match="only voxelmorph has one"):
        untrained("gradirn", 2, displacement=True)
    found = people()
    with pytest.raises(InputError, match="1 to learn from"):
        PairTask(*small("gradirn"), found[:1], [(found[0], found[1])])
    with pytest.raises(InputError, match="0 pairs for validation"):
        PairTask(*small("gradirn"), found, [])
    made = task("gradirn")
    made.restore(made.state())
    assert made.state() == {}
