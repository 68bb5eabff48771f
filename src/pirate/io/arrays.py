"""Named arrays in one compressed file (.npz): read with checks and never unpickled, written whole or not at all."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.io.atomic import replacing

LARGEST = 8 * 2**30
"""Bytes that one array may unfold to; a larger claim is a damaged file."""

AGAIN = "The file is damaged or not what it seems; fetch or make it again."


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays `names` of an .npz file; their unit is the writer's.

    A missing file, a missing name, Python objects instead of numbers or texts, and damage are refused.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            missing = sorted(set(names) - {n.removesuffix(".npy") for n in archive.namelist()})
            if missing:
                raise reject(path, f"holds no {', '.join(missing)}", f"arrays {', '.join(names)}", AGAIN)
            return {name: _array(archive, name, path) for name in names}
    except OSError as error:
        raise reject(
            path, f"cannot be opened ({error.strerror})", "an .npz file", "Check the path."
        ) from None
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, SyntaxError) as error:
        raise reject(path, f"cannot be read ({error})", "an .npz file of numbers", AGAIN) from None


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays, any unit, to a compressed .npz file, whole or not at all."""
    with replacing(path) as part, part.open("wb") as file:
        archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        with archive:
            for name, array in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980: the same arrays give the same bytes
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(  # type: ignore[no-untyped-call]
                        stream, np.ascontiguousarray(array), allow_pickle=False
                    )


def _array(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    entry = archive.getinfo(f"{name}.npy")
    if entry.file_size > LARGEST:
        raise reject(path, f"{name} claims {entry.file_size:,} bytes", f"at most {LARGEST:,}", AGAIN)
    with archive.open(entry) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))  # type: ignore[no-untyped-call]
