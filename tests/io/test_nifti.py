"""What is written is what is read, here, in nibabel and in SimpleITK, voxel by voxel and mm by mm."""

from __future__ import annotations

import gzip
import hashlib
from itertools import permutations, product
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK

from pirate.errors import InputError
from pirate.grid import Grid
from pirate.io import nifti

SHAPE = (7, 8, 9)
RANDOM = np.random.default_rng(1)
DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4"]
LPS = np.array([-1.0, -1.0, 1.0])


def rotation(*angles: float) -> np.ndarray:
    """Rotations about x, y and z in radians, one after the other."""
    matrix = np.eye(3)
    for axis, angle in enumerate(angles):
        one = np.eye(3)
        i, j = (axis + 1) % 3, (axis + 2) % 3
        one[[i, i, j, j], [i, j, i, j]] = np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
        matrix = one @ matrix
    return matrix


def affine_of(matrix: np.ndarray, spacing=(0.7, 1.3, 2.9), origin=(-31.0, 17.5, 4.25)) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = matrix * spacing
    affine[:3, 3] = origin
    return affine


AXIS_CODES = [
    np.eye(3)[:, order] * signs for order in permutations(range(3)) for signs in product((1, -1), repeat=3)
]
OBLIQUE = [
    rotation(0.3, -0.2, 0.5),
    rotation(0.3, -0.2, 0.5) * [1, 1, -1],
    rotation(3.1, 0.01, -0.4),
    rotation(0, 0, np.pi),
]


def itk_position(image: SimpleITK.Image, index: tuple[int, ...]) -> np.ndarray:
    return np.array(image.TransformIndexToPhysicalPoint(index))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_voxels_of_every_type_return_exactly(dtype, name, tmp_path):
    information = np.iinfo(dtype) if dtype[0] in "iu" else None
    low, high = (information.min, information.max) if information else (0, 1)
    data = (
        RANDOM.integers(low, high, SHAPE, dtype, endpoint=True) if information else RANDOM.random(SHAPE, "f4")
    )
    path = tmp_path / name
    nifti.write_image(path, data, Grid(SHAPE, affine_of(OBLIQUE[0])))
    stored = np.asarray(nib.load(path).dataobj)
    assert stored.dtype == data.dtype
    assert (stored == data).all()
    image = nifti.read_image(path)
    assert image.data.dtype == np.float32
    assert image.data.flags.c_contiguous
    assert (image.data == data.astype(np.float32)).all()
    assert image.notes == ()
    assert image.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    if dtype[0] == "u":
        labels = nifti.read_labels(path)
        assert labels.data.dtype == data.dtype
        assert (labels.data == data).all()


def test_bool_double_and_half_are_written_as_what_everyone_reads(tmp_path):
    path, grid = tmp_path / "a.nii.gz", Grid(SHAPE, np.eye(4))
    for given, kept in (("?", "u1"), ("f8", "f4"), ("f2", "f4"), (">i2", "i2")):
        data = (RANDOM.random(SHAPE) * 3).astype(given)
        nifti.write_image(path, data, grid)
        stored = np.asarray(nib.load(path).dataobj)
        assert stored.dtype == np.dtype(kept)
        assert (stored == data.astype(kept)).all()
    with pytest.raises(ValueError, match="no place"):
        nifti.write_image(path, np.zeros(SHAPE, complex), grid)
    with pytest.raises(ValueError, match="do not fill"):
        nifti.write_image(path, np.zeros((2, 2, 2)), grid)


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_does_not_matter(order, tmp_path):
    data = np.array(RANDOM.random((19, 4, 5), "f4"), order=order)
    nifti.write_image(tmp_path / "a.nii", data[::2, ::-1], Grid((10, 4, 5), np.eye(4)))
    assert (np.asarray(nib.load(tmp_path / "a.nii").dataobj) == data[::2, ::-1]).all()


def test_the_same_image_gives_the_same_bytes(tmp_path):
    data, grid = RANDOM.random((40, 50, 60), "f4"), Grid((40, 50, 60), np.eye(4))
    for name in ("one.nii.gz", "two.nii.gz"):
        nifti.write_image(tmp_path / name, data, grid, description="twice")
    one = (tmp_path / "one.nii.gz").read_bytes()
    assert one == (tmp_path / "two.nii.gz").read_bytes()
    assert one[3:8] == bytes(5)  # no name, no time
    assert gzip.decompress(one)[352:] == data.tobytes(order="F")


