"""Transform files: what is written is read back, and what is not a transform is refused with a sentence."""

from __future__ import annotations

import resource
import struct

import h5py
import nibabel as nib
import numpy as np
import pytest

from pirate.errors import InputError, OutputError
from pirate.grid import Grid
from pirate.io.composite import read_composite, write_composite
from pirate.io.fields import read_field, write_field
from pirate.io.itk import read_affine, write_affine
from pirate.io.transforms import DONE, FORWARD_WARP, INVERSE_WARP, read_transform
from pirate.transform import Affine, Displacement, Transform


def sample_grid(shape=(5, 6, 7)):
    affine = np.array([[-1.0, 0, 0, 9], [0, 0, 1.5, -4], [0, 2, 0, 3], [0, 0, 0, 1]])
    return Grid(shape, affine if len(shape) == 3 else np.diag([-1.0, 1.5, 2, 1]))


def sample_field(shape=(5, 6, 7), seed=0):
    values = np.random.default_rng(seed).normal(size=(len(shape), *shape))
    return Displacement(sample_grid(shape), values.astype(np.float32))


def sample_affine():
    matrix = np.eye(4)
    matrix[:2, :2] = [[1.1, 0.2], [-0.1, 0.9]]
    matrix[:2, 3] = 3, -4
    return Affine(matrix)


def save(path, data, intent, affine=None, code=1):
    image = nib.Nifti1Image(data, None)
    image.set_sform(np.eye(4) if affine is None else affine, code)
    image.header.set_intent(intent, allow_unknown=True)
    nib.save(image, path)
    return path


@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 6)])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_field_survives_the_file(tmp_path, shape, suffix):
    field = sample_field(shape)
    write_field(tmp_path / f"warp{suffix}", field)
    again = read_field(tmp_path / f"warp{suffix}")
    assert again.grid == field.grid
    np.testing.assert_allclose(again.field, field.field, rtol=1e-6, atol=1e-6)


def test_the_form_is_the_one_that_itk_reads(tmp_path):
    field = sample_field()
    write_field(tmp_path / "warp.nii.gz", field)
    image = nib.load(tmp_path / "warp.nii.gz")
    assert image.shape == (5, 6, 7, 1, 3)
    assert image.get_data_dtype() == np.float32
    assert int(image.header["intent_code"]) == 1007
    assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (1, 1)
    i, j, k = field.field[:, 1, 2, 3]  # axes run along -x, z (2 mm) and y (1.5 mm)
    np.testing.assert_allclose(image.get_fdata()[1, 2, 3, 0], [i, -1.5 * k, 2 * j], rtol=1e-6)


def test_intent_1006_is_ras_as_itk_reads_it(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(4, 5, 6, 1, 3)).astype(np.float32)
    lps = read_field(save(tmp_path / "lps.nii", vectors, 1007))
    ras = read_field(save(tmp_path / "ras.nii", vectors, 1006))
    np.testing.assert_allclose(ras.field, np.moveaxis(vectors[..., 0, :], -1, 0))
    np.testing.assert_allclose(lps.field, ras.field * np.array([-1, -1, 1]).reshape(3, 1, 1, 1))
    sitk = pytest.importorskip("SimpleITK")
    for name, ours in (("lps.nii", lps), ("ras.nii", ras)):
        itk = sitk.GetArrayFromImage(sitk.ReadImage(str(tmp_path / name))).T  # (3, X, Y, Z), LPS
        np.testing.assert_allclose(itk * np.array([-1, -1, 1]).reshape(3, 1, 1, 1), ours.field, rtol=1e-6)


def test_a_sheared_grid_is_ours_alone(tmp_path):
    """A qform cannot say shear: ITK must refuse the file, not read it in the wrong place."""
    affine = np.diag([1.0, 2, 3, 1])
    affine[0, 1] = 0.4
    field = Displacement(Grid((5, 6, 7), affine), sample_field().field)
    write_field(tmp_path / "warp.nii", field)
    np.testing.assert_allclose(read_field(tmp_path / "warp.nii").field, field.field, atol=1e-5)
    assert int(nib.load(tmp_path / "warp.nii").header["qform_code"]) == 0
    sitk = pytest.importorskip("SimpleITK")
    with pytest.raises(RuntimeError, match="orthonormal"):
        sitk.ReadImage(str(tmp_path / "warp.nii"))


