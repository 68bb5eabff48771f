"""``pirate fields``: corpora from images, resumable, from training subjects only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs

from pirate.cli import fielding
from pirate.cli.fielding import Request, run
from pirate.errors import InputError, QualityError, UsageError
from pirate.grid import Grid
from pirate.io.nifti import write_image
from pirate.ops.jacobian import mark_folds
from pirate.training.fields import Corpus

SHAPE = (40, 44)


def request(out: Path, **changes: object) -> Request:
    base = Request(
        out, None, None, "random", 3, 2, "fast", "none", "train", 0, "32x40", (), 1, True
    )  # fmt: skip
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of four planes."""
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(4):
        shift = (0.7 * k, -0.5 * k)
        write_image(folder / f"s{k}.nii.gz", blobs(SHAPE, shift=shift), Grid(SHAPE, np.eye(4)))
    return folder


@pytest.fixture
def slices(tmp_path: Path) -> Path:
    """The data folder with an ``oasis2d.npz`` of three training and two validation slices."""
    norm = np.stack([blobs(SHAPE, shift=(0.6 * k, 0.4 * k)) for k in range(5)])
    norm = (255 * norm / norm.max()).astype(np.uint8)
    np.savez(
        tmp_path / "oasis2d.npz", ids=np.array([f"{k:04d}" for k in range(5)]), norm=norm, seg24=norm,
        split=np.array(["train", "train", "validation", "train", "validation"]),
    )  # fmt: skip
    return tmp_path


def test_random_fields_need_no_images_and_come_out_the_same(tmp_path: Path) -> None:
    run(request(tmp_path / "a"))
    run(request(tmp_path / "b", count=2))
    run(request(tmp_path / "b"))  # continued
    a, b = Corpus.open(tmp_path / "a"), Corpus.open(tmp_path / "b")
    assert len(a) == len(b) == 3
    assert a.shape == (16, 20)
    assert a.subjects(0) == ()
    for i in range(3):
        torch.testing.assert_close(a.field(i), b.field(i), rtol=0, atol=0)
    assert not torch.equal(a.field(0), a.field(1))
    run(request(tmp_path / "c", changes=("amplitude=9", "scales=[0.2]")))
    assert float(Corpus.open(tmp_path / "c").field(0).abs().max()) > 0
    assert Corpus.open(tmp_path / "c").recipe.settings["amplitude"] == 9.0


def test_our_solver_makes_fields_of_ones_own_images(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    wanted = request(out, method="pirate", data=images, shape=None, resolution=1, quiet=False)
    run(wanted)
    corpus = Corpus.open(out)
    assert len(corpus) == 3
    assert corpus.shape == SHAPE
    assert all(mark_folds(corpus.field(i)[None])[0] == 0 for i in range(3))
    recipe = corpus.recipe
    assert set(recipe.sources) == {"s0", "s1", "s2", "s3"}
    assert all(len(digest) == 64 for digest in recipe.sources.values())
    assert recipe.settings["prior"] == "none"
    assert recipe.settings["preset"] == "fast"
    fixed, moving = (int(name[1]) for name in corpus.subjects(0))
    inside = corpus.field(0)[0][16:24, 18:26].mean()
    assert float(inside) == pytest.approx(0.7 * (moving - fixed), abs=0.5)
    said, heard = capsys.readouterr()
    assert said.splitlines()[0].startswith("3 fields of 40x44 voxels, 0 dropped")
    assert "fields: 3 of 3" in heard
    run(wanted)
    assert "3 of 3 are there already" in capsys.readouterr().err


def test_only_subjects_of_the_split_are_used(slices: Path, tmp_path: Path) -> None:
    for split, expected in (("train", {"0000", "0001", "0003"}), ("validation", {"0002", "0004"})):
        out = tmp_path / split
        run(
            request(
                out, method="nodeo", data=slices, track="oasis2d", shape=None, count=2, split=split,
                changes=("iterations=2", "window=5", "channels=4"),
            )
        )  # fmt: skip
        corpus = Corpus.open(out)
        assert {name for i in range(2) for name in corpus.subjects(i)} <= expected
        assert set(corpus.recipe.sources) == expected
        assert corpus.recipe.data == f"oasis2d, {split}"
        assert corpus.recipe.spacing == pytest.approx((39 / 19, 43 / 21))
        assert corpus.recipe.settings["iterations"] == 2
    with pytest.raises(InputError, match="made with other settings"):
        run(request(tmp_path / "train", method="nodeo", data=slices, track="oasis2d", shape=None, count=2))
    with pytest.raises(InputError, match="7 asked for"):
        run(
            request(tmp_path / "x", method="nodeo", data=slices, track="oasis2d", shape=None, count=7)
        )  # fmt: skip


def test_what_was_made_before_an_interrupt_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = fielding.random_field, []

    def tired(*arguments: object) -> torch.Tensor:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fielding, "random_field", tired)
    with pytest.raises(KeyboardInterrupt):
        run(request(tmp_path / "a"))
    assert len(Corpus.open(tmp_path / "a")) == 2
    monkeypatch.setattr(fielding, "random_field", real)
    run(request(tmp_path / "a"))
    assert len(Corpus.open(tmp_path / "a")) == 3


