from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.conftest import blobs, labels_of

import pirate
from pirate.errors import InputError, MemoryExceeded, OutputError, PirateError, UsageError
from pirate.grid import Grid
from pirate.image import Image
from pirate.io.nifti import write_image
from pirate.io.transforms import read_transform
from pirate.registration import inputs
from pirate.registration.pair import Pair as Checked
from pirate.registration.pair import Sources
from pirate.registration.process import choose_device, resident_memory, using_threads
from pirate.registration.register import register as any_register
from pirate.solvers.solution import Status
from pirate.transform import Affine

register = functools.partial(any_register, preset="paper")
Pair = Callable[[tuple[int, ...]], tuple[Image, Image]]
QUICK = {"iterations": 60}
SHAPES = [(40, 44), (28, 30, 26)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shift_is_found(pair: Pair, shape: tuple[int, ...]) -> None:
    fixed, moving = pair(shape)
    result = register(fixed, moving, settings={"iterations": 300})
    inside = fixed.data > 0.4
    expected = np.array((1.5, -1.0, 0.8)[: len(shape)])
    found = result.field[:, inside].mean(1)
    assert np.linalg.norm(found - expected) < 0.15 * np.linalg.norm(expected)
    assert result.metrics["penalty_after"] < 0.1 * result.metrics["penalty_before"]
    assert result.metrics["folds_percent"] == 0
    assert result.flags == ()
    assert result.status is Status.EXHAUSTED


@pytest.mark.parametrize("shape", SHAPES)
def test_orientation_spacing_and_size_of_the_moving_image_do_not_matter(
    pair: Pair, shape: tuple[int, ...]
) -> None:
    """The same world image, stored with axes exchanged and flipped and with background added around it."""
    fixed, moving = pair(shape)
    d = len(shape)
    padded = np.pad(moving.data, [(2, 3)] * d)
    to_moving = np.eye(4)
    to_moving[:d, 3] = -2
    stored = np.flip(np.moveaxis(padded, 0, -1), 0)
    turn = np.eye(4)  # index in `stored` to index in `padded`
    turn[:d, :d] = np.roll(np.eye(d), 1, axis=0)
    turn[:d, 0] *= -1
    turn[:d, 3] = -turn[:d, 0] * (stored.shape[0] - 1)
    grid = Grid(stored.shape, moving.grid.affine @ to_moving @ turn)
    other = Image(np.ascontiguousarray(stored), grid, "turned")
    for probe in np.random.default_rng(0).integers(0, 20, (5, d)):
        world = moving.grid.to_world(probe)
        assert other.data[tuple(np.rint(grid.to_voxel(world)).astype(int))] == moving.data[tuple(probe)]
    a = register(fixed, moving, settings=QUICK)
    b = register(fixed, other, settings=QUICK)
    np.testing.assert_allclose(a.field, b.field, atol=2e-3)
    np.testing.assert_allclose(a.warped.data, b.warped.data, atol=2e-3)
    assert b.warped.grid == fixed.grid


def test_a_finer_moving_image_registers_through_world_coordinates(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    fine = moving.grid.resized((79, 87))
    from pirate.registration.apply import apply
    from pirate.transform import Transform

    result = register(fixed, apply(moving, Transform(()), fine), settings=QUICK)
    reference = register(fixed, moving, settings=QUICK)
    assert np.abs(result.field - reference.field)[:, fixed.data > 0.4].max() < 0.1


def test_an_affine_start_is_used_and_written(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    shifted = moving.grid.affine.copy()
    shifted[:3, 3] += [60, 0, 0]
    away = Image(moving.data, Grid(moving.grid.shape, shifted), "away")
    with pytest.raises(InputError, match=r"covers 0 % of the fixed image"):
        register(fixed, away, settings=QUICK)
    start = np.eye(4)
    start[0, 3] = 60
    result = register(fixed, away, affine=Affine(start), settings=QUICK)
    reference = register(fixed, moving, settings=QUICK)
    np.testing.assert_allclose(result.field, reference.field, atol=1e-3)
    result.save(tmp_path / "out")
    again = register(fixed, away, affine=tmp_path / "out" / "affine.txt", settings=QUICK)
    np.testing.assert_allclose(again.field, result.field, atol=1e-5)
    points = fixed.grid.to_world(np.random.default_rng(1).uniform(5, 20, (10, 3)))
    np.testing.assert_allclose(result.inverse.map(result.forward.map(points)), points, atol=0.02)


def test_forward_and_inverse_undo_each_other(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    result = register(fixed, moving, settings=QUICK)
    points = fixed.grid.to_world(np.random.default_rng(1).uniform(6, 20, (50, 3)))
    round_trip = (
        result.inverse.map(result.forward.map(points)) - points
    )  # between voxels both maps are interpolated
    assert np.abs(round_trip).max() < 0.05
    assert result.metrics["inverse_error_p999_voxels"] < 0.01


def test_apply_to_the_moving_image_gives_the_warped_one(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    result = register(fixed, moving, settings=QUICK)
    assert np.array_equal(result.apply(moving).data, result.warped.data)
    back = result.apply(fixed, inverse=True)
    assert back.grid == moving.grid
    inside = moving.data > 0.4
    assert (
        np.abs(back.data - moving.data)[inside].mean() < 0.5 * np.abs(fixed.data - moving.data)[inside].mean()
    )


def test_labels_are_only_measured(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    labels = [Image(labels_of(i.data), i.grid, "labels") for i in (fixed, moving)]
    result = register(fixed, moving, fixed_labels=labels[0], moving_labels=labels[1], settings=QUICK)
    assert np.array_equal(result.field, register(fixed, moving, settings=QUICK).field)
    assert result.metrics["dice"] > result.metrics["dice_before"] + 0.05
    assert set(result.metrics["dice_per_label"]) == {"1", "2", "3", "4"}
    with pytest.raises(UsageError, match="labels of one image only"):
        register(fixed, moving, fixed_labels=labels[0], settings=QUICK)


def test_the_ablations_terms_do_what_they_are_for(pair: Pair) -> None:
    """P is rougher than P+S and than P+R; switching a term off changes the result."""
    fixed, moving = pair((40, 44))
    noisy = Image(
        moving.data + np.random.default_rng(0).normal(0, 0.1, (40, 44)).astype(np.float32), moving.grid
    )

    def roughness(prior: str, alpha: float) -> float:
        changes = {"iterations": 100, "alpha": alpha, "tau": 0.3, "sigma": 1.5}
        return float(register(fixed, noisy, prior=prior, settings=changes).metrics["sd_log_jacobian"])

    p, ps, pr, prs = (roughness(*c) for c in (("none", 0.0), ("none", 0.1), ("gaussian", 0.0), ("tv", 0.1)))
    assert ps < p
    assert pr < p
    assert prs < ps


@pytest.mark.parametrize("penalty", ["local", "squared", "mutual"])
def test_the_other_data_terms_align_too(pair: Pair, penalty: str) -> None:
    fixed, moving = pair((40, 44))
    gamma = {"local": 2.0, "squared": 20.0, "mutual": 0.5}[penalty]
    changes = {"penalty": penalty, "gamma": gamma, "alpha": 0.01, "window": 7, "iterations": 80}
    result = register(fixed, moving, settings=changes)
    inside = fixed.data > 0.4
    before, after = (np.corrcoef(fixed.data[inside], i.data[inside])[0, 1] for i in (moving, result.warped))
    assert after > before + 0.3 * (1 - before)


def test_anderson_reaches_a_lower_energy_than_as_many_plain_steps(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    changes = {"iterations": 40, "schedule": "constant"}
    plain = register(fixed, moving, settings=changes)
    fast = register(fixed, moving, settings={**changes, "solver": "anderson"})
    assert min(r.energy for r in fast.trace) < plain.trace[-1].energy


def test_a_masked_lesion_does_not_attract(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    lesioned = fixed.data.copy()
    lesioned[22:30, 22:30] = 3.0
    mask = np.ones_like(lesioned)
    mask[20:32, 20:32] = 0
    bad = Image(lesioned, fixed.grid, "lesioned")
    truth = register(fixed, moving, settings=QUICK).field
    naive = register(bad, moving, settings=QUICK).field
    masked = register(bad, moving, fixed_mask=Image(mask, fixed.grid, "mask"), settings=QUICK).field
    ring = np.zeros(fixed.grid.shape, bool)
    ring[15:36, 15:36] = True
    error = [np.abs(f - truth)[:, ring].mean() for f in (naive, masked)]
    assert error[1] < 0.5 * error[0]
    both = register(
        bad,
        moving,
        fixed_mask=Image(mask, fixed.grid),
        moving_mask=Image(np.ones_like(mask), moving.grid),
        settings=QUICK,
    )
    assert np.abs(both.field - truth)[:, ring].mean() < 0.5 * error[0]


def test_what_may_be_handed_over(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    write_image(tmp_path / "f.nii.gz", fixed.data, fixed.grid)
    write_image(tmp_path / "m.nii", moving.data, moving.grid)
    one = register(tmp_path / "f.nii.gz", str(tmp_path / "m.nii"), settings=QUICK)
    two = register(nib.load(tmp_path / "f.nii.gz"), nib.load(tmp_path / "m.nii"), settings=QUICK)
    three = register((fixed.data, fixed.grid.affine), (moving.data, moving.grid.affine), settings=QUICK)
    np.testing.assert_allclose(one.field, two.field, atol=1e-5)
    np.testing.assert_allclose(one.field, three.field, atol=1e-3)  # the file's affine is float32
    with pytest.raises(UsageError, match="a list is not an image"):
        register([1, 2], moving)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    for name in "ab":
        register(fixed, moving, prior="tv", settings={"iterations": 10}).save(tmp_path / name)
    for file in (
        "warped.nii.gz",
        "moving_to_fixed_warp.nii.gz",
        "fixed_to_moving_warp.nii.gz",
        "transform.h5",
        "metrics.json",
    ):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_another_number_of_threads_changes_the_field_by_less_than_1e_4_voxel(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    before = torch.get_num_threads()
    one = register(fixed, moving, threads=1, settings=QUICK).field
    two = register(fixed, moving, threads=2, settings=QUICK).field
    assert torch.get_num_threads() == before
    assert np.abs(one - two).max() < 1e-4


def test_a_saved_run_reads_back(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    result = register(fixed, moving, settings=QUICK)
    written = result.save(tmp_path / "out")
    assert written[-1].name == "run.json"
    run = json.loads(written[-1].read_text())
    assert run["settings"]["iterations"] == 60
    assert run["status"]["name"] == "EXHAUSTED"
    assert set(run["outputs"]) >= {"warped.nii.gz", "transform.h5", "metrics.json"}
    points = fixed.grid.to_world(np.random.default_rng(0).uniform(2, 30, (20, 2)))
    for transform, inverse in ((result.forward, False), (result.inverse, True)):
        np.testing.assert_allclose(
            read_transform(tmp_path / "out", inverse).map(points), transform.map(points), atol=1e-3
        )


def test_nothing_is_overwritten_without_force(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    result = register(fixed, moving, settings={"iterations": 3})
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        result.save(tmp_path)
    result.save(tmp_path, force=True, write=("warped",))
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert not (tmp_path / "transform.h5").exists()
    with pytest.raises(OutputError, match="cannot be written"):
        result.save(tmp_path / "precious.txt" / "deeper")
    with pytest.raises(UsageError, match="cannot write soup"):
        result.save(tmp_path, force=True, write=("soup",))


def grid_of(shape: tuple[int, ...], origin: float = 0.0) -> Grid:
    affine = np.eye(4)
    affine[:3, 3] = origin
    return Grid(shape, affine)


S = (24, 26, 28)
GOOD = blobs(S)
FAR = np.array([[1, 0, 0, 1000], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])


@pytest.mark.parametrize(
    ("fixed", "moving", "sentence"),
    [
        ((GOOD, np.eye(4)), (np.full(S, 7.0), np.eye(4)), "the moving image is constant"),
        ((np.full(S, 7.0), np.eye(4)), (GOOD, np.eye(4)), "the fixed image is constant"),
        ((GOOD, np.eye(4)), (np.full(S, np.nan), np.eye(4)), "NaN"),
        ((GOOD, np.eye(4)), (np.zeros(S), np.eye(4)), "the moving image is constant"),
        ((GOOD, np.eye(4)), (GOOD, FAR), "covers 0 %"),
        ((GOOD, np.eye(4)), (GOOD, np.full((4, 4), np.nan)), "affine"),
        ((GOOD, np.eye(4)), (np.zeros((*S, 3), np.uint8), np.eye(4)), "3 volumes"),
        ((GOOD, np.eye(4)), (blobs((24, 26)), np.eye(4)), "2-D while the fixed image is 3-D"),
        ((GOOD, np.eye(4)), (np.random.rand(2, 26, 28), np.eye(4)), "at least 4 along each axis"),
        ((GOOD, np.eye(4)), (np.zeros(S, complex), np.eye(4)), "complex"),
    ],
)  # fmt: skip
def test_a_meaningless_pair_is_refused_with_its_sentence(
    fixed: object, moving: object, sentence: str
) -> None:
    with pytest.raises(PirateError, match=sentence) as caught:
        register(fixed, moving, settings=QUICK)
    assert caught.value.exit_code == 3


def test_a_pair_with_contradicting_headers_is_refused(tmp_path: Path) -> None:
    header = nib.Nifti1Image(GOOD, np.eye(4))
    header.set_sform(np.diag([1, 1, 1, 1.0]), 1)
    turned = np.eye(4)
    turned[0, 3] = 30
    header.set_qform(turned, 1)
    header.to_filename(tmp_path / "m.nii.gz")
    with pytest.raises(InputError, match="mm"):
        register((GOOD, np.eye(4)), tmp_path / "m.nii.gz", settings=QUICK)


def test_planes_of_different_orientation_are_refused() -> None:
    flat = blobs((24, 26))
    upright = np.eye(4)[:, [0, 2, 1, 3]]
    with pytest.raises(InputError, match="turned by 90 degrees"):
        register((flat, np.eye(4)), (flat, upright), settings=QUICK)


def test_labels_and_masks_must_lie_on_their_images_grid(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    elsewhere = Image(np.ones((10, 10), np.float32), grid_of((10, 10)), "small mask")
    with pytest.raises(InputError, match="small mask: the fixed mask has shape"):
        register(fixed, moving, fixed_mask=elsewhere, settings=QUICK)


def test_a_job_that_does_not_fit_is_refused_before_it_starts(pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    with pytest.raises(MemoryExceeded, match="needs about"):
        register(fixed, moving, memory_limit=0.01, settings=QUICK)
    held = (resident_memory() + 1_000_000) / 1e9  # enough for what the process holds, not for more
    with pytest.raises(MemoryExceeded, match="needs about"):
        register(fixed, moving, memory_limit=held, settings=QUICK)
    for limit in (float("nan"), float("inf"), -1.0):
        with pytest.raises(UsageError, match="memory limit"):
            register(fixed, moving, memory_limit=limit, settings=QUICK)
    assert (inputs.available_memory() or 1) > 0


def test_a_registration_that_does_not_help_is_flagged(pair: Pair) -> None:
    fixed, _ = pair((40, 44))
    same = register(fixed, Image(fixed.data, fixed.grid, "same"), settings={"iterations": 2})
    assert any("identical already" in flag for flag in same.flags)
    worse = register(fixed, Image(1 - fixed.data, fixed.grid), settings={"iterations": 2})
    assert any("little in common" in flag for flag in worse.flags)


def test_a_diverging_iteration_is_flagged_and_returns_a_finite_field(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((40, 44))

    def burst(field: torch.Tensor, sigma: float) -> torch.Tensor:
        return field * -1e12

    result = register(fixed, moving, prior=burst, settings={"iterations": 30})
    assert result.settings.prior.endswith("burst")
    assert result.status is Status.DIVERGED
    assert any("diverged" in flag for flag in result.flags)
    assert np.isfinite(result.field).all()
    result.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"]["name"] == "DIVERGED"


def test_devices_and_threads_are_checked() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(UsageError, match="cannot be used"):
        choose_device("abacus")
    with pytest.raises(UsageError, match="cannot be used"):
        choose_device("meta")
    with pytest.raises(UsageError, match="threads is 0"), using_threads(0):
        pass


def test_values_whose_squares_overflow_are_scaled_away(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    huge = Image(moving.data * np.float32(1e30), moving.grid, "huge")
    a, b = register(fixed, huge, settings=QUICK), register(fixed, moving, settings=QUICK)
    np.testing.assert_allclose(a.field, b.field, atol=1e-3)
    assert pirate.register is any_register


def test_a_prior_that_fails_is_named_and_not_taken_for_a_divergence(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    calls = []

    def tired(field: torch.Tensor, sigma: float) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("I am tired")
        return field.clone()

    with pytest.raises(InputError, match="I am tired"):
        register(fixed, moving, prior=tired, settings=QUICK)


def test_a_second_run_into_the_same_folder_leaves_nothing_of_the_first(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((28, 30, 26))
    start = np.eye(4)
    start[0, 3] = 2
    out = tmp_path / "out"
    register(fixed, moving, affine=Affine(start), settings={"iterations": 3}).save(out)
    assert (out / "affine.txt").exists()
    (out / "notes.txt").write_text("mine")
    (out / ".part-list").write_text("mine")
    result = register(fixed, moving, settings={"iterations": 3})
    result.save(out, force=True)
    assert not (out / "affine.txt").exists()
    assert (out / "notes.txt").exists()
    assert (out / ".part-list").exists()
    points = fixed.grid.to_world(np.random.default_rng(0).uniform(2, 20, (20, 3)))
    np.testing.assert_allclose(read_transform(out).map(points), result.forward.map(points), atol=1e-3)


def test_a_structure_outside_the_fixed_field_of_view_can_move_in(oblique: Callable[..., Grid]) -> None:
    """The fixed image is a window on the moving one, which goes on; at the window's border the shift is found."""
    whole = blobs((60, 64))
    grid = oblique((60, 64))
    window = grid.affine.copy()
    window[:3, 3] = grid.to_world([18, 10])
    fixed = Image(np.roll(whole, -3, 0)[18:42, 10:54].copy(), Grid((24, 44), window), "window")
    result = register(fixed, Image(whole, grid, "whole"), settings={"iterations": 400})
    assert result.field.shape == (2, 24, 44)
    textured = np.s_[0, -3:, 12:32]
    assert abs(float(np.median(result.field[textured])) - 3) < 0.5
    assert np.corrcoef(result.warped.data.ravel(), fixed.data.ravel())[0, 1] > 0.98


def test_labels_lost_by_the_warp_count_as_zero(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    a, b = (labels_of(i.data) for i in (fixed, moving))
    a[0, 0] = 9
    b[-1, -1] = 9  # one voxel, which lands elsewhere
    result = register(
        fixed, moving, fixed_labels=Image(a, fixed.grid), moving_labels=Image(b, moving.grid), settings=QUICK
    )
    assert result.metrics["dice_per_label"]["9"] == 0
    with pytest.raises(InputError, match="shares no label"):
        register(
            fixed, moving, fixed_labels=Image(np.ones_like(a), fixed.grid),
            moving_labels=Image(np.full_like(b, 2), moving.grid), settings=QUICK,
        )  # fmt: skip


def test_where_moving_has_no_data_warped_has_its_smallest_value(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    grid = moving.grid.affine.copy()
    grid[:3, 3] = moving.grid.to_world([8, 0])
    part = Image(moving.data[8:] * 2000 - 1000, Grid((32, 44), grid), "part")
    result = register(fixed, part, settings={"iterations": 5})
    assert abs(result.warped.data.min() - part.data.min()) < 1e-3  # interpolation rounds
    assert (result.warped.data[0] == part.data.min()).all()


def test_an_affine_serves_a_plane_of_any_orientation(tmp_path: Path, pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    shift = np.eye(4)
    shift[:3, 3] = [1.0, 0.5, 0.25]
    for axes in ([0, 1, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3]):
        a, b = (Image(i.data, Grid(i.grid.shape, i.grid.affine[axes]), i.name) for i in (fixed, moving))
        out = tmp_path / "".join(map(str, axes))
        result = register(a, b, affine=Affine(shift), settings={"iterations": 3})
        result.save(out)
        points = a.grid.to_world(np.random.default_rng(0).uniform(5, 30, (10, 2)))
        np.testing.assert_allclose(read_transform(out).map(points), result.forward.map(points), atol=1e-3)
    tilt = np.eye(4)
    tilt[1:3, 1:3] = [[0.9, -0.1], [0.1, 0.9]]
    flat = Image(fixed.data, Grid(fixed.grid.shape, np.eye(4)), "flat")
    with pytest.raises(InputError, match="tilts the plane"):
        register(flat, flat, affine=Affine(tilt), settings=QUICK)


def test_an_image_in_memory_is_held_to_the_laws_of_a_file(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    with pytest.raises(InputError, match="mask holds -1"):
        register(fixed, moving, fixed_mask=Image(np.full((40, 44), -1.0), fixed.grid), settings=QUICK)
    broken = np.where(moving.data > 0.5, np.nan, moving.data)
    with pytest.raises(InputError, match="NaN"):
        register(fixed, Image(broken, moving.grid), settings=QUICK)


def test_the_memory_estimate_grows_with_what_is_asked_for() -> None:
    from pirate.settings import Settings

    small, large = (64, 64, 64), (96, 96, 96)
    plain = inputs.memory_estimate(large, large, Settings(), labels=False)
    assert plain > inputs.memory_estimate(small, small, Settings(), labels=False)
    assert inputs.memory_estimate(large, large, Settings(), labels=True) > plain
    for more in ({"penalty": "mutual", "resolution": 1}, {"prior": "tv", "resolution": 1}):
        assert inputs.memory_estimate(large, large, Settings().changed(more), labels=False) > plain


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_slice_of_a_volume_comes_back_as_that_slice(tmp_path: Path, axis: int) -> None:
    """One slice in, one slice out, and SimpleITK reads the transform as 3-D."""
    sitk = pytest.importorskip("SimpleITK")
    paths = []
    for name, shift in (("fixed", None), ("moving", (1.0, -0.5))):
        data = np.expand_dims(blobs((40, 44), shift=shift), axis)
        affine = np.diag([-1.1, 0.9, 1.2, 1.0])
        affine[:3, 3] = [20, -18, 7]
        paths.append(tmp_path / f"{name}.nii.gz")
        nib.save(nib.Nifti1Image(data, affine), paths[-1])
    result = register(*paths, settings=QUICK)
    result.save(tmp_path / "out")
    fixed, warped = nib.load(paths[0]), nib.load(tmp_path / "out" / "warped.nii.gz")
    assert warped.shape == fixed.shape
    np.testing.assert_allclose(warped.affine, fixed.affine, atol=1e-5)
    transform = sitk.ReadTransform(str(tmp_path / "out" / "transform.h5"))
    images = [sitk.ReadImage(str(path), sitk.sitkFloat32) for path in paths]
    theirs = sitk.GetArrayFromImage(sitk.Resample(images[1], images[0], transform, sitk.sitkLinear, 0.0))
    ours = np.transpose(warped.get_fdata(), (2, 1, 0))
    inner = tuple(slice(None) if n == 1 else slice(4, -4) for n in ours.shape)
    assert np.abs(theirs - ours)[inner].max() < 1e-4


def test_a_mask_does_not_make_the_step_unstable(pair: Pair) -> None:
    """Half of the image is masked away and the rest has little contrast; the energy still falls."""
    fixed, moving = pair((40, 44))
    mask = np.zeros((40, 44), np.float32)
    mask[14:26, 16:28] = 1
    result = register(
        fixed,
        moving,
        fixed_mask=Image(mask, fixed.grid),
        moving_mask=Image(mask, moving.grid),
        settings=QUICK,
    )
    energies = [record.energy for record in result.trace]
    assert max(energies) == energies[0]
    assert result.metrics["min_determinant"] > 0


def test_a_result_has_a_short_name_for_the_prompt(pair: Pair) -> None:
    fixed, moving = pair((40, 44))
    result = register(fixed, moving, settings={"iterations": 2})
    assert repr(result) == "Registration(moving moving -> fixed fixed, EXHAUSTED, 2 iterations)"
    assert len(repr(result.forward)) < 1000
    assert len(repr(result.warped)) < 1000


@pytest.mark.parametrize("shape", [(40, 44), (24, 28, 26)])
def test_images_and_labels_that_were_mixed_up_are_noted(shape: tuple[int, ...]) -> None:
    eye, rng = np.eye(4), np.random.default_rng(0)
    blocks = (np.indices(shape) // 8).sum(0) % 5
    scan = np.round(200 * rng.random(shape))  # integers too, but not in patches
    masks = (blocks > 2).astype(float)

    def read(fixed: np.ndarray, moving: np.ndarray, labels: np.ndarray | None = None) -> tuple[str, ...]:
        given = None if labels is None else (labels.astype(np.int32), eye)
        sources = Sources((fixed, eye), (moving, eye), fixed_labels=given, moving_labels=given)
        return Checked.read(sources).notes

    assert read(scan, scan, blocks) == read(masks, masks, blocks) == ()
    white = np.where(blocks > 1, scan, 255.0)  # a slide on a white ground
    assert read(white, white) == ()
    (note,) = read(scan, blocks)
    assert note.startswith("moving: it has whole numbers in patches, like a label map")
    notes = read(scan, scan, scan)
    assert len(notes) == 2
    assert notes[0].startswith("fixed_labels: it has ")
    assert notes[0].endswith("values that differ from voxel to voxel, like a scan.")
