"""The same deformation in the forms of ITK, FSL and Learn2Reg, there and back."""

from __future__ import annotations

import json

import nibabel as nib
import numpy as np
import pytest

from pirate.errors import InputError, UsageError
from pirate.grid import Grid
from pirate.io.atomic import sha256_of
from pirate.io.composite import read_composite, write_composite
from pirate.io.convert import convert, fsl_matrix, read_fsl, write_fsl
from pirate.io.fields import read_field, write_field
from pirate.io.itk import write_affine
from pirate.io.transforms import DONE, FORWARD_WARP, read_transform
from pirate.transform import Affine, Displacement, Transform


def turned_grid(shape, seed, handed=1):
    rng = np.random.default_rng(seed)
    affine = np.eye(4)
    q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    affine[:3, :3] = q * np.sign(np.linalg.det(q)) * (1.0, 1.5, 2.0) @ np.diag([handed, 1, 1])
    affine[:3, 3] = 5 * rng.normal(size=3)
    return Grid(shape, affine.astype(np.float32))


def some_field(grid, seed=0):
    return Displacement(
        grid, np.random.default_rng(seed).normal(size=(grid.ndim, *grid.shape)).astype(np.float32)
    )


def some_affine():
    matrix = np.eye(4)
    matrix[:3] += 0.05 * np.random.default_rng(4).normal(size=(3, 4))
    return Affine(matrix)


@pytest.mark.parametrize("fixed_hand", [1, -1])
@pytest.mark.parametrize("moving_hand", [1, -1])
def test_fsl_and_back_is_exact(tmp_path, fixed_hand, moving_hand):
    fixed, moving = turned_grid((5, 6, 7), 1, fixed_hand), turned_grid((8, 5, 4), 2, moving_hand)
    write_field(tmp_path / "itk.nii.gz", some_field(fixed))
    convert(tmp_path / "itk.nii.gz", tmp_path / "fsl.nii.gz", "fsl", moving=moving)
    image = nib.load(tmp_path / "fsl.nii.gz")
    assert image.shape == (5, 6, 7, 3)
    assert int(image.header["intent_code"]) == 2006
    convert(tmp_path / "fsl.nii.gz", tmp_path / "back.nii.gz", "itk", moving=moving)
    np.testing.assert_allclose(read_field(tmp_path / "back.nii.gz").field, some_field(fixed).field, atol=1e-5)


@pytest.mark.parametrize(("handed", "expected"), [(1, (-4.0, 9.0, 20.0)), (-1, (4.0, 9.0, 20.0))])
def test_an_fsl_warp_counts_x_from_the_other_end_of_a_right_handed_image(tmp_path, handed, expected):
    """Known answer: 2, 3, 4 voxels of 2, 3, 5 mm, the same grid twice."""
    grid = Grid((5, 6, 7), np.diag([2.0 * handed, 3, 5, 1]))
    field = np.broadcast_to(np.array([2, 3, 4], np.float32).reshape(3, 1, 1, 1), (3, 5, 6, 7))
    write_fsl(tmp_path / "w.nii.gz", Displacement(grid, field), grid)
    np.testing.assert_allclose(nib.load(tmp_path / "w.nii.gz").get_fdata()[1, 2, 3], expected, atol=1e-5)


def test_an_fsl_warp_leads_to_the_moving_images_coordinates(tmp_path):
    """Written out for single voxels: F_moving(voxel in moving) = F_fixed(voxel) + warp."""
    fixed, moving = turned_grid((5, 6, 7), 1), turned_grid((8, 5, 4), 2, -1)
    transform = Transform((some_field(fixed), some_affine()))
    write_composite(tmp_path / "t.h5", transform)
    convert(tmp_path / "t.h5", tmp_path / "w.nii.gz", "fsl", moving=moving)
    warp = nib.load(tmp_path / "w.nii.gz").get_fdata()
    for voxel in ((0, 0, 0), (1, 2, 3), (4, 5, 6)):
        target = moving.to_voxel(transform.map(fixed.to_world([voxel])))[0]
        scaled = fsl_matrix(moving) @ [*target, 1]
        np.testing.assert_allclose(
            (fsl_matrix(fixed) @ [*voxel, 1] + [*warp[voxel], 0])[:3], scaled[:3], atol=1e-4
        )


