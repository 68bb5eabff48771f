"""The targets, and where peers are ahead: computed from the rows, never typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .tables import COLUMNS, Row, good, mean, order, shown

GROUP = "OASIS"
FOLDS = ("folds_percent", "folds_forward_percent", "ndv_percent")

BETTER: dict[str, int] = {
    "dice": 1, "dice_vote": 1, "hd95_mm": -1, "folds_percent": -1, "folds_forward_percent": -1, "ndv_percent": -1,
    "sd_log_jacobian": -1, "registration_s": -1, "whole_s": -1, "peak_mb": -1,
}  # fmt: skip
"""In which of the columns more (1) or less (-1) is better."""


@dataclass(frozen=True)
class Verdict:
    """A target, what was measured, and whether that meets it (None: not measured)."""

    target: str
    measured: str
    met: bool | None


def difference(rows: Sequence[Row], a: str, b: str, name: str = "dice") -> list[float]:
    """`a` minus `b` on each pair of the group that both registered."""
    first, second = good(rows, a, GROUP), good(rows, b, GROUP)
    return [first[pair][name] - second[pair][name] for pair in first if pair in second]


def ratio(rows: Sequence[Row], a: str, b: str, of: str, to: str | None = None) -> float | None:
    """Mean `of` of method `a` over mean `to` of method `b`, on the pairs of the group that both registered."""
    first, second = good(rows, a, GROUP), good(rows, b, GROUP)
    both = [pair for pair in first if pair in second]
    above, below = mean([first[p] for p in both], of), mean([second[p] for p in both], to or of)
    return above / below if above is not None and below else None


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Every target in turn."""
    total = len({r["pair"] for r in rows if r["group"] == GROUP})
    return [
        _gain(rows, "default", "greedy-wncc", 0.005, total),
        _gain(rows, "default", "syn", 0.04, total),
        _every_pair(rows, "default", "greedy-ncc", total),
        _every_pair(rows, "default", "greedy-ncc-s", total),
        _unfolded(rows, "default"),
        _faster(rows, "default", "syn", "registration_s", 0.08, total),
        _faster(rows, "default", "greedy-ncc", "registration_s", 0.05, total),
        _faster(rows, "default", "syn", "whole_s", 0.25, total),
        _memory(rows, "default", 1500.0),
        _gain(rows, "fast", "syn", 0.035, total),
        _unfolded(rows, "fast"),
        _faster(rows, "fast", "syn", "registration_s", 0.03, total),
        _faster(rows, "fast", "syn", "whole_s", 0.15, total),
        _gain(rows, "best", "default", 0.0, total),
        _gain(rows, "best", "greedy-wncc", 0.017, total),
        _unfolded(rows, "best"),
        _faster(rows, "best", "syn", "registration_s", 1.0, total),
    ]


def _verdict(
    target: str, values: Sequence[object], total: int, judge: Callable[[], tuple[str, bool]]
) -> Verdict:
    """Judge where something was measured; say so where pairs are missing."""
    if not values:
        return Verdict(target, "not measured", None)
    text, met = judge()
    return Verdict(target, text if len(values) >= total else f"{text} ({len(values)} of {total} pairs)", met)


def _gain(rows: Sequence[Row], ours: str, other: str, least: float, total: int) -> Verdict:
    gains = difference(rows, ours, other)
    wish = f"at least `{other}`'s + {least:g}" if least else f"above `{other}`'s"

    def judge() -> tuple[str, bool]:
        gain = sum(gains) / len(gains)
        return f"{gain:+.4f}", gain >= least if least else gain > 0

    return _verdict(f"`{ours}`: mean Dice {wish}", gains, total, judge)


def _every_pair(rows: Sequence[Row], ours: str, other: str, total: int) -> Verdict:
    gains = difference(rows, ours, other)

    def judge() -> tuple[str, bool]:
        below = sum(g < 0 for g in gains)
        return f"smallest difference {min(gains):+.4f}, below on {below}", below == 0

    return _verdict(f"`{ours}`: on no pair below `{other}`'s Dice", gains, total, judge)


def _unfolded(rows: Sequence[Row], ours: str) -> Verdict:
    """Exactly 0 on every pair of every group."""
    own = list(good(rows, ours).values())
    total = len({r["pair"] for r in rows})

    def judge() -> tuple[str, bool]:
        worst = {name: max(r[name] for r in own) for name in FOLDS}
        text = ", ".join(f"{COLUMNS[name][0]} {shown(value, 'fold')}" for name, value in worst.items())
        return f"largest {text}", not any(worst.values())

    return _verdict(
        f"`{ours}`: folds (central, forward) and NDV 0 on every pair, all groups", own, total, judge
    )


def _faster(rows: Sequence[Row], ours: str, other: str, what: str, most: float, total: int) -> Verdict:
    value = ratio(rows, ours, other, what)
    both = difference(rows, ours, other, what) if value is not None else []

    def judge() -> tuple[str, bool]:
        text = f"{value:.3f}x"
        alone = ratio(rows, ours, other, what, "optimisation_s")
        if alone is not None and what == "registration_s":
            text += f" (of its optimisation without the warps it writes: {alone:.3f}x)"
        return text, value is not None and value <= most

    name = {"registration_s": "registration time", "whole_s": "whole process"}[what]
    return _verdict(f"`{ours}`: {name} at most {most:g}x `{other}`'s", both, total, judge)


def _memory(rows: Sequence[Row], ours: str, most_mb: float) -> Verdict:
    own = list(good(rows, ours).values())

    def judge() -> tuple[str, bool]:
        largest = max(r["peak_mb"] for r in own)
        return f"{largest:.0f} MB", largest <= most_mb

    total = len({r["pair"] for r in rows})
    return _verdict(f"`{ours}`: peak memory at most {most_mb:.0f} MB on every pair", own, total, judge)


def ahead(rows: Sequence[Row], ours: str, peer: str, group: str) -> list[tuple[str, float, float]]:
    """In which columns `peer` is better than `ours` on the pairs of a group that both registered.

    Returns:
        (column, mean of the peer, mean of ours).
    """
    mine, theirs = good(rows, ours, group), good(rows, peer, group)
    both = [pair for pair in mine if pair in theirs]
    found = []
    for name, sign in BETTER.items():
        a, b = mean([theirs[p] for p in both], name), mean([mine[p] for p in both], name)
        if a is not None and b is not None and sign * (a - b) > 0:
            found.append((name, a, b))
    return found


def where_peers_win(rows: Sequence[Row], ours: Sequence[str], peers: Sequence[str]) -> str:
    """Sentences for the head of the page: for each of ours, which peers are ahead and in what."""
    groups = list(dict.fromkeys(r["group"] for r in rows))
    sentences = []
    for name in ours:
        parts = []
        compared = [p for p in peers if p in order(rows) and any(good(rows, p, g) for g in groups)]
        if not compared or not good(rows, name):
            sentences.append(f"`{name}` could not be compared.")
            continue
        for peer in compared:
            for group in groups:
                wins = [
                    f"{COLUMNS[c][0]} {shown(a, COLUMNS[c][1])} against {shown(b, COLUMNS[c][1])}"
                    for c, a, b in ahead(rows, name, peer, group)
                ]
                if wins:
                    parts.append(f"`{peer}` on {group} ({', '.join(wins)})")
        columns = ", ".join(COLUMNS[c][0] for c in BETTER)
        sentences.append(
            f"Ahead of `{name}`: {'; '.join(parts)}."
            if parts
            else f"No peer is ahead of `{name}` in any of {columns}."
        )
    return " ".join(sentences)
