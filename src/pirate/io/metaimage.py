"""MetaImage files (.mhd with its .raw, .mha) as images: a checked reader, because lung data come in that form.

The header is lines ``Key = Value``. ITK's world is LPS: ``TransformMatrix`` lists the direction of each axis in turn,
``Offset`` the centre of the first voxel, and the first axis runs fastest in the data.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.grid import Grid
from pirate.image import Image
from pirate.io import nifti
from pirate.io.files import read_limited
from pirate.io.geometry import LPS
from pirate.io.header import Layout
from pirate.io.volume import Volume

TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_UINT": "u4",
    "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
LONGEST_HEADER = 1 << 16
"""Bytes in which the header must end."""

LARGEST_FILE = 1 << 33
"""Bytes of voxels, stored and unfolded."""

EXPECTED = "a MetaImage header"
AGAIN = "The file is damaged or of another kind; fetch it again."


def read_metaimage(path: Path, kind: str = "image") -> Image:
    """Read a MetaImage.

    Args:
        path: .mhd, with its voxels in the file beside it that it names, or .mha.
        kind: "image", "labels" or "mask", as `nifti.from_array` takes them.
    """
    path = Path(path)
    content = read_limited(path, LARGEST_FILE, EXPECTED, "Crop the image.")
    header, rest = _header(path, content)
    shape, dtype, affine = _geometry(path, header)
    voxels, digest = content[rest:], hashlib.sha256(content)
    if header["ElementDataFile"] != "LOCAL":
        voxels = read_limited(
            _beside(path, header["ElementDataFile"]), LARGEST_FILE, "its voxels", "Crop it."
        )
        digest.update(voxels)
    data = _unfolded(path, header, voxels, math.prod(shape) * dtype.itemsize)
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape, order="F")
    found = nifti.from_array(array.astype(dtype.newbyteorder("=")), affine, str(path), kind)
    return Image(found.data, found.grid, str(path), found.notes, digest.hexdigest())


def read_grid(path: Path) -> Grid:
    """Where the voxels of a MetaImage lie, by its header alone."""
    path = Path(path)
    header, _ = _header(path, read_limited(path, LARGEST_FILE, EXPECTED, "Crop the image."))
    shape, dtype, affine = _geometry(path, header)
    return Volume(path, np.zeros(0), Layout(shape, dtype, 0), affine).grid()


def files_of(path: Path) -> list[Path]:
    """The files of a MetaImage: the header, and that of the voxels if it is another."""
    path = Path(path)
    header, _ = _header(path, read_limited(path, LARGEST_FILE, EXPECTED, "Crop the image."))
    name = header["ElementDataFile"]
    return [path] if name == "LOCAL" else [path, _beside(path, name)]


def _header(path: Path, content: bytes) -> tuple[dict[str, str], int]:
    """Keys and values, and where the voxels of an .mha begin: after the line that names them."""
    values: dict[str, str] = {}
    at = 0
    while "ElementDataFile" not in values:
        end = content.find(b"\n", at, LONGEST_HEADER)
        line = content[at : end if end >= 0 else min(len(content), LONGEST_HEADER)].decode("latin-1")
        key, equals, value = line.partition("=")
        if not equals or not (end >= 0 or key.strip() == "ElementDataFile"):
            raise reject(path, "it does not begin with lines Key = Value", EXPECTED, AGAIN)
        values[key.strip()] = value.strip()
        at = end + 1 if end >= 0 else len(content)
    return values, at


def _geometry(
    path: Path, header: dict[str, str]
) -> tuple[tuple[int, ...], np.dtype[Any], NDArray[np.float64]]:
    """Shape, stored type and affine, voxel to RAS mm."""
    try:
        shape = tuple(int(n) for n in header["DimSize"].split())
        spacing = np.array([float(x) for x in header.get("ElementSpacing", "1 1 1").split()])
        origin = np.array([float(x) for x in header.get("Offset", header.get("Position", "0 0 0")).split()])
        turn = np.array([float(x) for x in header.get("TransformMatrix", "1 0 0 0 1 0 0 0 1").split()])
        big = header.get("ElementByteOrderMSB", header.get("BinaryDataByteOrderMSB", "False")) == "True"
        dtype = np.dtype(TYPES[header["ElementType"]]).newbyteorder(">" if big else "<")
        lps = np.eye(4)
        lps[:3, :3] = turn.reshape(3, 3).T * spacing
        lps[:3, 3] = origin
    except (KeyError, ValueError) as error:
        raise reject(path, f"its header cannot be used ({error})", "a volume of numbers", AGAIN) from None
    if len(shape) != 3 or min(shape) < 1 or math.prod(shape) * dtype.itemsize > LARGEST_FILE:
        raise reject(path, f"its size is {shape}", "three axes that fit into memory", AGAIN)
    return shape, dtype, LPS @ lps


def _beside(path: Path, name: str) -> Path:
    """The file of the voxels: in the header's own folder, nowhere else."""
    if not name or name != Path(name).name or name.startswith("LIST"):
        raise reject(path, f"its voxels are said to lie in {name[:80]!r}", "one file beside it", AGAIN)
    return path.with_name(name)


def _unfolded(path: Path, header: dict[str, str], voxels: bytes, size: int) -> bytes:
    """Exactly `size` bytes of voxels."""
    if header.get("CompressedData", "False") == "True":
        stream = zlib.decompressobj()
        try:
            voxels = stream.decompress(voxels, size + 1)
        except zlib.error as error:
            raise reject(path, f"its voxels cannot be unpacked ({error})", "zlib data", AGAIN) from None
    if len(voxels) != size:
        raise reject(path, f"it has {len(voxels):,} bytes of voxels", f"{size:,}, as its size says", AGAIN)
    return voxels
