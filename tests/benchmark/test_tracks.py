"""The pairs of each track, the entries on it, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tests.benchmark.conftest import entry, row, write_slices
from tests.conftest import blobs, labels_of
from tests.data.layout_samples import candi, empire, learn2reg, neurite

from pirate import settings
from pirate.baselines.methods import METHODS
from pirate.baselines.symnet import SYMNet, SYMNetLoss
from pirate.benchmark import elapsed, lessons
from pirate.benchmark.entries import GROUPS, START, chosen, entries, weights_name
from pirate.benchmark.gathering import gather
from pirate.benchmark.kept import Held, is_kept, path_of, read_held, roles, write_held
from pirate.benchmark.lessons import effort, folders, lesson, peak_mb, trainable, why_not
from pirate.benchmark.machine import THREADS
from pirate.benchmark.plan import Plan, check_folder, in_order, read_record, usual, write_record
from pirate.benchmark.rows import write_rows
from pirate.benchmark.runner import Runner
from pirate.benchmark.tracks import BRAINS, Source, of
from pirate.data import subjects
from pirate.data.layouts import READERS
from pirate.data.reading import People
from pirate.data.training_sets import Usual, public
from pirate.denoisers import zoo
from pirate.errors import InputError, OutputError, UsageError
from pirate.settings import preset


def write_nifti(path: Path, data: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(data, np.diag([1.0, 1.0, 2.0, 1.0])), path)


def write_volumes(folder: Path) -> None:
    """Small copies of hippocampus, brain3d and lung."""
    image = blobs((12, 14, 10))
    for i in range(4):
        write_nifti(folder / "hippocampus" / "images" / f"h{i}.nii.gz", image)
        write_nifti(folder / "hippocampus" / "labels" / f"h{i}.nii.gz", labels_of(image))
    lines = ["id,split", "h0,train", "h1,train", "h2,validation", "h3,validation"]
    (folder / "hippocampus" / "subjects.csv").write_text("\n".join(lines) + "\n")
    names = [*BRAINS[0], *BRAINS[1], "oasis_0133", "oasis_0140"]
    for name in names:
        write_nifti(folder / "brain3d" / name / "norm.nii.gz", (100 * image).astype(np.uint8))
        write_nifti(folder / "brain3d" / name / "seg35.nii.gz", labels_of(image).astype(np.uint8))
    split = ["validation"] * 5 + ["train"] * 2
    lines = ["id,split,labels", *(f"{n},{s},seg35" for n, s in zip(names, split, strict=True))]
    (folder / "brain3d" / "subjects.csv").write_text("\n".join(lines) + "\n")
    for name in ("fixed", "moving"):
        write_nifti(folder / "lung" / f"{name}.nii.gz", image)
        write_nifti(folder / "lung" / f"{name}_mask.nii.gz", (image > 0.3).astype(np.uint8))
        (folder / "lung" / f"{name}_landmarks_vox.txt").write_text("1.0 2.0 3.0\n4.0 5.0 6.0\n")


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("volumes")
    write_volumes(folder)
    return folder


def test_slices_are_the_validation_pairs_of_seed_0(data: Path) -> None:
    track = of(Source("oasis2d", data, 5))
    drawn = subjects.pairs(subjects.oasis2d(data, split="validation"), 5, seed=0)
    assert track.pairs == tuple(f"{a.name} <- {b.name}" for a, b in drawn)
    assert [c.name for c in track.cases[1:3]] == list(track.pairs[1:3])
    assert track.cases[-1].name == track.pairs[-1]
    assert len(of(Source("oasis2d", data)).pairs) == 12  # no more than there are
    assert all(int(c.fixed.name[1:]) >= 8 for c in track.cases)
    assert all(int(c.fixed.name[1:]) < 8 for c in track.calibration())


def test_volumes(volumes: Path) -> None:
    hippocampus = of(Source("hippocampus", volumes))
    assert (len(hippocampus.pairs), hippocampus.affine, hippocampus.ndim) == (2, "affine", 3)
    assert next(e.prior for e in hippocampus.entries() if e.key == "pirate") == "pirate-hippocampus"
    assert [c.name for c in hippocampus.calibration()] == [
        "h1 <- h0",
        "h0 <- h1",
    ] or hippocampus.calibration()
    brain = of(Source("brain3d", volumes))
    assert len(brain.pairs) == 8
    assert brain.pairs[0] == "oasis_0001 <- oasis_0002"
    assert brain.pairs[-1] == "fstrain_06 <- fstrain_05"
    assert brain.cases[7].fixed_labels is not None
    assert [c.name for c in brain.calibration()] == ["oasis_0133 <- oasis_0140"]
    assert (hippocampus.few, brain.few) == ({}, {"syn-cc": 1})
    assert next(e.method for e in brain.entries() if e.key == "nodeo") == "nodeo:half"
    lung = of(Source("lung", volumes))
    (case,) = lung.cases
    assert case.fixed_labels is not None
    assert set(np.unique(case.fixed_labels.data)) == {0, 1}
    assert case.fixed_points is not None
    np.testing.assert_allclose(case.fixed_points[0], [1, 2, 6])  # 2 mm slices
    assert not [e for e in lung.entries() if e.key == "gaussian"]  # there is nothing to calibrate it on


def test_what_is_not_there_is_refused(tmp_path: Path, volumes: Path) -> None:
    with pytest.raises(UsageError, match="there is no track moon"):
        of(Source("moon", tmp_path))
    with pytest.raises(InputError, match=r"fixed\.nii\.gz: there is no such file"):
        of(Source("lung", tmp_path))
    table = volumes / "pairs.csv"
    write_nifti(volumes / "flat.nii.gz", blobs((12, 14)))
    table.write_text("fixed,moving\nlung/fixed.nii.gz,lung/moving.nii.gz\nflat.nii.gz,flat.nii.gz\n")
    with pytest.raises(InputError, match="another number of axes"):
        of(Source(str(table), Path()))
    track = of(Source(str(table), Path(), 1))
    assert (track.name, track.ndim, track.affine, track.training) == ("pairs", 3, "affine", "")


def test_public_data_sets(tmp_path: Path) -> None:
    """Validation subjects only, pairs that the set names where it does, and a word about both."""
    neurite(tmp_path / "neurite-oasis", 10)
    neurite(tmp_path / "neurite-oasis-2d", 10, plane=True)
    candi(tmp_path / "candi", tuple(f"HC_{i:03d}" for i in range(8)))
    empire(tmp_path / "empire10")
    learn2reg(tmp_path / "learn2reg")
    made = {kind: of(Source(kind, tmp_path / kind)) for kind in READERS}
    for kind, track in made.items():
        assert (track.name, track.training) == (kind, kind)
        assert track.ndim == (2 if kind.endswith("2d") else 3)
        assert track.affine == ("none" if kind.startswith("neurite") else "affine")
        validating = {e.name for e in public(kind, tmp_path / kind).entries("validation")}
        shown = {Path(image.name).name.split(".")[0] for c in track.cases for image in (c.fixed, c.moving)}
        assert shown <= validating
        learned = {Path(i.name).name.split(".")[0] for c in track.calibration() for i in (c.fixed, c.moving)}
        assert not learned & validating
        assert all(c.fixed_labels is not None for c in track.cases)
        assert track.entries()
    assert made["empire10"].cases[0].fixed.name.endswith("_Fixed.mhd")
    assert made["empire10"].cases[0].moving.name.endswith("_Moving.mhd")
    assert made["learn2reg"].pairs == ("OASIS_0005_0000<-OASIS_0006_0000",)
    points = made["learn2reg"].cases[0].fixed_points
    assert points is not None
    np.testing.assert_allclose(points[0], [1, 2, 3])
    assert "as the set says. The pairs are those that the set names." in made["learn2reg"].note
    assert "perhaps of some of these" in made["learn2reg"].note
    assert "Labels of fewer than 1000 voxels" in made["candi"].note
    assert "divided by seed 0: 20 % are for validation. The pairs were drawn by seed 0." in made["candi"].note
    assert made["candi"].title == "CANDI"


def test_of_a_large_set_few_brains_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neurite(tmp_path, 10)
    asked: list[str] = []
    read = People.__getitem__
    monkeypatch.setattr(People, "__getitem__", lambda people, name: asked.append(name) or read(people, name))
    track = of(Source("neurite-oasis", tmp_path, 1))
    assert asked == []
    _ = track.cases[0]
    assert len(asked) == 2
    monkeypatch.setattr("pirate.benchmark.tracks.LARGE", 100)
    whole = of(Source("neurite-oasis", tmp_path))
    assert (whole.all_cores, whole.few, whole.ablation_pairs) == (True, {"syn-cc": 1}, 2)
    assert "--weights gradirn=FILE" in why_not(whole, "gradirn")
    assert len(whole.calibration()) == 1


def test_landmarks_of_drawn_pairs_stay_on_the_images_as_they_are(tmp_path: Path) -> None:
    table = learn2reg(tmp_path) / "OASIS_dataset.json"
    free = json.loads(table.read_text())
    del free["training_paired_images"], free["registration_val"]
    for kind in ("images", "labels", "keypoints"):  # ten people, two of whom validate
        for path in sorted((tmp_path / f"{kind}Tr").iterdir())[:4]:
            shutil.copy(path, path.with_name(path.name.replace("OASIS_0", "OASIS_1")))
    names = sorted(path.name for path in (tmp_path / "imagesTr").iterdir())
    free["training"] = [{"image": f"./imagesTr/{name}"} for name in names]
    table.write_text(json.dumps(free))
    track = of(Source("learn2reg", tmp_path))
    assert len(track.pairs) == 2
    assert all(c.fixed_points is not None and c.moving_points is not None for c in track.cases)


def test_a_set_without_a_pair_for_validation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pair is for validation"):
        of(Source("empire10", empire(tmp_path, ("01",))))


def test_keys_are_unique_and_groups_known() -> None:
    known = entries("-x")
    assert len({e.key for e in known}) == len(known)
    assert {e.group for e in known} == set(GROUPS)
    for e in known:
        if e.paper:
            preset(e.method, 3).changed(e.options).check_stability(3)
    assert next(e for e in known if e.supervised).prior == "anatomy-x"


def test_names_choose_entries() -> None:
    known = entries()

    def keys(*names: str, skip: tuple[str, ...] = ()) -> list[str]:
        return [e.key for e in chosen(known, names or None, skip)]

    assert keys("log-demons", "default", "pirate") == [START, "log-demons", "pirate", "default"]
    assert keys("syn") == [START, "syn-default", "syn-cc"]
    assert keys("syn:cc") == [START, "syn-cc"]
    assert keys("tv") == [START, "tv"]
    assert keys("step")[1:] == ["pirate-fixed", "pirate-plus-cosine", "pirate-plus-fixed"]
    assert {"p", "random", "tv"} < set(keys("ablation"))
    assert keys() == [e.key for e in known]
    assert keys(skip=("ablation",)) == [e.key for e in known if e.group == "main"]
    with pytest.raises(UsageError, match="--methods moon: expected some of start"):
        keys("fast", "moon")


def test_a_preset_that_the_tables_lack_gets_a_row_of_its_own() -> None:
    found = chosen(entries(), ["greedy:sv", "greedy", "greedy:sv", "syn:cc"])
    assert [e.key for e in found] == [START, "syn-cc", "greedy", "greedy-sv"]
    assert (found[-1].method, found[-1].base, found[-1].group) == ("greedy:sv", "greedy", "main")
    assert found[-1].digest(3) != found[-2].digest(3)
    with pytest.raises(UsageError, match="greedy has no preset 'svx'; expected one of"):
        chosen(entries(), ["greedy:svx"])
    with pytest.raises(UsageError, match="there is no method 'moon'"):
        chosen(entries(), ["moon:sv"])
    with pytest.raises(UsageError, match="expected some of start"):
        chosen(entries(), ["greedy:"])


def test_obstacles_and_digests(tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"1")
    network = entry("symnet")
    assert network.obstacle(2).startswith("no weights: pirate train symnet")
    assert network.obstacle(2, why_not="because") == "because"
    assert network.obstacle(2, weights) == ""
    assert entry("pirate").obstacle(2) == ""
    odd = entries("-nowhere")
    told = {e.key: e.obstacle(2) for e in odd if e.obstacle(2)}
    assert told["pirate-plus"] == "no weights ship for this: pirate train deq"
    assert told["p+r"] == "no weights ship for this: pirate train denoiser"
    assert told["default-anatomy"] == "no weights ship for this: pirate train anatomy"
    assert "tv" not in told
    first = network.digest(2, weights)
    weights.write_bytes(b"2")
    assert network.digest(2, weights) != first
    assert entry("pirate").digest(2) != entry("p+r").digest(2)
    assert weights_name("symnet=a=b") == ("symnet", Path("a=b"))
    for text in ("symnet", "fast=x"):
        with pytest.raises(UsageError, match="expected METHOD=FILE"):
            weights_name(text)


def test_rows_made_with_other_constants_are_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, rival = entry("default"), entry("log-demons")
    before = ours.digest(3), rival.digest(3)
    assert before == (ours.digest(3), rival.digest(3))
    monkeypatch.setitem(settings._SMALL, "default", {"iterations": (100, 100, 41)})
    method = METHODS["log-demons"]
    name = next(iter(method.presets))
    other = {name: replace(method.presets[name], iterations=(1, 1))}
    monkeypatch.setitem(METHODS, "log-demons", replace(method, presets=other))
    assert ours.digest(3) != before[0]
    assert rival.digest(3) != before[1]
    assert ours.digest(2) != ours.digest(3)


def test_the_folder_is_checked(data: Path, tmp_path: Path) -> None:
    out, others = tmp_path / "out", tmp_path / "others"
    assert read_record(out) is None
    assert check_folder(out, "oasis2d", 1, False)  # the first call
    (out / "other.txt").write_text("as of a training that was interrupted")
    assert not check_folder(out, "oasis2d", 1, False)
    others.mkdir()
    (others / "other.txt").write_text("x")
    with pytest.raises(OutputError, match="holds something else"):
        check_folder(others, "oasis2d", 1, False)
    check_folder(others, "oasis2d", 1, True)
    plan = Plan(of(Source("oasis2d", data, 2)), (entry("start"), entry("fast")), out, 1, 2, 0)
    write_record(plan)
    record = read_record(out)
    assert record is not None
    assert [e["key"] for e in record["entries"]] == ["start", "fast"]
    assert [p["sha256"] for p in record["pairs"]] == [c.digest for c in plan.track.cases]
    check_folder(out, "oasis2d", 1, False)
    for track, threads, match in (("lung", 1, "its track was oasis2d"), ("oasis2d", 2, "its threads was 1")):
        with pytest.raises(OutputError, match=match):
            check_folder(out, track, threads, False)
    with pytest.raises(OutputError, match="cannot be written"):
        check_folder(out / "other.txt", "oasis2d", 1, False)
    (out / "benchmark.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_record(out)


def test_usual_threads_and_order(data: Path, volumes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("plan", "machine"):
        monkeypatch.setattr(f"pirate.benchmark.{module}.cores", lambda: 4)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    slices, brains = of(Source("oasis2d", data, 1)), of(Source("brain3d", volumes))
    assert usual(slices, None, None) == (1, 4)
    assert usual(slices, 2, None) == (2, 2)
    assert usual(brains, None, None) == (4, 1)
    assert usual(brains, 1, 3) == (1, 3)
    for text, threads in (("3", 3), ("8", 4), ("0", 4), ("many", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert usual(brains, None, None) == (threads, 1)
    monkeypatch.setenv("PIRATE_NUM_THREADS", "2")
    assert usual(brains, None, None) == (2, 1)
    first, others = in_order(entries())
    assert [e.key for e in first] == ["start", "default"]
    assert len(first) + len(others) == len(entries())


def test_lessons_are_named_after_what_they_depend_on(
    data: Path, volumes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = of(Source("oasis2d", data, 1))
    task = lesson(track, "symnet", tmp_path)
    assert task.steps == 16_000
    assert task.weights.name == "symnet.safetensors"
    assert task == lesson(track, "symnet", tmp_path)
    assert lesson(track, "voxelmorph", tmp_path).folder != task.folder
    (tmp_path / "other").mkdir()
    write_slices(tmp_path / "other")
    content = dict(np.load(tmp_path / "other" / "oasis2d.npz"))
    content["norm"][0, 0, 0] += 1
    np.savez_compressed(tmp_path / "other" / "oasis2d.npz", **content)
    other = of(Source("oasis2d", tmp_path / "other", 1))
    assert lesson(other, "symnet", tmp_path).folder != task.folder
    whole = of(Source("brain3d", volumes))
    assert lesson(whole, "symnet", tmp_path).steps == 2200
    assert (
        len({lesson(of(Source(n, volumes)), "symnet", tmp_path).folder for n in ("hippocampus", "brain3d")})
        == 2
    )
    for change in (
        lambda m: m.setitem(lessons.USUAL, "oasis2d", Usual(2, 2, "none")),
        lambda m: m.setitem(lessons.USUAL, "oasis2d", Usual(2, 1, "rigid")),
        lambda m: m.setattr(lessons, "untrained", lambda method, ndim: (SYMNet(ndim, width=4), SYMNetLoss())),
        lambda m: m.setattr(
            lessons, "untrained", lambda method, ndim: (SYMNet(ndim), SYMNetLoss(smoothness=9.0))
        ),
        lambda m: m.setattr(lessons, "HELD_OUT", 0.2),
    ):
        with monkeypatch.context() as changed:
            change(changed)
            assert lesson(track, "symnet", tmp_path).folder != task.folder
    assert lesson(track, "symnet", tmp_path).folder == task.folder
    assert why_not(track, "symnet") == ""
    assert "nothing to train on" in why_not(of(Source("lung", volumes)), "symnet")
    assert "--weights gradirn=FILE" in why_not(whole, "gradirn")
    slices = of(Source("neurite-oasis-2d", neurite(tmp_path / "slices", 10, plane=True)))
    first = lesson(slices, "symnet", tmp_path).folder
    assert lesson(slices, "symnet", tmp_path).folder == first
    for path in sorted((tmp_path / "slices").glob("*/slice_norm.nii.gz")):  # the voxels of a training subject
        write_nifti(path, blobs((14, 12, 1), 77))
    assert lesson(slices, "symnet", tmp_path).folder != first
    assert trainable(entries()) == ["symnet", "voxelmorph", "gradirn"]


def test_pirate_plus_is_tuned_where_that_takes_minutes(
    data: Path, volumes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track = of(Source("oasis2d", data, 1))
    task = lessons.equilibrium(track, track.entries(), tmp_path)
    assert task is not None
    assert (task.weights.name, task.start) == (
        "pirate-plus.safetensors",
        zoo.FOLDER / "pirate-2d-r2.safetensors",
    )
    assert lessons.equilibrium(track, (entry("pirate-plus"),), tmp_path) is None  # its start is not compared
    assert lessons.equilibrium(track, (entry("pirate"),), tmp_path) is None
    assert lessons.equilibrium(track, entries("-nowhere"), tmp_path) is None  # no weights ship for it
    brain = of(Source("brain3d", volumes))
    assert lessons.equilibrium(brain, brain.entries(), tmp_path) is None
    hippocampus = of(Source("hippocampus", volumes))
    other = lessons.equilibrium(hippocampus, hippocampus.entries(), tmp_path)
    assert other is not None
    assert "hippocampus" in str(other.start)
    monkeypatch.setattr(lessons, "PLUS_RATE", 2e-4)
    changed = lessons.equilibrium(track, track.entries(), tmp_path)
    assert changed is not None
    assert len({task.folder, other.folder, changed.folder}) == 3


def test_effort_comes_from_cards(tmp_path: Path) -> None:
    bad = tmp_path / "symnet.safetensors"
    bad.write_bytes(b"nothing")
    found = effort(entries(), 2, {"symnet": bad})
    assert np.isnan(found["symnet"]).all()
    assert found["pirate"][0] > 0
    assert "fast" not in found
    assert "pirate" not in effort(entries("-nowhere"), 2, {})
    assert np.isnan(peak_mb(tmp_path))
    (tmp_path / lessons.MEMORY).write_text('{"peak_mb": 12.5}')
    assert peak_mb(tmp_path) == 12.5
    folder = tmp_path / "training" / "symnet-abc"
    folder.mkdir(parents=True)
    (folder / "history.csv").write_text("step\n")
    assert folders(tmp_path) == {"symnet": folder}


def test_kept_arrays_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    image = rng.random((4, 5), dtype=np.float32)
    held = Held(
        rng.random((2, 4, 5), dtype=np.float32), image, None, rng.random((3, 4)), {25: image + 1, 5: image}
    )
    path = path_of(tmp_path, 0, "a <- b", "fast")
    write_held(path, held, "m")
    found = read_held(path, "m")
    assert found is not None
    np.testing.assert_array_equal(found.field, held.field)
    np.testing.assert_array_equal(found.trace, held.trace)
    assert found.warped_labels is None
    assert list(found.snapshots) == [5, 25]
    np.testing.assert_array_equal(found.snapshots[25], image + 1)
    assert is_kept(path, "m")
    assert not is_kept(path, "n")
    assert read_held(path, "n") is None
    assert read_held(path) is not None
    path.write_bytes(path.read_bytes()[:100])
    assert read_held(path, "m") is None
    assert not is_kept(path, "m")
    assert read_held(tmp_path / "none.npz") is None
    assert not is_kept(tmp_path / "none.npz", "m")


def test_roles_follow_the_gain_of_default() -> None:
    pairs = ("a", "b", "c", "d")
    rows = [row("default", p, 0.5 + g) for p, g in zip(pairs, (0.3, 0.1, 0.2, 0.4), strict=True)]
    assert roles(rows, pairs) == {"first": 0, "typical": 2, "smallest gain": 1}
    assert roles([row("fast", "a", 0.9)], pairs) == {"first": 0}
    assert roles(rows[:1], ("a",)) == {"first": 0}
    assert roles([], ()) == {}


def test_a_slow_entry_has_the_first_pairs_only(plan_of: Callable[..., Plan]) -> None:
    plan = plan_of(entry("fast"), entry("syn-cc"), entry("p+s"))
    short = replace(plan, track=replace(plan.track, few={"syn-cc": 2, "p+s": 9}), ablation_pairs=3)
    assert [len(short.pairs_of(e)) for e in short.entries] == [4, 2, 3]
    blocks = Runner(short, lambda progress: None)._blocks(short.entries, frozenset({0, 3}))
    assert [i for e, i in blocks if e.key == "syn-cc"] == [0, 1]  # not on the pairs that are shown
    assert [i for e, i in blocks if e.key == "p+s"] == [0, 1, 2]
    assert [i for e, i in blocks if e.key == "fast"] == [0, 1, 2, 3]
    rows = [row("syn-cc", pair, 0.9) for pair in short.track.pairs]
    write_rows(short.out / "rows.csv", rows)
    found = gather(short, strict=False).rows
    assert [r.pair for r in found] == list(short.track.pairs[:2])


def test_computing_time_is_counted_over_all_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("pirate.benchmark.elapsed.time.monotonic", lambda: now)
    assert elapsed.spent(tmp_path) is None
    first = elapsed.Clock(tmp_path, new=True)
    now += 10
    first.tick()
    assert elapsed.spent(tmp_path) == elapsed.Spent(0.0, 1)  # not yet worth another write
    now += 15
    first.tick()
    assert elapsed.spent(tmp_path) == elapsed.Spent(25.0, 1)  # and then it was killed
    now += 1000
    second = elapsed.Clock(tmp_path, new=False)
    now += 7200
    second.tick(last=True)
    assert elapsed.spent(tmp_path) == elapsed.Spent(7225.0, 2)
    assert str(elapsed.spent(tmp_path)) == "2 h 00 min, 2 calls"
    assert str(elapsed.Spent(5.0, 1)) == "1 min, 1 call"
    (tmp_path / elapsed.FILE).unlink()  # a folder whose first calls nobody counted
    elapsed.Clock(tmp_path, new=False).tick(last=True)
    assert elapsed.spent(tmp_path) is None