def test_a_slice_with_vectors_out_of_it_stays_a_volume(tmp_path):
    field = sample_field((5, 6, 1))
    write_field(tmp_path / "warp.nii", field)
    again = read_field(tmp_path / "warp.nii")
    assert again.grid.shape == (5, 6, 2)  # doubled, because ITK takes one slice for an axial plane
    points = field.grid.to_world(np.random.default_rng(0).uniform(0, (4, 5, 0), size=(20, 3)))
    np.testing.assert_allclose(again.map(points), field.map(points), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "intent", "affine", "message"),
    [
        ((4, 5, 6, 3), 1007, None, "its shape is"),
        ((4, 5, 6, 2, 3), 1007, None, "its shape is"),
        ((4, 5, 6, 1, 2), 1007, None, "its shape is"),
        ((4, 5, 6, 1, 3), 0, None, "its NIfTI intent is 0; expected 1007"),
        ((4, 5, 1, 1, 2), 1007, np.eye(4)[[0, 2, 1, 3]], "its plane is not axial"),
    ],
)
def test_what_is_no_field_is_refused(tmp_path, shape, intent, affine, message):
    path = save(tmp_path / "x.nii", np.zeros(shape, np.float32), intent, affine)
    with pytest.raises(InputError, match=message):
        read_field(path)


def test_a_field_with_nan_is_refused(tmp_path):
    vectors = np.zeros((4, 5, 6, 1, 3), np.float32)
    vectors[1, 1, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        read_field(save(tmp_path / "x.nii", vectors, 1007))


@pytest.mark.parametrize("ndim", [2, 3])
def test_an_affine_survives_the_file_exactly(tmp_path, ndim):
    write_affine(tmp_path / "a.txt", sample_affine(), ndim)
    np.testing.assert_array_equal(read_affine(tmp_path / "a.txt").matrix, sample_affine().matrix)


def test_an_affine_that_mixes_z_is_not_two_dimensional(tmp_path):
    matrix = np.eye(4)
    matrix[2, 0] = 0.1
    with pytest.raises(InputError, match="mixes z"):
        write_affine(tmp_path / "a.txt", Affine(matrix), 2)
    assert not (tmp_path / "a.txt").exists()


HEAD = "#Insight Transform File V1.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "lists 0 transforms"),
        (HEAD + 2 * "Transform: IdentityTransform_double_3_3\n", "lists 2 transforms without saying"),
        (HEAD + "Transform: AffineTransform_double_3_3\nParameters: 1 b 3\n", "line 3 holds a word"),
        (HEAD + "Transform: AffineTransform_double_3_3\nParameters: 1 2\n", "12 parameters are needed"),
        (HEAD + "Transform: Euler3DTransform_double_3_3\nParameters: 1 2\n", "6 parameters are needed"),
        (HEAD + "Transform: Euler2DTransform_double_3_3\nParameters: 1 2 3\n", "makes no map"),
        (HEAD + "Transform: AffineTransform_double_2_2\nParameters: 1 1 1 1 0 0\n", "invertible"),
        (HEAD + "Transform: AffineTransform_double_2_2\nParameters: 1 0 0 nan 0 0\n", "finite"),
        (HEAD + "Transform: BSplineTransform_double_3_3\nParameters: 1\n", "it holds a BSplineTransform"),
        (HEAD + "Transform: Affine\nParameters: 1\n", "of type 'Affine'"),
        ("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "FLIRT"),
        ("x" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
)
def test_what_is_no_affine_file_is_refused(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_affine(tmp_path / "a.txt")


def test_a_missing_affine_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_affine(tmp_path / "nothing.txt")


def mat_variable(name, values, kind="d"):
    code = {"d": 0, "f": 10}[kind]
    head = struct.pack("<5i", code, len(values), 1, 0, len(name) + 1)
    return head + name.encode() + b"\0" + struct.pack(f"<{len(values)}{kind}", *values)


@pytest.mark.parametrize("kind", ["d", "f"])
def test_the_binary_form_of_ants_is_read(tmp_path, kind):
    content = mat_variable("MatrixOffsetTransformBase_float_2_2", [2, 0, 0, 4, 1, 0.5], kind)
    (tmp_path / "a.mat").write_bytes(content + mat_variable("fixed", [8, 16], kind))
    moved = Transform((read_affine(tmp_path / "a.mat"),)).map([[-10.0, -20.0, 5.0]])  # LPS 10, 20
    np.testing.assert_allclose(moved, [[-(2 * 2 + 1 + 8), -(4 * 4 + 0.5 + 16), 5]])


def damaged_mats():
    good = mat_variable("AffineTransform_double_3_3", [1.0] * 12) + mat_variable("fixed", [0.0] * 3)
    return {
        "cut": good[:-1],
        "one variable": good[: len(good) - 50],
        "huge": struct.pack("<5i", 0, 1 << 30, 1, 0, 5) + b"name\0",
        "other type": struct.pack("<5i", 50, 3, 1, 0, 5) + b"name\0" + b"\0" * 100,
        "negative": struct.pack("<5i", 0, -3, 1, 0, 5) + b"name\0" + b"\0" * 100,
        "no fixed": mat_variable("a", [1.0]) + mat_variable("b", [1.0]),
        "empty": b"",
    }


@pytest.mark.parametrize("name", damaged_mats())
def test_a_damaged_mat_is_refused(tmp_path, name):
    (tmp_path / "a.mat").write_bytes(damaged_mats()[name])
    with pytest.raises(InputError, match="neither ITK transform text nor"):
        read_affine(tmp_path / "a.mat")


@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 6)])
def test_a_composite_survives_the_file(tmp_path, shape):
    transform = Transform((sample_field(shape), sample_affine(), sample_field(shape, seed=1)))
    write_composite(tmp_path / "t.h5", transform)
    again = read_composite(tmp_path / "t.h5")
    assert [type(p) for p in again.parts] == [Displacement, Affine, Displacement]
    points = np.random.default_rng(0).uniform(-5, 9, size=(50, 3))
    np.testing.assert_allclose(again.map(points), transform.map(points), atol=1e-5)


