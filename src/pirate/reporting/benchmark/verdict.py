"""What the numbers say, in sentences: who is first, at which folds, by how much, and where a rival is better.

Every sentence is made from the rows. Methods that learned from labels are ranked apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pirate.benchmark.comparisons import FEW
from pirate.benchmark.measured import Measured
from pirate.benchmark.results import RANKED_BY
from pirate.evaluation.statistics import Interval
from pirate.reporting.benchmark import scores as gathered
from pirate.reporting.benchmark import style
from pirate.reporting.benchmark.scores import Score
from pirate.reporting.benchmark.words import counted, listed, ranged, share

CALLED = {"dice": "Dice", "tre": "landmark error", "similarity_after": "correlation of the images"}
"""What methods may be ranked by, see `results.RANKED_BY`."""

OTHERS = {"folds": "folds", "hd95": "HD95", "tre": "landmark error", "seconds": "time"}
"""In which less is better."""

RANKED = 0.9
"""A method is ranked if it has this part of the pairs that the fullest one has: means of other pairs mislead."""

FASTER = 0.9
"""A time counts as shorter if it is at most this part of the other."""


def verdict(measured: Measured) -> str:
    """The first paragraph of a page."""
    found = gathered.scores(measured)
    by = measure(found)
    having = rank(gathered.having(found, by), by)
    most = max((len(s.values(by)) for s in having), default=0)
    ranked = [s for s in having if len(s.values(by)) >= RANKED * most]
    free = [s for s in ranked if not s.entry.supervised]
    if not free:
        sentences = ["No method that uses no labels has a result."]
    else:
        sentences = [
            _first(free, by),
            *_unfolded(free, by),
            *_ours(free, by),
            *_elsewhere(free, by),
            *_few(most),
        ]
    fewer = [_fewer(s, free[0], by) for s in having if s not in ranked and free]
    return " ".join([*sentences, *_supervised(ranked, free, by), *fewer, *_missing(found, by)])


def measure(found: Sequence[Score]) -> str:
    """What methods are ranked by: landmarks, else Dice, else the correlation of the images."""
    return next((name for name in RANKED_BY if gathered.having(found, name)), "dice")


def rank(found: Sequence[Score], by: str) -> list[Score]:
    """Best mean first."""
    return sorted(found, key=lambda s: s.mean(by) if by == "tre" else -s.mean(by))


def lead(first: Score, second: Score, by: str) -> Interval:
    """By how much the first is better on the pairs that both have, with the 95 % interval; negative: worse."""
    return second.above(first, by) if by == "tre" else first.above(second, by)


def named(score: Score) -> str:
    """A method in a sentence; ours is said to be ours."""
    name = style.name_of(score.entry).removesuffix(style.DAGGER).strip().replace(", ", " with ")
    if name.startswith("pirate "):
        return f"our preset {name.removeprefix('pirate ')}"
    return f"our {name}" if score.entry.ours else name


def _gap(first: Score, second: Score, by: str) -> str:
    gap = lead(first, second, by)
    return ranged(gap, 2, " mm") if by == "tre" else ranged(gap)


def _told(score: Score, by: str) -> str:
    """Mean and folds."""
    mean = f"{score.mean(by):.2f} mm" if by == "tre" else f"{score.mean(by):.4f}"
    return f"{mean}, {share(score.mean('folds'))}"


def _level(first: Score, second: Score, by: str) -> bool:
    """Whether the interval of the difference, if there is one, does not exclude 0."""
    return first.shared(second, by) > 1 and not lead(first, second, by).excludes_zero


def _first(free: Sequence[Score], by: str) -> str:
    best = free[0]
    pairs = len(best.values(by))
    text = f"On {counted(pairs, 'pair')}, {named(best)} is first in {CALLED[by]} among the methods that use no labels: "
    text += _told(best, by)
    if len(free) == 1:
        return f"{text}; there is no other to rank."
    second = free[1]
    shared = best.shared(second, by)
    where = "" if shared == pairs else f" on the {counted(shared, 'pair')} that both have"
    if _level(best, second, by):
        return (
            f"{text}. {_capital(named(second))} ({_told(second, by)}) is level with it: the difference{where}, "
            f"{_gap(best, second, by)}, does not exclude 0."
        )
    only = "; one pair gives no interval" if shared == 1 else ""
    return f"{text}. It leads {named(second)} ({_told(second, by)}) by {_gap(best, second, by)}{where}{only}."


def _few(pairs: int) -> list[str]:
    """A warning where there are several pairs, but not enough for an interval to be trusted."""
    return [f"All this is of {pairs} pairs: their intervals are too narrow."] if 1 < pairs < FEW else []


def _unfolded(free: Sequence[Score], by: str) -> list[str]:
    """Who is first among the fields that never fold, unless that has been said."""
    whole = [s for s in free if s.mean("folds") == 0]
    if not whole:
        return ["None of them is without folds."]
    if whole[0] is free[0]:
        return []
    behind = _gap(free[0], whole[0], by)
    return [
        f"Among those that never fold, {named(whole[0])} is first: {_told(whole[0], by)}, {behind} behind."
    ]


def _ours(free: Sequence[Score], by: str) -> list[str]:
    """How our best compares with the rivals, as far as the first sentence does not say it."""
    ours = next((s for s in free if s.entry.ours), None)
    rivals = [s for s in free if not s.entry.ours]
    if ours is None:
        return ["None of our methods has a result."]
    if not rivals:
        return ["No rival has a result."]
    place = list(free).index(ours)
    better = [s for s in free[:place] if not s.entry.ours]
    if better == [free[0]] and place == 1:
        return ["Our best is thus second, behind a rival."]
    if better:
        parts = [f"{named(s)} by {_gap(s, ours, by)}" for s in better]
        return [f"Our best, {_own(ours)} ({_told(ours, by)}), is behind {listed(parts)}."]
    if free[1] is rivals[0]:
        return []
    relation = "is level with it" if _level(ours, rivals[0], by) else "is behind"
    return [
        f"The best rival, {named(rivals[0])} ({_told(rivals[0], by)}), {relation}: {_gap(ours, rivals[0], by)}."
    ]


def _own(score: Score) -> str:
    return named(score).removeprefix("our ").removeprefix("preset ")


def _elsewhere(free: Sequence[Score], by: str) -> list[str]:
    """In what else a rival is better than our best."""
    ours = next((s for s in free if s.entry.ours), None)
    if ours is None or all(s.entry.ours for s in free):
        return []
    parts, asked = [], []
    for name, called in OTHERS.items():
        rivals = [s for s in free if not s.entry.ours and math.isfinite(_number(s, name))]
        if name == by or not rivals or not math.isfinite(_number(ours, name)):
            continue
        asked.append(called)
        best = min(rivals, key=lambda s: _number(s, name))
        if _beats(best, ours, name):
            parts.append(
                f"{called} ({named(best)}: {_with_unit(best, name)} against {_with_unit(ours, name)})"
            )
    if parts:
        return [f"A rival beats {_own(ours)} in {listed(parts)}."]
    return (
        [f"No rival beats {_own(ours)} beyond chance in {listed(asked).replace(' and ', ' or ')}."]
        if asked
        else []
    )


def _beats(rival: Score, ours: Score, name: str) -> bool:
    """Whether a rival's number is smaller and not by chance."""
    if name == "seconds":
        return rival.seconds <= FASTER * ours.seconds
    gap = ours.above(rival, name)
    return gap.low > 0 if ours.shared(rival, name) > 1 else gap.mean > 0


