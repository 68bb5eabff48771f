"""Ctrl-C is not lost."""

from __future__ import annotations

import signal

import pytest

from pirate.cli.terminal import Bar, Interrupts, interrupts
from pirate.solvers.solution import Record


def test_an_interrupt_that_was_dropped_strikes_again_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    watched = Interrupts()
    try:
        watched.watch()
        watched.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            watched.check()
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(interrupts, "seen", True)
    with pytest.raises(KeyboardInterrupt):
        Bar(quiet=True)("register", 1, 2, Record(0, 1.0, 0.0, 0.0, 0.0))
