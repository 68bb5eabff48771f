"""Writing several files at once, beside other work of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pirate.io.atomic import sha256_of

AT_ONCE = 2
"""Files written at the same time: each holds two copies of its content."""


class Writers:
    """Files that are being written.

    Args:
        pool: threads that write; without one, a file is written as soon as it is added.
    """

    def __init__(self, pool: ThreadPoolExecutor | None) -> None:
        self._pool = pool
        self._digests: dict[Path, Future[str]] = {}

    def add(self, path: Path, write: Callable[[Path], None]) -> None:
        """Call ``write(path)``, now or soon."""
        if self._pool is not None:
            self._digests[path] = self._pool.submit(_written, path, write)
            return
        self._digests[path] = Future()
        self._digests[path].set_result(_written(path, write))

    def digests(self) -> dict[Path, str]:
        """Wait for all files; return the SHA-256 of each, in the order they were added.

        The first error of any of them is raised.
        """
        return {path: digest.result() for path, digest in self._digests.items()}


@contextmanager
def writing(threads: int) -> Iterator[Writers]:
    """Write what the block adds in at most `AT_ONCE` threads beside it, in the block itself if `threads` is 1.

    When the block fails, files not yet begun are left out; those begun are whole when the error goes on.
    """
    if threads == 1:
        yield Writers(None)
        return
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="pirate-write")
    try:
        yield Writers(pool)
    finally:
        pool.shutdown(cancel_futures=True)


def _written(path: Path, write: Callable[[Path], None]) -> str:
    write(path)
    return sha256_of(path)
