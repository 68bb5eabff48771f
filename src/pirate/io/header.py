"""What a NIfTI header may claim. Nothing is allocated and no voxel is read before these laws hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import nibabel as nib
import numpy as np

from pirate.errors import reject
from pirate.io.gz import DAMAGED, MAGIC, Stream

Header = nib.Nifti1Header | nib.Nifti2Header

STORED = {
    2: "u1",
    4: "i2",
    8: "i4",
    16: "f4",
    64: "f8",
    256: "i1",
    512: "u2",
    768: "u4",
    1024: "i8",
    1280: "u8",
}
_REFUSED = {
    1: "one bit per voxel",
    32: "complex numbers",
    128: "RGB colours",
    1536: "128-bit floats",
    1792: "complex numbers",
    2048: "complex numbers",
    2304: "RGBA colours",
}
_EXPORT = "Export the image as a single .nii.gz file."
_SCALAR = "Convert it to one plain number per voxel, for example int16 or float32."
_FIRST = {"little": "<", "big": ">"}


@dataclass(frozen=True)
class Layout:
    """How the voxels lie in the file.

    Args:
        shape: voxels per axis, one to seven entries, the first fastest.
        dtype: of one voxel, with its byte order.
        offset: bytes before the first voxel.
        slope: ``value = slope * stored + inter``; 1 if the header gives none.
        inter: see `slope`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset: int
    slope: float = 1.0
    inter: float = 0.0

    @property
    def voxels(self) -> int:
        """Number of voxels."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all voxels as stored."""
        return self.voxels * self.dtype.itemsize

    @property
    def scaled(self) -> bool:
        """Whether stored numbers and values differ."""
        return (self.slope, self.inter) != (1.0, 0.0)


def read_header(stream: Stream) -> Header:
    """Take the fixed part of a NIfTI-1 or NIfTI-2 header from the start of `stream`."""
    first = stream.take(4, "header")
    if first[:2] == MAGIC:
        raise reject(stream.path, "it is compressed twice", "gzip around a NIfTI file", "Unpack it once.")
    for order, letter in _FIRST.items():
        size = int.from_bytes(first, order)  # type: ignore[arg-type]
        if size in (348, 540):
            block = bytes(first + stream.take(size - 4, "header"))
            kind = nib.Nifti1Header if size == 348 else nib.Nifti2Header
            return _checked_magic(kind(block, letter, check=False), stream)  # type: ignore[no-untyped-call]
    finding = f"it is no NIfTI file (it starts with {bytes(first).hex(' ')})"
    raise reject(stream.path, finding, "a header of 348 or 540 bytes", _EXPORT)


def check_layout(header: Header, stream: Stream) -> Layout:
    """Return where the voxels lie, or refuse the header."""
    offset = _offset(header, stream)
    slope, inter = _scaling(header, stream)
    return Layout(_shape(header, stream), _dtype(header, stream), offset, slope, inter)


def check_extensions(block: bytearray, header: Header, stream: Stream) -> None:
    """Refuse header extensions (`block`: what lies between header and voxels) that overrun it."""
    if block[0] == 0:
        return
    order = "<" if header.endianness == "<" else ">"
    position = 4
    while len(block) - position >= 8 and any(memoryview(block)[position:]):
        size = int(np.frombuffer(block, order + "i4", 1, position)[0])
        if size < 8 or position + size > len(block):
            finding = f"a header extension claims {size:,} bytes"
            raise reject(stream.path, finding, f"8 to {len(block) - position:,}", DAMAGED)
        position += size


def _checked_magic(header: Header, stream: Stream) -> Header:
    magic = bytes(header["magic"].item())
    if magic.startswith((b"ni1", b"ni2")):
        raise reject(
            stream.path, "it is one half of a .hdr/.img pair", "header and voxels in one file", _EXPORT
        )
    if not magic.startswith(b"n+1" if header.sizeof_hdr == 348 else b"n+2"):
        finding = f"the header has the magic {magic!r}"
        raise reject(stream.path, finding, "'n+1' or 'n+2' (ANALYZE files have none)", _EXPORT)
    return header


def _shape(header: Header, stream: Stream) -> tuple[int, ...]:
    axes, *lengths = (int(n) for n in header["dim"])
    if not 1 <= axes <= 7:
        raise reject(stream.path, f"the header claims {axes} axes (dim[0])", "1 to 7", DAMAGED)
    shape = tuple(lengths[:axes])
    if min(shape) < 1:
        raise reject(
            stream.path, f"the header claims {_times(shape)} voxels", "at least 1 along each axis", DAMAGED
        )
    return shape


def _dtype(header: Header, stream: Stream) -> np.dtype[np.generic]:
    code = int(header["datatype"])
    if code in _REFUSED:
        raise reject(
            stream.path, f"the voxels are {_REFUSED[code]} (datatype {code})", "real numbers", _SCALAR
        )
    if code not in STORED:
        raise reject(stream.path, f"the header has the unknown datatype {code}", "a NIfTI datatype", DAMAGED)
    dtype = np.dtype(STORED[code]).newbyteorder(header.endianness)
    if int(header["bitpix"]) != 8 * dtype.itemsize:
        finding = f"the header claims {int(header['bitpix'])} bits per voxel (bitpix)"
        raise reject(stream.path, finding, f"{8 * dtype.itemsize} for datatype {code}", DAMAGED)
    return dtype


def _offset(header: Header, stream: Stream) -> int:
    offset = float(header["vox_offset"])
    least = int(header.sizeof_hdr) + 4
    if not math.isfinite(offset) or offset < least or offset != int(offset):
        finding = f"the header puts the first voxel at byte {offset:g} (vox_offset)"
        raise reject(stream.path, finding, f"a whole number of at least {least}", DAMAGED)
    return int(offset)


def _scaling(header: Header, stream: Stream) -> tuple[float, float]:
    """Return slope and inter; a slope of 0 or NaN means that there are none."""
    slope, inter = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or math.isnan(slope):
        return 1.0, 0.0
    if not math.isfinite(slope) or not math.isfinite(inter):
        finding = f"the intensity scale is {slope:g} and {inter:g} (scl_slope, scl_inter)"
        raise reject(stream.path, finding, "finite numbers", "Correct the header.")
    return slope, inter


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in shape)
