import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pirate.errors import InputError
from pirate.evaluation import overlap
from pirate.evaluation.overlap import dice, mean_dice


def test_by_hand():
    a = np.array([[1, 1, 0], [2, 2, 5]])
    b = np.array([[1, 0, 0], [2, 2, 6]])
    assert dice(a, b) == {1: pytest.approx(2 / 3), 2: 1.0}


def test_labels_in_one_map_only_are_left_out_by_default_and_0_when_asked_for():
    a, b = np.array([1, 1, 3, 0]), np.array([1, 1, 0, 4])
    assert dice(a, b) == {1: 1.0}
    assert dice(a, b, labels=[1, 3, 4]) == {1: 1.0, 3: 0.0, 4: 0.0}


def test_a_label_in_neither_map_is_not_a_number_and_does_not_count():
    overlaps = dice(np.array([1, 0]), np.array([1, 0]), labels=[1, 9])
    assert math.isnan(overlaps[9])
    assert mean_dice(overlaps) == 1.0


def test_the_background_counts_only_when_asked_for():
    a = np.array([0, 0, 1])
    assert 0 not in dice(a, a)
    assert dice(a, a, labels=[0]) == {0: 1.0}


def test_ids_far_apart_and_negative_are_exact():
    big = 2**62
    a = np.array([big, big + 1, -7, -7], dtype=np.int64)
    b = np.array([big, big, -7, 1], dtype=np.int64)
    assert dice(a, b) == {-7: pytest.approx(2 / 3), big: pytest.approx(2 / 3)}


def test_two_integer_types_meet():
    a, b = np.array([1, 2, 2], dtype=np.uint8), np.array([1, 2, 1], dtype=np.int32)
    assert dice(a, b) == {1: pytest.approx(2 / 3), 2: pytest.approx(2 / 3)}


def test_unsigned_ids_beyond_the_signed_ones_are_exact():
    a = np.array([2**64 - 1, 2**64 - 1, 2**64 - 2, 2**64 - 2], dtype=np.uint64)
    b = np.array([2**64 - 1, 2**64 - 2, 2**64 - 2, 2**64 - 2], dtype=np.uint64)
    assert dice(a, b) == {2**64 - 2: pytest.approx(4 / 5), 2**64 - 1: pytest.approx(2 / 3)}


def test_pieces_do_not_show(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 40, (9, 8, 7)) for _ in range(2))
    whole = dice(a, b)
    monkeypatch.setattr(overlap, "_PIECE", 50)
    assert dice(a, b) == whole


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([3, 70, 5000, 10**6]))
def test_agrees_with_the_definition(seed, spread):
    rng = np.random.default_rng(seed)
    values = rng.integers(-spread, spread, 4)
    a, b = (rng.choice(np.append(values, 0), (5, 6, 7)) for _ in range(2))
    expected = {
        int(v): 2 * ((a == v) & (b == v)).sum() / ((a == v).sum() + (b == v).sum())
        for v in np.intersect1d(a, b)
        if v != 0
    }
    assert dice(a, b) == pytest.approx(expected)


def test_is_what_monai_computes():
    metrics = pytest.importorskip("monai.metrics")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 4, (9, 8, 7)) for _ in range(2))
    hot = [torch.nn.functional.one_hot(torch.from_numpy(x), 4).movedim(-1, 0)[None].float() for x in (a, b)]
    expected = metrics.compute_dice(*hot, include_background=False)[0]
    np.testing.assert_allclose(list(dice(a, b).values()), expected, atol=1e-6)


def test_nothing_in_common_has_no_mean():
    assert dice(np.array([1]), np.array([2])) == {}
    assert math.isnan(mean_dice({}))


def test_different_shapes_are_refused():
    with pytest.raises(InputError, match="one grid"):
        dice(np.zeros((2, 3), dtype=int), np.zeros((3, 2), dtype=int))


def test_interpolated_labels_are_refused():
    with pytest.raises(InputError, match="warped labels: type float64"):
        dice(np.zeros(3, dtype=int), np.zeros(3))
