"""Worker processes that survive each other: one that dies gives a row that says so, and is replaced."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from pirate.baselines.child_tools import die_with_parent
from pirate.benchmark.rows import failed
from pirate.benchmark.tracks import Source
from pirate.benchmark.working import Done, Job, Worker

PAUSE = 0.5
"""Seconds after which the caller is asked whether to go on."""

Named = tuple[Job, str]
"""A job and the name of its pair."""


class Crew:
    """So many processes, each doing one job at a time.

    Args:
        count: of processes.
        source: of the track.
        out: folder of the benchmark; temporary files of other tools go to its part ``work``.
        threads: of each process.
        tick: called again and again while waiting; what it raises ends the crew.
    """

    def __init__(self, count: int, source: Source, out: Path, threads: int, tick: Callable[[], None]) -> None:
        self.count, self.source, self.out, self.threads, self.tick = count, source, out, threads, tick
        self.members: list[_Member] = []

    def __enter__(self) -> Crew:
        shutil.rmtree(self.out / "work", ignore_errors=True)  # of a run that was killed
        (self.out / "work").mkdir(parents=True, exist_ok=True)
        # torch's idle threads would otherwise spin on the cores that the compiled kernels and other processes want
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.end(gently=kind is None)
        self.members = []
        shutil.rmtree(self.out / "work", ignore_errors=True)

    def do(self, jobs: Iterator[Named]) -> Iterator[tuple[Job, Done]]:
        """Every job and what came of it, as they are finished; a job is taken when a process is free."""
        busy: dict[Connection, _Member] = {}
        more = True
        while more or busy:
            while more and len(busy) < self.count:
                job = next(jobs, None)
                if job is None:
                    more = False
                    break
                member = self._free(busy)
                member.begin(job)
                busy[member.connection] = member
            if not busy:
                break
            self.tick()
            for ready in connection.wait(list(busy), PAUSE):
                member = next(m for line, m in busy.items() if line is ready)
                del busy[member.connection]
                yield member.finished()

    def _free(self, busy: dict[Connection, _Member]) -> _Member:
        self.members = [m for m in self.members if m.alive]
        for member in self.members:
            if member.connection not in busy:
                return member
        self.members.append(_Member(self.source, self.out, self.threads))
        return self.members[-1]


class _Member:
    """A process and the line to it."""

    def __init__(self, source: Source, out: Path, threads: int) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.threads = threads
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, source, out, threads, os.getpid()), daemon=True
        )
        self.process.start()
        theirs.close()
        self.alive = True
        self.named: Named | None = None

    def begin(self, named: Named) -> None:
        self.named = named
        with contextlib.suppress(BrokenPipeError):  # it died: `finished` will notice
            self.connection.send(named)

    def finished(self) -> tuple[Job, Done]:
        """What came of the job; the death of the process is something, too."""
        if self.named is None:
            raise RuntimeError("this process has no job")
        job, pair = self.named
        try:
            return job, self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            self.alive = False
            self.connection.close()
            row = failed(job.entry.key, pair, _death(self.process.exitcode), self.threads)
            return job, Done(replace(row, made_from=job.made_from))

    def end(self, gently: bool) -> None:
        """Let it end, or end it where it stands."""
        if self.alive:
            self.connection.close()
            if not gently:
                self.process.terminate()
            self.process.join(10)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
            self.alive = False


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    return f"its process ended with code {code}"


def _serve(line: Connection, source: Source, out: Path, threads: int, parent: int) -> None:
    """The life of a process: jobs come, answers go, until the line is closed. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    tempfile.tempdir = os.environ["TMPDIR"] = str((out / "work").resolve())
    worker = Worker(source, out, threads)
    while True:
        try:
            job, pair = line.recv()
        except EOFError:
            return
        line.send(worker(job, pair))
