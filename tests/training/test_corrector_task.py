"""Training of the anatomy-aware prior: the loss, the examples, and that it learns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs, labels_of
from torch import Tensor, nn

from pirate.denoisers.corrector import Corrector
from pirate.denoisers.planes import AS_TRAINED, PlaneCorrector, coronal
from pirate.errors import InputError
from pirate.ops.resample import resize_field
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity, sample, warp
from pirate.settings import Settings, preset
from pirate.training.corrector import CorrectorTask, Recipe, advance, corrector_in, hard_dice, soft_dice
from pirate.training.loop import Plan, train
from pirate.training.plan import generator
from pirate.training.solver_states import Solver, State, Variation, in_one_box, solved
from pirate.training.warping_augment import deformed, flip_field, mirrored, random_diffeomorphism

SHAPES = [(36, 32), (24, 26, 22)]


@dataclass(frozen=True, eq=False)
class Made:
    name: str
    image: Tensor
    labels: Tensor | None
    spacing: tuple[float, ...]


def subject(shape: tuple[int, ...], seed: int) -> Made:
    image = blobs(shape, 0)
    made = torch.from_numpy(image)[None], torch.from_numpy(labels_of(image))
    field = random_diffeomorphism(shape, 2.5, torch.Generator().manual_seed(seed))
    image_, labels = deformed(*made, field)
    return Made(f"s{seed}", image_, labels, (1.0,) * len(shape))


def quick(ndim: int) -> Settings:
    return preset("default", ndim).changed(
        {"levels": [2, 1], "iterations": [4, 2], "window": 5, "field_sigma": 0.5}
    )


def states(shape: tuple[int, ...], count: int = 3, spacing: float = 0.0) -> list[State]:
    people = [subject(shape, k) for k in range(4)]
    solver = Solver(quick(len(shape)), spacing, "none")
    return in_one_box(list(solver.states(people, count, 0)), 8, 0)


def task(shape: tuple[int, ...], recipe: Recipe | None = None) -> CorrectorTask:
    torch.manual_seed(0)
    found = states(shape)
    return CorrectorTask(Corrector(len(shape), 6, 2), found[:2], found[2:], quick(len(shape)), recipe)


def one_hot_dice(fixed: Tensor, moving: Tensor, field: Tensor) -> Tensor:
    """The same by one-hot maps, as in the formula."""
    values = torch.tensor(sorted(set(fixed.flatten().tolist()) | set(moving.flatten().tolist())))
    values = values[values != 0].view(1, -1, *[1] * (fixed.ndim - 1))
    f, m = (fixed[:, None] == values).double(), (moving[:, None] == values).double()
    w = sample(m, (identity(field) + field).double(), padding="border")
    axes = tuple(range(2, f.ndim))
    both = (f.sum(axes) > 0) & (m.sum(axes) > 0)
    overlap = 2 * (f * w).sum(axes) / (f.sum(axes) + w.sum(axes)).clamp_min(1e-6)
    return torch.stack([o[b].mean() for o, b in zip(overlap, both, strict=True)]).mean()


@pytest.mark.parametrize("shape", SHAPES)
def test_soft_dice_and_its_gradient(shape: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(1)
    fixed = torch.randint(0, 4, (2, *shape), generator=random, dtype=torch.int16)
    moving = fixed.flip(1).clone()
    moving[0][moving[0] == 3] = 0  # a structure that one map lacks does not count
    field = (2 * torch.randn(2, len(shape), *shape, generator=random)).requires_grad_()
    found, expected = soft_dice(fixed, moving, field), one_hot_dice(fixed, moving, field)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    a, b = (torch.autograd.grad(x, field)[0] for x in (found, expected))
    torch.testing.assert_close(a, b.float(), rtol=1e-3, atol=1e-7)


def test_dice_of_a_pair_with_itself_is_one() -> None:
    labels = torch.from_numpy(labels_of(blobs((30, 28))))[None]
    assert float(soft_dice(labels, labels, torch.zeros(1, 2, 30, 28))) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_falls(shape: tuple[int, ...], tmp_path: Path) -> None:
    made = task(shape, Recipe(intensities=0.0, remembered=4))
    fixed = {
        k: torch.stack([made.example(generator(9, i))[k] for i in range(2)])
        for k in made.example(generator(0))
    }
    before = float(made.loss(made.network, fixed)[0].detach())
    trained = train(made, Plan(12, 2, 3e-3, warmup=1, clip=1.0, validate_every=6), tmp_path)
    with torch.no_grad():
        after, numbers = made.loss(made.network, fixed)
    assert float(after) < before - 0.002
    assert numbers["length"] > 0.01
    assert trained.history[0]["validation_gain"] == pytest.approx(0.0, abs=1e-6)
    assert {"validation_loss", "validation_dice_before", "dice", "folding"} <= set(trained.history[-1])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_is_that_of_the_loss(shape: tuple[int, ...]) -> None:
    """The analytic data term is differentiated too: a step along the gradient changes the loss as it says."""
    made = task(shape, Recipe(data=5.0, rough=0.5, remembered=1))
    batch = {k: v[None] for k, v in made.example(generator(4)).items()}
    nn.init.normal_(made.network.outlet.weight, std=0.02)  # type: ignore[union-attr]
    bias = made.network.outlet.bias  # type: ignore[union-attr]
    value, _ = made.loss(made.network, batch)
    (slope,) = torch.autograd.grad(value, bias)  # type: ignore[arg-type]
    direction = slope / slope.norm()
    values = []
    for h in (-2e-3, 2e-3):
        with torch.no_grad():
            bias.add_(h * direction)  # type: ignore[operator, union-attr]
            values.append(float(made.loss(made.network, batch)[0]))
            bias.sub_(h * direction)  # type: ignore[operator, union-attr]
    assert (values[1] - values[0]) / 4e-3 == pytest.approx(float(slope.norm()), rel=0.1)


def test_own_outputs_are_remembered_and_used() -> None:
    made = task((36, 32), Recipe(own=1.0, data_steps=0, intensities=0.0, remembered=3))
    first = made.example(generator(1))
    made.loss(made.network, {k: v[None] for k, v in first.items()})
    index = int(first["index"])
    nn.init.constant_(made.network.outlet.bias, 0.3)  # type: ignore[union-attr, arg-type]
    made.loss(made.network, {k: v[None] for k, v in first.items()})
    made._whose[0] = -1  # type: ignore[index]
    made._own[0], made._whose[0], made._whose[1] = made._own[1].clone(), index, -1
    again = next(e for e in (made.example(generator(2, k)) for k in range(20)) if not bool(e["flip"]))
    assert int(again["index"]) == index
    assert float((again["field"] - made.states[index].field.float()).abs().max()) > 0.2


def test_a_checkpoint_keeps_the_remembered() -> None:
    made, other = task((36, 32)), task((36, 32))
    made.loss(made.network, {k: v[None] for k, v in made.example(generator(1)).items()})
    other.restore({name: value.clone() for name, value in made.state().items()})
    for key, value in made.example(generator(5)).items():
        assert torch.equal(value, other.example(generator(5))[key])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mirrored_example_is_the_same_pair(shape: tuple[int, ...]) -> None:
    """Images, labels and field go through the mirror together: the warped image is the mirrored warped image."""
    made = task(shape, Recipe(own=0.0, data_steps=0, intensities=0.0))
    examples = [made.example(generator(3, k)) for k in range(24)]
    a = next(e for e in examples if bool(e["flip"]))
    b = next(e for e in examples if not bool(e["flip"]) and int(e["index"]) == int(a["index"]))
    torch.testing.assert_close(
        warp(a["moving"][None], a["field"][None]),
        warp(b["moving"][None], b["field"][None]).flip(2),
        rtol=0,
        atol=1e-5,
    )
    dice = [
        float(soft_dice(e["fixed_labels"][None], e["moving_labels"][None], e["field"][None])) for e in (a, b)
    ]
    assert dice[0] == pytest.approx(dice[1], abs=1e-5)
    torch.testing.assert_close(flip_field(a["field"][None], 0)[0], b["field"])


def test_data_steps_lower_the_data_term() -> None:
    state = states((36, 32))[0]
    start = torch.zeros(1, 2, *state.shape)
    assert advance(state, start, quick(2), 0) is start
    moved = advance(state, start, quick(2), 8)
    fixed, moving = state.fixed[None], state.moving[None]
    assert float((warp(moving, moved) - fixed).square().mean()) < float((moving - fixed).square().mean())
    assert float(start.abs().max()) == 0.0


def test_states_on_a_coarse_grid() -> None:
    people = [subject((44, 48), k) for k in range(2)]
    fine, coarse = (solved(people[0], people[1], quick(2), mm, "none") for mm in (1.0, 2.0))
    assert fine.level.shrink == 1
    assert coarse.level.shrink == 2
    assert coarse.shape == tuple((n + 1) // 2 for n in fine.shape)
    expected = resize_field(fine.field.float()[None], coarse.shape)[0]
    torch.testing.assert_close(coarse.field.float(), expected, rtol=0, atol=5e-3)
    rows, columns = (
        (torch.arange(m) * (n - 1) / (m - 1)).round().long()
        for m, n in zip(coarse.shape, fine.shape, strict=True)
    )
    assert torch.equal(coarse.fixed_labels, fine.fixed_labels[rows][:, columns])


def test_boxes_change_no_overlap() -> None:
    state = states((36, 32), 1)[0]
    box = state.boxed([n + 9 for n in state.shape], [4, 6])
    assert hard_dice(box, box.field.float()[None]) == pytest.approx(
        hard_dice(state, state.field.float()[None])
    )
    assert box.shape == tuple(n + 9 for n in state.shape)


def test_variations_keep_labels_true() -> None:
    """Where the image was deformed or mirrored, its labels were too: they are still a function of intensity."""
    one = subject((40, 36), 1)
    vary = Variation({k: k for k in range(5)}, mirror=0.5, deform=1.0, largest=4.0)
    changed = [vary(one, generator(7, k)) for k in range(4)]
    for found in changed:
        assert found.labels is not None
        inside = torch.from_numpy(np.asarray(labels_of(found.image[0].numpy()))) == found.labels
        assert float(inside.float().mean()) > 0.9
        assert not torch.equal(found.image, one.image)
    assert found.name == one.name


def test_mirrors_commute_with_the_input() -> None:
    """Mirroring a pair before it is registered or after gives the same images."""
    one = subject((40, 36), 1)
    image, labels = mirrored(one.image, one.labels, {1: 1, 2: 2})  # type: ignore[arg-type]
    field = gaussian(torch.randn(1, 2, 40, 36, generator=torch.Generator().manual_seed(0)), 3.0) * 4
    torch.testing.assert_close(
        warp(image[None], flip_field(field, 0)), warp(one.image[None], field).flip(2), rtol=0, atol=1e-5
    )
    assert torch.equal(labels.flip(0), one.labels)


def test_refusals() -> None:
    one = subject((36, 32), 0)
    bare = Made("bare", one.image, None, one.spacing)
    with pytest.raises(InputError, match="two or more"):
        list(Solver(quick(2), 0.0, "none").states([one], 1, 0))
    with pytest.raises(InputError, match="no labels"):
        solved(one, bare, quick(2), 0.0, "none")
    with pytest.raises(InputError, match="no labels"):
        Variation({})(bare, generator(0))
    with pytest.raises(TypeError, match="Corrector"):
        corrector_in(nn.Identity())


@pytest.mark.parametrize("axes", [AS_TRAINED, np.eye(3)])
def test_planes_of_a_volume(axes: np.ndarray) -> None:
    """A plane's moving image and labels are warped already: without a correction it scores as in the volume."""
    (volume,) = states((24, 26, 22), 1)
    view = coronal(axes)
    field = volume.field.float()[None]
    found = volume.planes(view, every=2, first=1, least=40)
    every = volume.planes(view, every=2, first=1, least=0)
    assert len(found) < len(every) == volume.shape[view.axes[2]] // 2
    assert all(int((p.fixed_labels > 0).sum()) >= 40 for p in found)
    warped = warp(volume.moving.float()[None], field)
    labels = sample(volume.moving_labels[None, None].float(), identity(field) + field, "nearest")
    here = every[3]
    assert torch.equal(here.fixed, view.planes(volume.fixed[None])[7])
    assert torch.equal(here.moving, view.planes(warped)[7])
    assert torch.equal(here.moving_labels.float(), view.planes(labels)[7, 0])
    assert here.shown is not None
    torch.testing.assert_close(here.shown.float(), view.field_planes(field)[7], rtol=1e-3, atol=1e-3)
    assert not here.field.any()
    boxed = here.boxed((32, 32), (2, 3))
    assert boxed.shown is not None
    assert torch.equal(boxed.shown[:, 2, 3], here.shown[:, 0, 0])
    assert torch.equal(boxed.shown[:, 0, 0], here.shown[:, 0, 0])


