"""An output is the old file or the new file, and a failure is a sentence."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pirate.errors import OutputError, UsageError
from pirate.grid import Grid
from pirate.io import nifti
from pirate.io.atomic import replacing, sha256_of, write_bytes, write_json, write_text

GRID = Grid((40, 40, 40), np.eye(4))
NOISE = np.random.default_rng(0).random((40, 40, 40)).astype(np.float32)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with replacing(path) as part:
        assert part.parent == tmp_path
        assert part.suffix == ".txt"
        assert part.stat().st_size == 0
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, ValueError, SystemExit])
def test_a_failure_keeps_the_old_file_and_leaves_nothing(failure, tmp_path):
    path = tmp_path / "a.nii.gz"
    write_bytes(path, b"old")

    def fail():
        with replacing(path) as part:
            part.write_bytes(b"half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.nii.gz"]


def test_a_sibling_that_vanished_is_a_failure(tmp_path):
    with pytest.raises(OutputError, match="does not exist"), replacing(tmp_path / "a.txt") as part:
        part.unlink()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "no space"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "permission"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_the_system_s_refusal_becomes_a_sentence(code, words, tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OutputError) as caught, replacing(path):
        raise OSError(code, os.strerror(code))
    assert caught.value.exit_code == 4
    assert words in str(caught.value)
    assert "; expected " in str(caught.value)
    assert names(tmp_path) == []


def test_an_error_without_a_number_keeps_its_text(tmp_path):
    with pytest.raises(OutputError, match="library says no"), replacing(tmp_path / "a.h5"):
        raise OSError("library says no")


def test_impossible_targets_are_refused_before_the_work(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    targets = {
        "folder": "is a folder",
        "pipe": "pipe",
        "missing/a.txt": "does not exist",
        "file/a.txt": "not a folder",
        "loop/a.txt": "loop",
        "loop": "loop",
        "x" * 300: "too long",
        "nul\0byte": "NUL",
    }
    for name, words in targets.items():
        with pytest.raises(OutputError, match=words), replacing(tmp_path / name):
            pytest.fail("the block must not run")
    assert names(tmp_path) == ["file", "folder", "loop", "pipe"]


@pytest.mark.parametrize(
    "name", ["n" * 255, "a." + "s" * 250, "é" * 124 + ".nii.gz", "sub.01.warp.nii.gz", "-rf", "a\nb"]
)
def test_any_legal_name_can_be_written(name, tmp_path):
    write_bytes(tmp_path / name, b"x")
    assert names(tmp_path) == [name]


def test_a_link_is_replaced_and_its_target_left_alone(tmp_path):
    (tmp_path / "precious").write_text("keep")
    (tmp_path / "out.txt").symlink_to(tmp_path / "precious")
    write_text(tmp_path / "out.txt", "new")
    assert (tmp_path / "precious").read_text() == "keep"
    assert not (tmp_path / "out.txt").is_symlink()


def test_the_users_umask_is_honoured(tmp_path):
    previous = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_json_is_sorted_exact_and_finite(tmp_path):
    path = tmp_path / "run.json"
    value = {"b": [1, 0.1], "a": "ü \udc80", "c": None}
    write_json(path, value)
    text = path.read_bytes()
    assert text.endswith(b"}\n")
    assert text.index(b'"a"') < text.index(b'"b"')
    assert json.loads(text) == value
    for bad in (float("nan"), float("inf")):
        with pytest.raises(OutputError, match="JSON"):
            write_json(path, {"x": bad})
    assert path.read_bytes() == text


def test_an_image_is_written_under_a_nifti_name_only(tmp_path):
    with pytest.raises(UsageError, match=r"\.nii or \.nii\.gz"):
        nifti.write_image(tmp_path / "a.mha", NOISE, GRID)


def test_a_disk_that_lies_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "a.nii.gz"
    nifti.write_image(path, NOISE, GRID)
    before = path.read_bytes()
    monkeypatch.setattr("pirate.io.nifti_write._read_back", lambda _: (0, 0))
    with pytest.raises(OutputError, match="other bytes"):
        nifti.write_image(path, NOISE + 1, GRID)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["a.nii.gz"]


def _write_in_child(folder: Path, name: str, limit: int) -> tuple[int, str]:
    """Write a larger image over `name` in a child whose files may not exceed `limit` bytes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code, sentence = 99, ""
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            nifti.write_image(folder / name, NOISE, GRID)
            code = 0
        except OutputError as error:
            code, sentence = error.exit_code, str(error)
        finally:
            os.write(writing, sentence.encode())
            os._exit(code)
    _, status = os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return os.waitstatus_to_exitcode(status), pipe.read()


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("limit", [0, 1, 351, 5_000, 100_000])
def test_a_full_disk_keeps_the_old_file(name, limit, tmp_path):
    path = tmp_path / name
    nifti.write_image(path, NOISE[:8, :8, :8], Grid((8, 8, 8), np.eye(4)))
    before = path.read_bytes()
    code, sentence = _write_in_child(tmp_path, name, limit)
    assert code == 4
    assert "size limit" in sentence
    assert path.read_bytes() == before
    assert names(tmp_path) == [name]


TINY_DISK = """
import os, sys
from pathlib import Path
import numpy as np
from pirate.errors import OutputError
from pirate.grid import Grid
from pirate.io import nifti
path = Path(sys.argv[1], "a.nii.gz")
nifti.write_image(path, np.ones((8, 8, 8), np.uint8), Grid((8, 8, 8), np.eye(4)))
before = path.read_bytes()
try:
    nifti.write_image(path, np.random.default_rng(0).random((50, 50, 50)), Grid((50, 50, 50), np.eye(4)))
except OutputError as error:
    whole = path.read_bytes() == before and os.listdir(path.parent) == ["a.nii.gz"]
    sys.exit(error.exit_code if whole and "no space" in str(error) else 98)
sys.exit(99)
"""


def test_a_truly_full_disk_keeps_the_old_file(tmp_path):
    """300 kB of tmpfs in a mount namespace of its own: the error is a real ENOSPC."""
    script = f'mount -t tmpfs -o size=300k none "{tmp_path}" && exec "{sys.executable}" -c "$1" "{tmp_path}"'
    if subprocess.run(
        ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{tmp_path}"'], capture_output=True
    ).returncode:
        pytest.skip("no mount namespaces here")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", TINY_DISK], capture_output=True, text=True
    )
    assert done.returncode == 4, done.stderr


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    """SIGKILL in the middle of a write: the name still holds the whole old file."""
    path = tmp_path / "a.txt"
    write_text(path, "old")
    child = os.fork()
    if child == 0:
        with replacing(path) as part:
            part.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.read_text() == "old"


def test_the_digest_is_of_the_bytes(tmp_path):
    write_bytes(tmp_path / "a", b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_folder_of_someone_else_is_a_sentence(tmp_path):
    """Root may write anywhere, so a child becomes nobody first."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setuid(65534)
            write_text(tmp_path / "a.txt", "x")
        except OutputError as error:
            code = error.exit_code if "permission" in str(error) else 98
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert names(tmp_path) == []
