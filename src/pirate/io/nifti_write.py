"""NIfTI files out: fast, the same bytes for the same image, whole or not at all, and read back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from pirate.errors import UsageError, printable
from pirate.grid import Grid
from pirate.io.atomic import replacing, unwritable
from pirate.io.geometry import corner_distance, quaternion_affine
from pirate.io.gz import LARGE, deflated
from pirate.io.header import STORED

Nifti = nib.Nifti1Image | nib.Nifti2Image

_SLAB = 8  # planes reordered at a time, so that they stay in the cache
_QFORM_MM = 1e-3
_LONGEST = 32767  # of an axis in NIfTI-1


def write_image(path: Path, data: NDArray[Any], grid: Grid, *, description: str = "") -> None:
    """Write voxels on `grid` as NIfTI: sform, and qform if a quaternion can say it, code 1, mm.

    A plane that was a slice of a volume becomes such a slice again. Another plane becomes a file of two axes if
    it is level in the world, else a volume of one slice.

    Args:
        path: .nii or .nii.gz.
        data: shape of `grid`; bool becomes uint8, float64 becomes float32, other types are kept.
        grid: where the voxels lie, RAS mm.
        description: up to 79 bytes for the header.
    """
    if data.shape != grid.shape:
        raise ValueError(f"voxels {data.shape} do not fill the grid {grid.shape}")
    stored, affine = data.astype(_stored_type(data.dtype), copy=False), grid.affine
    if grid.ndim == 2 and grid.slice_axis is not None:
        columns = [0, 1]
        columns.insert(grid.slice_axis, 2)
        stored, affine = np.expand_dims(stored, grid.slice_axis), affine[:, [*columns, 3]]
    elif grid.ndim == 2 and bool((np.abs(grid.axes[2]) > 1e-6 * min(grid.spacing)).any()):
        stored = stored[:, :, None]
    save(path, placed(stored, affine, description))


def placed(data: NDArray[Any], affine: NDArray[np.float64], description: str = "") -> Nifti:
    """Return a nibabel image of `data` (first three axes spatial) whose header holds `affine` (RAS mm).

    NIfTI-2 if an axis is longer than NIfTI-1 can say. The qform code is 0 if a quaternion in float32
    would misplace a corner: sheared axes, or nearly half a turn.
    """
    small = max(data.shape) <= _LONGEST
    header: Any = (nib.Nifti1Header if small else nib.Nifti2Header)()  # type: ignore[no-untyped-call]
    header.set_data_dtype(data.dtype)
    header.set_data_shape(data.shape)
    header.set_sform(affine, code=1)
    header.set_qform(affine, code=1)
    told = quaternion_affine(header, np.asarray(header["pixdim"][1:4], dtype=np.float64), Path("header"))
    if corner_distance(told, affine, (*data.shape, 1, 1)[:3]) > _QFORM_MM:
        header["qform_code"] = 0
    header.set_xyzt_units("mm")
    header["descrip"] = description.encode("utf-8", "replace")[:79]
    return (nib.Nifti1Image if small else nib.Nifti2Image)(data, affine, header)  # type: ignore[no-untyped-call]


def save(path: Path, nifti: Nifti) -> None:
    """Write a nibabel image to `path` (.nii or .nii.gz), whole or not at all, and read it back.

    The voxels are written in the type they have in memory, unscaled; header extensions are kept.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith((".nii", ".nii.gz")):
        raise UsageError(
            f"{printable(path)}: an image is written as .nii or .nii.gz. Choose one of these endings."
        )
    data = np.asanyarray(nifti.dataobj)
    plain = (memoryview(_head(nifti, data)), _fortran_bytes(data))
    with replacing(path) as part:
        size = checksum = 0
        with part.open("wb", buffering=0) as file:
            for piece in deflated(plain) if name.endswith(".gz") else _chunks(plain):
                _write_all(file, piece)
                size += len(piece)
                checksum = isal_zlib.crc32(piece, checksum)
        if _read_back(part) != (size, checksum):
            finding = "the disk returned other bytes than were written"
            raise unwritable(path, finding, "the same bytes", "Check the disk.")


def _stored_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which voxels of `dtype` are written."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind == "f":
        return np.dtype(np.float32)
    if dtype.newbyteorder("=").str[1:] not in STORED.values():
        raise ValueError(f"voxels of type {dtype} have no place in a NIfTI file")
    return dtype


def _head(nifti: Nifti, data: NDArray[Any]) -> bytes:
    """Return everything before the first voxel, little-endian."""
    header = nifti.header.as_byteswapped("<")  # type: ignore[no-untyped-call]
    header.extensions[:] = nifti.header.extensions
    header.set_data_dtype(data.dtype)
    header.set_data_shape(data.shape)
    header.set_slope_inter(1.0, 0.0)
    header["vox_offset"] = 0  # nibabel then writes the least possible
    head = io.BytesIO()
    header.write_to(head)
    return head.getvalue().ljust(int(header["vox_offset"]), b"\0")


def _fortran_bytes(data: NDArray[Any]) -> memoryview:
    """Return the voxels as bytes, first axis fastest, little-endian."""
    dtype = data.dtype.newbyteorder("<")
    flipped = data.T
    if not flipped.flags.c_contiguous or flipped.dtype != dtype:
        flipped = np.empty(data.T.shape, dtype)
        for start in range(0, len(data), _SLAB):
            flipped[..., start : start + _SLAB] = data[start : start + _SLAB].T
    return flipped.reshape(-1).view(np.uint8).data


def _chunks(parts: tuple[memoryview, ...]) -> Iterator[memoryview]:
    for part in parts:
        for start in range(0, len(part), LARGE):
            yield part[start : start + LARGE]


def _write_all(file: io.FileIO, piece: memoryview | bytes) -> None:
    """Write `piece` through short writes: the system may take less than it is given."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _read_back(path: Path) -> tuple[int, int]:
    """Return size in bytes and CRC-32 of a file."""
    size = checksum = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(LARGE):
            size += len(chunk)
            checksum = isal_zlib.crc32(chunk, checksum)
    return size, checksum