def test_the_header_says_what_it_should(tmp_path):
    nifti.write_image(
        tmp_path / "a.nii", np.zeros(SHAPE, "f4"), Grid(SHAPE, affine_of(OBLIQUE[0])), description="é" * 60
    )
    header = nib.load(tmp_path / "a.nii").header
    assert (int(header["sform_code"]), int(header["qform_code"])) == (1, 1)
    assert header.get_xyzt_units()[0] == "mm"
    assert np.fromfile(tmp_path / "a.nii", "<f4", 2, offset=112).tolist() == [1.0, 0.0]
    assert bytes(header["descrip"].item()).decode("utf-8", "ignore").startswith("é" * 39)


@pytest.mark.parametrize("matrix", [*AXIS_CODES, *OBLIQUE], ids=str)
def test_a_volume_lies_where_itk_and_nibabel_find_it(matrix, tmp_path):
    grid = Grid(SHAPE, affine_of(matrix))
    data = RANDOM.random(SHAPE, "f4")
    path = tmp_path / "a.nii.gz"
    nifti.write_image(path, data, grid)
    assert nifti.read_image(path).grid.same_space(grid, 1e-4)
    assert np.allclose(nib.load(path).affine, grid.affine, atol=1e-5)
    image = SimpleITK.ReadImage(str(path))
    assert np.allclose(image.GetSpacing(), grid.spacing, rtol=1e-5)
    for index in ((0, 0, 0), (6, 7, 8), (3, 0, 5)):
        assert np.allclose(itk_position(image, index) * LPS, grid.to_world(index), atol=1e-3)
        assert image[index] == data[index]


def test_a_sheared_volume_has_no_qform_and_returns(tmp_path):
    affine = affine_of(np.eye(3))
    affine[0, 1] = 0.4
    nifti.write_image(tmp_path / "a.nii", np.zeros(SHAPE, "f4"), Grid(SHAPE, affine))
    header = nib.load(tmp_path / "a.nii").header
    assert (int(header["sform_code"]), int(header["qform_code"])) == (1, 0)
    image = nifti.read_image(tmp_path / "a.nii")
    assert image.notes == ()
    assert image.grid.same_space(Grid(SHAPE, affine), 1e-5)


@pytest.mark.parametrize("angle", [np.pi, np.pi - 1e-4, np.pi - 1e-3, 3.0])
def test_near_half_a_turn_the_two_forms_never_contradict(angle, tmp_path):
    """A quaternion in float32 loses the angle there; the qform is kept only where it is true."""
    grid = Grid((180, 200, 180), affine_of(rotation(angle, 0.2, 0.3), (1, 1, 1)))
    nifti.write_image(tmp_path / "a.nii", np.zeros(grid.shape, "u1"), grid)
    image = nifti.read_image(tmp_path / "a.nii")
    assert image.notes == ()
    assert image.grid.same_space(grid, 1e-3)


@pytest.mark.parametrize("matrix", [*AXIS_CODES[::5], *OBLIQUE], ids=str)
def test_a_qform_alone_is_read_as_nibabel_reads_it(matrix, tmp_path):
    affine = affine_of(matrix)
    image = nib.Nifti1Image(np.ones(SHAPE, "f4"), affine)
    image.set_sform(None, 0)
    image.set_qform(affine, 1)
    nib.save(image, tmp_path / "a.nii.gz")
    found = nifti.read_image(tmp_path / "a.nii.gz").grid
    assert np.allclose(found.affine, nib.load(tmp_path / "a.nii.gz").affine, atol=2e-3)


def test_metres_and_microns_become_millimetres(tmp_path):
    affine = affine_of(OBLIQUE[0], (1, 1, 2))
    for unit, per_mm in (("meter", 1e-3), ("micron", 1e3)):
        image = nib.Nifti1Image(np.ones(SHAPE, "f4"), np.diag([per_mm] * 3 + [1]) @ affine)
        image.header.set_xyzt_units(unit)
        nib.save(image, tmp_path / "a.nii")
        assert np.allclose(nifti.read_image(tmp_path / "a.nii").grid.affine, affine, atol=1e-4)
        loaded, _ = nifti.load_verified(tmp_path / "a.nii")
        assert np.allclose(loaded.affine, affine, atol=1e-4)
        assert np.allclose(loaded.header.get_best_affine(), affine, atol=1e-4)
        assert loaded.header.get_xyzt_units()[0] == "mm"


