"""What a worker does with one job, and the numbers by which every method is judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.benchmark.conftest import entry
from tests.conftest import blobs, labels_of

from pirate.benchmark import controls
from pirate.benchmark.cases import Case, file_name, resized
from pirate.benchmark.judging import correlation, hd95, judged, number, started
from pirate.benchmark.kept import path_of, read_held
from pirate.benchmark.plan import Plan
from pirate.benchmark.snapshots import SHOWN, Recorder, images_at
from pirate.benchmark.tracks import Source
from pirate.benchmark.working import Job, Worker
from pirate.denoisers import plug
from pirate.denoisers.classical import Gaussian, Identity
from pirate.denoisers.learned import Learned
from pirate.errors import UsageError
from pirate.grid import Grid
from pirate.image import Image
from pirate.io.nifti import write_image
from pirate.transform import Affine, Transform

GRID = Grid((32, 40), np.diag([2.0, 2.0, 1.0, 1.0]))
SHIFT = Affine(np.array([[1.0, 0, 0, 6.0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
"""Three voxels along the first axis: the moving image lies 6 mm further than the fixed one."""


def moved() -> Case:
    image = blobs((32, 40))
    other = np.roll(image, 3, axis=0)
    points = GRID.to_world(np.array([[10.0, 12.0], [16.0, 20.0]]))
    return Case(
        "p", Image(image, GRID), Image(other, GRID), Image(labels_of(image), GRID), Image(labels_of(other), GRID),
        points, points + np.array([6.0, 0, 0]),
    )  # fmt: skip


def test_the_right_transform_is_judged_perfect_and_none_is_not() -> None:
    case = moved()
    right, none = judged(case, Transform((SHIFT,))), judged(case, Transform(()))
    assert (right.dice, right.tre) == (1.0, pytest.approx(0.0, abs=1e-9))
    assert right.similarity == pytest.approx(1.0)
    assert hd95(case, right.labels) == 0
    assert none.tre == pytest.approx(6.0)
    assert none.dice < 0.9
    assert none.similarity < 0.9
    row, held = started(case, SHIFT)
    assert (row.dice, row.dice_before, row.tre, row.folds) == (1.0, 1.0, pytest.approx(0.0, abs=1e-9), 0.0)
    np.testing.assert_allclose(held.field[0], 3.0, atol=1e-6)  # the affine is in it, in voxels
    np.testing.assert_allclose(held.field[1], 0.0, atol=1e-6)


def test_what_cannot_be_told_is_nan() -> None:
    bare = replace(moved(), fixed_labels=None, moving_labels=None, fixed_points=None, moving_points=None)
    found = judged(bare, Transform(()))
    assert math.isnan(found.dice)
    assert math.isnan(found.tre)
    assert found.labels is None
    assert math.isnan(hd95(bare, None))
    assert math.isnan(correlation(np.ones(4), np.arange(4)))
    assert math.isnan(number(None))


def test_correlation_is_numpys() -> None:
    a, b = np.random.default_rng(0).random((2, 50))
    assert correlation(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_content_has_a_digest_and_sizes_span_the_same_box() -> None:
    case = moved()
    assert case.digest == moved().digest
    spoilt = case.fixed.data.copy()
    spoilt[0, 0] += 1
    assert replace(case, fixed=Image(spoilt, GRID)).digest != case.digest
    assert replace(case, fixed_points=None).digest != case.digest
    small = resized(case, (16, 20))
    assert small.fixed.data.shape == (16, 20)
    np.testing.assert_allclose(small.fixed.grid.to_world([15, 19]), GRID.to_world([31, 39]))
    assert file_name(3, "a/b <- ../c") == "003-a_b__-____c"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A CSV of one pair that lies 6 mm apart."""
    case = moved()
    for name, image in (("f", case.fixed), ("m", case.moving)):
        write_image(tmp_path / f"{name}.nii.gz", image.data, image.grid)
        write_image(tmp_path / f"{name}l.nii.gz", labels_of(image.data), image.grid)
    path = tmp_path / "pairs.csv"
    path.write_text(
        "name,fixed,moving,fixed_labels,moving_labels\none,f.nii.gz,m.nii.gz,fl.nii.gz,ml.nii.gz\n"
    )
    return path


