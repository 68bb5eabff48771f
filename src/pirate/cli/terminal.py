"""Log lines and progress on stderr; results go to stdout."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from types import FrameType, TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pirate.solvers.solution import Record

INTERVAL = 10.0
"""Seconds between progress lines where stderr is not a terminal."""


def configure_log(quiet: bool) -> None:
    """Send the ``pirate`` logger to stderr, one plain line for each message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("pirate")
    log.handlers[:] = [handler]
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.propagate = False


class Interrupts:
    """Remembers Ctrl-C, and the signal by which a scheduler ends a job.

    Python drops the exception where it strikes inside a callback of the interpreter's own.
    """

    def __init__(self) -> None:
        self.seen = False

    def watch(self) -> None:
        """Take over SIGINT and SIGTERM; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._strike)
            signal.signal(signal.SIGTERM, self._strike)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise what was dropped."""
        if self.seen:
            raise KeyboardInterrupt


interrupts = Interrupts()


class Bar:
    """Progress with time left: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        console = Console(stderr=True)
        self.live = console.is_terminal and not quiet
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("energy {task.fields[energy]:.4f}"), console=console, transient=True,
        )  # fmt: skip
        self.task: TaskID | None = None
        self.started = self.spoken = time.monotonic()

    def __enter__(self) -> Bar:
        if self.live:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.bar.stop()

    def __call__(self, stage: str, done: int, total: int, record: Record) -> None:
        """Show that `done` of `total` iterations of `stage` are finished."""
        interrupts.check()
        if self.quiet:
            return
        now = time.monotonic()
        if done == 1:
            self.started = self.spoken = now
        if self.live:
            if self.task is None:
                self.task = self.bar.add_task(stage, total=total, energy=record.energy)
            self.bar.update(self.task, completed=done, energy=record.energy)
        elif now - self.spoken > INTERVAL and done < total:
            self.spoken = now
            left = (now - self.started) / max(done - 1, 1) * (total - done)
            sys.stderr.write(
                f"{stage}: {done} of {total}, about {left:.0f} s left, energy {record.energy:.4f}\n"
            )
