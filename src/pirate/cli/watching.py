"""Progress of a training on stderr."""

from __future__ import annotations

import sys
import time

from pirate.cli.terminal import INTERVAL, interrupts
from pirate.training.loop import Progress


class Watch:
    """Called after every step of a training: a line on stderr every ten seconds; Ctrl-C ends it soundly."""

    def __init__(self, quiet: bool, name: str = "") -> None:
        """`name`: of what is trained, for where several trainings run at a time."""
        self.quiet, self.name = quiet, name
        self.spoken = time.monotonic()

    def __call__(self, progress: Progress) -> bool:
        """Say how far it is, if it is time to; never asks the training to end."""
        interrupts.check()
        now = time.monotonic()
        if not self.quiet and (now - self.spoken > INTERVAL or progress.step == progress.steps):
            self.spoken = now
            sys.stderr.write(
                f"{self.name}{': ' if self.name else ''}step {progress.step} of {progress.steps}, "
                f"{progress.seconds:.0f} s, about {progress.seconds_left:.0f} s left, loss {progress.loss:.4g}, "
                f"validation {progress.validation:.4g}\n"
            )
        return False
