"""Child processes: started with a fixed number of threads, waited for, measured, and kept as JSON.

The parent stays small on purpose: Linux counts the memory of the parent at the start of a child as the
child's, so nothing heavy may be imported here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAST_WORDS = 300  # characters of a failed process that are reported


class RunError(Exception):
    """A run that gave no result; the message says why."""


@dataclass(frozen=True)
class Finished:
    """A process that ended: wall seconds, CPU seconds (user and system), largest resident size in MB (10^6)."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def environment(threads: int) -> dict[str, str]:
    """The caller's variables with the number of threads that every tool reads."""
    names = (
        "OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "PIRATE_NUM_THREADS", "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    )  # fmt: skip
    inherited = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "KMP_BLOCKTIME")}
    return inherited | {name: str(threads) for name in names}


def run(
    words: Sequence[str], log: Path, threads: int, timeout: float, good: Sequence[int] = (0,)
) -> Finished:
    """Run a command to its end, output into `log`.

    Raises:
        RunError: it ended with another code than a `good` one, was killed, or took longer than `timeout` s.
    """
    late = threading.Event()
    with log.open("wb") as stream:
        start = time.perf_counter()
        child = subprocess.Popen(
            words, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment(threads), start_new_session=True,
        )  # fmt: skip

        def stop() -> None:
            late.set()
            _kill(child.pid)

        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            _kill(child.pid)
            raise
        finally:
            timer.cancel()
        seconds = time.perf_counter() - start
    child.returncode = code = os.waitstatus_to_exitcode(status)
    if late.is_set():
        raise RunError(f"took longer than {timeout:.0f} s")
    if code not in good:
        raise RunError(why(code, log.read_text(errors="replace")))
    return Finished(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def _kill(pid: int) -> None:
    """End a child and what it started: its own session, no other process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def why(code: int, log: str) -> str:
    """One line about a process that failed: its code or signal, and the last line it wrote."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1][-LAST_WORDS:] if lines else "no output"
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {last}"


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(folder: Path, suffixes: Sequence[str] = (".py", ".so", ".safetensors")) -> str:
    """Checksum of the program files under `folder`: names and contents."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in suffixes and p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


def kept(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result in `path` if it was made under the same `key`; None if not, or if it is unreadable."""
    try:
        found = json.loads(path.read_text())
        same = found["key"] == json.loads(json.dumps(key))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found["result"] if same else None


def keep(path: Path, key: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Write a result with its `key`, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"key": key, "result": result}, indent=1))
    part.replace(path)
