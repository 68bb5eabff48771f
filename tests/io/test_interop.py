"""Our files mean to SimpleITK, ANTs and nitransforms what they mean to us, on every kind of grid."""

from __future__ import annotations

import itertools
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from interop_cases import (
    OBLIQUE,
    ORIENTATIONS,
    Case,
    inner_points,
    oblique_grid,
    oriented_grid,
    plane_grid,
    sitk_chain,
    sitk_field,
    small_affine,
    smooth_field,
    through_ants,
    through_sitk,
)
from scipy.ndimage import gaussian_filter

from pirate.grid import Grid
from pirate.image import Image
from pirate.io.composite import read_composite, write_composite
from pirate.io.fields import is_axial, itk_form, read_field, write_field
from pirate.io.itk import read_affine, write_affine
from pirate.io.nifti import write_image
from pirate.io.transforms import read_transform
from pirate.registration.apply import apply
from pirate.transform import Transform

sitk = pytest.importorskip("SimpleITK")
ants = pytest.importorskip("ants")
nitransforms = pytest.importorskip("nitransforms")


def check_points(case):
    """Every reader, both directions, field and affine apart and together."""
    ndim = case.fixed.ndim
    expected, returned = case.forward.map(case.points), case.inverse.map(case.points)
    assert np.abs(expected - case.points).max() > 0.5  # there is something to get wrong
    for again, answer in (
        (read_transform(case.folder), expected),
        (read_transform(case.folder, inverse=True), returned),
        (read_composite(case.composite), expected),
        (read_composite(case.composite_back), returned),
    ):
        np.testing.assert_allclose(again.map(case.points), answer, atol=1e-4)
    affine, undo = sitk.ReadTransform(str(case.affine)), sitk.ReadTransform(str(case.undo))
    for chain, answer in (
        (sitk_chain(ndim, sitk_field(case.warp), affine), expected),
        (sitk_chain(ndim, undo, sitk_field(case.back)), returned),
        (sitk.ReadTransform(str(case.composite)), expected),
        (sitk.ReadTransform(str(case.composite_back)), returned),
    ):
        np.testing.assert_allclose(through_sitk(chain, case.points, ndim), answer, atol=1e-3)
    for files, answer in (
        ([case.warp, case.affine], expected),
        ([case.undo, case.back], returned),
        ([case.composite], expected),
        ([case.composite_back], returned),
    ):
        np.testing.assert_allclose(through_ants(files, case.points, ndim), answer, atol=1e-3)


def check_nitransforms(case):
    """At voxel centres: between them nitransforms interpolates with cubic splines."""
    index = case.rng.integers(0, case.fixed.shape, size=(50, 3))
    centres = case.fixed.to_world(index)
    expected = case.forward.map(centres)
    field = nitransforms.nonlinear.load(str(case.warp), fmt="itk")
    affine = nitransforms.linear.load(str(case.affine), fmt="itk")
    np.testing.assert_allclose(affine.map(np.asarray(field.map(centres))), expected, atol=1e-2)
    # of a composite it returns the parts as listed: the last is applied first
    parts = nitransforms.io.itk.ITKCompositeH5.from_filename(str(case.composite))
    inner = nitransforms.nonlinear.DenseFieldTransform(parts[1]).map(centres)
    outer = nitransforms.linear.Affine(parts[0].to_ras()).map(np.asarray(inner))
    np.testing.assert_allclose(outer, expected, atol=1e-2)


@pytest.mark.parametrize(("permutation", "signs"), ORIENTATIONS)
def test_points_agree_in_all_48_orientations(tmp_path, permutation, signs):
    seed = ORIENTATIONS.index((permutation, signs))
    case = Case(tmp_path, oriented_grid(permutation, signs), oblique_grid(seed), seed)
    check_points(case)
    check_nitransforms(case)


@pytest.mark.parametrize("seed", OBLIQUE)
def test_points_agree_on_oblique_grids(tmp_path, seed):
    case = Case(tmp_path, oblique_grid(seed), oriented_grid((1, 2, 0), (1, -1, 1)), seed)
    check_points(case)
    check_nitransforms(case)


@pytest.mark.parametrize("seed", range(6))
def test_points_agree_on_axial_planes(tmp_path, seed):
    check_points(Case(tmp_path, plane_grid(seed), plane_grid(seed + 10), seed))


def blob_image(rng, grid):
    """Smooth intensities from 0 to 1, on all of the grid."""
    data = gaussian_filter(rng.normal(size=grid.shape), 1.0)
    return Image(((data - data.min()) / np.ptp(data)).astype(np.float32), grid)