def _number(score: Score, name: str) -> float:
    return score.seconds if name == "seconds" else score.mean(name)


def _with_unit(score: Score, name: str) -> str:
    number = _number(score, name)
    if name == "seconds":
        return style.seconds_name(number)
    return style.percent(number) if name == "folds" else f"{number:.2f} mm"


def _supervised(ranked: Sequence[Score], free: Sequence[Score], by: str) -> list[str]:
    """Methods that learned from labels, against the best that did not."""
    sentences = []
    for score in (s for s in ranked if s.entry.supervised):
        text = f"{_capital(named(score))}, which learned from labels and is ranked apart, reaches {_told(score, by)}"
        if free:
            ahead = lead(score, free[0], by).mean >= 0
            gap = _gap(score, free[0], by) if ahead else _gap(free[0], score, by)
            text += f": {gap} {'ahead of' if ahead else 'behind'} {named(free[0])}"
            text += " (level)" if _level(score, free[0], by) else ""
        sentences.append(f"{text}.")
    return sentences


def _fewer(score: Score, best: Score, by: str) -> str:
    """A method that has too few pairs to be ranked, on those it has."""
    gap, shared = lead(best, score, by), best.shared(score, by)
    side = "behind" if gap.mean >= 0 else "ahead"
    size = Interval(abs(gap.mean), *((gap.low, gap.high) if gap.mean >= 0 else (-gap.high, -gap.low)))
    told = ranged(size, 2, " mm") if by == "tre" else ranged(size)
    who = f"{_capital(named(score))}, not ranked because it has {counted(shared, 'pair')} only"
    return f"{who}, is {side} there: {told}."


def _missing(found: Sequence[Score], by: str) -> list[str]:
    """Methods that gave nothing, or not on every pair."""
    sentences = []
    nothing = [s for s in found if not len(s.values(by))]
    if nothing:
        reasons = [f"{named(s)} ({s.error.rstrip('.')})" if s.error else named(s) for s in nothing]
        sentences.append(f"Without a result: {listed(reasons)}.")
    partly = [f"{named(s)} ({len(s.rows)} of {s.asked})" for s in found if s.failed and len(s.values(by))]
    if partly:
        sentences.append(f"Not on every pair: {listed(partly)}.")
    return sentences


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
