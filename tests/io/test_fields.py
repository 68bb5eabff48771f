"""Displacement fields in NIfTI: what is written is read back, and what is not a field is refused."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest
from transform_samples import sample_field

from pirate.errors import InputError
from pirate.grid import Grid
from pirate.io.fields import read_field, write_field
from pirate.transform import Displacement


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
