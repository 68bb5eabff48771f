"""The page: tables of the paper's ablation and of `default`, intervals, curves, and the diagnostics of each prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from _prior.runs import Row
from _prior.variants import CONTRASTS, Variant
from pirate.evaluation.statistics import Interval, paired

Point = tuple[str, float, float, float]
"""Name, Dice, folds in percent, SDlogJ."""

HEAD = (
    "variant | pairs | Dice | gain over {reference} | folds % | folds, difference | NDV % | SDlogJ | "
    "seconds | evaluations"
)


def table(head: str, rows: Iterable[str]) -> list[str]:
    """Markdown."""
    return [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in rows), ""]


def by_pair(rows: Sequence[Row], key: str) -> dict[str, Row]:
    """The rows of a variant by pair."""
    return {row.pair: row for row in rows if row.variant == key}


def difference(rows: Sequence[Row], key: str, reference: str, name: str) -> Interval:
    """Mean difference of a number between two variants over the pairs that both have."""
    ours, theirs = by_pair(rows, key), by_pair(rows, reference)
    both = sorted(ours.keys() & theirs.keys())
    return paired(*([getattr(side[p], name) for p in both] for side in (ours, theirs)))


def comparison(rows: Sequence[Row], chosen: Sequence[Variant], reference: Variant) -> list[str]:
    """One line for each variant, against `reference` on the same pairs."""
    lines = []
    for variant in chosen:
        own = list(by_pair(rows, variant.key).values())
        if not own:
            continue

        def mean(name: str, own: list[Row] = own) -> float:
            return float(np.mean([getattr(row, name) for row in own]))

        against = ["-", "-"]
        if variant.key != reference.key:
            gain = difference(rows, variant.key, reference.key, "dice")
            folds = difference(rows, variant.key, reference.key, "folds")
            against = [f"{gain:+.4f}", f"{folds:+.4f}"]
            if len(own) == 1:  # one pair has no interval
                against = [f"{gain.mean:+.4f}", f"{folds.mean:+.4f}"]
        lines.append(
            f"{variant.name} | {len(own)} | {mean('dice'):.4f} | {against[0]} | {mean('folds'):.4f} | {against[1]} | "
            f"{_percent(mean('ndv'))} | {mean('sdlogj'):.3f} | {np.median([r.seconds for r in own]):.2f} | "
            f"{mean('evaluations'):.0f}"
        )
    return table(HEAD.format(reference=reference.name), lines)


def contrasts(rows: Sequence[Row], preset: str) -> list[str]:
    """Variants against each other, on the pairs that both have; nothing where one of them was not run."""
    lines = []
    for one, other in CONTRASTS[preset]:
        keys = [f"{preset}/{name}" for name in (one, other)]
        both = by_pair(rows, keys[0]).keys() & by_pair(rows, keys[1]).keys()
        if len(both) > 1:
            gain, folds = (difference(rows, keys[0], keys[1], name) for name in ("dice", "folds"))
            lines.append(f"{one} against {other} | {len(both)} | {gain:+.4f} | {folds:+.4f}")
    return table("contrast | pairs | Dice | folds %", lines) if lines else []


def _percent(value: float) -> str:
    """A share that stays below 100 unless a field has run away."""
    return f"{value:.4f}" if value <= 100 else "above 100: diverged"


def shared(rows: Sequence[Row], chosen: Sequence[Variant]) -> list[Row]:
    """The rows of the pairs that every variant with any row has."""
    sets = [set(by_pair(rows, v.key)) for v in chosen]
    common = set.intersection(*[s for s in sets if s]) if any(sets) else set()
    return [row for row in rows if row.pair in common]


def curve_points(rows: Sequence[Row], chosen: Sequence[Variant]) -> list[Point]:
    """Name, Dice, folds % and SDlogJ of each variant that has rows."""
    points = []
    for variant in chosen:
        own = list(by_pair(rows, variant.key).values())
        if own:
            mean = [float(np.mean([getattr(r, n) for r in own])) for n in ("dice", "folds", "sdlogj")]
            points.append((variant.name, mean[0], mean[1], mean[2]))
    return points


DIVERGED = 20.0
"""Percent of folded voxels from which on nothing was registered."""


def registered(points: Sequence[Point]) -> int:
    """How many points did not diverge."""
    return sum(p[2] < DIVERGED for p in points)


def draw_curves(path: Path, title: str, curves: dict[str, list[Point]], singles: list[Point]) -> list[str]:
    """Dice against folds, or against SDlogJ where nothing folds: curves as lines, single variants as marks.

    A single variant that lies on a curve is ringed there. What diverged, and variants far from all curves, would
    squeeze the rest: they are left out.

    Returns:
        The names of those that were left out.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    whole = {p for points in curves.values() for p in points}
    kept = {name: [p for p in points if p[2] < DIVERGED] for name, points in curves.items()}
    every = [p for points in kept.values() for p in points]
    column = 2 if max(p[2] for p in every) > 0 else 3
    most = 3 * max(p[column] for p in every)
    least = min(min(p[1] for p in every), max(p[1] for p in [*every, *singles]) - 0.05)
    near = [p for p in singles if p not in whole and p[column] <= most and p[1] >= least - 0.01]
    figure, axes = plt.subplots(figsize=(9, 5), dpi=150)
    colours = ("#31688e", "#c1440e", "#35b779", "#7a5195", "#8a8a8a")
    for colour, (name, points) in zip(colours, kept.items(), strict=False):
        ordered = sorted(points, key=lambda p: p[column])
        x, y = [p[column] for p in ordered], [p[1] for p in ordered]
        axes.plot(x, y, "o-", color=colour, label=name, lw=1.5, ms=4)
    on_curves = [p for p in singles if p in every]
    axes.plot(
        [p[column] for p in on_curves], [p[1] for p in on_curves], "o", mfc="none", mec="#222222", ms=10,
        label="in the table above",
    )  # fmt: skip
    for mark, point in zip("s^vDPX*h<>p8", near, strict=False):
        axes.plot(point[column], point[1], mark, color="#222222", mfc="none", ms=7, label=point[0])
    axes.set_xlabel("folded voxels, %" if column == 2 else "SD of log Jacobian (rougher to the right)")
    axes.set_ylabel("mean Dice")
    if column == 2:
        axes.set_xscale("symlog", linthresh=0.01)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return list(dict.fromkeys(p[0] for p in [*singles, *sorted(whole)] if p not in near and p not in every))