def test_of_a_plane_the_network_is_shown_the_volumes_field() -> None:
    (volume,) = states((24, 26, 22), 1)
    planes = in_one_box(volume.planes(coronal(AS_TRAINED), 2, 0, 40), 8, 0)
    recipe = Recipe(own=0.0, remembered=1, intensities=0.0)
    network = Corrector(2, 6, 2)
    made = CorrectorTask(network, planes, [volume], quick(2), recipe, PlaneCorrector.around)
    for k in range(8):
        example = made.example(generator(0, k))
        state = planes[int(example["index"])]
        assert state.shown is not None
        assert not example["field"].any()  # and no steps of the solver either
        shown = state.shown.float()[None]
        assert torch.equal(example["shown"][None], flip_field(shown, 0) if example["flip"] else shown)
    scores = made.validate(network)  # on the whole volume; the network starts as the identity
    assert scores["gain"] == 0
    assert scores["dice_before"] == hard_dice(volume, volume.field.float()[None])


def test_planes_teach_a_network_for_volumes(tmp_path: Path) -> None:
    """Moving labels are off by a voxel within the planes; after a few steps the volume's Dice has risen."""
    (volume,) = states((24, 26, 22), 1)
    shifted = volume.field.float()
    shifted[0] += 1.5
    wrong = dataclasses.replace(volume, field=shifted.half())
    planes = in_one_box(wrong.planes(coronal(AS_TRAINED), 1, 0, 20), 8, 0)
    torch.manual_seed(0)
    recipe = Recipe(own=0.0, remembered=1, intensities=0.0, rough=0.0, data=0.0)
    made = CorrectorTask(Corrector(2, 6, 2), planes, [wrong], quick(2), recipe, PlaneCorrector.around)
    plan = Plan(60, 4, 5e-3, warmup=5, clip=1.0, validate_every=60, checkpoint_every=60, seed=0, minutes=0.0)
    trained = train(made, plan, tmp_path / "out")
    assert trained.history[-1]["validation_gain"] > 0.02


def test_of_a_plane_it_is_the_volumes_field_that_may_fold() -> None:
    (volume,) = states((24, 26, 22), 1)
    planes = in_one_box(volume.planes(coronal(AS_TRAINED), 2, 0, 40), 8, 0)
    made = CorrectorTask(Corrector(2, 6, 2), planes, [volume], quick(2), Recipe(own=0.0, remembered=1))
    batch = {name: x[None] for name, x in made.example(generator(0, 0)).items()}
    calm = made.loss(made.network, batch | {"shown": torch.zeros_like(batch["shown"])})[1]["folding"]
    steep = torch.zeros_like(batch["shown"])
    steep[:, 0] = -2 * identity(steep)[:, 0]  # x -> -x: a determinant of -1
    assert calm == 0
    assert made.loss(made.network, batch | {"shown": steep})[1]["folding"] > 1
