"""The presets that users run, from images to transforms: laws that hold whatever the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from tests.conftest import blobs

from pirate.data.phantom import brain_pair
from pirate.errors import InputError, UsageError
from pirate.grid import Grid
from pirate.image import Image
from pirate.io.transforms import read_transform
from pirate.registration.apply import apply
from pirate.registration.register import register
from pirate.solvers.solution import Status
from pirate.transform import Affine, Transform

Pair = Callable[[tuple[int, ...]], tuple[Image, Image]]
SHAPES = [(40, 44), (28, 30, 26)]
QUICK = {"levels": [2, 1], "iterations": [15, 8], "window": 5, "field_sigma": 0.4}


def no_folds(metrics: dict[str, object]) -> bool:
    return (
        metrics["folds_percent"] == metrics["folds_forward_percent"] == metrics["nondiffeomorphic_cells"] == 0
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["fast", "default", "best"])
def test_the_field_goes_the_right_way_without_an_affine(
    pair: Pair, shape: tuple[int, ...], name: str
) -> None:
    fixed, moving = pair(shape)
    result = register(fixed, moving, preset=name, affine="none")
    inside = ndimage.binary_erosion(fixed.data > 0.4, iterations=2)
    expected = np.array((1.5, -1.0, 0.8)[: len(shape)])
    found = result.field[:, inside].mean(1)
    assert found @ expected > 0.2 * expected @ expected
    assert result.metrics["penalty_after"] < 0.9 * result.metrics["penalty_before"]
    assert no_folds(dict(result.metrics))
    assert result.flags == ()
    assert result.metrics["inverse_error_median_voxels"] < 0.05
    assert result.metrics["inverse_error_p999_voxels"] < 0.5


def test_the_brain_is_aligned_and_nothing_folds() -> None:
    """Anatomy with a known field: overlap rises, the true error falls, by a preset and by a better one."""
    made = brain_pair((56, 64, 56), seed=3)
    overlaps = []
    for name in ("fast", "default"):
        result = register(
            made.fixed,
            made.moving,
            preset=name,
            fixed_labels=made.fixed_labels,
            moving_labels=made.moving_labels,
        )
        brain = made.fixed_labels.data > 0
        composed = result.forward.map(made.fixed.grid.to_world(np.argwhere(brain)))
        truth = made.fixed.grid.to_world(np.argwhere(brain) + made.field[:, brain].T)
        start = np.linalg.norm(made.field[:, brain], axis=0).mean() * min(made.fixed.grid.spacing)
        assert np.linalg.norm(composed - truth, axis=1).mean() < 0.7 * start
        assert no_folds(dict(result.metrics))
        overlaps.append(result.metrics["dice"])
        assert result.metrics["dice"] > result.metrics["dice_before"] + 0.1
    assert overlaps[1] >= overlaps[0] - 0.005


@pytest.mark.parametrize("shape", SHAPES)
def test_orientation_and_storage_of_the_moving_image_do_not_matter(
    pair: Pair, shape: tuple[int, ...]
) -> None:
    fixed, moving = pair(shape)
    d = len(shape)
    stored = np.ascontiguousarray(np.flip(np.moveaxis(moving.data, 0, -1), 0))
    turn = np.eye(4)
    turn[:d, :d] = np.roll(np.eye(d), 1, axis=0)
    turn[:d, 0] *= -1
    turn[:d, 3] = -turn[:d, 0] * (stored.shape[0] - 1)
    other = Image(stored, Grid(stored.shape, moving.grid.affine @ turn), "turned")
    a = register(fixed, moving, affine="none", settings=QUICK)
    b = register(fixed, other, affine="none", settings=QUICK)
    assert np.abs(a.field - b.field).max() < 0.02


def test_threads_do_not_change_a_bit(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    one = register(fixed, moving, threads=1, settings=QUICK)
    two = register(fixed, moving, threads=2, settings=QUICK)
    assert np.array_equal(one.field, two.field)
    assert np.array_equal(one.affine.matrix, two.affine.matrix)


def test_a_turned_and_shifted_image_is_brought_back() -> None:
    """A pose changed in the header alone leaves the alignment what it was."""
    made = brain_pair((48, 56, 48), seed=1)
    angle = np.radians(30)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    turn[:3, 3] = [30, -20, 15]
    away = replace(made.moving, grid=Grid(made.moving.grid.shape, turn @ made.moving.grid.affine))
    labels = replace(made.moving_labels, grid=Grid(made.moving.grid.shape, turn @ made.moving.grid.affine))
    here = register(
        made.fixed,
        made.moving,
        fixed_labels=made.fixed_labels,
        moving_labels=made.moving_labels,
        settings=QUICK,
    )
    there = register(made.fixed, away, fixed_labels=made.fixed_labels, moving_labels=labels, settings=QUICK)
    assert there.metrics["dice"] > here.metrics["dice"] - 0.01


def test_the_affine_is_written_and_read_back(pair: Pair, tmp_path: Path) -> None:
    fixed, moving = pair((28, 30, 26))
    result = register(fixed, moving, affine="rigid", settings=QUICK)
    assert np.allclose(result.affine.matrix[:3, :3] @ result.affine.matrix[:3, :3].T, np.eye(3), atol=1e-6)
    result.save(tmp_path / "out")
    again = apply(moving, read_transform(tmp_path / "out"), fixed.grid, outside=float(moving.data.min()))
    assert np.abs(again.data - result.warped.data).max() < 1e-3


def test_images_far_apart_meet_with_an_affine_and_are_refused_without(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    far = np.eye(4)
    far[:3, 3] = 500
    away = Image(moving.data, Grid(moving.grid.shape, far @ moving.grid.affine), "far")
    with pytest.raises(InputError, match="--affine rigid"):
        register(fixed, away, affine="none", settings=QUICK)
    result = register(fixed, away, affine="rigid", settings=QUICK)
    near = register(fixed, moving, affine="rigid", settings=QUICK)
    assert np.abs(result.warped.data - near.warped.data).mean() < 0.01
    assert any("place the images apart" in note for note in result.notes)
    assert not any("place the images apart" in note for note in near.notes)


def test_a_start_that_is_neither_a_kind_nor_a_file_is_refused_with_the_kinds(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    with pytest.raises(InputError, match="expected none, rigid, similarity, affine or a file"):
        register(fixed, moving, affine="riggid", settings=QUICK)


def test_a_budget_that_is_over_at_once_leaves_a_field_of_one_step(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    result = register(fixed, moving, affine="none", budget=1e-9, settings=QUICK)
    assert len(result.trace) == 1
    assert result.status is Status.OVERTIME
    assert result.metrics["residual"] is not None


def test_more_smoothness_is_a_smoother_field_and_a_worse_fit(pair: Pair) -> None:
    fixed = Image(blobs((36, 40, 32), seed=0), pair((36, 40, 32))[0].grid, "fixed")
    moving = Image(blobs((36, 40, 32), seed=4), fixed.grid, "moving")
    runs = [
        register(fixed, moving, affine="none", smoothness=s, settings=QUICK).metrics
        for s in (0, 0.25, 0.5, 0.75, 1)
    ]
    roughness = [m["sd_log_jacobian"] for m in runs]
    assert roughness == sorted(roughness, reverse=True)
    fit = [m["penalty_after"] for m in runs]
    assert fit == sorted(fit)


def test_a_budget_is_kept_and_the_result_is_whole(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    start = time.monotonic()
    slow = {**QUICK, "levels": [1], "iterations": 1_000_000, "tolerance": 0.0}
    result = register(fixed, moving, affine="none", settings=slow, budget=0.05)
    assert time.monotonic() - start < 60
    assert result.status in (Status.OVERTIME, Status.SETTLED)
    assert no_folds(dict(result.metrics))
    assert result.metrics["penalty_after"] < result.metrics["penalty_before"]
    with pytest.raises(UsageError, match="the budget is 0"):
        register(fixed, moving, budget=0.0)


def test_a_different_contrast_is_aligned_by_mutual_information(pair: Pair) -> None:
    fixed, moving = pair((36, 38, 34))
    inverted = Image(
        np.where(moving.data > 0.05, 1.6 - moving.data, 0).astype(np.float32) ** 2, moving.grid, "inverted"
    )
    result = register(fixed, inverted, affine="none", settings={**QUICK, "penalty": "mutual"})
    inside = ndimage.binary_erosion(fixed.data > 0.4, iterations=2)
    expected = np.array([1.5, -1.0, 0.8])
    assert result.field[:, inside].mean(1) @ expected > 0.3 * expected @ expected


def test_a_plain_array_with_outliers_is_scaled_by_what_is_usual(pair: Pair) -> None:
    """One voxel a thousand times as bright as the rest changes the field only near it."""
    fixed, moving = pair((28, 30, 26))
    spiked = moving.data.copy()
    spiked[14, 15, 13] = 1000
    a = register(fixed, moving, affine="none", settings=QUICK).field
    b = register(fixed, Image(spiked, moving.grid, "spiked"), affine="none", settings=QUICK).field
    far = np.ones(fixed.grid.shape, bool)
    far[6:23, 7:24, 5:22] = False
    assert np.abs(a - b)[:, far].mean() < 0.05


@pytest.mark.parametrize(("name", "setting"), [("default", "alpha"), ("paper", "field_sigma")])
def test_a_setting_of_the_other_scheme_is_refused(pair: Pair, name: str, setting: str) -> None:
    with pytest.raises(UsageError, match=f"{setting}: no effect in the"):
        register(*pair((40, 44)), preset=name, settings={setting: 0.3})


def test_transforms_lead_there_and_back(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    result = register(fixed, moving, settings=QUICK)
    points = fixed.grid.to_world(np.argwhere(fixed.data > 0.5)[::50])
    back = Transform(result.inverse.parts).map(result.forward.map(points))
    assert np.linalg.norm(back - points, axis=1).max() < 0.3


def test_a_given_affine_is_used_as_it_is(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    given = np.eye(4)
    given[:3, 3] = [0.5, 0.25, -0.5]
    result = register(fixed, moving, affine=Affine(given), settings=QUICK)
    assert np.array_equal(result.affine.matrix, given)
