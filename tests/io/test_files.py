"""What is not a regular file is refused by every reader at once; nothing waits for a pipe's other end."""

from __future__ import annotations

import os
import signal

import pytest

from pirate.errors import InputError, MemoryExceeded
from pirate.io import files
from pirate.io.composite import read_composite
from pirate.io.config import read_config
from pirate.io.files import read_limited
from pirate.io.itk import read_affine
from pirate.io.nifti import read_image
from pirate.io.points import read_points
from pirate.io.transforms import DONE, read_transform

READERS = {
    "config.toml": read_config,
    "affine.txt": read_affine,
    "affine.mat": read_affine,
    "transform.h5": read_composite,
    "points.csv": read_points,
    "image.nii.gz": read_image,
}


@pytest.fixture(autouse=True)
def _no_hang():
    def late(*_):
        raise TimeoutError("the reader hangs")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: it is a pipe, socket or device; expected a regular file"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_a_device_behind_a_link_is_refused(tmp_path, name):
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="pipe, socket or device"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_a_folder_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"it is a folder; expected an? "):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_a_name_with_a_nul_byte_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="NUL byte"):
        READERS[name](tmp_path / f"a\0{name}")


def test_a_registration_whose_record_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / DONE)
    with pytest.raises(InputError, match=r"no run\.json"):
        read_transform(tmp_path)


def test_the_limit_is_the_last_size_that_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PIECE", 3)
    path = tmp_path / "file"
    for size in range(10):
        path.write_bytes(bytes(range(size)))
        assert read_limited(path, size, "a file", "Split it.") == bytes(range(size))
        if size:
            with pytest.raises(InputError) as caught:
                read_limited(path, size - 1, "a file", "Split it.")
            assert (
                str(caught.value) == f"{path}: it is larger than {size - 1} bytes; expected a file. Split it."
            )


def test_running_out_of_memory_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MemoryExceeded, match="memory ran out"), files.opened(tmp_path / "file", "a file"):
        raise MemoryError


def test_a_failing_disk_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match=r"it cannot be read \(Input/output error\); expected a file\."),
        files.opened(tmp_path / "file", "a file"),
    ):
        raise OSError(5, "Input/output error")
