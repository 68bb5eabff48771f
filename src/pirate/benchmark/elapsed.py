"""How long a benchmark has been computing, over all the calls that worked on its folder."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from pirate.io.atomic import write_json

FILE = "elapsed.json"
OFTEN = 20.0
"""Seconds after which the file is written again: no more is lost when a call is killed."""


@dataclass(frozen=True)
class Spent:
    """Seconds of all calls together, and how many calls."""

    seconds: float
    calls: int

    def __str__(self) -> str:
        minutes = round(self.seconds / 60)
        took = f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{max(minutes, 1)} min"
        return f"{took}, {self.calls} call{'s' * (self.calls != 1)}"


def spent(out: Path) -> Spent | None:
    """What was spent on a folder so far; None where nobody has counted from its first call on."""
    try:
        found = json.loads((out / FILE).read_text())
        return Spent(float(found["seconds"]), int(found["calls"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class Clock:
    """Counts one call; does nothing in a folder whose first calls were not counted."""

    def __init__(self, out: Path, new: bool) -> None:
        """`out` is the folder, `new` whether this is the first call that works on it."""
        before = Spent(0.0, 0) if new else spent(out)
        self.out, self.before = out, before
        self.started = self.written = time.monotonic()
        self.tick(last=True)  # from now on the folder is counted

    def tick(self, last: bool = False) -> None:
        """Write how long it has been, if it is time to, or at the end."""
        now = time.monotonic()
        if self.before is not None and (last or now - self.written > OFTEN):
            self.written = now
            seconds = self.before.seconds + now - self.started
            write_json(self.out / FILE, {"seconds": round(seconds, 1), "calls": self.before.calls + 1})
