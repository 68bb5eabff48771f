"""Opening a file that someone else named: a regular one, of limited size, unchanged where that was promised."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pirate.errors import MemoryExceeded, printable, reject

_PIECE = 1 << 20
_CAUSES = {
    errno.ENOENT: "there is no such file",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.ELOOP: "its path is a loop of symbolic links",
    errno.EACCES: "permission to read it was denied",
    errno.ENAMETOOLONG: "its name is too long",
}


@contextlib.contextmanager
def opened(path: Path, expected: str) -> Iterator[io.FileIO]:
    """Open `path`, which must be a regular file or a link to one, unbuffered, for reading.

    A pipe or device is refused without being opened, so nothing here can block. What the operating system
    refuses, here or while the block reads, becomes a sentence that says what was `expected`.
    """
    try:
        with _regular(path, expected) as file:
            yield file
    except OSError as error:
        finding = _CAUSES.get(error.errno or 0, f"it cannot be read ({error.strerror or error})")
        raise reject(path, finding, expected, "Check the path.") from error
    except MemoryError as error:
        raise MemoryExceeded(
            f"{printable(path)}: memory ran out while reading it. Use a smaller file, or free some memory."
        ) from error


def read_limited(path: Path, limit: int, expected: str, remedy: str) -> bytes:
    """Return all bytes of a regular file; one of more than `limit` bytes is refused with the `remedy`."""
    with opened(path, expected) as file:
        content = bytearray()
        while len(content) <= limit and (piece := file.read(min(_PIECE, limit + 1 - len(content)))):
            content += piece
    if len(content) > limit:
        raise reject(path, f"it is larger than {limit:,} bytes", expected, remedy)
    return bytes(content)


def check_sha256(path: Path, found: str, recorded: str | None) -> None:
    """Refuse a file whose checksum is not the recorded one, where one is recorded."""
    if recorded is not None and found != recorded:
        raise reject(
            path,
            "the file was changed after the registration",
            f"the SHA-256 {printable(recorded)[:64]} that was recorded, not {found}",
            "Run the registration again, or give the changed file itself.",
        )


def _regular(path: Path, expected: str) -> io.FileIO:
    if "\0" in os.fspath(path):
        raise reject(path, "its name holds a NUL byte", "the path of a file", "Correct the path.")
    _check_regular(path, os.stat(path), expected)  # noqa: PTH116 - follows links, opens nothing
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    with contextlib.ExitStack() as guard:
        guard.callback(file.close)
        _check_regular(path, os.fstat(file.fileno()), expected)  # it may have been swapped in between
        guard.pop_all()
    return file


def _check_regular(path: Path, status: os.stat_result, expected: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise reject(path, "it is a folder", expected, "Name a file inside it.")
    if not stat.S_ISREG(status.st_mode):
        raise reject(path, "it is a pipe, socket or device", "a regular file", "Save it to a file first.")