def test_labels_beyond_floats_are_exact(tmp_path):
    grid = Grid(SHAPE, np.eye(4))
    for dtype, value in (("i4", 2**24 + 1), ("u4", 2**32 - 1), ("i8", 2**53 + 1), ("u8", 2**64 - 1)):
        data = np.zeros(SHAPE, dtype)
        data[1, 2, 3] = value
        nifti.write_image(tmp_path / "a.nii.gz", data, grid)
        labels = nifti.read_labels(tmp_path / "a.nii.gz")
        assert labels.data.dtype == np.dtype(dtype)
        assert int(labels.data[1, 2, 3]) == value


def test_float_labels_become_integers_that_hold_them(tmp_path):
    for value, stored, kind in (
        (2**24, "f4", "i4"),
        (2**31, "f8", "i8"),
        (2**53, "f8", "i8"),
        (3, "f8", "i4"),
    ):
        data = np.zeros(SHAPE, stored)
        data[1, 2, 3] = value
        nib.save(nib.Nifti1Image(data, np.eye(4)), tmp_path / "a.nii")
        labels = nifti.read_labels(tmp_path / "a.nii")
        assert labels.data.dtype == np.dtype(kind)
        assert int(labels.data[1, 2, 3]) == value
        assert len(labels.notes) == 1


def _scaled(path: Path, data: np.ndarray, slope: float, inter: float) -> None:
    image = nib.Nifti1Image(data, np.eye(4))
    raw = bytearray(image.to_bytes())
    raw[112:120] = np.array([slope, inter], "<f4").tobytes()
    path.write_bytes(raw)


def test_the_intensity_scale_is_honoured(tmp_path):
    path = tmp_path / "a.nii"
    data = RANDOM.integers(0, 200, SHAPE, np.int16)
    for slope, inter, expected in (
        (2, -3, 2.0 * data - 3),
        (-0.5, 0, -0.5 * data),
        (0, 7, data),
        (np.nan, 7, data),
    ):
        _scaled(path, data, slope, inter)
        assert np.array_equal(nifti.read_image(path).data, expected.astype(np.float32))
        assert np.array_equal(np.asarray(nifti.load_verified(path)[0].dataobj), expected)
    _scaled(path, data, 2, 1)
    assert np.array_equal(nifti.read_labels(path).data, 2 * data + 1)


def test_a_large_scale_that_leaves_float32_is_refused_not_silent(tmp_path):
    _scaled(tmp_path / "a.nii", np.full(SHAPE, 30000, np.int16), 3e38, 0)
    with pytest.raises(InputError, match="beyond float32"):
        nifti.read_image(tmp_path / "a.nii")


def test_a_few_broken_voxels_become_the_smallest_finite_one(tmp_path):
    data = RANDOM.random((20, 20, 20), "f4") + 3
    data[0, 0, 0], data[1, 1, 1], data[2, 2, 2] = np.nan, np.inf, -np.inf
    nifti.write_image(tmp_path / "a.nii.gz", data, Grid(data.shape, np.eye(4)))
    image = nifti.read_image(tmp_path / "a.nii.gz")
    finite = np.isfinite(data)
    assert (image.data[finite] == data[finite]).all()
    assert (image.data[~finite] == data[finite].min()).all()
    assert "3 NaN or infinite voxels" in image.notes[0]


def test_masks_hard_and_soft(tmp_path):
    path, grid = tmp_path / "a.nii", Grid(SHAPE, np.eye(4))
    hard = RANDOM.random(SHAPE) > 0.5
    for inside, dtype in ((1, "u1"), (255, "u1"), (7, "i2"), (255, "f4")):
        nifti.write_image(path, (hard * inside).astype(dtype), grid)
        mask = nifti.read_mask(path)
        assert mask.data.dtype == np.float32
        assert (mask.data == hard).all()
    soft = RANDOM.random(SHAPE, "f4")
    nifti.write_image(path, soft, grid)
    assert (nifti.read_mask(path).data == soft).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_slice_of_a_volume_is_a_plane_in_the_same_place(axis, tmp_path):
    shape = tuple(1 if a == axis else n for a, n in enumerate(SHAPE))
    data = RANDOM.random(shape, "f4")
    affine = affine_of(OBLIQUE[0])
    nib.save(nib.Nifti1Image(data, affine), tmp_path / "a.nii")
    image = nifti.read_image(tmp_path / "a.nii")
    kept = [a for a in range(3) if a != axis]
    assert image.grid.shape == tuple(SHAPE[a] for a in kept)
    assert (image.data == data.squeeze(axis)).all()
    for i, j in ((0, 0), (3, 5), (6, 7)):
        full = np.zeros(3)
        full[kept] = i, j
        assert np.allclose(image.grid.to_world((i, j)), affine[:3, :3] @ full + affine[:3, 3], atol=1e-5)
    assert np.allclose(image.grid.affine[:3, 2], affine[:3, axis])


