"""Subjects are read from small generated copies of the data folder, and everything odd is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from pirate.data.subjects import Subject, brain3d, hippocampus, oasis2d, pairs
from pirate.errors import InputError

RNG = np.random.default_rng(0)


def write_nifti(path: Path, data: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(data, np.diag([1.0, 1.0, 2.0, 1.0])), path)


def make_oasis2d(root: Path, **changes: np.ndarray) -> None:
    arrays = {
        "ids": np.array(["0001", "0002", "0003"]),
        "split": np.array(["train", "validation", "train"]),
        "norm": RNG.integers(0, 255, (3, 8, 9), dtype=np.uint8),
        "seg24": RNG.integers(0, 24, (3, 8, 9), dtype=np.uint8),
        "seg4": RNG.integers(0, 4, (3, 8, 9), dtype=np.uint8),
    }
    np.savez_compressed(root / "oasis2d.npz", **(arrays | changes))


def make_hippocampus(root: Path) -> None:
    folder = root / "hippocampus"
    for name, shape in (("a", (5, 9, 7)), ("b", (8, 6, 8))):
        write_nifti(folder / "images" / f"{name}.nii.gz", RNG.uniform(100, 900, shape).astype(np.float32))
        write_nifti(folder / "labels" / f"{name}.nii.gz", np.ones(shape, np.uint8))
    (folder / "subjects.csv").write_text("id,split\na,train\nb,validation\n")


def make_brain3d(root: Path) -> None:
    folder = root / "brain3d"
    for name, labels in (("oasis_01", "seg35"), ("oasis_02", "seg4"), ("fs_train_1", "")):
        write_nifti(folder / name / "norm.nii.gz", RNG.integers(0, 255, (4, 5, 6), dtype=np.uint8))
        if labels:
            write_nifti(folder / name / f"{labels}.nii.gz", np.full((4, 5, 6), 3, np.uint8))
    rows = "id,split,labels\noasis_01,train,seg35\noasis_02,train,seg4\nfs_train_1,validation,\n"
    (folder / "subjects.csv").write_text(rows)


def test_slices_are_scaled_to_one_and_keep_their_split(tmp_path: Path) -> None:
    make_oasis2d(tmp_path, norm=np.full((3, 8, 9), 51, np.uint8))
    subjects = oasis2d(tmp_path)
    assert [s.name for s in subjects] == ["0001", "0002", "0003"]
    assert [s.split for s in subjects] == ["train", "validation", "train"]
    first = subjects[0]
    assert first.image.shape == (1, 8, 9)
    assert first.image.dtype == torch.float32
    torch.testing.assert_close(first.image, torch.full((1, 8, 9), 0.2))
    assert first.labels is not None
    assert first.labels.dtype == torch.int16
    assert first.spacing == (1.0, 1.0)
    assert len(first.sha256) == 64
    assert [s.name for s in oasis2d(tmp_path / "oasis2d.npz", split="validation")] == ["0002"]
    coarse = oasis2d(tmp_path, labels="seg4")[0].labels
    assert coarse is not None
    assert int(coarse.max()) < 4


def test_boxes_of_the_hippocampus_are_centred_in_a_common_one(tmp_path: Path) -> None:
    make_hippocampus(tmp_path)
    for root in (tmp_path, tmp_path / "hippocampus"):
        a, b = hippocampus(root)
        assert a.image.shape == b.image.shape == (1, 8, 16, 8)
        assert a.labels is not None
        assert a.labels.shape == (8, 16, 8)
        assert int(a.labels.sum()) == 5 * 9 * 7
        where = a.labels.nonzero()
        assert where.amin(0).tolist() == [1, 3, 0]
        assert where.amax(0).tolist() == [5, 11, 6]
        assert a.spacing == (1.0, 1.0, 2.0)
        inside = a.image[0][a.labels > 0]
        assert float(inside.min()) == 0
        assert float((inside <= 1).float().mean()) == pytest.approx(0.9, abs=0.02)
    (only,) = hippocampus(tmp_path, split="validation")
    assert only.name == "b"
    assert only.image.shape == (1, 8, 16, 8)


def test_brains_know_their_source_and_whether_they_are_labelled(tmp_path: Path) -> None:
    make_brain3d(tmp_path)
    one, two, three = brain3d(tmp_path)
    assert [s.source for s in (one, two, three)] == ["oasis", "oasis", "fs_train"]
    assert one.labels is not None
    assert two.labels is None
    assert three.labels is None
    assert one.image.shape == (1, 4, 5, 6)
    assert float(one.image.max()) <= 1
    turned = np.array([[-1.0, 0, 0, 7], [0, 0, 2, 8], [0, -1, 0, 9], [0, 0, 0, 1]])
    nib.save(nib.Nifti1Image(np.ones((4, 5, 6), np.uint8), turned), tmp_path / "brain3d/oasis_02/norm.nii.gz")
    two = brain3d(tmp_path)[1]
    np.testing.assert_array_equal(two.grid.axes, turned[:3, :3])  # as the file lies, but from 0 on
    assert two.grid.origin.tolist() == [0, 0, 0]
    assert [s.name for s in brain3d(tmp_path, split="train")] == ["oasis_01", "oasis_02"]
    assert [s.name for s in brain3d(tmp_path / "brain3d", names=["fs_train_1"])] == ["fs_train_1"]
    with pytest.raises(InputError, match="lists no nobody"):
        brain3d(tmp_path, names=["nobody"])


def refused(read: Callable[[Path], list[Subject]], root: Path, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read(root)


def test_what_is_missing_or_odd_is_refused_with_a_sentence(tmp_path: Path) -> None:
    refused(oasis2d, tmp_path, "cannot be opened")
    (tmp_path / "oasis2d.npz").write_bytes(b"not a zip")
    refused(oasis2d, tmp_path, "cannot be read")
    np.savez(tmp_path / "oasis2d.npz", ids=np.array(["1"]))
    refused(oasis2d, tmp_path, "holds no norm, seg24, split")
    make_oasis2d(tmp_path, ids=np.array(["1"]))
    refused(oasis2d, tmp_path, "1 ids, 3 splits")
    make_oasis2d(tmp_path, split=np.array(["train", "test", "train"]))
    refused(oasis2d, tmp_path, "the split 'test'")
    make_oasis2d(tmp_path, ids=np.array([{}, {}, {}]))
    refused(oasis2d, tmp_path, "cannot be read")
    refused(hippocampus, tmp_path, "subjects.csv: cannot be read")
    make_hippocampus(tmp_path)
    (tmp_path / "hippocampus" / "labels" / "b.nii.gz").unlink()
    refused(hippocampus, tmp_path, "no such file")
    write_nifti(tmp_path / "hippocampus" / "labels" / "b.nii.gz", np.ones((4, 4, 4), np.uint8))
    refused(hippocampus, tmp_path, r"its shape is \(4, 4, 4\)")
    make_brain3d(tmp_path)
    table = tmp_path / "brain3d" / "subjects.csv"
    for text, sentence in (
        ("id,split,labels\n", "has no rows"), ("id,split\na,train\n", "no column labels"),
        ("id,split,labels\na,sealed,\n", "the split 'sealed'"), ("id,split,labels\n../a,train,\n", "the id"),
    ):  # fmt: skip
        table.write_text(text)
        refused(brain3d, tmp_path, sentence)


def people(*sources: str) -> list[Subject]:
    return [
        Subject(str(i), "train", source, torch.zeros(1, 4, 4), None, (1.0, 1.0))
        for i, source in enumerate(sources)
    ]


def test_pairs_are_different_ordered_and_repeatable() -> None:
    subjects = people("x", "x", "x", "y", "y", "z")
    every = pairs(subjects, None, seed=3)
    assert len(every) == 6 + 2
    assert all(a.source == b.source and a.name != b.name for a, b in every)
    names = [(a.name, b.name) for a, b in every]
    assert len(set(names)) == 8
    assert [(a.name, b.name) for a, b in pairs(subjects, 5, seed=3)] == names[:5]
    assert [(a.name, b.name) for a, b in pairs(subjects, None, seed=4)] != names
    assert len(pairs(subjects, None, seed=3, within_source=False)) == 30
    with pytest.raises(InputError, match="9 asked for; expected 0 to 8"):
        pairs(subjects, 9, seed=3)
