"""The page: tables of the paper's ablation and of `default`, intervals, curves, and the diagnostics of each prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from _prior.runs import Row
from _prior.variants import Variant
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
        lines.append(
            f"{variant.name} | {len(own)} | {mean('dice'):.4f} | {against[0]} | {mean('folds'):.4f} | {against[1]} | "
            f"{_percent(mean('ndv'))} | {mean('sdlogj'):.3f} | {np.median([r.seconds for r in own]):.2f} | "
            f"{mean('evaluations'):.0f}"
        )
    return table(HEAD.format(reference=reference.name), lines)


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


def draw_curves(path: Path, title: str, curves: dict[str, list[Point]], singles: list[Point]) -> None:
    """Dice against SDlogJ: curves joined by lines, single variants as points with their names."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), dpi=150)
    colours = ("#31688e", "#c1440e", "#35b779", "#7a5195", "#8a8a8a")
    for colour, (name, points) in zip(colours, curves.items(), strict=False):
        ordered = sorted(points, key=lambda p: p[3])
        axes.plot(
            [p[3] for p in ordered], [p[1] for p in ordered], "o-", color=colour, label=name, lw=1.5, ms=4
        )
    for name, dice, _, rough in singles:
        axes.plot(rough, dice, "D", color="#222222", ms=4)
        axes.annotate(name, (rough, dice), xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.set_xlabel("SD of log Jacobian (rougher to the right)")
    axes.set_ylabel("mean Dice")
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    if curves:
        axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
