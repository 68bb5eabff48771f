"""``pirate benchmark`` on small generated slices, from pairs to tables."""

from __future__ import annotations

import csv
import dataclasses
import multiprocessing
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.benchmark.conftest import Inline, write_slices
from tests.conftest import blobs, labels_of
from tests.data.layout_samples import learn2reg, neurite

from pirate.benchmark import lessons
from pirate.benchmark.entries import entries
from pirate.benchmark.rows import read_rows
from pirate.benchmark.timing import read_timings
from pirate.benchmark.tracks import Source, of
from pirate.cli import benchmarking
from pirate.cli.benchmark_training import train_all
from pirate.cli.benchmarking import Request, _entries, run
from pirate.data.training_sets import public
from pirate.errors import InputError, OutputError, QualityError, UsageError
from pirate.grid import Grid
from pirate.io.nifti import write_image
from pirate.io.weights import Card, load_weights, save_weights
from pirate.training.loop import CHECKPOINT

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One core, one process, no pictures: those have tests of their own."""
    monkeypatch.setattr("pirate.benchmark.runner.Crew", Inline)
    monkeypatch.setattr("pirate.benchmark.runner.threads_allowed", lambda: 1)
    monkeypatch.setattr("pirate.cli.benchmark_training.cores", lambda: 1)
    monkeypatch.setattr(benchmarking, "draw_pages", lambda measured, out: None)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of two pairs of 2-D images with labels."""
    folder = tmp_path_factory.mktemp("pairs")
    grid = Grid((32, 40), np.eye(4))
    for i in range(3):
        image = blobs((32, 40), shift=(0.8 * i, -0.5 * i))
        write_image(folder / f"i{i}.nii.gz", image, grid)
        write_image(folder / f"l{i}.nii.gz", labels_of(image), grid)
    lines = ["fixed,moving,fixed_labels,moving_labels"]
    lines += [f"i0.nii.gz,i{k}.nii.gz,l0.nii.gz,l{k}.nii.gz" for k in (1, 2)]
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return folder / "pairs.csv"


