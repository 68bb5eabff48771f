import numpy as np
import pytest
import torch
from scipy import ndimage

from pirate.errors import InputError
from pirate.evaluation.surface import surface_distances


def blobs(seed, shape):
    """Two similar, irregular regions that stay inside the image."""
    rng = np.random.default_rng(seed)
    base = ndimage.gaussian_filter(rng.standard_normal(shape), 2.5)
    other = base + 0.3 * ndimage.gaussian_filter(rng.standard_normal(shape), 2.5)
    rim = np.zeros(shape, dtype=bool)
    rim[tuple(slice(3, -3) for _ in shape)] = True
    return [((x > np.quantile(x, 0.6)) & rim).astype(np.int16) for x in (base, other)]


def test_a_cube_shifted_by_two_voxels_along_a_coarse_axis():
    a, b = np.zeros((20, 12, 12), dtype=np.int16), np.zeros((20, 12, 12), dtype=np.int16)
    a[4:9, 3:8, 3:8] = 7
    b[6:11, 3:8, 3:8] = 7
    found = surface_distances(a, b, (3.0, 1.0, 1.0))[7]
    assert found.hd_mm == pytest.approx(6.0)
    assert found.hd95_mm == pytest.approx(6.0)
    assert 0 < found.assd_mm < 6.0


def test_equal_labels_touch():
    a = blobs(0, (20, 22))[0]
    found = surface_distances(a, a, (1.0, 2.0))[1]
    assert (found.hd95_mm, found.assd_mm, found.hd_mm) == (0, 0, 0)


def test_single_voxels_are_as_far_apart_as_they_are():
    a, b = np.zeros((9, 9), dtype=np.int64), np.zeros((9, 9), dtype=np.int64)
    a[0, 0] = b[3, 4] = 2**40
    found = surface_distances(a, b, (1.0, 1.0))[2**40]
    assert found.hd95_mm == found.assd_mm == found.hd_mm == pytest.approx(5.0)


@pytest.mark.parametrize("shape", [(30, 34), (20, 24, 22)])
@pytest.mark.parametrize("seed", [0, 1])
def test_is_what_monai_computes(shape, seed):
    metrics = pytest.importorskip("monai.metrics")
    spacing = (1.2, 0.7, 2.5)[: len(shape)]
    a, b = blobs(seed, shape)
    found = surface_distances(a, b, spacing)[1]
    pair = [torch.from_numpy(x)[None, None].float() for x in (b, a)]
    for percentile, value in ((95, found.hd95_mm), (None, found.hd_mm)):
        expected = metrics.compute_hausdorff_distance(
            *pair, include_background=True, percentile=percentile, spacing=list(spacing)
        )
        assert value == pytest.approx(float(expected), abs=1e-3)
    expected = metrics.compute_average_surface_distance(
        *pair, include_background=True, symmetric=True, spacing=list(spacing)
    )
    assert found.assd_mm == pytest.approx(float(expected), abs=1e-3)


def test_hausdorff_of_solids_is_what_simpleitk_computes():
    """SimpleITK measures from all voxels of one region to the other; apart, that is between the surfaces."""
    sitk = pytest.importorskip("SimpleITK")
    a, b = np.zeros((24, 20, 18), dtype=np.uint8), np.zeros((24, 20, 18), dtype=np.uint8)
    a[3:6, 4:9, 4:8] = 1
    b[15:19, 5:8, 9:13] = 1
    filt = sitk.HausdorffDistanceImageFilter()
    images = [sitk.GetImageFromArray(x) for x in (a, b)]
    for image in images:
        image.SetSpacing((0.9, 1.4, 2.0))
    filt.Execute(*images)
    assert surface_distances(a, b, (2.0, 1.4, 0.9))[1].hd_mm == pytest.approx(
        filt.GetHausdorffDistance(), abs=1e-4
    )


def test_the_order_of_the_maps_does_not_matter_and_cropping_neither():
    a, b = blobs(3, (18, 20, 16))
    there, back = surface_distances(a, b, (1, 2, 3))[1], surface_distances(b, a, (1, 2, 3))[1]
    assert there == back
    padded = [np.pad(x, 5) for x in (a, b)]
    assert surface_distances(*padded, (1, 2, 3))[1] == there


def test_labels_missing_from_a_map_and_the_background_are_left_out():
    a, b = np.array([[1, 2, 0], [1, 0, 0]]), np.array([[1, 3, 0], [1, 0, 0]])
    assert list(surface_distances(a, b, (1, 1))) == [1]
    assert list(surface_distances(a, b, (1, 1), labels=[0, 1, 2])) == [1]
    assert surface_distances(a, b, (1, 1), labels=[3]) == {}


@pytest.mark.parametrize("spacing", [(1.0,), (1.0, 0.0), (1.0, 1.0, 1.0)])
def test_a_spacing_that_does_not_fit_is_refused(spacing):
    a = np.ones((4, 4), dtype=int)
    with pytest.raises(InputError, match="one positive voxel size"):
        surface_distances(a, a, spacing)
