"""Numbers and lists as sentences have them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pirate.evaluation.statistics import Interval

NAMED = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def counted(count: int, noun: str) -> str:
    """``one pair``, ``12 pairs``: a number and its noun."""
    return f"{NAMED[count] if count == 1 else count} {noun}{'' if count == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def ranged(interval: Interval, digits: int = 4, unit: str = "") -> str:
    """A number with its 95 % interval; without it where there is a single value."""
    mean, low, high = (f"{x:.{digits}f}" for x in (interval.mean, interval.low, interval.high))
    return f"{mean}{unit}" if low == high else f"{mean}{unit} [{low}, {high}]"


def share(percent: float) -> str:
    """Folds in words: none, or the mean percentage."""
    if math.isnan(percent):
        return "folds not measured"
    if percent == 0:
        return "no folds"
    digits = max(2, 1 - math.floor(math.log10(percent)))
    return f"{percent:.{min(digits, 6)}f} % folds"