PLANES = [
    np.eye(3),
    np.diag([-1, 1, 1]),
    np.diag([-1, -1, 1]),
    rotation(0, 0, 0.4),
    rotation(0, 0, 0.4) * [1, -1, 1],
]


@pytest.mark.parametrize("matrix", PLANES, ids=str)
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_a_level_plane_is_a_2d_file_where_itk_expects_it(matrix, name, tmp_path):
    data = RANDOM.random((7, 8), "f4")
    grid = Grid((7, 8), affine_of(matrix))
    nifti.write_image(tmp_path / name, data, grid)
    assert nib.load(tmp_path / name).shape == (7, 8)
    again = nifti.read_image(tmp_path / name)
    assert again.grid.same_space(grid, 1e-4)
    assert again.notes == ()
    assert (again.data == data).all()
    image = SimpleITK.ReadImage(str(tmp_path / name))
    assert image.GetDimension() == 2
    assert np.allclose(image.GetSpacing(), grid.spacing, rtol=1e-5)
    for index in ((0, 0), (6, 7), (2, 5)):
        assert np.allclose(itk_position(image, index) * LPS[:2], grid.to_world(index)[:2], atol=1e-3)
        assert image[index] == data[index]


@pytest.mark.parametrize("matrix", [rotation(0.5, 0.1, 0), np.eye(3)[:, [0, 2, 1]]], ids=str)
def test_a_tilted_plane_is_a_volume_of_one_slice(matrix, tmp_path):
    data = RANDOM.random((7, 8), "f4")
    grid = Grid((7, 8), affine_of(matrix))
    nifti.write_image(tmp_path / "a.nii", data, grid)
    assert nib.load(tmp_path / "a.nii").shape == (7, 8, 1)
    assert nifti.read_image(tmp_path / "a.nii").grid.same_space(grid, 1e-4)
    image = SimpleITK.ReadImage(str(tmp_path / "a.nii"))
    for index in ((0, 0, 0), (6, 7, 0)):
        assert np.allclose(itk_position(image, index) * LPS, grid.to_world(index[:2]), atol=1e-3)


def test_a_plane_from_simpleitk_is_read_as_a_plane(tmp_path):
    image = SimpleITK.GetImageFromArray(RANDOM.random((8, 7), "f4"))
    image.SetSpacing((0.7, 1.3))
    image.SetOrigin((5.0, -6.0))
    SimpleITK.WriteImage(image, str(tmp_path / "a.nii.gz"))
    found = nifti.read_image(tmp_path / "a.nii.gz")
    assert found.grid.shape == (7, 8)
    assert (found.data == SimpleITK.GetArrayFromImage(image).T).all()
    for index in ((0, 0), (6, 7)):
        assert np.allclose(found.grid.to_world(index)[:2], itk_position(image, index) * LPS[:2], atol=1e-4)


def test_a_long_axis_needs_nifti_2(tmp_path):
    data = RANDOM.random((40000, 3), "f4")
    nifti.write_image(tmp_path / "a.nii.gz", data, Grid(data.shape, np.eye(4)))
    assert isinstance(nib.load(tmp_path / "a.nii.gz"), nib.Nifti2Image)
    assert (nifti.read_image(tmp_path / "a.nii.gz").data == data).all()
    assert isinstance(nifti.load_verified(tmp_path / "a.nii.gz")[0], nib.Nifti2Image)


def test_vectors_pass_through_save_and_load_verified(tmp_path):
    data = RANDOM.standard_normal((*SHAPE, 1, 3)).astype("f4")
    affine = affine_of(OBLIQUE[0])
    image = nifti.placed(data, affine, "field")
    image.header.set_intent(1007)
    nifti.save(tmp_path / "a.nii.gz", image)
    loaded, digest = nifti.load_verified(tmp_path / "a.nii.gz")
    assert loaded.shape == data.shape
    assert (np.asarray(loaded.dataobj) == data).all()
    assert int(loaded.header["intent_code"]) == 1007
    assert np.allclose(loaded.affine, affine, atol=1e-5)
    assert digest == hashlib.sha256((tmp_path / "a.nii.gz").read_bytes()).hexdigest()
    itk = SimpleITK.ReadImage(str(tmp_path / "a.nii.gz"))
    assert itk.GetNumberOfComponentsPerPixel() == 3
    assert np.allclose(itk[2, 3, 4], data[2, 3, 4, 0])


