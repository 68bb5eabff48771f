"""The tables say what a hand calculation says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.benchmark.conftest import entry, row

from pirate.benchmark.comparisons import corrected, tables
from pirate.benchmark.results import Results, form
from pirate.benchmark.rows import failed
from pirate.benchmark.tables import Table
from pirate.benchmark.timing import Timing

PAIRS = tuple(f"p{i}" for i in range(12))
RNG = np.random.default_rng(0)
DICE = {
    "start": 0.5 + 0.01 * RNG.random(12), "greedy": 0.70 + 0.02 * RNG.random(12), "fast": 0.75 + 0.02 * RNG.random(12),
    "default": 0.76 + 0.02 * RNG.random(12), "default-anatomy": 0.80 + 0.02 * RNG.random(12),
}  # fmt: skip
ENTRIES = tuple(entry(key) for key in DICE)


def results(**changes: object) -> Results:
    rows = tuple(
        row(key, p, float(v), dice_before=float(start), folds=1e-6 if key == "greedy" else 0.0)
        for key, values in DICE.items()
        for p, v, start in zip(PAIRS, values, DICE["start"], strict=True)
    )
    return replace(Results("oasis2d", PAIRS, ENTRIES, rows, ablation_pairs=6), **changes)  # type: ignore[arg-type]


def cell(table: Table, title: str, column: str) -> str:
    line = next(r for r in table.rows if r[0].startswith(title))
    return line[table.columns.index(column)]


def named(found: tuple[Table, ...], name: str) -> Table:
    return next(t for t in found if t.name == name)


def interval(values: np.ndarray) -> tuple[float, float]:
    """The percentile bootstrap as it is defined, one draw of pairs at a time."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(10_000, len(values)))].mean(1)
    return tuple(np.percentile(means, [2.5, 97.5]))


def test_means_intervals_and_differences() -> None:
    main = named(tables(results()), "main")
    low, high = interval(DICE["greedy"])
    assert cell(main, "greedy", "DSC [95 %]") == f"{DICE['greedy'].mean():.4f} [{low:.4f}, {high:.4f}]"
    gap = DICE["greedy"] - DICE["default"]
    low, high = interval(gap)
    wanted = f"{gap.mean():+.4f} [{low:+.4f}, {high:+.4f}]"
    assert cell(main, "greedy", "DSC against `default`") == wanted
    circle = {
        p: f"s{i} <- s{(i + 1) % 12}" for i, p in enumerate(PAIRS)
    }  # each pair shares a subject with two
    rows = tuple(replace(r, pair=circle[r.pair]) for r in results().rows)
    main = named(tables(results(pairs=tuple(circle.values()), rows=rows)), "main")
    deviation = gap - gap.mean()
    wider = max(1.0, math.sqrt(1 + 2 * (deviation @ np.roll(deviation, 1)) / (deviation @ deviation)))
    low, high = (gap.mean() + wider * (end - gap.mean()) for end in (low, high))
    assert cell(main, "greedy", "DSC against `default`") == f"{gap.mean():+.4f} [{low:+.4f}, {high:+.4f}]"
    assert cell(main, "pirate `default`", "DSC against `default`") == "-"
    assert cell(main, "greedy", "neg. JD %") == "1e-06"
    assert cell(main, "pirate `fast`", "neg. JD %") == "0"
    assert cell(main, "greedy", "pairs") == "12"
    assert cell(main, "start", "seconds") == "-"


def test_columns_with_nothing_in_them_are_left_out_with_their_explanation() -> None:
    """A user's own pairs have no printed numbers beside them, and without `default` there is no difference to it."""
    own = results(track="mine", entries=tuple(e for e in ENTRIES if e.key != "default"))
    own = replace(own, rows=tuple(r for r in own.rows if r.entry != "default"))
    main = named(tables(own), "main")
    assert not {"paper", "p (Holm)", "DSC against `default`"} & set(main.columns)
    assert "Paper" not in main.note
    assert "Wilcoxon" not in main.note
    assert "So few pairs" not in main.note
    assert "DSC: mean over the labels" in main.note
    assert "TRE" not in main.note
    few = named(tables(results(pairs=PAIRS[:3])), "main")
    assert "So few pairs" in few.note
    assert "p (Holm)" in few.columns


