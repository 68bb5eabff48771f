"""Named arrays come back as they were; damage and Python objects are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from pirate.errors import InputError
from pirate.io import arrays
from pirate.io.arrays import read_arrays, write_arrays


def test_arrays_come_back_and_the_same_arrays_give_the_same_bytes(tmp_path: Path) -> None:
    given = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array(["x", "yz"])}
    write_arrays(tmp_path / "one.npz", given)
    write_arrays(tmp_path / "two.npz", given)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    read = read_arrays(tmp_path / "one.npz", ["b", "a"])
    for name, array in given.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
    with np.load(tmp_path / "one.npz") as theirs:
        np.testing.assert_array_equal(theirs["a"], given["a"])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {"a": np.zeros(3)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_arrays(path, {"a": np.array([{}])})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_odd_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(InputError, match="cannot be opened"):
        read_arrays(path, ["a"])
    np.savez(path, a=np.array([{}]))
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(path, ["a"])
    with pytest.raises(InputError, match="holds no b"):
        read_arrays(path, ["b"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY but no more")
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(path, ["a"])
    np.savez(path, a=np.zeros(100))
    monkeypatch.setattr(arrays, "LARGEST", 100)
    with pytest.raises(InputError, match="a claims 928 bytes"):
        read_arrays(path, ["a"])