def test_learn2reg_and_back_is_exact(tmp_path):
    fixed = turned_grid((5, 6, 7), 1)
    write_field(tmp_path / "itk.nii.gz", some_field(fixed))
    convert(tmp_path / "itk.nii.gz", tmp_path / "disp_0001_0002.nii.gz", "l2r", moving=fixed)
    stored = nib.load(tmp_path / "disp_0001_0002.nii.gz").get_fdata()
    np.testing.assert_allclose(np.moveaxis(stored, -1, 0), some_field(fixed).field, atol=1e-5)
    convert(tmp_path / "disp_0001_0002.nii.gz", tmp_path / "back.nii.gz", "itk", fixed=fixed)
    np.testing.assert_allclose(read_field(tmp_path / "back.nii.gz").field, some_field(fixed).field, atol=1e-5)


def test_a_composite_becomes_one_field_with_the_same_effect(tmp_path):
    fixed = turned_grid((5, 6, 7), 1)
    transform = Transform((some_field(fixed), some_affine()))
    write_composite(tmp_path / "t.h5", transform)
    convert(tmp_path / "t.h5", tmp_path / "w.nii.gz", "itk", fixed=fixed)
    centres = fixed.to_world(np.indices(fixed.shape).reshape(3, -1).T)
    np.testing.assert_allclose(
        read_field(tmp_path / "w.nii.gz").map(centres), transform.map(centres), atol=1e-4
    )


def test_h5_keeps_the_parts(tmp_path):
    write_affine(tmp_path / "a.txt", some_affine())
    convert(tmp_path / "a.txt", tmp_path / "a.h5", "h5")
    (part,) = read_composite(tmp_path / "a.h5").parts
    np.testing.assert_allclose(part.matrix, some_affine().matrix)
    convert(tmp_path / "a.h5", tmp_path / "w.nii.gz", "itk", fixed=turned_grid((3, 4, 5), 0))
    assert len(read_transform(tmp_path / "w.nii.gz").parts) == 1


@pytest.fixture
def warp(tmp_path):
    path = tmp_path / "itk.nii.gz"
    write_field(path, some_field(turned_grid((5, 6, 7), 1)))
    return path


def vectors(path, shape, intent, values=None):
    image = nib.Nifti1Image(
        np.zeros(shape, np.float32) if values is None else values.astype(np.float32), np.eye(4)
    )
    image.header.set_intent(intent, allow_unknown=True)
    nib.save(image, path)
    return path


def test_fsl_needs_the_moving_image(warp, tmp_path):
    with pytest.raises(UsageError, match="moving image is needed"):
        convert(warp, tmp_path / "x.nii.gz", "fsl")
    fsl = vectors(tmp_path / "fsl.nii", (4, 5, 6, 3), 2006)
    with pytest.raises(UsageError, match="moving image is needed"):
        convert(fsl, tmp_path / "x.nii.gz", "itk")


def test_learn2reg_needs_the_fixed_image_and_its_shape(tmp_path):
    path = vectors(tmp_path / "disp_a.nii", (4, 5, 6, 3), 0)
    with pytest.raises(UsageError, match="fixed image is needed"):
        convert(path, tmp_path / "x.nii.gz", "itk")
    with pytest.raises(InputError, match=r"it has \(4, 5, 6\) voxels; expected the \(5, 6, 7\)"):
        convert(path, tmp_path / "x.nii.gz", "itk", fixed=turned_grid((5, 6, 7), 1))


def test_learn2reg_wants_one_grid_and_its_name(warp, tmp_path):
    with pytest.raises(InputError, match="different grids"):
        convert(warp, tmp_path / "disp_a.nii.gz", "l2r", moving=turned_grid((5, 6, 7), 2))
    with pytest.raises(UsageError, match="disp_<fixed>_<moving>"):
        convert(warp, tmp_path / "field.nii.gz", "l2r", moving=turned_grid((5, 6, 7), 1))


def test_a_learn2reg_field_needs_the_moving_grid(warp, tmp_path):
    """Its voxels are those of both images: without the moving grid nobody knows what they count."""
    with pytest.raises(UsageError, match="moving image is needed: a Learn2Reg field counts voxels of both"):
        convert(warp, tmp_path / "disp_a.nii.gz", "l2r")
    assert not (tmp_path / "disp_a.nii.gz").exists()