def settled(transform, reference, image):
    """Reference voxels that read the image inside or clearly outside, not on the half-voxel edge."""
    index = np.stack(np.meshgrid(*map(np.arange, reference.shape), indexing="ij"), -1)
    position = image.to_voxel(transform.map(reference.to_world(index.reshape(-1, reference.ndim))))
    edge = np.minimum(np.abs(position + 0.5), np.abs(position - np.array(image.shape) + 0.5)).min(-1)
    return (edge > 1e-3).reshape(reference.shape)


def check_images(case):
    rng, ndim = case.rng, case.fixed.ndim
    fixed, moving = blob_image(rng, case.fixed), blob_image(rng, case.moving)
    fixed_path, moving_path = case.folder / "fixed_image.nii.gz", case.folder / "moving_image.nii.gz"
    write_image(fixed_path, fixed.data, fixed.grid)
    write_image(moving_path, moving.data, moving.grid)
    for image, onto, transform, files, composite in (
        (moving_path, fixed_path, case.forward, [case.warp, case.affine], case.composite),
        (fixed_path, moving_path, case.inverse, [case.undo, case.back], case.composite_back),
    ):
        source, reference = (moving, fixed.grid) if image == moving_path else (fixed, moving.grid)
        ours = apply(source, transform, reference).data
        known = settled(transform, reference, source.grid)
        assert (ours[known] > 0).sum() > 30
        itk = sitk.Resample(
            sitk.ReadImage(str(image)),
            sitk.ReadImage(str(onto)),
            sitk.ReadTransform(str(composite)),
            sitk.sitkLinear,
        )
        np.testing.assert_allclose(sitk.GetArrayFromImage(itk).T[known], ours[known], atol=1e-4)
        pair = ants.image_read(str(onto), ndim), ants.image_read(str(image), ndim)
        for listed in ([str(f) for f in files], [str(composite)]):
            theirs = ants.apply_transforms(*pair, listed, interpolator="linear").numpy()
            np.testing.assert_allclose(theirs[known], ours[known], atol=1e-4)


@pytest.mark.parametrize("seed", OBLIQUE)
def test_resampled_images_agree_on_volumes(tmp_path, seed):
    fixed = oblique_grid(seed) if seed % 3 else oriented_grid((2, 0, 1), (-1, 1, 1))
    check_images(Case(tmp_path, fixed, oblique_grid(seed + 7, shape=(9, 8, 6)), seed))