def test_own_pairs_end_in_tables(pirate_command: Command, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["benchmark", pairs, "--out", out, "--methods", "fast,default", "--jobs", "1", "--threads", "1"]
    code, said, heard = pirate_command(*words, "--skip", "scaling")
    assert code == 0, heard
    assert re.search(r"pirate `default` +0\.8\d+ \[", said)
    assert f"results in {out}" in said
    assert "about 0 s left" in heard
    assert {p.name for p in out.iterdir()} == {
        "benchmark.json", "elapsed.json", "kept", "rows.csv", "starts", "tables", "timing.csv",
    }  # fmt: skip
    assert {p.name for p in (out / "tables").iterdir()} >= {"main.csv", "main.md", "main.tex", "corner.md"}
    with (out / "tables" / "main.csv").open(newline="") as file:
        titles = [line["method"] for line in csv.DictReader(file)]
    assert titles == ["start", "pirate `fast`", "pirate `default`"]
    assert [t.entry for t in read_timings(out / "timing.csv")] == ["fast", "default"]
    before = (out / "rows.csv").read_bytes()
    (out / "tables" / "main.md").unlink()
    code, again, _ = pirate_command(
        "benchmark", pairs, "--out", out, "--methods", "fast,default", "--only-page"
    )
    assert (code, again) == (0, said)
    assert (out / "tables" / "main.md").is_file()
    assert (out / "rows.csv").read_bytes() == before
    code, _, heard = pirate_command(*words[:-1], "2")
    assert code == 4
    assert "its threads was 1, now it is 2" in heard


def test_a_supervised_prior_is_not_tried_on_images_of_ones_own_unless_asked_for(
    pairs: Path, asked: Request
) -> None:
    """It has learned T1 brains; the pairs of a table may show anything."""
    table = of(Source(str(pairs), Path()))
    own = Request(str(pairs), asked.out)
    assert not any(e.supervised for e in _entries(own, table))
    named = _entries(dataclasses.replace(own, methods="default,default-anatomy"), table)
    assert [e.key for e in named] == ["start", "default", "default-anatomy"]
    slices = of(Source("oasis2d", asked.data, 1))  # type: ignore[arg-type]
    assert any(e.supervised for e in _entries(dataclasses.replace(asked, methods=None), slices))


@pytest.fixture
def asked(tmp_path: Path) -> Request:
    """One slice pair by `fast`, and VoxelMorph, whose training takes two steps."""
    write_slices(tmp_path)
    return Request(
        "oasis2d", tmp_path / "out", tmp_path, "fast,voxelmorph", pairs=1, jobs=1, threads=1,
        skip="ablation,scaling,timing", quiet=True,
    )  # fmt: skip


def test_a_network_is_trained_once_and_its_weights_can_be_given(
    asked: Request, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run(dataclasses.replace(asked, no_training=True))
    (told,) = [r.error for r in read_rows(asked.out / "rows.csv") if r.entry == "voxelmorph"]
    assert told == "not trained: --no-training"
    assert "VoxelMorph (not trained: --no-training)" in capfd.readouterr().out
    monkeypatch.setitem(lessons.STEPS, ("oasis2d", "voxelmorph"), 2)
    run(asked)
    rows = {r.entry: r for r in read_rows(asked.out / "rows.csv")}
    assert rows["voxelmorph"].error == ""
    assert "held-out pairs" not in capfd.readouterr().out
    (folder,) = (asked.out / "training").iterdir()
    assert lessons.peak_mb(folder) > 50
    monkeypatch.setattr(benchmarking, "train_all", None)  # it is not trained again
    run(asked)
    other = dataclasses.replace(
        asked, out=asked.out.with_name("other"), weights=(f"voxelmorph={folder / 'voxelmorph.safetensors'}",)
    )
    run(other)
    (given,) = [r for r in read_rows(other.out / "rows.csv") if r.entry == "voxelmorph"]
    assert given.dice == rows["voxelmorph"].dice


def test_a_network_that_looks_at_half_the_resolution_says_so(tmp_path: Path) -> None:
    known = entries()
    files = {}
    for method, resolution in (("symnet", 2.0), ("voxelmorph", 1.0)):
        files[method] = tmp_path / f"{method}.safetensors"
        card = Card("a test", {"kind": method}, 3, 0.0, 0.0, resolution, "phantoms", False, "2026-01-01")
        save_weights(files[method], {"w": torch.zeros(1)}, card)
    found = {e.key: e for e in lessons.named(known, files)}
    assert found["symnet"].title == "SYMNet (half resolution)"
    assert found["symnet"].digest(3) == next(e for e in known if e.key == "symnet").digest(
        3
    )  # its rows stay valid
    assert [e for e in found.values() if e.key != "symnet"] == [e for e in known if e.key != "symnet"]


def test_a_training_that_fails_is_a_row(asked: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    few = dict(np.load(asked.data / "oasis2d.npz"))  # type: ignore[operator]
    keep = [0, 1, 10, 11]
    np.savez_compressed(asked.data / "oasis2d.npz", **{k: v[keep] for k, v in few.items()})  # type: ignore[operator]
    run(asked)
    (told,) = [r.error for r in read_rows(asked.out / "rows.csv") if r.entry == "voxelmorph"]
    assert told.startswith("the training failed: ")
    assert "none of them held out" in told


def test_failed_registrations_are_told_in_the_end(asked: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = asked.data / "w.safetensors"  # type: ignore[operator]
    spoilt.write_bytes(b"this is not a weight file")
    with pytest.raises(QualityError, match="1 of 3 registrations gave nothing"):
        run(dataclasses.replace(asked, weights=(f"voxelmorph={spoilt}",)))
    assert (asked.out / "tables" / "main.md").is_file()


@pytest.mark.parametrize(
    ("changes", "kind", "match"),
    [
        ({"skip": "everything"}, UsageError, "--skip everything: expected some of ablation"),
        ({"data": None}, UsageError, "needs --data"),
        ({"methods": "moon"}, UsageError, "--methods moon"),
        ({"track": "moon"}, UsageError, "there is no track moon"),
        ({"weights": ("voxelmorph=none.safetensors",)}, InputError, "there is no such file"),
        ({"weights": ("fast=x",)}, UsageError, "expected METHOD=FILE"),
        ({"only_page": True}, InputError, "there is no benchmark of oasis2d"),
    ],
)
def test_what_makes_no_sense_is_refused(
    asked: Request, changes: dict[str, object], kind: type[Exception], match: str
) -> None:
    with pytest.raises(kind, match=match):
        run(dataclasses.replace(asked, **changes))  # type: ignore[arg-type]


def test_a_folder_with_other_things_is_left_alone(asked: Request) -> None:
    asked.out.mkdir()
    (asked.out / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="holds something else"):
        run(asked)
    assert [p.name for p in asked.out.iterdir()] == ["thesis.tex"]


def test_trainings_share_the_cores_and_a_failure_stops_no_other(
    asked: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pirate.cli.benchmark_training.cores", lambda: 2)
    tasks = [
        lessons.Lesson(method, track, asked.out / method, 1)
        for method, track in (("symnet", "oasis2d"), ("voxelmorph", "nothing"), ("gradirn", "oasis2d"))
    ]
    looked: list[int] = []
    failed = train_all(tasks, asked.data, 0, True, lambda: looked.append(1))  # type: ignore[arg-type]
    assert list(failed) == ["voxelmorph"]
    assert "--track nothing" in failed["voxelmorph"]
    assert [task.weights.is_file() for task in tasks] == [True, False, True]
    assert looked


def test_the_evaluations_of_pirate_plus_are_recorded_in_its_training(asked: Request) -> None:
    track = of(asked.source)
    task = lessons.equilibrium(track, track.entries(), asked.out)
    assert task is not None
    short = dataclasses.replace(task, steps=1)
    assert train_all([short], asked.data, 0, True, lambda: None) == {}  # type: ignore[arg-type]
    assert lessons.folders(asked.out) == {"pirate-plus": task.folder}
    assert "validation_nfe" in (task.folder / "history.csv").read_text()


def test_a_benchmark_tunes_pirate_plus_only_where_it_may_train(
    asked: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def remember(tasks: list[lessons.Lesson], *others: object) -> dict[str, str]:
        trained.extend(task.method for task in tasks)
        return {}

    monkeypatch.setattr(benchmarking, "train_all", remember)
    both = dataclasses.replace(asked, methods="pirate,pirate-plus", no_training=True)
    run(both)
    assert trained == []
    run(dataclasses.replace(both, no_training=False))
    assert trained == ["pirate-plus"]


def test_a_benchmark_interrupted_in_a_training_goes_on_from_its_checkpoint(
    asked: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call has no time for a step of its own: all that its weights have, they have from the checkpoint."""
    monkeypatch.setitem(lessons.STEPS, ("oasis2d", "voxelmorph"), 100_000)

    def check() -> None:
        if any(len(load_file(path)["losses"]) for path in asked.out.glob(f"training/*/{CHECKPOINT}")):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(benchmarking.interrupts, "check", check)
        with pytest.raises(KeyboardInterrupt):
            run(asked)
    (folder,) = (asked.out / "training").iterdir()
    assert not (folder / "voxelmorph.safetensors").exists()
    run(dataclasses.replace(asked, minutes_per_training=1e-9))
    steps = load_weights(folder / "voxelmorph.safetensors")[1].metrics["steps"]
    assert isinstance(steps, int)
    assert steps > 0
    assert steps % 100 == 0  # checkpoints are so many steps apart
    (row,) = [r for r in read_rows(asked.out / "rows.csv") if r.entry == "voxelmorph"]
    assert row.error == ""


def test_trainings_end_when_they_are_interrupted(asked: Request) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    task = lessons.Lesson("voxelmorph", "oasis2d", asked.out / "v", 10_000)
    with pytest.raises(KeyboardInterrupt):
        train_all([task], asked.data, 0, True, stop)  # type: ignore[arg-type]
    assert not task.weights.is_file()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kind", ["neurite-oasis-2d", "learn2reg"])
def test_a_public_data_set_is_measured_on_its_validation_pairs(
    pirate_command: Command, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices with a network trained on the others' subjects; volumes by name, with landmarks."""
    monkeypatch.setitem(lessons.STEPS, ("neurite-oasis-2d", "voxelmorph"), 2)
    folder, out = tmp_path / "set", tmp_path / "out"
    if kind == "learn2reg":
        learn2reg(folder)
    else:
        neurite(folder, 10, plane=True, shape=(32, 40, 1))
    words = [
        "benchmark",
        kind,
        "--data",
        folder,
        "--out",
        out,
        "--jobs",
        "1",
        "--threads",
        "1",
        "--pairs",
        "2",
    ]
    methods = "fast" if kind == "learn2reg" else "fast,voxelmorph"
    code, _, heard = pirate_command(*words, "--methods", methods, "--skip", "ablation,scaling,timing")
    assert code == 0, heard
    people = public(kind, folder)
    rows = read_rows(out / "rows.csv")
    assert {r.entry for r in rows} == {"start", *methods.split(",")}
    assert not [r.error for r in rows if r.error]
    assert all(0 < r.dice < 1 for r in rows if r.entry == "fast")
    pairs = {r.pair for r in rows}
    assert len(pairs) == (1 if kind == "learn2reg" else 2)
    names = {name.strip() for pair in pairs for name in pair.split("<-")}
    assert names <= {e.name for e in people.entries("validation")}
    assert all((r.tre == r.tre) == (kind == "learn2reg") for r in rows)
    trained = list(out.glob("training/*/voxelmorph.safetensors"))
    assert len(trained) == (0 if kind == "learn2reg" else 1)


@pytest.mark.parametrize("track", ["brain3d", "hippocampus", "neurite-oasis", "learn2reg"])
def test_a_folder_without_the_data_ends_in_a_sentence(
    pirate_command: Command, track: str, tmp_path: Path
) -> None:
    code, _, heard = pirate_command("benchmark", track, "--data", tmp_path, "--out", tmp_path / "out")
    assert code == 3
    assert "unexpected" not in heard
    assert "expected" in heard


def test_a_missing_brain_ends_in_a_sentence(pirate_command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "brain3d"
    folder.mkdir()
    (folder / "subjects.csv").write_text("id,split,labels\na,train,\nb,validation,seg35\n")
    code, _, heard = pirate_command("benchmark", "brain3d", "--data", tmp_path, "--out", tmp_path / "out")
    assert code == 3
    assert "a/norm.nii.gz: there is no such file" in heard


def test_a_training_that_a_limit_cut_short_goes_on_without_it(
    asked: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lessons.STEPS, ("oasis2d", "voxelmorph"), 2)
    track = of(asked.source)
    task = lessons.lesson(track, "voxelmorph", asked.out)
    short = dataclasses.replace(asked, minutes_per_training=1e-6)
    run(short)
    assert load_weights(task.weights)[1].metrics["ended"] == "minutes"
    before = task.weights.read_bytes()
    assert lessons.finished(task, 1e-6)
    assert not lessons.finished(task, 1.0)
    assert not lessons.finished(task, 0)
    with monkeypatch.context() as change:
        change.setattr(benchmarking, "train_all", None)
        run(short)  # the same limit: nothing more is to be had
        run(dataclasses.replace(asked, no_training=True))  # what there is is taken
    assert task.weights.read_bytes() == before
    run(asked)
    metrics = load_weights(task.weights)[1].metrics
    assert (metrics["ended"], metrics["steps"]) == ("steps", 2)
    assert lessons.finished(task, 0)
    assert lessons.finished(task, 1e-6)
    monkeypatch.setattr(benchmarking, "train_all", None)  # it is not started again
    run(asked)


def test_a_training_that_was_asked_to_stop_is_not_finished(asked: Request) -> None:
    card = Card("a test", {"kind": "voxelmorph"}, 2, 0.0, 0.0, 1.0, "phantoms", False, "2026-01-01")
    task = lessons.Lesson("voxelmorph", "oasis2d", asked.out, 2)
    assert not lessons.finished(task, 0)
    asked.out.mkdir()
    for ended, expected in (("asked", False), ("patience", True), ("steps", True)):
        told = dataclasses.replace(card, metrics={"ended": ended, "minutes": 3.0})
        save_weights(task.weights, {"w": torch.zeros(1)}, told)
        assert lessons.finished(task, 0) is expected
        assert lessons.finished(task, 5.0) is expected
