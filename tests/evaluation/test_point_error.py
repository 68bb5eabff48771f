import numpy as np
import pytest

from pirate.errors import InputError
from pirate.evaluation.points import endpoint_error, point_error_mm


def test_point_errors_by_hand():
    fixed = np.zeros((4, 3))
    mapped = np.array([[3, 4, 0], [0, 0, 1], [0, 2, 0], [0, 0, 0]])
    found = point_error_mm(fixed, mapped)
    assert found == pytest.approx(
        {
            "mean": 2.0,
            "sd": np.std([5, 1, 2, 0]),
            "median": 1.5,
            "p90": np.percentile([5, 1, 2, 0], 90),
            "max": 5.0,
        }
    )


@pytest.mark.parametrize("shapes", [((3, 3), (4, 3)), ((0, 3), (0, 3)), ((3,), (3,))])
def test_points_without_partners_are_refused(shapes):
    with pytest.raises(InputError, match="same length"):
        point_error_mm(*(np.zeros(s) for s in shapes))


def test_endpoint_error_counts_each_axis_in_its_own_voxels():
    truth = np.zeros((3, 4, 5, 6), dtype=np.float32)
    field = truth.copy()
    field[0] += 3
    field[2] += 4
    found = endpoint_error(field, truth, (2.0, 1.0, 0.5))
    assert found["mean_voxels"] == pytest.approx(5.0)
    assert found["mean_mm"] == pytest.approx(np.hypot(6, 2))
    assert found["sd_mm"] == pytest.approx(0)


def test_endpoint_error_only_in_the_mask():
    truth = np.zeros((2, 4, 5), dtype=np.float32)
    field = truth.copy()
    field[0, 1, 2] = 7
    mask = np.zeros((4, 5), dtype=bool)
    mask[1, 2] = mask[0, 0] = True
    found = endpoint_error(field, truth, (1.0, 1.0), mask)
    assert (found["max_voxels"], found["mean_voxels"]) == (7.0, 3.5)
    assert endpoint_error(field, truth, (1.0, 1.0))["mean_voxels"] == pytest.approx(7 / 20)


def test_fields_on_different_grids_are_refused():
    with pytest.raises(InputError, match="on one grid"):
        endpoint_error(np.zeros((2, 4, 5)), np.zeros((2, 5, 4)), (1, 1))
    with pytest.raises(InputError, match="voxel sizes"):
        endpoint_error(np.zeros((2, 4, 5)), np.zeros((2, 4, 5)), (1, 1, 1))


@pytest.mark.parametrize("mask", [np.zeros((4, 5), dtype=bool), np.ones((5, 4), dtype=bool)])
def test_an_unusable_mask_is_refused(mask):
    with pytest.raises(InputError, match="mask"):
        endpoint_error(np.zeros((2, 4, 5)), np.zeros((2, 4, 5)), (1, 1), mask)