def test_save_keeps_extensions_and_turns_big_endian_round(tmp_path):
    header = nib.Nifti1Header(endianness=">")
    image = nib.Nifti1Image(RANDOM.integers(0, 99, SHAPE, "i2").astype(">i2"), np.eye(4), header)
    image.header.extensions.append(nib.nifti1.Nifti1Extension(6, b"a comment"))
    nifti.save(tmp_path / "a.nii", image)
    again = nib.load(tmp_path / "a.nii")
    assert again.header.endianness == "<"
    assert again.header.extensions[0].get_content() == b"a comment"
    assert (np.asarray(again.dataobj) == image.dataobj).all()
    assert (nifti.read_image(tmp_path / "a.nii").data == image.dataobj).all()


@pytest.mark.parametrize("name", ["a.mgz", "a.mgh"])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4"])
def test_freesurfer_files_are_read_as_nibabel_reads_them(name, dtype, tmp_path):
    data = (RANDOM.random(SHAPE) * 100).astype(dtype)
    affine = affine_of(OBLIQUE[0])
    nib.save(nib.MGHImage(data, affine), tmp_path / name)
    image = nifti.read_image(tmp_path / name)
    assert np.allclose(image.grid.affine, affine, atol=1e-4)
    assert (image.data == data).all()
    loaded, _ = nifti.load_verified(tmp_path / name)
    assert np.allclose(loaded.affine, affine, atol=1e-4)
    assert (np.asarray(loaded.dataobj).reshape(SHAPE) == data).all()
    if dtype != "f4":
        assert (nifti.read_labels(tmp_path / name).data == data).all()


def test_histology_of_a_fifth_of_a_micron_survives_the_file(tmp_path):
    grid = Grid(SHAPE, np.diag([2e-4, 2e-4, 4e-3, 1.0]))
    nifti.write_image(tmp_path / "a.nii.gz", RANDOM.random(SHAPE, "f4"), grid)
    assert nifti.read_image(tmp_path / "a.nii.gz").grid.same_space(grid, 1e-8)


def test_an_array_is_held_to_the_laws_of_a_file(tmp_path):
    data, affine = RANDOM.integers(0, 9, SHAPE, "u2"), affine_of(OBLIQUE[0])
    nifti.write_image(tmp_path / "a.nii", data, Grid(SHAPE, affine))
    readers = {"image": nifti.read_image, "labels": nifti.read_labels, "mask": nifti.read_mask}
    for kind, read in readers.items():
        image, stored = nifti.from_array(data, affine, "given", kind), read(tmp_path / "a.nii")
        assert image.data.dtype == stored.data.dtype
        assert (image.data == stored.data).all()
        assert image.grid.same_space(stored.grid)
        assert (image.name, image.sha256) == ("given", "")
        assert not np.shares_memory(image.data, data)
    plane = nifti.from_array(data[:, :1], affine)
    assert plane.grid.shape == (7, 9)
    assert (nifti.from_array(data > 4, affine, kind="mask").data == (data > 4)).all()


@pytest.mark.parametrize(
    ("data", "affine", "words"),
    [
        (np.zeros(SHAPE, complex), np.eye(4), "complex128"),
        (np.zeros((0, 3, 3)), np.eye(4), "shape"),
        (np.zeros((2,) * 8), np.eye(4), "shape"),
        (np.zeros(SHAPE), np.eye(3), "affine has the shape"),
        (np.zeros(SHAPE), np.diag([1.0, 1, 0, 1]), "an edge of 0 mm"),
        (
            np.zeros(SHAPE),
            np.diag([1.0, 1, 1, 2]),
            "the affine's last row is 0, 0, 0, 2; expected 0, 0, 0, 1",
        ),
        (np.zeros(SHAPE), np.eye(4) + np.eye(4)[::-1] * 1e-9, "last row is 1e-09, 0, 0, 1"),
        (np.zeros((*SHAPE, 2)), np.eye(4), "2 volumes"),
        (np.full(SHAPE, np.nan), np.eye(4), "NaN"),
    ],
)
def test_an_array_that_is_no_image_is_refused(data, affine, words):
    with pytest.raises(InputError, match=words):
        nifti.from_array(data, affine)