def test_a_composite_has_one_dimension(tmp_path):
    with pytest.raises(InputError, match="on a plane and on a volume"):
        write_composite(tmp_path / "t.h5", Transform((sample_field(), sample_field((5, 6)))))


def test_old_itk_spelling_is_read(tmp_path):
    write_composite(tmp_path / "t.h5", Transform((sample_field(),)))
    with h5py.File(tmp_path / "t.h5", "r+") as file:
        for name in ("Parameters", "FixedParameters"):
            file["TransformGroup/1"].move(f"Transform{name}", f"Tranform{name}")
    np.testing.assert_allclose(
        read_composite(tmp_path / "t.h5").parts[0].field, sample_field().field, atol=1e-5
    )


def _set(name, value):
    def damage(file):
        del file[name]
        file[name] = value

    return damage


def _without(name):
    def damage(file):
        del file[name]

    return damage


def _outside(file):
    del file["TransformGroup/1/TransformParameters"]
    file["TransformGroup/1/TransformParameters"] = h5py.ExternalLink("/etc/hostname", "x")


def _never_written(file):
    del file["TransformGroup/1/TransformParameters"]
    file.create_dataset("TransformGroup/1/TransformParameters", (630,), "f8")


def _external_storage(file):
    del file["TransformGroup/1/TransformParameters"]
    file.create_dataset(
        "TransformGroup/1/TransformParameters", (630,), "f8", external=[("other.bin", 0, 5040)]
    )


def _many(file):
    for index in range(2, 70):
        file.create_group(f"TransformGroup/{index}")


