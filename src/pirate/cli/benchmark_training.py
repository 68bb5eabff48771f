"""The trainings of a benchmark: as many at a time as there are cores, each in a process of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from pirate.baselines.child_tools import die_with_parent
from pirate.benchmark.lessons import (
    CHECKS,
    HELD_OUT,
    MEMORY,
    PLUS_BATCH,
    PLUS_CHANGES,
    PLUS_CHECKS,
    PLUS_LOSS,
    PLUS_RATE,
    SCHEDULE,
    Lesson,
    peak_mb,
)
from pirate.benchmark.machine import cores
from pirate.errors import PirateError, printable
from pirate.io.atomic import write_json
from pirate.registration.process import peak_memory

log = logging.getLogger("pirate")

OFTEN = 0.5
"""Seconds from one look at the trainings to the next."""


def train_all(
    tasks: Sequence[Lesson], data: Path, minutes: float, quiet: bool, look: Callable[[], None]
) -> dict[str, str]:
    """Train every network; small ones use a core better than several, so that cores are shared out.

    Args:
        tasks: which, those that take longest first.
        data: the data folder.
        minutes: after which a training ends; 0 is no limit.
        quiet: whether trainings are silent.
        look: called again and again; what it raises ends all trainings, which can be taken up again.

    Returns:
        Method to why there are no weights of it; nothing for those that went well.
    """
    together = min(len(tasks), cores())
    waiting = list(tasks)
    running: list[Training] = []
    failed: dict[str, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < together:
                running.append(Training(waiting.pop(0), data, minutes, quiet, cores() // together))
            look()
            time.sleep(OFTEN)
            for ended in [t for t in running if not t.process.is_alive()]:
                running.remove(ended)
                failed |= {ended.task.method: why} if (why := ended.why_not()) else {}
    finally:
        for training in running:
            training.process.terminate()
        for training in running:
            training.process.join()
    return failed


class Training:
    """A process that trains one network."""

    def __init__(self, task: Lesson, data: Path, minutes: float, quiet: bool, threads: int) -> None:
        log.info("training %s in %s", task.method, printable(task.folder))
        context = get_context("spawn")
        self.task = task
        self.line, theirs = context.Pipe(duplex=False)
        arguments = (theirs, task, data, minutes, quiet, threads, os.getpid())
        self.process = context.Process(target=_train, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def why_not(self) -> str:
        """Why there are no weights, once the process has ended; empty if there are."""
        self.process.join()
        if self.task.weights.is_file() and self.process.exitcode == 0:
            return ""
        said = f"the training ended with code {self.process.exitcode}"
        with contextlib.suppress(EOFError):
            said = f"the training failed: {self.line.recv()}" if self.line.poll() else said
        return said


def _train(
    line: Connection, task: Lesson, data: Path, minutes: float, quiet: bool, threads: int, parent: int
) -> None:
    """What the process of a training does; its results go to stderr, for stdout is the benchmark's."""
    die_with_parent(parent)
    os.dup2(2, 1)
    task.folder.mkdir(parents=True, exist_ok=True)
    before = peak_mb(task.folder)
    try:
        (_tune if task.start is not None else _learn)(task, data, minutes, quiet, threads)
    except PirateError as error:
        line.send(str(error))
        raise SystemExit(error.exit_code) from None
    largest = max(peak_memory() / 1e6, before if before == before else 0.0)
    write_json(task.folder / MEMORY, {"peak_mb": largest})


def _learn(task: Lesson, data: Path, minutes: float, quiet: bool, threads: int) -> None:
    """``pirate train voxelmorph|symnet|gradirn``."""
    from pirate.cli.training_network import Request, run

    run(
        Request(
            method=task.method, data=data, track=task.track, out=task.folder, schedule=SCHEDULE, similarity="",
            displacement=False, resolution=None, affine=None, steps=task.steps, batch=None, learning_rate=None,
            held_out=HELD_OUT, checks=CHECKS, validate_every=None, patience=None, precision=task.precision,
            minutes=minutes, seed=0, tensorboard=False, threads=threads, quiet=quiet,
        )
    )  # fmt: skip


def _tune(task: Lesson, data: Path, minutes: float, quiet: bool, threads: int) -> None:
    """``pirate train deq``, as the weights that ship were made."""
    from pirate.cli.training_deq import Request, run

    run(
        Request(
            weights=task.start or Path(), data=data, track=task.track, out=task.folder, preset="paper", mode="jfb", k=5,
            steps=task.steps, batch=PLUS_BATCH, learning_rate=PLUS_RATE, changes=PLUS_CHANGES,
            loss=PLUS_LOSS[task.track], learn=(), held_out=0.25, checks=PLUS_CHECKS, validate_every=50, patience=0,
            minutes=minutes, seed=0, tensorboard=False, threads=threads, quiet=quiet,
        )
    )  # fmt: skip
