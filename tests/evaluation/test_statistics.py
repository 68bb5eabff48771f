"""Intervals cover what they should; corrections are those of the book."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pirate.evaluation.statistics import bootstrap, dependence, holm, paired, wilcoxon


def test_the_bootstrap_is_the_normal_interval_for_many_values() -> None:
    x = np.random.default_rng(1).normal(0.3, 0.1, 400)
    found = bootstrap(x)
    half = 1.96 * x.std() / 20
    assert found.mean == pytest.approx(x.mean())
    assert found.low == pytest.approx(x.mean() - half, abs=half / 10)
    assert found.high == pytest.approx(x.mean() + half, abs=half / 10)
    assert bootstrap(x) == found  # repeatable


def test_values_of_one_subject_count_once() -> None:
    x = np.repeat(np.random.default_rng(2).normal(size=30), 10)
    who = [(str(i),) for i in np.repeat(np.arange(30), 10)]
    single, together = bootstrap(x), bootstrap(x, who)
    assert dependence(x, who) == pytest.approx(math.sqrt(10))
    assert together.high - together.low == pytest.approx(math.sqrt(10) * (single.high - single.low))
    assert together.mean == pytest.approx(single.mean)
    alone = [(str(i),) for i in range(len(x))]
    assert dependence(x, alone) == 1
    assert bootstrap(x, alone) == single
    assert bootstrap([1.0, 1.0], [("a", "b"), ("b", "a")]).low == 1  # nothing varies


def test_intervals_cover_the_truth_where_pairs_share_subjects() -> None:
    rng = np.random.default_rng(5)
    possible = [(a, b) for a in range(40) for b in range(40) if a != b]
    covered = {"alone": 0, "shared": 0}
    for _ in range(100):
        ease = rng.normal(0, 0.05, 40)  # a subject that is hard to align is so in every pair
        chosen = [possible[i] for i in rng.permutation(len(possible))[:100]]
        x = np.array([ease[a] + ease[b] for a, b in chosen]) + rng.normal(0, 0.01, 100)
        who = [(str(a), str(b)) for a, b in chosen]
        for name, found in (("alone", bootstrap(x)), ("shared", bootstrap(x, who))):
            covered[name] += found.low <= 0 <= found.high
    assert covered["alone"] < 75
    assert covered["shared"] >= 88


def test_the_interval_of_a_difference_excludes_zero_only_if_there_is_one() -> None:
    rng = np.random.default_rng(3)
    hard, noise = rng.normal(0.5, 0.2, 100), rng.normal(0, 0.01, 100)
    assert paired(hard + 0.01 + noise, hard).excludes_zero
    assert not paired(hard + noise - noise.mean(), hard).excludes_zero
    assert f"{paired(hard + 1, hard):+.2f}" == "+1.00 [+1.00, +1.00]"


def test_missing_values_are_left_out() -> None:
    assert bootstrap([1.0, math.nan, 3.0]).mean == 2
    who = [("a", "b"), ("c", "d"), ("a", "e")]
    assert bootstrap([1.0, math.nan, 3.0], who) == bootstrap([1.0, 3.0], [who[0], who[2]])
    assert math.isnan(bootstrap([math.nan]).mean)


def test_wilcoxon_is_scipys_and_one_without_a_difference() -> None:
    x = np.random.default_rng(4).normal(0.2, 1, 20)
    assert wilcoxon(x, np.zeros(20)) == stats.wilcoxon(x).pvalue
    assert wilcoxon(x, x) == 1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]).tolist() == [1, 1]
