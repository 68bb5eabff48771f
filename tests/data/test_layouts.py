"""Public data sets as they are downloaded, on small generated copies of each layout."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import blobs, labels_of

from pirate.data import layouts, reading
from pirate.data.checking import check
from pirate.data.layouts import READERS, read_layout, recognise
from pirate.data.pair_table import read_pairs
from pirate.data.subjects import Subject
from pirate.errors import InputError, QualityError
from pirate.grid import Grid
from pirate.io.metaimage import read_metaimage
from pirate.io.nifti import write_image

SHAPE = (14, 12, 16)


def write(path: Path, data: np.ndarray, spacing: float = 1.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([*[spacing] * 3, 1.0])
    write_image(path, data, Grid(data.shape, affine))
    return path


def neurite(root: Path, count: int = 5, plane: bool = False) -> Path:
    image, labels = ("slice_norm", "slice_seg24") if plane else ("aligned_norm", "aligned_seg35")
    names = [f"OASIS_OAS1_{i:04d}_MR1" for i in range(1, count + 1)] + ["OASIS_OAS1_0001_MR2"]
    for i, name in enumerate(names):
        data = np.clip(blobs(SHAPE[:2] if plane else SHAPE, i), 0, 1)
        data = data[:, :, None] if plane else data
        write(root / name / f"{image}.nii.gz", data)
        write(root / name / f"{labels}.nii.gz", labels_of(data))
    (root / "subjects.txt").write_text("\n".join(names) + "\n")
    return root


def candi(root: Path) -> Path:
    """Two groups; label 1 large everywhere, 2 large in most, 3 small."""
    for i, name in enumerate(("HC_001", "HC_002", "BPDwoPsy_030")):
        folder = root / name.split("_")[0] / name
        data = blobs((20 + i, 18, 16), i)
        labels = np.zeros(data.shape, np.int16)
        labels[:10, :12, :10] = 1
        labels[10:, :15, :10] = 2
        labels[0, 0, :5] = 3
        if i == 2:
            labels[labels == 2] = 0
            labels[15, 0, 0] = 2
        write(folder / f"{name}_procimg.nii.gz", data, 0.9)
        write(folder / f"{name}_seg.nii.gz", labels, 0.9)
    return root


def metaimage(
    path: Path, data: np.ndarray, compressed: bool = False, local: bool = False, more: str = ""
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {"i2": "MET_SHORT", "u1": "MET_UCHAR", "f4": "MET_FLOAT"}[data.dtype.str[1:]]
    voxels = data.tobytes(order="F")
    voxels = zlib.compress(voxels) if compressed else voxels
    name = "LOCAL" if local else path.with_suffix(".raw").name
    header = (
        f"ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
        f"CompressedData = {compressed}\nTransformMatrix = 0 1 0 1 0 0 0 0 1\nOffset = 10 20 -30\n"
        f"ElementSpacing = 0.7 0.8 2.5\n{more}DimSize = {' '.join(map(str, data.shape))}\n"
        f"ElementType = {kind}\nElementDataFile = {name}\n"
    )
    path.write_bytes(header.encode() + (voxels if local else b""))
    if not local:
        path.with_suffix(".raw").write_bytes(voxels)
    return path


def empire(root: Path) -> Path:
    for number in ("01", "02", "17"):
        for side in ("Fixed", "Moving"):
            scan = (1000 * blobs(SHAPE, int(number)) - 900).astype("<i2")
            metaimage(root / "scans" / f"{number}_{side}.mhd", scan, compressed=number == "02")
            metaimage(root / "lungMasks" / f"{number}_{side}.mhd", (scan > -400).astype("u1"))
    return root


def learn2reg(root: Path) -> Path:
    names = [f"OASIS_{i:04d}_0000" for i in range(1, 7)]
    for i, name in enumerate(names):
        write(root / "imagesTr" / f"{name}.nii.gz", blobs(SHAPE, i))
        write(root / "labelsTr" / f"{name}.nii.gz", labels_of(blobs(SHAPE, i)))
        points = root / "keypointsTr" / f"{name}.csv"
        points.parent.mkdir(exist_ok=True)
        points.write_text("1,2,3\n4.5,5,6\n")
    listed = [f"./imagesTr/{name}.nii.gz" for name in names]
    table = {
        "name": "OASIS", "numTraining": 6,
        "training": [{"image": path, "label": path.replace("images", "labels")} for path in listed],
        "training_paired_images": [{"fixed": listed[i], "moving": listed[i + 1]} for i in (0, 4)],
        "registration_val": [{"fixed": listed[4], "moving": listed[5]}],
        "test": ["./imagesTs/OASIS_0007_0000.nii.gz"],
    }  # fmt: skip
    (root / "OASIS_dataset.json").write_text(json.dumps(table))
    return root


MAKERS = {
    "neurite-oasis": neurite,
    "neurite-oasis-2d": lambda root: neurite(root, plane=True),
    "candi": candi,
    "empire10": empire,
    "learn2reg": learn2reg,
}


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
