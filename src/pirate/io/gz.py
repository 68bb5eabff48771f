"""The bytes of one file, plain or gzip, handed out in order and verified to the last one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from isal import igzip_lib, isal_zlib

from pirate.errors import InputError, MemoryExceeded, reject
from pirate.io import files

DEFLATE_LIMIT = 1032  # deflate spends at least two bits on 258 bytes
LARGE = 4 << 20  # bytes packed or written at once: between pieces, a thread waits for its turn
PIECE = 4 << 20
FEED = 1 << 16  # bytes given to the inflater at once: what follows a member is copied
DAMAGED = "The file is damaged; fetch or export it again."
MAGIC = b"\x1f\x8b"


class Stream:
    """Decoded bytes of an open file.

    Nothing is allocated before `admit` has compared the claim of a header with what the file can hold:
    at most its own size, or 1032 times that if it is compressed.

    Args:
        path: for messages.
        file: unbuffered, at its start.
        size: bytes on disk.
        packed: whether the file is gzip: one member, or several in a row, as bgzip writes them.
    """

    def __init__(self, path: Path, file: io.FileIO, size: int, packed: bool) -> None:
        self.path = path
        self.packed = packed
        self._file = file
        self._size = size
        self._hash = hashlib.sha256()
        self._left = b""
        self._inflater = _inflater() if packed else None

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
        if self._inflater is not None and not self._inflater.eof:
            raise reject(self.path, "the gzip stream is cut short", "its checksum at the end", DAMAGED)
        return bytes(rest[:filled])

    def _into(self, view: memoryview) -> int:
        """Fill the start of `view`; return the number of bytes, 0 at the end of the data."""
        piece = self._inflate(len(view)) if self._inflater else self._read(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def _inflate(self, limit: int) -> bytes:
        """Return the next 1 to `limit` bytes of the members in a row, b"" at the end of the last."""
        piece = b""
        while not piece and self._inflater:
            if self._inflater.eof and not self._next_member(self._inflater.unused_data):
                break
            chunk = self._feed() if self._inflater.needs_input else b""
            if self._inflater.needs_input and not chunk:
                break
            try:
                piece = self._inflater.decompress(chunk, limit)
            except igzip_lib.IsalError as error:  # type: ignore[misc]
                finding = f"the gzip stream is damaged ({str(error).lower()})"
                raise reject(self.path, finding, "a stream that matches its checksum", DAMAGED) from error
        return piece

    def _next_member(self, left: bytes) -> bool:
        """Turn to the gzip member after the one that ended; False at the end of the file."""
        self._left = left if len(left) >= len(MAGIC) else left + self._read(FEED)
        if not self._left:
            return False
        if not self._left.startswith(MAGIC):
            finding = "more bytes follow the gzip stream"
            raise reject(self.path, finding, "another gzip member, or nothing more", DAMAGED)
        self._inflater = _inflater()
        return True

    def _feed(self) -> bytes:
        chunk, self._left = self._left or self._read(FEED), b""
        return chunk

    def _read(self, count: int) -> bytes:
        chunk = self._file.read(count)
        self._hash.update(chunk)
        return chunk


@contextlib.contextmanager
def opened(path: Path, packed: bool) -> Iterator[Stream]:
    """Open `path`, which must be a regular file (or a link to one) and gzip exactly if `packed`.

    A pipe or device is refused without being opened (`files.opened`), so nothing here can block.
    """
    with files.opened(path, "an image file") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise reject(path, "the file is empty", "an image", DAMAGED)
        _check_container(path, file, packed)
        yield Stream(path, file, size, packed)


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
        for start in range(0, len(part), LARGE):
            yield packer.compress(part[start : start + LARGE])
    yield packer.flush()


def _inflater() -> igzip_lib.IgzipDecompressor:
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


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