FIXED = "TransformGroup/1/TransformFixedParameters"
GEOMETRY = [5, 6, 7, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1.0]
FIELD = "TransformGroup/1/TransformParameters"
TYPE = "TransformGroup/1/TransformType"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without("TransformGroup"), "no /TransformGroup of its own"),
        (_without("TransformGroup/0"), "no /TransformGroup/0 of its own"),
        (_without(TYPE), "no /TransformGroup/1/TransformType of its own"),
        (_without(FIELD), "no /TransformGroup/1/TransformParameters of its own"),
        (_outside, "no /TransformGroup/1/TransformParameters of its own"),
        (_never_written, "claims 5,040 bytes and stores 0"),
        (_external_storage, "numbers stored in this file"),
        (_many, "lists 70 transforms"),
        (_set(TYPE, ["BSplineTransform_double_3_3"]), "it holds a BSplineTransform"),
        (_set(TYPE, ["CompositeTransform_double_3_3"]), "it holds a CompositeTransform"),
        (_set(TYPE, np.arange(3)), "of type ''"),
        (_set(FIELD, np.zeros(629)), "holds 629 values"),
        (_set(FIELD, np.zeros(630, "i4")), "values of type int32"),
        (_set(FIELD, np.full(630, np.nan)), "NaN"),
        (_set(FIXED, np.zeros(300)), "at most 256"),
        (_set(FIXED, np.array(GEOMETRY[:-1], float)), "size, origin, spacing and direction"),
        (_set(FIXED, np.array([0.0, *GEOMETRY[1:]])), "size, origin, spacing and direction"),
        (_set(FIXED, np.array([1e15, 1e15, *GEOMETRY[2:]])), "floating-point numbers"),
        (_set(FIXED, np.array([*GEOMETRY[:-1], 0.0])), "span no volume"),
    ],
)
def test_a_damaged_composite_is_refused(tmp_path, damage, message):
    path = tmp_path / "t.h5"
    write_composite(path, Transform((sample_field(),)))
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(InputError, match=message):
        read_composite(path)


def test_what_is_no_hdf5_is_refused(tmp_path):
    (tmp_path / "t.h5").write_bytes(b"not HDF5")
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        read_composite(tmp_path / "t.h5")


def test_a_composite_above_the_memory_limit_is_refused(tmp_path):
    write_composite(tmp_path / "t.h5", Transform((sample_field(),)))
    with pytest.raises(InputError, match="at most 1,000"):
        read_composite(tmp_path / "t.h5", memory_limit=1000)


def test_a_composite_that_does_not_fit_leaves_the_old_one(tmp_path):
    path = tmp_path / "t.h5"
    write_composite(path, Transform((sample_affine(),)))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(OutputError):
            write_composite(path, Transform((sample_field((20, 20, 20)),)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_holds_both_directions(tmp_path):
    forward, back, affine = sample_field(seed=1), sample_field(seed=2), sample_affine()
    write_field(tmp_path / FORWARD_WARP, forward)
    write_field(tmp_path / INVERSE_WARP, back)
    with pytest.raises(InputError, match=r"no run\.json"):
        read_transform(tmp_path)
    (tmp_path / DONE).write_text("{}")
    points = sample_grid().to_world(np.random.default_rng(0).uniform(0, 4, size=(20, 3)))
    np.testing.assert_allclose(read_transform(tmp_path).map(points), forward.map(points), atol=1e-5)
    write_affine(tmp_path / "affine.txt", affine)
    there, again = read_transform(tmp_path), read_transform(tmp_path, inverse=True)
    np.testing.assert_allclose(there.map(points), affine.map(forward.map(points)), atol=1e-5)
    np.testing.assert_allclose(again.map(points), back.map(affine.inverse().map(points)), atol=1e-5)
    assert (there.source, there.target, again.source, again.target) == ("fixed", "moving", "moving", "fixed")


def test_a_lone_field_is_not_inverted(tmp_path):
    write_field(tmp_path / "warp.nii.gz", sample_field())
    with pytest.raises(InputError, match="a displacement field is not inverted"):
        read_transform(tmp_path / "warp.nii.gz", inverse=True)


def test_a_name_must_say_what_the_file_is(tmp_path):
    with pytest.raises(InputError, match="does not say what kind"):
        read_transform(tmp_path / "warp.mha")