def test_p_is_wilcoxons_by_holm() -> None:
    keys = ("start", "greedy", "fast", "default-anatomy")
    plain = [stats.wilcoxon(DICE[k] - DICE["default"]).pvalue for k in keys]
    order = np.argsort(plain)
    wanted, largest = {}, 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, plain[i] * (len(keys) - rank)))
        wanted[keys[i]] = largest
    found = corrected(results(), ENTRIES, "dice")
    assert found == pytest.approx(wanted)
    shown = cell(named(tables(results()), "main"), "pirate `fast`", "p (Holm)")
    assert float(shown) == pytest.approx(wanted["fast"], rel=0.06)


def test_the_best_is_bold_if_it_competes() -> None:
    main = named(tables(results()), "main")
    column = main.columns.index("DSC [95 %]")
    bold = [main.rows[i][0] for i, j in main.bold if j == column]
    assert bold == ["pirate `default`"]  # the supervised one is better, and does not compete
    folds = main.columns.index("neg. JD %")
    assert not any(j == folds for _, j in main.bold)  # two are without folds: neither stands out
    some = tuple(r for r in results().rows if not (r.entry == "default" and r.pair == "p3"))
    main = named(tables(results(rows=some)), "main")
    assert [main.rows[i][0] for i, j in main.bold if j == column] == ["pirate `fast`"]
    assert cell(main, "pirate `default`", "pairs") == "11 of 12"


def test_an_entry_without_numbers_says_why() -> None:
    rows = [r for r in results().rows if r.entry != "greedy"] + [
        failed("greedy", "p0", "It is not installed.")
    ]
    main = named(tables(results(rows=tuple(rows))), "main")
    line = next(r for r in main.rows if r[0].startswith("greedy"))
    assert line[0] == "greedy (It is not installed)"
    assert set(line[1:-1]) == {"0 of 12", "-"}


def test_the_corner_case_is_the_smallest_gain_of_default() -> None:
    corner = named(tables(results()), "corner")
    gains = DICE["default"] - DICE["start"]
    assert f"The pair p{int(gains.argmin())}." in corner.note
    assert cell(corner, "pirate `default`", "gain") == f"{gains.min():+.4f}"


def test_the_ablation_takes_its_own_pairs_and_shares_rows() -> None:
    more = ("p", "p+s", "pirate", "tv")
    rows = results().rows + tuple(row(k, p, 0.6 + 0.01 * i) for k in more for i, p in enumerate(PAIRS[:8]))
    found = tables(results(rows=rows, entries=ENTRIES + tuple(map(entry, more))))
    ablation = named(found, "ablation")
    assert {r[1] for r in ablation.rows} == {"6"}
    assert [r[0] for r in ablation.rows] == [
        "P", "P+S", "P+R+S = PIRATE", "zero for R (the same as P+S)", "TV for R",
    ]  # fmt: skip
    assert ablation.rows[1][2:] != ablation.rows[3][2:]  # the paper has no zero; the numbers are the same
    assert ablation.rows[1][2:-1] == ablation.rows[3][2:-1]
    assert cell(ablation, "P+S", "paper") == "0.7782 / 0.2091 / 25.64"
    assert [r[0] for r in named(found, "tv").rows] == ["TV", "DnCNN (PIRATE)"]
    assert not [t for t in tables(results()) if t.name in ("ablation", "step", "tv")]


def with_variants(values: dict[str, float]) -> tuple[Table, ...]:
    """The tables when entries have these Dice, with 0.001 more from pair to pair, and folds of a tenth of them."""
    rows = tuple(
        row(key, p, dice + 0.001 * i, folds=dice / 10)
        for key, dice in values.items()
        for i, p in enumerate(PAIRS[:8])
    )
    return tables(results(rows=results().rows + rows, entries=ENTRIES + tuple(map(entry, values))))