def test_a_corpus_of_nothing_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = 9 * torch.randn(1, 2, 16, 20, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(fielding, "random_field", lambda *_: wild)
    with pytest.raises(QualityError, match="no field was kept"):
        run(request(tmp_path / "a"))
    table = json.loads((tmp_path / "a" / "corpus.json").read_text())
    assert [bool(row["dropped"]) for row in table["fields"]] == [True] * 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "magic"}, "--method magic"),
        ({"track": "mars"}, "--track mars"),
        ({"split": "test"}, "--split test"),
        ({"resolution": 3}, "--resolution 3"),
        ({"affine": "wild"}, "--affine wild"),
        ({"method": "pirate"}, "give --data"),
        ({"data": Path("x"), "method": "nodeo"}, "--shape is for random fields"),
        ({"shape": "40xx"}, "--shape 40xx"),
        ({"shape": "2x2"}, "--shape 2x2"),
        ({"changes": ("nothing=1",)}, "--set nothing"),
        ({"changes": ("amplitude=[1]",)}, "--set amplitude"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        run(request(tmp_path / "a", **changes))
    assert not (tmp_path / "a").exists()


def test_odd_folders_of_images_are_refused(images: Path, tmp_path: Path) -> None:
    def refused(data: Path, sentence: str) -> None:
        with pytest.raises(InputError, match=sentence):
            run(request(tmp_path / "a", method="pirate", data=data, shape=None))

    refused(tmp_path / "nowhere", "cannot be read")
    listed = tmp_path / "list.txt"
    listed.write_text("images/s0.nii.gz\n")
    refused(listed, "holds 1 images")
    write_image(images / "z.nii.gz", blobs((30, 30)), Grid((30, 30), np.eye(4)))
    refused(images, r"z.nii.gz: its shape is \(30, 30\)")
    listed.write_text("images/s0.nii.gz\n\nimages/s1.nii.gz\n")
    run(request(tmp_path / "b", method="pirate", data=listed, shape=None, count=2))
    assert set(Corpus.open(tmp_path / "b").recipe.sources) == {"s0", "s1"}


def test_all_tracks_are_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def reader(name: str) -> Callable[..., list[object]]:
        def read(root: Path, split: str) -> list[object]:
            asked.append((name, split))
            raise InputError("enough")

        return read

    for name in fielding.TRACKS:
        monkeypatch.setattr(fielding.readers, name, reader(name))
        with pytest.raises(InputError, match="enough"):
            run(request(tmp_path / "a", data=tmp_path, track=name, shape=None))
    assert asked == [(name, "train") for name in fielding.TRACKS]