@pytest.mark.parametrize("seed", range(3))
def test_resampled_images_agree_on_planes(tmp_path, seed):
    check_images(Case(tmp_path, plane_grid(seed), plane_grid(seed + 10, shape=(9, 13)), seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_plane_that_is_not_axial_is_read_as_a_volume(tmp_path, seed):
    rng = np.random.default_rng(seed)
    plane = Grid((9, 8), oblique_grid(seed).affine)
    assert not is_axial(plane)
    displacement = smooth_field(rng, plane)
    transform = Transform((displacement, small_affine(rng)))
    warp, affine, composite = tmp_path / "warp.nii.gz", tmp_path / "affine.txt", tmp_path / "both.h5"
    write_field(warp, displacement)
    write_affine(affine, transform.parts[1])
    write_composite(composite, transform)
    assert nib.load(warp).shape == (9, 8, 2, 1, 3)
    points = inner_points(rng, plane)
    expected = transform.map(points)
    np.testing.assert_allclose(Transform((itk_form(displacement), transform.parts[1])).map(points), expected)
    for again in (Transform((read_field(warp), read_affine(affine))), read_composite(composite)):
        assert again.parts[0].grid.ndim == 2
        np.testing.assert_allclose(again.map(points), expected, atol=1e-4)
    np.testing.assert_allclose(through_sitk(sitk.ReadTransform(str(composite)), points), expected, atol=1e-3)
    np.testing.assert_allclose(through_ants([warp, affine], points), expected, atol=1e-3)


@pytest.mark.parametrize("ndim", [2, 3])
def test_what_simpleitk_writes_is_read(tmp_path, ndim):
    rng = np.random.default_rng(ndim)
    grid = oblique_grid(1) if ndim == 3 else plane_grid(1)
    write_field(tmp_path / "ours.nii.gz", smooth_field(rng, grid))
    theirs = sitk.ReadImage(str(tmp_path / "ours.nii.gz"))
    sitk.WriteImage(sitk.Cast(theirs, sitk.sitkVectorFloat64), str(tmp_path / "theirs.nii.gz"))
    write_affine(tmp_path / "ours.txt", small_affine(rng, ndim), ndim)
    affine = sitk.ReadTransform(str(tmp_path / "ours.txt"))
    chain = sitk_chain(ndim, sitk_field(tmp_path / "theirs.nii.gz"), affine)
    sitk.WriteTransform(chain, str(tmp_path / "theirs.h5"))
    points = inner_points(rng, grid)
    expected = through_sitk(chain, points, ndim)
    ours = Transform((read_field(tmp_path / "theirs.nii.gz"), read_affine(tmp_path / "ours.txt")))
    np.testing.assert_allclose(ours.map(points), expected, atol=1e-3)
    np.testing.assert_allclose(read_composite(tmp_path / "theirs.h5").map(points), expected, atol=1e-3)


def linear_transforms():
    """SimpleITK's own linear transforms with centres, angles and scales set."""
    rng = np.random.default_rng(3)
    affine = sitk.AffineTransform(
        (np.eye(3) + 0.1 * rng.normal(size=(3, 3))).ravel().tolist(), (1, 2, 3), (4, 5, 6)
    )
    zyx = sitk.Euler3DTransform((4, -5, 6), 0.3, -0.2, 0.5, (1, 2, 3))
    zyx.SetComputeZYX(True)
    flat = sitk.AffineTransform(2)
    flat.SetParameters((1.1, 0.2, -0.1, 0.9, 3, 4))
    flat.SetCenter((5, 6))
    nested = sitk.CompositeTransform(3)
    nested.AddTransform(affine)
    nested.AddTransform(zyx)
    return {
        "affine": affine,
        "euler": sitk.Euler3DTransform((4, -5, 6), 0.3, -0.2, 0.5, (1, 2, 3)),
        "euler zyx": zyx,
        "versor": sitk.VersorRigid3DTransform((0.1, 0.2, 0.3, 0.92736185), (1, 2, 3), (4, 5, 6)),
        "similarity": sitk.Similarity3DTransform(1.2, (0.1, 0.2, 0.3, 0.92736185), (1, 2, 3), (4, 5, 6)),
        "translation": sitk.TranslationTransform(3, (1, 2, 3)),
        "identity": sitk.Transform(3, sitk.sitkIdentity),
        "composite": nested,
        "affine 2": flat,
        "euler 2": sitk.Euler2DTransform((5, 6), 0.4, (1, 2)),
        "similarity 2": sitk.Similarity2DTransform(1.2, 0.4, (1, 2), (5, 6)),
    }


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        pair
        for pair in itertools.product(linear_transforms(), (".tfm", ".txt", ".mat", ".h5"))
        if pair != ("composite", ".mat")
    ],
)
def test_every_linear_transform_of_itk_is_read(tmp_path, name, suffix):
    theirs = linear_transforms()[name]
    path = tmp_path / f"linear{suffix}"
    sitk.WriteTransform(theirs, str(path))
    points = np.random.default_rng(0).normal(scale=20, size=(50, 3))
    expected = through_sitk(theirs, points, theirs.GetDimension())
    np.testing.assert_allclose(read_transform(path).map(points), expected, atol=1e-6)
    back = read_transform(path, inverse=True)
    np.testing.assert_allclose(back.map(expected), points, atol=1e-6)


def test_what_ants_registers_is_read(tmp_path):
    rng = np.random.default_rng(0)
    grid = Grid((24, 24, 24), oblique_grid(3).affine)
    fixed = blob_image(rng, grid)
    moving = apply(fixed, Transform((smooth_field(rng, grid, 2.0), small_affine(rng))), grid)
    for name, image in (("f", fixed), ("m", moving)):
        write_image(tmp_path / f"{name}.nii.gz", image.data, grid)
    result = ants.registration(
        ants.image_read(str(tmp_path / "f.nii.gz")),
        ants.image_read(str(tmp_path / "m.nii.gz")),
        type_of_transform="SyN",
        outprefix=str(tmp_path / "syn_"),
        reg_iterations=(5, 5),
        aff_iterations=(20, 20),
        aff_shrink_factors=(2, 1),
        aff_smoothing_sigmas=(1, 0),
    )
    warp, affine = (Path(f) for f in result["fwdtransforms"])
    points = inner_points(rng, grid)
    ours = Transform((read_field(warp), read_affine(affine)))
    assert np.abs(ours.map(points) - points).max() > 0.1
    np.testing.assert_allclose(ours.map(points), through_ants([warp, affine], points), atol=1e-3)
    warped = apply(moving, ours, grid).data
    known = settled(ours, grid, grid)
    np.testing.assert_allclose(result["warpedmovout"].numpy()[known], warped[known], atol=1e-4)
