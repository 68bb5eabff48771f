"""The bytes of one file, plain or gzip, handed out in order and verified to the last one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from isal import igzip_lib, isal_zlib

from pirate.errors import InputError, MemoryExceeded, printable, reject

DEFLATE_LIMIT = 1032  # deflate spends at least two bits on 258 bytes
CHUNK = 1 << 20
PIECE = 4 << 20
DAMAGED = "The file is damaged; fetch or export it again."
MAGIC = b"\x1f\x8b"

_CAUSES = {
    errno.ENOENT: "there is no such file",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.ELOOP: "its path is a loop of symbolic links",
    errno.EACCES: "permission to read it was denied",
    errno.ENAMETOOLONG: "its name is too long",
}


class Stream:
    """Decoded bytes of an open file.

    Nothing is allocated before `admit` has compared the claim of a header with what the file can hold:
    at most its own size, or 1032 times that if it is compressed.

    Args:
        path: for messages.
        file: unbuffered, at its start.
        size: bytes on disk.
        packed: whether the file is one gzip member.
    """

    def __init__(self, path: Path, file: io.FileIO, size: int, packed: bool) -> None:
        self.path = path
        self.packed = packed
        self._file = file
        self._size = size
        self._hash = hashlib.sha256()
        self._ended = False
        self._inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP) if packed else None

    @property
    def sha256(self) -> str:
        """Of the file's bytes read so far: of all of them after `finish`."""
        return self._hash.hexdigest()

    def admit(self, claimed: int, limit: int) -> None:
        """Refuse a header that claims more bytes than the file can hold, or than `limit` allows."""
        possible = self._size * (DEFLATE_LIMIT if self.packed else 1)
        if claimed > possible:
            finding = f"the header claims {claimed:,} bytes"
            raise reject(
                self.path, finding, f"at most {possible:,} from a file of {self._size:,} bytes", DAMAGED
            )
        if claimed > limit:
            raise too_large(self.path, claimed, limit)

    def take(self, count: int, what: str) -> bytearray:
        """Return the next `count` bytes; `what` names them if the file ends before."""
        out = bytearray(count)
        view = memoryview(out)
        filled = 0
        while filled < count:
            got = self._into(view[filled : filled + PIECE])
            if got == 0:
                short = f"the {'gzip stream' if self.packed else 'file'} ends within its {what}"
                raise reject(self.path, short, f"{count - filled:,} more bytes", DAMAGED)
            filled += got
        return out

    def finish(self, slack: int) -> bytes:
        """Read to the end of the file, checksum included; return what was left, at most `slack` bytes."""
        rest = bytearray(slack + 1)
        filled = 0
        while filled <= slack and (got := self._into(memoryview(rest)[filled:])):
            filled += got
        if filled > slack:
            raise reject(self.path, "the file goes on after its last voxel", "nothing more", DAMAGED)
        if self._inflater is not None:
            self._check_trailer(self._inflater)
        return bytes(rest[:filled])

    def _check_trailer(self, inflater: igzip_lib.IgzipDecompressor) -> None:
        if not inflater.eof:
            raise reject(self.path, "the gzip stream is cut short", "its checksum at the end", DAMAGED)
        if inflater.unused_data or self._read(1):
            raise reject(self.path, "more bytes follow the gzip stream", "a single gzip member", DAMAGED)

    def _into(self, view: memoryview) -> int:
        """Fill the start of `view`; return the number of bytes, 0 at the end of the data."""
        piece = self._inflate(len(view)) if self._inflater else self._read(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def _inflate(self, limit: int) -> bytes:
        piece = b""
        while not piece and self._inflater and not self._inflater.eof:
            chunk = self._read(CHUNK) if self._inflater.needs_input else b""
            if self._ended:
                break
            try:
                piece = self._inflater.decompress(chunk, limit)
            except igzip_lib.IsalError as error:  # type: ignore[misc]
                finding = f"the gzip stream is damaged ({str(error).lower()})"
                raise reject(self.path, finding, "a stream that matches its checksum", DAMAGED) from error
        return piece

    def _read(self, count: int) -> bytes:
        chunk = self._file.read(count)
        self._ended = self._ended or not chunk
        self._hash.update(chunk)
        return chunk


@contextlib.contextmanager
def opened(path: Path, packed: bool) -> Iterator[Stream]:
    """Open `path`, which must be a regular file (or a link to one) and gzip exactly if `packed`.

    A pipe or device is refused without being opened, so nothing here can block.
    """
    try:
        with _regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            _check_container(path, file, packed)
            yield Stream(path, file, size, packed)
    except OSError as error:
        finding = _CAUSES.get(error.errno or 0, f"it cannot be read ({error.strerror or error})")
        raise reject(path, finding, "a readable file", "Check the path.") from error
    except MemoryError as error:
        raise MemoryExceeded(
            f"{printable(path)}: memory ran out while reading it. Use a smaller image."
        ) from error


def too_large(path: Path, need: int, limit: int) -> MemoryExceeded:
    """Build the refusal of an image that needs more than `limit` bytes of memory."""
    refusal: InputError = reject(
        path,
        f"reading it needs {need:,} bytes of memory",
        f"at most {limit:,}",
        "Resample it, or allow more memory.",
    )
    return MemoryExceeded(str(refusal))


def deflated(parts: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield one gzip member holding `parts` (bytes): no name, no time, the same bytes every time."""
    packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
    for part in parts:
        for start in range(0, len(part), CHUNK):
            yield packer.compress(part[start : start + CHUNK])
    yield packer.flush()


def _regular(path: Path) -> io.FileIO:
    if "\0" in os.fspath(path):
        raise reject(path, "its name holds a NUL byte", "the path of a file", "Correct the path.")
    _check_regular(path, os.stat(path))  # noqa: PTH116 - follows links, opens nothing
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    with contextlib.ExitStack() as guard:
        guard.callback(file.close)
        _check_regular(path, os.fstat(file.fileno()))  # it may have been swapped in between
        guard.pop_all()
    return file


def _check_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise reject(path, "it is a folder", "an image file", "Name a file inside it.")
    if not stat.S_ISREG(status.st_mode):
        raise reject(path, "it is a pipe, socket or device", "a regular file", "Save the image to a file.")
    if status.st_size == 0:
        raise reject(path, "the file is empty", "an image", DAMAGED)


def _check_container(path: Path, file: io.FileIO, packed: bool) -> None:
    """Compare what the name promises with the first bytes."""
    found = file.read(2) == MAGIC
    file.seek(0)
    if packed and not found:
        raise reject(
            path, "it is named as compressed but is not gzip", "a gzip file", "Correct the name's ending."
        )
    if found and not packed:
        raise reject(
            path, "it is gzip but not named so", "a name ending in .gz or .mgz", "Correct the name's ending."
        )
