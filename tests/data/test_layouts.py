"""Public data sets as they are downloaded, on small generated copies of each layout."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.conftest import blobs, labels_of
from tests.data.layout_samples import MAKERS, SHAPE, candi, empire, learn2reg, metaimage, neurite, write

from pirate.baselines.trained import scaled
from pirate.data import layouts, reading
from pirate.data.checking import check
from pirate.data.layouts import READERS, read_layout, recognise
from pirate.data.pair_table import read_pairs
from pirate.data.subjects import Subject
from pirate.errors import InputError, QualityError
from pirate.io.metaimage import read_metaimage


@pytest.mark.parametrize("kind", MAKERS)
def test_each_layout_is_recognised_whole_and_read(kind: str, tmp_path: Path) -> None:
    assert set(MAKERS) == set(READERS)
    (layout,) = recognise(MAKERS[kind](tmp_path))
    assert layout.kind == kind
    assert layout.missing == ()
    assert read_layout(tmp_path) == read_layout(tmp_path, kind) == layout
    people = reading.subjects(layout)
    assert [p.name for p in people] == [e.name for e in layout.entries]
    assert len({p.name for p in people}) == len(people)
    ndim = 2 if kind == "neurite-oasis-2d" else 3
    for person in people:
        assert isinstance(person, Subject)
        assert person.image.shape == people[0].image.shape
        assert person.image.ndim == ndim + 1
        assert len(person.spacing) == ndim
        assert person.labels is not None
        assert person.labels.shape == person.image.shape[1:]
        assert str(person.labels.dtype) == "torch.int16"
        assert str(person.image.dtype) == "torch.float32"
        assert 0 <= float(person.image.min()) <= float(person.image.max()) <= 3
        assert person.split in ("train", "validation")
        assert len(person.sha256) == 64
    assert {p.split for p in people} == {"train", "validation"}
    report = check(tmp_path)
    assert report.missing == ()
    assert layout.title in report.lines[0]


def test_neurite_is_left_as_it_is_scaled_and_sessions_of_one_subject_stay_together(tmp_path: Path) -> None:
    layout = read_layout(neurite(tmp_path, 9))
    first = reading.subjects(layout, names=["OASIS_OAS1_0003_MR1"])[0]
    np.testing.assert_allclose(first.image[0], np.clip(blobs(SHAPE, 2), 0, 1), atol=1e-6)
    for seed in range(12):
        divided = reading.splits(layout, seed)
        assert divided["OASIS_OAS1_0001_MR1"] == divided["OASIS_OAS1_0001_MR2"]
    assert len({tuple(reading.splits(layout, seed).items()) for seed in range(12)}) > 3
    assert reading.splits(layout, 3) == reading.splits(layout, 3)


def test_one_map_is_taken_for_the_whole_set(tmp_path: Path) -> None:
    """A subject without the map of the others is not given one in which the numbers mean something else."""
    for plane, names in (
        (False, ("aligned_seg35", "aligned_seg4")),
        (True, ("slice_seg24", "slice_seg4")),
    ):
        root = neurite(tmp_path / names[0], 3, plane)
        for folder in root.glob("OASIS*"):
            shutil.copy(folder / f"{names[0]}.nii.gz", folder / f"{names[1]}.nii.gz")
        (root / "OASIS_OAS1_0002_MR1" / f"{names[0]}.nii.gz").unlink()
        (layout,) = recognise(root)
        taken = {e.labels.name if e.labels else "" for e in layout.entries}
        assert taken == {"", f"{names[0]}.nii.gz"}
        assert layout.missing == (
            f"OASIS_OAS1_0002_MR1: there are no labels, {names[0]}.nii.gz; {names[1]}.nii.gz, other labels than the "
            "set's, are not taken.",
        )
        for path in root.glob(f"*/{names[0]}.nii.gz"):
            path.unlink()
        (layout,) = recognise(root)  # the set comes with the other map only
        assert {e.labels.name for e in layout.entries if e.labels} == {f"{names[1]}.nii.gz"}
        assert layout.missing == ()


def test_orientation_survives_and_array_axes_of_a_set_agree(tmp_path: Path) -> None:
    """The same brain twice, once with its axes exchanged and reversed in the file: the arrays are the same."""
    root = neurite(tmp_path, 2)
    shutil.rmtree(root / "OASIS_OAS1_0001_MR2")
    lia = np.array([[-1.1, 0, 0, 9], [0, 0, 0.9, 8], [0, -1.3, 0, 7], [0, 0, 0, 1]])
    data = np.clip(blobs(SHAPE, 3), 0, 1)
    turns = nib.orientations.ornt_transform(
        nib.io_orientation(lia), nib.orientations.axcodes2ornt(("S", "R", "P"))
    )
    for name, other in (("OASIS_OAS1_0001_MR1", False), ("OASIS_OAS1_0002_MR1", True)):
        for file, array in (("aligned_norm", data), ("aligned_seg35", labels_of(data))):
            image = nib.Nifti1Image(array, lia)
            image = image.as_reoriented(turns) if other else image
            nib.save(image, root / name / f"{file}.nii.gz")
    people = reading.People(read_layout(root))
    first, second = people["OASIS_OAS1_0001_MR1"], people["OASIS_OAS1_0002_MR1"]
    for person in (first, second):
        assert person.axes is not None
        np.testing.assert_allclose(person.grid.affine[:3, :3], lia[:3, :3])
        np.testing.assert_allclose(person.image[0], data, atol=1e-6)
        assert person.labels is not None
        np.testing.assert_array_equal(person.labels, labels_of(data))
    stored = reading.read_any(root / "OASIS_OAS1_0002_MR1" / "aligned_norm.nii.gz")
    assert stored.grid.shape != SHAPE
    moved = reading.turned(stored, reading.grid_of(root / "OASIS_OAS1_0001_MR1" / "aligned_norm.nii.gz"))
    np.testing.assert_allclose(moved.grid.affine, lia, atol=1e-6)  # every voxel stays where it is


def test_a_plane_keeps_its_slice_direction(tmp_path: Path) -> None:
    root = neurite(tmp_path, 2, plane=True)
    person = reading.People(read_layout(root))["OASIS_OAS1_0001_MR1"]
    assert person.axes is not None
    assert person.axes.shape == (3, 3)
    assert person.grid.ndim == 2


def test_the_box_is_that_of_the_whole_set_whoever_is_asked_for(tmp_path: Path) -> None:
    layout = read_layout(candi(tmp_path))
    (alone,) = reading.subjects(layout, names=["HC_001"])
    assert alone.image.shape == (1, 24, 24, 16)
    people = reading.People(layout)
    assert {people[e.name].image.shape for e in layout.entries} == {(1, 24, 24, 16)}
    with pytest.raises(InputError, match="there is no nobody"):
        people["nobody"]
    write(tmp_path / "HC" / "HC_001" / "HC_001_procimg.nii.gz", blobs((20, 18)))
    with pytest.raises(InputError, match="it is 2-D; expected 3-D as the set's first image"):
        _ = reading.People(layout).box


@pytest.mark.parametrize("kind", MAKERS)
def test_a_header_tells_the_grid(kind: str, tmp_path: Path) -> None:
    entry = read_layout(MAKERS[kind](tmp_path)).entries[0]
    assert reading.grid_of(entry.image) == reading.read_any(entry.image).grid
    ends = [path.suffix for path in reading.files_of(entry.image)]
    assert ends == ([".mhd", ".raw"] if kind == "empire10" else [".gz"])


def test_the_grid_of_other_formats_comes_from_the_header_too(tmp_path: Path) -> None:
    path = tmp_path / "x.mgz"
    nib.save(nib.MGHImage(blobs(SHAPE), np.diag([1.0, 2.0, 3.0, 1.0])), path)
    assert reading.grid_of(path) == reading.read_any(path).grid
    local = metaimage(tmp_path / "y.mha", np.ones((3, 4, 5), "<f4"), local=True)
    assert reading.grid_of(local) == reading.read_any(local).grid
    assert reading.files_of(local) == [local]


@pytest.mark.parametrize("kind", ["candi", "empire10", "learn2reg"])
def test_scaling_once_more_changes_nothing_so_that_methods_see_what_they_would_of_the_files(
    kind: str, tmp_path: Path
) -> None:
    people = reading.People(read_layout(MAKERS[kind](tmp_path)))
    entry = people.layout.entries[0]
    once = people[entry.name].image
    assert float(once.max()) <= 3
    torch.testing.assert_close(scaled(once), once, atol=1e-5, rtol=0)
    stored = torch.from_numpy(reading.read_any(entry.image).data)
    inside = [
        slice((b - n) // 2, (b - n) // 2 + n) for b, n in zip(once.shape[1:], stored.shape, strict=True)
    ]
    torch.testing.assert_close(scaled(stored), once[0][tuple(inside)], atol=1e-5, rtol=0)


def test_training_and_validation_never_share_a_person(tmp_path: Path) -> None:
    """Two scans of a person of a validation pair: the one outside of the pair is no training image."""
    root = learn2reg(tmp_path)
    table = json.loads((root / "OASIS_dataset.json").read_text())
    shutil.copy(root / "imagesTr" / "OASIS_0005_0000.nii.gz", root / "imagesTr" / "OASIS_0005_0001.nii.gz")
    table["training"].append({"image": "./imagesTr/OASIS_0005_0001.nii.gz"})
    table["training_paired_images"].append(
        {"fixed": "./imagesTr/OASIS_0001_0000.nii.gz", "moving": "./imagesTr/OASIS_0005_0001.nii.gz"}
    )
    (root / "OASIS_dataset.json").write_text(json.dumps(table))
    people = reading.People(read_layout(root))
    assert "OASIS_0005_0001" in {e.name for e in people.entries("validation")}
    assert [p.name for p in people.pairs("train")] == ["OASIS_0001_0000<-OASIS_0002_0000"]
    del table["registration_val"]
    (root / "OASIS_dataset.json").write_text(json.dumps(table))
    people = reading.People(read_layout(root))  # nobody is said to validate: the seed decides
    owners = [{e.subject for e in people.entries(split)} for split in ("train", "validation")]
    assert all(owners)
    assert not owners[0] & owners[1]


def test_pairs_are_drawn_of_different_persons_with_labels(tmp_path: Path) -> None:
    layout = read_layout(neurite(tmp_path, 3))
    people = reading.People(layout, share=0.99)
    both = people.drawn("validation", 0)
    assert both
    assert all(a.subject != b.subject for a, b in both)
    bare = tuple(replace(e, labels=None) if e.name == "OASIS_OAS1_0002_MR1" else e for e in layout.entries)
    some = reading.People(replace(layout, entries=bare), share=0.99).drawn("validation", 0)
    assert "OASIS_OAS1_0002_MR1" not in {e.name for pair in some for e in pair}


def test_a_share_of_the_subjects_validates(tmp_path: Path) -> None:
    layout = read_layout(neurite(tmp_path, 10))
    for share, expected in ((0.2, 2), (0.5, 5), (0.01, 1)):
        people = {
            e.subject for e in layout.entries if reading.splits(layout, 1, share)[e.name] == "validation"
        }
        assert len(people) == expected
    ours = reading.subjects(layout, 1, "validation", share=0.5)
    theirs = reading.subjects(layout, 1, "train", share=0.5)
    assert not {p.name for p in ours} & {p.name for p in theirs}
    assert len(ours) + len(theirs) == 11
    with pytest.raises(InputError, match="between 0 and 1"):
        reading.splits(layout, 0, 1.0)
    with pytest.raises(InputError, match="the split 'test'"):
        reading.subjects(layout, split="test")
    with pytest.raises(InputError, match="there is no nobody"):
        reading.subjects(layout, names=["nobody"])


def test_candi_is_padded_to_one_box_and_small_labels_are_left_out(tmp_path: Path) -> None:
    layout = read_layout(candi(tmp_path))
    assert layout.least_label == 1000
    assert [e.name for e in layout.entries] == ["BPDwoPsy_030", "HC_001", "HC_002"]
    assert reading.small_labels(layout) == [3]
    people = reading.subjects(layout)
    assert people[0].image.shape == (1, 24, 24, 16)
    left = {p.name: {int(v) for v in p.labels.unique()} for p in people if p.labels is not None}
    assert left == {"BPDwoPsy_030": {0, 1, 2}, "HC_001": {0, 1, 2}, "HC_002": {0, 1, 2}}
    (alone,) = reading.subjects(
        layout, names=["BPDwoPsy_030"]
    )  # its own single voxel of label 2 does not count
    assert alone.labels is not None
    assert 2 in alone.labels
    assert float(people[1].image[0, 0].abs().max()) == 0  # the padding


def test_empire_pairs_are_one_person_and_masks_are_labels(tmp_path: Path) -> None:
    layout = read_layout(empire(tmp_path))
    assert [p.name for p in layout.pairs] == ["01", "02", "17"]
    assert layout.pairs[0].fixed.name == "01_Fixed.mhd"
    assert layout.pairs[0].moving_labels == tmp_path / "lungMasks" / "01_Moving.mhd"
    divided = reading.splits(layout, 0)
    assert all(divided[f"{n}_Fixed"] == divided[f"{n}_Moving"] for n in ("01", "02", "17"))


def test_learn2reg_keeps_its_own_split_and_pairs(tmp_path: Path) -> None:
    layout = read_layout(learn2reg(tmp_path))
    assert {e.name for e in layout.entries if e.split == "validation"} == {
        "OASIS_0005_0000",
        "OASIS_0006_0000",
    }
    assert [(p.name, p.split) for p in layout.pairs] == [
        ("OASIS_0001_0000<-OASIS_0002_0000", "train"),
        ("OASIS_0005_0000<-OASIS_0006_0000", "validation"),
    ]
    pair = layout.pairs[0]
    assert {"fixed_labels", "moving_labels", "fixed_points", "moving_points"} < set(pair.files)
    image = reading.read_any(pair.fixed)
    assert pair.fixed_points is not None
    np.testing.assert_allclose(reading.landmarks(pair.fixed_points, image), [[1, 2, 3], [4.5, 5, 6]])
    assert not any("0007" in e.name for e in layout.entries)


def test_landmarks_with_a_header_are_world_points_and_bad_ones_are_refused(tmp_path: Path) -> None:
    image = reading.read_any(write(tmp_path / "x.nii.gz", blobs(SHAPE), 2.0))
    table = tmp_path / "points.csv"
    table.write_text("x,y,z\n1,2,3\n")
    np.testing.assert_allclose(reading.landmarks(table, image), [[1, 2, 3]])
    table.write_text("1 2 3\n\n4 5 6\n")
    np.testing.assert_allclose(reading.landmarks(table, image), [[2, 4, 6], [8, 10, 12]])
    table.write_text("1 2 3\n4 5\n")
    with pytest.raises(InputError, match="line 2 does not hold 3 numbers"):
        reading.landmarks(table, image)


def test_what_is_missing_is_said_in_words(tmp_path: Path) -> None:
    root = neurite(tmp_path / "n", 3)
    (root / "OASIS_OAS1_0002_MR1" / "aligned_norm.nii.gz").unlink()
    (root / "OASIS_OAS1_0003_MR1" / "aligned_seg35.nii.gz").unlink()
    (root / "OASIS_OAS1_0009_MR1").mkdir()
    text = "\n".join(check(root).lines)
    assert "OASIS_OAS1_0002_MR1: subjects.txt lists it, but aligned_norm.nii.gz is not there." in text
    assert "OASIS_OAS1_0003_MR1: there are no labels, aligned_seg35.nii.gz." in text
    assert "OASIS_OAS1_0009_MR1: aligned_norm.nii.gz is not there." in text
    assert "3 images of 2 subjects, 2 with labels" in text
    assert "14 x 12 x 16 voxels of 1 x 1 x 1 mm" in text

    root = candi(tmp_path / "c")
    (root / "HC" / "HC_001" / "HC_001_seg.nii.gz").unlink()
    (root / "HC" / "HC_002" / "HC_002_procimg.nii.gz").unlink()
    assert check(root).missing == (
        "HC_001: there are no labels, HC_001_seg.nii.gz.",
        "HC_002: there are labels but no image, HC_002_procimg.nii.gz.",
    )
    root = empire(tmp_path / "e")
    (root / "scans" / "01_Moving.mhd").unlink()
    (root / "lungMasks" / "02_Fixed.mhd").unlink()
    assert check(root).missing == (
        "01_Moving: the scan is not there.",
        "02_Fixed: there is no lung mask, lungMasks/02_Fixed.mhd.",
    )
    root = learn2reg(tmp_path / "l")
    (root / "imagesTr" / "OASIS_0001_0000.nii.gz").unlink()
    report = check(root)
    assert "OASIS_0001_0000: OASIS_dataset.json lists it" in report.missing[0]
    assert "It names 1 pair: 1 for validation." in report.sentences
    for path in (*(root / "labelsTr").iterdir(), *(root / "keypointsTr").iterdir()):
        path.unlink()
    assert any("neither labels" in sentence for sentence in check(root).missing)
    (root / "imagesTr" / "OASIS_0002_0000.nii.gz").write_bytes(b"nothing")
    assert any("the first image cannot be read" in sentence for sentence in check(root).missing)


def test_many_missing_things_are_cut_short(tmp_path: Path) -> None:
    root = neurite(tmp_path, 12)
    for path in root.glob("*/aligned_seg35.nii.gz"):
        path.unlink()
    assert check(root).lines[-1] == "missing: and 5 more."


def test_an_unknown_folder_is_refused_with_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no known data set lies here; expected neurite-oasis .*CSV of pairs"
    ):
        check(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        check(tmp_path / "nowhere")
    with pytest.raises(InputError, match="there is none of the known data sets"):
        read_layout(tmp_path)
    (tmp_path / "dataset.json").write_text("{}")
    assert layouts.learn2reg(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1", "not a JSON table"),
        ('{"training": [{"image": "../secret.nii.gz"}]}', "files inside its folder"),
        ('{"training": [{"image": 3}]}', "files inside its folder"),
        ('{"registration_val": [{"fixed": "a"}]}', "not a list of fixed and moving"),
        ('{"registration_val": 3}', "not a list of fixed and moving"),
    ],
)
def test_a_damaged_table_is_refused(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "X_dataset.json").write_text(text)
    with pytest.raises(InputError, match=told):
        read_layout(tmp_path)


def test_a_list_of_subjects_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    (neurite(tmp_path, 2) / "subjects.txt").write_text("../../etc\n")
    with pytest.raises(InputError, match="names of folders"):
        recognise(tmp_path)


def test_labels_of_another_shape_are_refused(tmp_path: Path) -> None:
    root = neurite(tmp_path, 2)
    write(root / "OASIS_OAS1_0001_MR1" / "aligned_seg35.nii.gz", np.ones((4, 4, 4), np.int16))
    with pytest.raises(InputError, match="that of its image"):
        reading.subjects(read_layout(root))


def test_the_projects_own_folder_is_checked_as_it_lies_there(tmp_path: Path) -> None:
    for name, files in (("hippocampus", ("images/{}", "labels/{}")), ("brain3d", ("{}/norm",))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "subjects.csv").write_text("id,split,labels\na,train,seg35\nb,validation,seg35\n")
        for subject in "ab":
            for file in files:
                write(folder / (file.format(subject) + ".nii.gz"), blobs(SHAPE))
    np.savez(tmp_path / "oasis2d.npz", ids=np.array(["x", "y"]), split=np.array(["train", "train"]))
    (tmp_path / "lung").mkdir()
    report = check(tmp_path)
    assert "Track oasis2d: 2 subjects for train." in report.lines
    assert "Track hippocampus: 1 subject for train, 1 subject for validation." in report.lines
    assert len([line for line in report.missing if line.startswith("lung/")]) == 6
    assert "brain3d/a/seg35.nii.gz is not there." in report.missing  # the map that the table names
    assert not [line for line in report.missing if line.startswith("hippocampus")]
    for subject in "ab":
        write(tmp_path / "brain3d" / subject / "seg35.nii.gz", labels_of(blobs(SHAPE)))
    assert not [line for line in check(tmp_path).missing if line.startswith("brain3d")]
    (tmp_path / "hippocampus" / "labels" / "b.nii.gz").unlink()
    (tmp_path / "brain3d" / "subjects.csv").write_text("name\nx\n")
    (tmp_path / "oasis2d.npz").write_bytes(b"x")
    text = " ".join(check(tmp_path).missing)
    assert "hippocampus/labels/b.nii.gz is not there." in text
    assert "brain3d/subjects.csv cannot be read" in text
    assert "oasis2d.npz" in text


def test_a_table_of_pairs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "images" / f"{name}.nii.gz", blobs(SHAPE))
    table = tmp_path / "pairs.csv"
    table.write_text(
        "fixed,moving,split\nimages/a.nii.gz,images/b.nii.gz,validation\nimages/b.nii.gz,images/a.nii.gz,\n"
    )
    first, second = read_pairs(table)
    assert first.name == "a<-b"
    assert first.fixed == tmp_path / "images" / "a.nii.gz"
    assert (first.split, second.split) == ("validation", None)
    assert first.files == {"fixed": first.fixed, "moving": first.moving}
    assert check(table).lines == ["A table of 2 pairs; every file is there."]
    table.write_text("fixed,moving,fixed_points,moving_points\nimages/a.nii.gz,images/b.nii.gz,p.csv,q.csv\n")
    assert len(check(table).missing) == 2
    with pytest.raises(InputError, match=r"line 2: fixed_points is .*p\.csv, which is not there"):
        read_pairs(table)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "its columns are not there"),
        ("fixed,movin\na,b\n", "its columns are fixed, movin"),
        ("fixed,moving,label\na,b,c\n", "once each"),
        ("fixed,moving,moving\na,b,c\n", "once each"),
        ("fixed,moving\n", "lists no pair"),
        ("fixed,moving\na\n", "line 2: there are 1 cells"),
        ("fixed,moving\n,b\n", "line 2: fixed is empty"),
        ("fixed,moving,fixed_labels\na,b,c\n", "labels of one image only"),
        ("fixed,moving,split\na,b,test\n", "the split is 'test'"),
        ('fixed,moving\n"a,b\n', "it cannot be read"),
    ],
)
def test_a_bad_table_of_pairs_is_refused(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        read_pairs(tmp_path / "pairs.csv")


def test_a_pair_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.nii.gz", blobs(SHAPE))
    (tmp_path / "pairs.csv").write_text("fixed,moving\na.nii.gz,a.nii.gz\na.nii.gz,a.nii.gz\n")
    with pytest.raises(InputError, match="is there twice"):
        read_pairs(tmp_path / "pairs.csv")


@pytest.mark.parametrize("form", ["raw", "compressed", "local"])
def test_a_metaimage_is_read_as_itk_reads_it(form: str, tmp_path: Path) -> None:
    data = (1000 * blobs((7, 6, 5), 1) - 500).astype("<i2")
    path = tmp_path / ("x.mha" if form == "local" else "x.mhd")
    metaimage(path, data, compressed=form == "compressed", local=form == "local")
    image = read_metaimage(path)
    np.testing.assert_array_equal(image.data, data.astype(np.float32))
    np.testing.assert_allclose(
        image.grid.to_world([1, 0, 0]), [-10, -20.7, -30], atol=1e-9
    )  # axis 0 is ITK's y
    sitk = pytest.importorskip("SimpleITK")
    there = sitk.ReadImage(str(path))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(there).T, data)
    lps = np.array(there.TransformIndexToPhysicalPoint((2, 3, 4)))
    np.testing.assert_allclose(image.grid.to_world([2, 3, 4]), lps * [-1, -1, 1], atol=1e-6)
    assert read_metaimage(metaimage(tmp_path / "m.mhd", (data > 0).astype("u1")), "labels").data.max() == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ((b"DimSize = 4 4 4", b"DimSize = 4 4"), "its size is"),
        ((b"DimSize = 4 4 4", b"DimSize = 4 4 999999999"), "its size is"),
        ((b"MET_SHORT", b"MET_STRANGE"), "its header cannot be used"),
        ((b"0.7 0.8 2.5", b"0.7 x 2.5"), "its header cannot be used"),
        ((b"x.raw", b"../x.raw"), "one file beside it"),
        ((b"x.raw", b"LIST"), "one file beside it"),
        ((b"x.raw", b"gone.raw"), "there is no such file"),
        ((b"DimSize = 4 4 4", b"DimSize = 4 4 5"), "128 bytes of voxels"),
        ((b"CompressedData = False", b"CompressedData = True"), "cannot be unpacked"),
        ((b"ObjectType = Image", b"ObjectType"), "lines Key = Value"),
    ],
)
def test_a_damaged_metaimage_is_refused(change: tuple[bytes, bytes], told: str, tmp_path: Path) -> None:
    path = metaimage(tmp_path / "x.mhd", np.zeros((4, 4, 4), "<i2"))
    path.write_bytes(path.read_bytes().replace(*change))
    with pytest.raises(InputError, match=told):
        read_metaimage(path)


def test_the_command_prints_the_sentences_and_fails_where_something_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pirate.cli.data_checking import run

    root = neurite(tmp_path, 2)
    run(root)
    assert "neurite-oasis, 3-D: 3 images of 2 subjects, 3 with labels." in capsys.readouterr().out
    (root / "OASIS_OAS1_0002_MR1" / "aligned_seg35.nii.gz").unlink()
    with pytest.raises(QualityError, match="one thing is missing"):
        run(root)
    assert "missing: OASIS_OAS1_0002_MR1: there are no labels" in capsys.readouterr().out
