"""The first paragraph: what it says of rows whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.reporting.benchmark_samples import (
    ANATOMY,
    FAST,
    NETWORK,
    OURS,
    SMOOTH,
    SYN,
    measured,
    rows,
)

from pirate.benchmark.timing import Timing
from pirate.evaluation.statistics import Interval
from pirate.reporting.benchmark.verdict import verdict
from pirate.reporting.benchmark.words import counted, listed, ranged, share

NOISE = np.array([0.0, 0.002, -0.001, 0.001, -0.002, 0.0])


def dice(mean: float) -> list[float]:
    return list(mean + NOISE)


def shuffled(mean: float) -> list[float]:
    """Differences to `dice(mean)` of both signs, with the mean 0.0005."""
    return list(mean - 0.0005 + NOISE + np.array([0.01, -0.01, 0.02, -0.02, 0.015, -0.015]))


def test_we_win_and_by_how_much() -> None:
    text = verdict(measured([(SYN, rows(SYN, dice(0.75), 0.2)), (OURS, rows(OURS, dice(0.80)))]))
    assert text.startswith(
        "On 6 pairs, our preset default is first in Dice among the methods that use no labels: 0.8000, no folds."
    )
    assert (
        "It leads SyN (CC) (0.7500, 0.20 % folds) by 0.0500." in text
    )  # every pair differs by as much: no interval
    assert "No rival beats default beyond chance in folds, HD95 or time." in text


def test_the_interval_is_that_of_the_paired_difference() -> None:
    ours = [d + extra for d, extra in zip(dice(0.75), (0.02, 0.03, 0.04, 0.02, 0.03, 0.04), strict=True)]
    text = verdict(measured([(SYN, rows(SYN, dice(0.75))), (OURS, rows(OURS, ours))]))
    assert "by 0.0300 [0.0" in text


def test_a_rival_wins_and_it_is_said() -> None:
    text = verdict(measured([(OURS, rows(OURS, dice(0.75))), (SYN, rows(SYN, dice(0.78)))]))
    assert "SyN (CC) is first in Dice" in text
    assert "It leads our preset default (0.7500, no folds) by 0.0300." in text
    assert "Our best is thus second, behind a rival." in text


def test_our_best_behind_two_rivals_names_both() -> None:
    text = verdict(
        measured(
            [
                (OURS, rows(OURS, dice(0.7))),
                (SYN, rows(SYN, dice(0.75))),
                (NETWORK, rows(NETWORK, dice(0.72))),
            ]
        )
    )
    assert (
        "Our best, default (0.7000, no folds), is behind SyN (CC) by 0.0500 and VoxelMorph by 0.0200." in text
    )


def test_few_pairs_are_said_to_be_few() -> None:
    warning = "All this is of 6 pairs: their intervals are too narrow."
    assert warning in verdict(measured([(OURS, rows(OURS, dice(0.8))), (SYN, rows(SYN, dice(0.7)))]))
    many = [(one, rows(one, dice(mean) * 2)) for one, mean in ((OURS, 0.8), (SYN, 0.7))]
    assert "too narrow" not in verdict(measured(many))
    assert "too narrow" not in verdict(measured([(OURS, rows(OURS, [0.8])), (SYN, rows(SYN, [0.7]))]))


def test_a_tie_is_called_level() -> None:
    text = verdict(measured([(OURS, rows(OURS, dice(0.78))), (SYN, rows(SYN, shuffled(0.78)))]))
    assert "our preset default is first" in text
    assert "SyN (CC) (0.7795, no folds) is level with it: the difference, 0.0005 [-0.0" in text
    assert "leads" not in text


def test_the_best_rival_is_named_even_if_the_second_is_ours_too() -> None:
    text = verdict(
        measured([(OURS, rows(OURS, dice(0.8))), (FAST, rows(FAST, dice(0.79))), (SYN, rows(SYN, dice(0.7)))])
    )
    assert "It leads our preset fast" in text
    assert "The best rival, SyN (CC) (0.7000, no folds), is behind: 0.1000." in text


def test_the_supervised_best_is_ranked_apart() -> None:
    text = verdict(
        measured(
            [(OURS, rows(OURS, dice(0.78))), (SYN, rows(SYN, dice(0.7))), (ANATOMY, rows(ANATOMY, dice(0.8)))]
        )
    )
    assert "our preset default is first" in text
    assert (
        "Our preset default with anatomy prior, which learned from labels and is ranked apart, reaches 0.8000, "
        "no folds: 0.0200 ahead of our preset default." in text
    )


def test_a_supervised_method_that_is_worse_is_said_to_be_behind() -> None:
    text = verdict(measured([(OURS, rows(OURS, dice(0.78))), (ANATOMY, rows(ANATOMY, dice(0.7), 0.1))]))
    assert "reaches 0.7000, 0.10 % folds: 0.0800 behind our preset default." in text
    assert "No rival has a result." in text


def test_the_first_that_never_folds_is_named_if_the_winner_folds() -> None:
    text = verdict(measured([(SYN, rows(SYN, dice(0.8), 0.3)), (OURS, rows(OURS, dice(0.78)))]))
    assert "SyN (CC) is first in Dice" in text
    assert (
        "Among those that never fold, our preset default is first: 0.7800, no folds, 0.0200 behind." in text
    )
    every = verdict(measured([(SYN, rows(SYN, dice(0.8), 0.3)), (OURS, rows(OURS, dice(0.78), 0.1))]))
    assert "None of them is without folds." in every
    assert "folds (" not in every.partition("A rival beats")[2]  # the rival has more of them


def test_methods_without_a_result_and_with_part_of_the_pairs_are_named() -> None:
    half = [0.7, 0.7, math.nan, math.nan, math.nan, math.nan]
    text = verdict(
        measured(
            [(OURS, rows(OURS, dice(0.8))), (SYN, rows(SYN, half)), (NETWORK, rows(NETWORK, [math.nan] * 6))]
        )
    )
    assert "Without a result: VoxelMorph (the process <b>died</b>)." in text
    assert "Not on every pair: SyN (CC) (2 of 6)." in text
    assert (
        "SyN (CC), not ranked because it has 2 pairs only, is behind there: 0.1010 [0.1000, 0.1020]." in text
    )


def test_a_method_that_was_not_run_is_not_mentioned() -> None:
    text = verdict(measured([(OURS, rows(OURS, dice(0.8))), (SYN, [])]))
    assert "SyN" not in text
    assert "there is no other to rank" in text


def test_nothing_at_all_says_so() -> None:
    text = verdict(measured([(OURS, rows(OURS, [math.nan]))]))
    assert (
        text
        == "No method that uses no labels has a result. Without a result: our preset default (the process <b>died</b>)."
    )


def test_without_ours_it_says_so() -> None:
    assert "None of our methods has a result." in verdict(measured([(SYN, rows(SYN, dice(0.8)))]))


def test_where_else_a_rival_is_better() -> None:
    timings = [Timing("default", (2.0,), 1, 2), Timing("voxelmorph", (0.02,), 1, 2)]
    found = [(OURS, rows(OURS, dice(0.8), 0.5)), (NETWORK, rows(NETWORK, dice(0.7), 0.1))]
    text = verdict(measured(found, timings))
    assert "A rival beats default in folds (VoxelMorph: 0.10 % against 0.50 %) and time (VoxelMorph: " in text
    assert "0.02 s against 2.0 s)." in text


def test_landmarks_rank_where_there_are_any_and_less_is_better() -> None:
    def at(entry, tre):
        return rows(entry, [0.9 if entry is SYN else 0.8], tre=tre)

    text = verdict(measured([(OURS, at(OURS, 1.25)), (SYN, at(SYN, 1.5))]))
    assert text.startswith("On one pair, our preset default is first in landmark error")
    assert (
        "1.25 mm, no folds. It leads SyN (CC) (1.50 mm, no folds) by 0.25 mm; one pair gives no interval."
        in text
    )


def test_the_ablation_does_not_take_part() -> None:
    assert "P+S" not in verdict(measured([(OURS, rows(OURS, dice(0.7))), (SMOOTH, rows(SMOOTH, dice(0.9)))]))


@pytest.mark.parametrize(
    ("parts", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_lists(parts, text) -> None:
    assert listed(parts) == text


def test_numbers_in_words() -> None:
    assert [counted(n, "pair") for n in (1, 2, 100)] == ["one pair", "2 pairs", "100 pairs"]
    assert [share(x) for x in (0.0, 0.2, 0.00123, math.nan)] == [
        "no folds", "0.20 % folds", "0.0012 % folds", "folds not measured",
    ]  # fmt: skip
    assert ranged(Interval(0.5, 0.25, 0.75), 2) == "0.50 [0.25, 0.75]"
    assert ranged(Interval(0.5, 0.5, 0.5), 2, " mm") == "0.50 mm"
