"""What the pictures are drawn with, against known answers and scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture
from scipy import ndimage

from pirate.reporting import pen
from pirate.reporting.canvas import contours
from pirate.reporting.graph import Axis, steps
from pirate.reporting.intensity import smoothed, without_holes
from pirate.reporting.shades import GREY, coloured, ramp


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 25), st.integers(1, 25), st.floats(0.2, 0.9))
def test_holes_are_filled_as_scipy_fills_them(seed, rows, columns, share):
    mask = np.random.default_rng(seed).random((rows, columns)) < share
    np.testing.assert_array_equal(without_holes(mask), ndimage.binary_fill_holes(mask))


def test_a_spiral_is_followed_to_its_end():
    turns = np.zeros((21, 21), bool)
    low, high = 0, 20
    while low < high:
        turns[low, low : high + 1] = turns[low : high + 1, high] = True
        turns[high, low + 1 : high + 1] = turns[low + 2 : high + 1, low + 1] = True
        low, high = low + 2, high - 2
    np.testing.assert_array_equal(without_holes(turns), ndimage.binary_fill_holes(turns))


@pytest.mark.parametrize("sigma", [0.6, 1.3])
def test_the_gaussian_is_scipy_s(sigma):
    plane = np.random.default_rng(0).random((13, 17)).astype(np.float32)
    np.testing.assert_allclose(smoothed(plane, sigma), ndimage.gaussian_filter(plane, sigma), atol=1e-6)


def test_a_contour_lies_where_the_plane_has_its_level():
    rows, columns = np.mgrid[:20, :30]
    lines = contours(columns + 0.5 * rows, [7.25])
    assert len(lines) == 1
    np.testing.assert_allclose(lines[0][:, 0] + 0.5 * lines[0][:, 1], 7.25)
    assert contours(np.ones((5, 6)), [0.5, 2.0]) == []


def test_shades_go_from_the_first_to_the_last_and_stop_there():
    shades = ramp(("#000000", "#ff0000", "#ffff00"), 5)
    assert shades.tolist() == [[0, 0, 0], [128, 0, 0], [255, 0, 0], [255, 128, 0], [255, 255, 0]]
    values = np.array([-9.0, 0.0, 0.5, 1.0, 9.0, np.nan])
    assert coloured(values, GREY, (0, 1))[:, 0].tolist() == [0, 0, 128, 255, 255, 0]


def test_a_line_is_as_wide_as_asked_for_and_cut_off_at_its_box():
    picture = Picture.new("RGB", (40, 30))
    pen.strokes(picture, (10, 5, 30, 25), [np.array([[-9.0, 10.0], [99.0, 10.0]])], "#ffffff", 2 / pen.POINT)
    light = np.asarray(picture)[..., 0] / 255
    assert light[:, 12:28].sum(0) == pytest.approx(2, abs=0.3)
    assert not light[:, :10].any()
    assert not light[:, 30:].any()


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (-2.5, 74.5, ["0", "10", "20", "30", "40", "50", "60", "70"]),
        (0.26, 0.70, ["0.30", "0.35", "0.40", "0.45", "0.50", "0.55", "0.60", "0.65", "0.70"]),
        (-0.1, 2.1, ["0.00", "0.25", "0.50", "0.75", "1.00", "1.25", "1.50", "1.75", "2.00"]),
        (1e-9, 8e-9, ["1e-09", "2e-09", "3e-09", "4e-09", "5e-09", "6e-09", "7e-09", "8e-09"]),
    ],
)
def test_marks_are_round_numbers(low, high, names):
    marks, found = steps(low, high)
    assert list(found) == names
    np.testing.assert_allclose(marks, [float(name) for name in names], rtol=1e-9)


def test_a_logarithmic_axis_marks_1_2_5_or_powers_of_ten():
    narrow = Axis.over(np.array([0.06, 1.0]), logarithmic=True)
    assert narrow.names == ("0.1", "0.2", "0.5", "1")
    assert Axis.over(np.array([0.3, 0.42]), logarithmic=True).names[:3] == ("0.30", "0.32", "0.34")
    assert narrow.place(np.array([0.06, 1.0])) == pytest.approx([1 / 22, 21 / 22])
    assert Axis.over(np.array([1e-6, 1.0]), logarithmic=True).names == (
        "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1",
    )  # fmt: skip


@pytest.mark.parametrize("values", [[], [3.0], [0.0, 0.0], [-5.0, -5.0]])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_an_axis_has_a_length_whatever_the_values(values, logarithmic):
    values = np.array(values)
    axis = Axis.over(values[values > 0] if logarithmic else values, logarithmic)
    assert axis.high > axis.low
    assert len(axis.marks) == len(axis.names) > 0