def test_the_step_table_has_the_fixed_steps_beside_the_dynamic_ones() -> None:
    values = {
        "pirate": 0.70, "pirate-plus": 0.72, "pirate-fixed": 0.71, "pirate-plus-cosine": 0.74, "pirate-plus-fixed": 0.73
    }  # fmt: skip
    step = named(with_variants(values), "step")
    titles = {
        "pirate-fixed": "PIRATE, fixed step", "pirate": "PIRATE, cosine step",
        "pirate-plus-fixed": "PIRATE+, fixed step", "pirate-plus-cosine": "PIRATE+, cosine step",
        "pirate-plus": "PIRATE+, Anderson at the cosine's mean (as in the main table)",
    }  # fmt: skip
    assert [r[0] for r in step.rows] == list(titles.values())
    assert {r[1] for r in step.rows} == {"6"}
    for line, (key, title) in zip(step.rows, titles.items(), strict=True):
        told = dict(zip(step.columns, line, strict=True))
        assert told["DSC [95 %]"].startswith(f"{values[key] + 0.0025:.4f} ["), title  # the mean of six pairs
        assert told["neg. JD %"] == f"{values[key] / 10:.4f}", title
    assert cell(step, "PIRATE+, fixed", "paper") == "0.7902 / 0.0742 / 31.42"
    assert cell(step, "PIRATE, fixed", "paper") == "-"
    best = {step.columns[j]: step.rows[i][0] for i, j in step.bold}
    assert (best["DSC [95 %]"], best["neg. JD %"]) == ("PIRATE+, cosine step", "PIRATE, cosine step")
    assert step.note.startswith("Fixed: the mean of the cosine's step.")
    assert "On the first 6 pairs." in step.note


def test_total_variation_stands_against_the_learned_denoiser() -> None:
    tv = named(with_variants({"pirate": 0.75, "tv": 0.70, "pirate-fixed": 0.8}), "tv")
    assert [(r[0], r[1]) for r in tv.rows] == [("TV", "6"), ("DnCNN (PIRATE)", "6")]
    assert cell(tv, "TV", "DSC [95 %]").startswith("0.7025 [")
    assert cell(tv, "DnCNN", "DSC [95 %]").startswith("0.7525 [")
    assert cell(tv, "TV", "paper") == "0.7617 / 0.1281 / 118.2"
    assert {tv.rows[i][0] for i, j in tv.bold if tv.columns[j] == "DSC [95 %]"} == {"DnCNN (PIRATE)"}
    assert {tv.rows[i][0] for i, j in tv.bold if tv.columns[j] == "neg. JD %"} == {"TV"}
    assert tv.note.startswith("On the first 6 pairs.")


def test_costs_and_landmarks() -> None:
    timings = (Timing("greedy", (3.0, 1.0, 2.0), 512.4, 2), Timing("default", (0.5,), 300.0, 2))
    found = tables(results(timings=timings, training={"greedy": (12.34, math.nan)}))
    costs = named(found, "memory_time")
    assert cell(costs, "greedy", "memory MB") == "512"
    assert cell(costs, "greedy", "seconds") == "2.00"
    assert cell(costs, "greedy", "training minutes") == "12.3"
    own = named(tables(results(timings=timings, track="pairs")), "memory_time")
    assert "paper" not in own.columns  # it is of other images
    assert "Paper" not in own.note
    assert cell(named(found, "main"), "greedy", "seconds") == "2.00"
    assert cell(named(found, "main"), "pirate `fast`", "seconds") == "-"  # never mixed with other threads
    same = tuple(replace(r, threads=2) for r in results().rows)
    assert (
        cell(named(tables(results(timings=timings, rows=same)), "main"), "pirate `fast`", "seconds") == "1.00"
    )
    lung = tuple(
        row(k, "p0", math.nan, hd95=math.nan, tre=t, tre_before=4.6)
        for k, t in (("default", 1.5), ("fast", 2.0))
    )
    main = tables(replace(results(), track="lung", pairs=("p0",), rows=lung))[0]
    assert main.name == "lung"
    assert "DSC [95 %]" not in main.columns
    assert "DSC: mean" not in main.note
    assert "TRE: mean distance of the landmarks" in main.note
    assert "TRE against `default`: paired difference." in main.note
    both = tuple(replace(r, dice=0.9) for r in lung)  # landmarks tell more than the overlap of a mask
    assert (
        "TRE against `default`"
        in tables(replace(results(), track="lung", pairs=("p0",), rows=both))[0].columns
    )
    nothing = named(tables(replace(results(), rows=())), "main")
    assert "threads. Bold" in nothing.note
    assert cell(main, "pirate `fast`", "TRE against `default`") == "+0.5000"
    assert [main.rows[i][0] for i, j in main.bold if main.columns[j] == "TRE mm"] == ["pirate `default`"]


def test_numbers_are_shown_so_that_nothing_reads_as_zero() -> None:
    assert [form(v, "fold") for v in (0.0, 1e-7, 0.01, math.nan)] == ["0", "1e-07", "0.0100", "-"]
    assert [form(v, "time") for v in (0.123, 12.34)] == ["0.12", "12.3"]
