"""Every output file is the old one or the new one, never a part of either."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from pirate.errors import OutputError, printable

_CAUSES = {
    errno.ENOSPC: ("no space is left on the device", "Free some space or choose another --out folder."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space or choose another --out folder."),
    errno.EFBIG: ("the file grew beyond the size limit", "Raise the file size limit (ulimit -f)."),
    errno.EROFS: ("the file system is read-only", "Choose a folder that can be written."),
    errno.EACCES: ("permission was denied", "Choose a folder that you may write to."),
    errno.EPERM: ("permission was denied", "Choose a folder that you may write to."),
    errno.ENOENT: ("its folder does not exist", "Create the folder first."),
    errno.ENOTDIR: ("a part of its path is not a folder", "Correct the path."),
    errno.ENAMETOOLONG: ("its name is too long", "Choose a shorter name."),
    errno.ELOOP: ("its path is a loop of symbolic links", "Correct the path."),
}


def unwritable(path: Path, finding: str, expected: str, remedy: str) -> OutputError:
    """Build the one form of a failed write: ``path: finding; expected ...; remedy``."""
    return OutputError(f"{printable(path)}: {finding}; expected {expected}. {remedy}")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of `path`; on success it becomes `path`, whole and on the disk.

    If the block fails in any way, the previous file stays as it was and the sibling is removed. A
    symbolic link at `path` is replaced itself; what it points to is left alone.

    Raises:
        OutputError: the operating system refused; the sentence says why.
    """
    path = Path(path)
    part: Path | None = None
    try:
        _check_target(path)
        part = _sibling(path)
        yield part
        _sync(part)
        part.replace(path)
        part = None
        _sync_folder(path.parent)
    except OSError as error:
        raise _explained(path, error) from error
    except ValueError as error:
        if "\0" in os.fspath(path):
            raise unwritable(path, "its name holds a NUL byte", "a name", "Rename it.") from error
        raise
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write `data` to `path`, whole or not at all."""
    with replacing(path) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8; what UTF-8 cannot hold (odd file names) is escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` as JSON: sorted keys, indented by two, finite numbers only."""
    try:
        text = json.dumps(value, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        finding = f"the record cannot be written as JSON ({error})"
        raise unwritable(path, finding, "finite numbers", "Report this as a defect.") from error
    write_text(path, text + "\n")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_target(path: Path) -> None:
    """Refuse to replace what is not a file: a folder, a pipe, a device."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise unwritable(path, "it is a folder", "the name of a file", "Choose another name.")
    if not stat.S_ISREG(mode):
        raise unwritable(path, "it is a pipe or a device", "the name of a file", "Choose another name.")


def _sibling(path: Path) -> Path:
    """Create an empty file of our own beside `path`, with the same ending."""
    ending = "".join(s for s in path.suffixes[-2:] if len(s.encode("utf-8", "surrogateescape")) <= 16)
    part = path.with_name(f".part-{secrets.token_hex(6)}{ending}")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    return part


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Push the rename to the disk; the new file is already in place, so a refusal changes nothing."""
    with contextlib.suppress(OSError):
        _sync(folder)


def _explained(path: Path, error: OSError) -> OutputError:
    cause = (error.strerror or str(error), "Check the disk and the folder.")
    finding, remedy = _CAUSES.get(error.errno or 0, cause)
    return unwritable(path, f"it cannot be written: {finding}", "a writable folder with space", remedy)