def test_every_method_gets_the_same_affine_found_once(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(Source(str(table), Path()), tmp_path, 1)
    rows = [worker(Job(entry(k), 0, "x", keep=True), "one").row for k in ("start", "fast", "pirate")]
    assert not [r.error for r in rows if r.error]
    assert rows[0].dice_before > 0.9
    assert len({r.dice_before for r in rows}) == 1
    assert [r.dice_before for r in rows] == [rows[0].dice] * 3
    (kept,) = (tmp_path / "starts").iterdir()
    assert "one" in kept.name
    monkeypatch.setattr("pirate.benchmark.working.align", None)  # it is not found again
    again = Worker(Source(str(table), Path()), tmp_path, 1)(Job(entry("fast"), 0, "x"), "one").row
    assert again.dice == rows[1].dice
    fields = [read_held(path_of(tmp_path, 0, "one", k), "x") for k in ("start", "fast")]
    assert fields[0] is not None
    assert fields[1] is not None
    assert np.abs(fields[0].field[0] - 3).max() < 1.5  # the affine start is in the field
    assert np.median(np.abs(fields[1].field[0, 8:24, 10:30] - 3)) < 0.5


def test_snapshots_of_the_papers_iteration_come_nearer(plan_of: Callable[..., Plan]) -> None:
    short = replace(entry("pirate"), options={**entry("pirate").options, "iterations": 30})
    plan = plan_of(short, pairs=1)
    worker = Worker(plan.track.source, plan.out, 1)
    done = worker(Job(short, 0, "x", keep=True), "p")
    assert done.row.error == ""
    assert done.row.iterations == 30
    assert done.peak_mb > 50
    held = read_held(path_of(plan.out, 0, plan.track.pairs[0], "pirate"), "x")
    assert held is not None
    assert list(held.snapshots) == [5, 10, 25]
    fixed = plan.track.cases[0].fixed.data
    errors = [float(np.square(held.snapshots[t] - fixed).mean()) for t in (5, 10, 25)]
    assert errors[0] > errors[1] > errors[2]
    same = worker(Job(short, 0, "x"), "p").row  # without looking on, the same
    assert same.dice == done.row.dice
    assert same.sdlogj == done.row.sdlogj


def test_the_recorder_is_the_denoiser_and_leaves_the_probe_out() -> None:
    case = moved()
    recorder = Recorder(Identity())
    plug.checked(recorder, "r", 2, torch.device("cpu"))
    assert (recorder.calls, recorder.fields) == (0, {})
    for _ in range(401):
        recorder(torch.zeros(1, 2, 16, 20), 0.5)
    assert list(recorder.fields) == [5, 10, 25, 50, 100, 200, 400]
    shown = images_at(case, None, recorder.fields)
    assert len(shown) == SHOWN
    assert {5, 400} < set(shown)
    np.testing.assert_allclose(shown[5], case.moving.data, atol=1e-6)


def test_what_goes_wrong_is_a_row(plan_of: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(entry("fast"), pairs=1)
    worker = Worker(plan.track.source, plan.out, 1)

    def strike(error: BaseException) -> Callable[..., None]:
        def register(*arguments: object) -> None:
            raise error

        return register

    for error, told in (
        (MemoryError(), "the memory ran out"),
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
    ):
        monkeypatch.setattr(worker, "register", strike(error))
        row = worker(Job(entry("fast"), 0, "m"), "p").row
        assert (row.error, row.made_from, row.pair) == (told, "m", "p")
    unread = Worker(Source("oasis2d", Path("nowhere")), plan.out, 1)(Job(entry("fast"), 0, "m"), "p").row
    assert "oasis2d.npz" in unread.error


def test_controls_are_as_strong_as_they_say(
    plan_of: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(entry("gaussian"))
    worker = Worker(plan.track.source, plan.out, 1)
    assert {f.shape for f in worker._training_fields()} == {(1, 2, 16, 20)}
    fields = [torch.randn((1, 2, 16, 20), generator=torch.Generator().manual_seed(s)) for s in range(2)]
    monkeypatch.setattr(worker, "_training_fields", lambda: fields)  # rough ones: every Gaussian changes them
    gaussian = worker.prior(entry("gaussian"))
    assert isinstance(gaussian, Gaussian)
    assert worker.prior(entry("gaussian")) is gaussian  # built once
    learned = plug.load("pirate", 2, resolution=2)
    strong = controls.strength(lambda z: learned(z, controls.SIGMA), fields)  # type: ignore[call-arg]
    assert controls.strength(lambda z: gaussian(z, controls.SIGMA), fields) == pytest.approx(strong, rel=1e-3)
    assert controls.strength(lambda z: torch.zeros_like(z), [torch.full((1, 2, 4, 4), 2.0)]) == 2.0
    assert controls.built("tv", 2, None, []) == "tv"
    for kind in ("random", "permuted"):
        control = controls.built(f"{kind}:pirate", 2, 2, [])
        assert isinstance(control, Learned)
        changed = control(fields[0], 0.5) - learned(fields[0], 0.5)  # type: ignore[call-arg]
        assert float(changed.abs().max()) > 1e-4
    for prior, match in (("gaussian:tv", "not a network"), ("odd:pirate", "no control 'odd'")):
        with pytest.raises(UsageError, match=match):
            controls.built(prior, 2, None, [])
    with pytest.raises(UsageError, match="needs fields"):
        controls.built("gaussian:pirate", 2, 2, [])


def test_copies_of_another_size_are_timed(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(entry("fast"), pairs=1)
    done = Worker(plan.track.source, plan.out, 1)(Job(entry("fast"), 0, "m", shape=(24, 30)), "p")
    assert done.row.error == ""
    assert done.row.seconds > 0
    assert math.isnan(done.row.dice)