def registration_folder(folder, fixed, moving):
    """What `pirate register` leaves: the warp and run.json with the moving grid."""
    folder.mkdir()
    write_field(folder / FORWARD_WARP, some_field(fixed))
    grid = {"shape": list(moving.shape), "affine": moving.affine.tolist()}
    outputs = {FORWARD_WARP: sha256_of(folder / FORWARD_WARP)}
    (folder / DONE).write_text(json.dumps({"outputs": outputs, "moving": {"grid": grid}}))
    return folder


def test_a_folder_knows_the_moving_grid(tmp_path):
    fixed, moving = turned_grid((5, 6, 7), 1), turned_grid((8, 5, 4), 2)
    same = registration_folder(tmp_path / "same", fixed, fixed)
    convert(same, tmp_path / "disp_f_m.nii.gz", "l2r")
    stored = nib.load(tmp_path / "disp_f_m.nii.gz").get_fdata()
    np.testing.assert_allclose(np.moveaxis(stored, -1, 0), some_field(fixed).field, atol=1e-5)
    other = registration_folder(tmp_path / "other", fixed, moving)
    with pytest.raises(InputError, match="different grids"):
        convert(other, tmp_path / "disp_g_m.nii.gz", "l2r")
    assert not (tmp_path / "disp_g_m.nii.gz").exists()
    convert(other, tmp_path / "a.nii.gz", "fsl")
    convert(other, tmp_path / "b.nii.gz", "fsl", moving=moving)
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()
    convert(other, tmp_path / "disp_g_m.nii.gz", "l2r", moving=fixed)  # the moving image was resampled


def test_an_affine_alone_needs_the_fixed_image(tmp_path):
    write_affine(tmp_path / "a.txt", some_affine())
    with pytest.raises(UsageError, match="fixed image is needed"):
        convert(tmp_path / "a.txt", tmp_path / "x.nii.gz", "itk")


def test_a_field_that_says_nothing_about_itself_is_not_guessed(tmp_path):
    path = vectors(tmp_path / "field.nii", (4, 5, 6, 3), 0)
    with pytest.raises(InputError, match="may be FSL's or Learn2Reg's"):
        convert(path, tmp_path / "x.nii.gz", "itk")
    grid = Grid((4, 5, 6), np.eye(4))
    convert(path, tmp_path / "x.nii.gz", "itk", fixed=grid, source_format="l2r")
    convert(path, tmp_path / "y.nii.gz", "itk", moving=grid, source_format="fsl")


@pytest.mark.parametrize(
    ("shape", "intent", "message"), [((4, 5, 6, 3), 2007, "spline"), ((4, 5, 6), 0, "its shape is")]
)
def test_what_is_no_fsl_warp_is_refused(tmp_path, shape, intent, message):
    with pytest.raises(InputError, match=message):
        read_fsl(vectors(tmp_path / "w.nii", shape, intent), Grid((4, 5, 6), np.eye(4)))


def test_an_absolute_fsl_warp_is_refused(tmp_path):
    grid = Grid((4, 5, 6), np.eye(4))
    positions = np.indices(grid.shape).reshape(3, -1)
    absolute = (fsl_matrix(grid)[:3, :3] @ positions + fsl_matrix(grid)[:3, 3:]).T.reshape(4, 5, 6, 3)
    with pytest.raises(InputError, match="absolute positions"):
        read_fsl(vectors(tmp_path / "w.nii", None, 2006, absolute), grid)


def test_planes_keep_to_itk(tmp_path):
    plane = Grid((5, 6), np.eye(4))
    write_field(tmp_path / "w.nii.gz", some_field(plane))
    with pytest.raises(InputError, match="is a plane"):
        convert(tmp_path / "w.nii.gz", tmp_path / "x.nii.gz", "fsl", moving=plane)
    lift = np.eye(4)
    lift[2, 3] = 1
    write_affine(tmp_path / "a.txt", Affine(lift))
    with pytest.raises(InputError, match="leaves the plane"):
        convert(tmp_path / "a.txt", tmp_path / "x.nii.gz", "itk", fixed=plane)
