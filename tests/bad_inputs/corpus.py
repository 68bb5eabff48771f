"""Files that a reader meets in the wild or under attack, each made by code, each with its verdict.

A case is a name, the reader it is given to, the verdict, a fragment of the sentence that must come with
it, and a function that writes the file into a folder and returns its path.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nibabel as nib
import numpy as np

Verdict = Literal["refused", "too large", "repaired", "accepted"]
Reader = Literal["image", "labels", "mask"]

SHAPE = (12, 14, 10)
IMAGE = (np.random.default_rng(7).random(SHAPE) * 200).astype(np.int16)
LABELS = (IMAGE // 40).astype(np.int16)


@dataclass(frozen=True)
class Case:
    name: str
    verdict: Verdict
    fragment: str
    build: Callable[[Path], Path]
    reader: Reader = "image"


def header_bytes(
    shape: tuple[int, ...], dtype: Any, version: int = 1, order: str = "<", **fields: Any
) -> bytes:
    """A NIfTI header (with the four extension bytes) of a plain scan; `fields` overwrite single entries."""
    header = (nib.Nifti1Header if version == 1 else nib.Nifti2Header)(endianness=order)
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    affine = np.diag([1.0, 1.5, 2.0, 1.0])
    affine[:3, 3] = (-10, -20, 5)
    header.set_sform(affine, 1)
    header.set_qform(affine, 1)
    header.set_xyzt_units("mm")
    header["vox_offset"] = header.sizeof_hdr + 4
    header["magic"] = b"n+1" if version == 1 else b"n+2"
    for name, value in fields.items():
        entry, _, index = name.partition("__")
        if index:
            header[entry][int(index)] = value
        else:
            header[entry] = value
    return header.binaryblock + bytes(4)


def nifti_bytes(data: np.ndarray = IMAGE, version: int = 1, order: str = "<", **fields: Any) -> bytes:
    head = header_bytes(data.shape, data.dtype, version, order, **fields)
    return head + data.astype(data.dtype.newbyteorder(order)).tobytes(order="F")


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def members(data: bytes, size: int) -> bytes:
    """The form of bgzip: a member for every `size` bytes, each with an extra field, and an empty last one."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    out = b""
    for piece in (*pieces, b""):
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = packer.compress(piece) + packer.flush()
        head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", len(body) + 25)
        out += head + body + struct.pack("<II", zlib.crc32(piece), len(piece))
    return out


def written(name: str, data: bytes) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return build


def packed(data: bytes) -> Callable[[Path], Path]:
    return written("image.nii.gz", gz(data))


def plain(data: bytes) -> Callable[[Path], Path]:
    return written("image.nii", data)


def _changed(data: bytes, position: int, value: bytes) -> bytes:
    position %= len(data)
    return data[:position] + value + data[position + len(value) :]


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "image.nii.gz")
    return folder / "image.nii.gz"


def _folder(folder: Path) -> Path:
    (folder / "image.nii.gz").mkdir()
    return folder / "image.nii.gz"


def _loop(folder: Path) -> Path:
    (folder / "image.nii.gz").symlink_to("image.nii.gz")
    return folder / "image.nii.gz"


def _device(folder: Path) -> Path:
    (folder / "image.nii").symlink_to("/dev/zero")
    return folder / "image.nii"


def _sparse(folder: Path) -> Path:
    path = folder / "image.nii"
    path.write_bytes(header_bytes((10000, 10000, 10000), np.int16))
    os.truncate(path, 352 + 2 * 10000**3)
    return path


def _link(folder: Path) -> Path:
    (folder / "there").mkdir()
    (folder / "there" / "scan.nii").write_bytes(nifti_bytes())
    (folder / "image.nii").symlink_to(folder / "there" / "scan.nii")
    return folder / "image.nii"


def _named(name: str) -> Callable[[Path], Path]:
    return written(name, gz(nifti_bytes()))


def _with_nan(count: int, value: float = np.nan) -> bytes:
    data = IMAGE.astype(np.float32)
    data.reshape(-1)[:count] = value
    return nifti_bytes(data)


def _shifted(mm: float) -> bytes:
    return nifti_bytes(qoffset_x=-10 + mm)


def _mgh(data: np.ndarray = IMAGE, kind: int = 4, dims: tuple[int, ...] | None = None, **entry: Any) -> bytes:
    dims = dims or (*data.shape, *[1] * (4 - data.ndim))
    head = struct.pack(">7i", entry.get("version", 1), *dims, kind, 0)
    head += struct.pack(
        ">h15f", entry.get("good", 1), 1, 1, 1, *entry.get("axes", (-1, 0, 0, 0, 0, -1, 0, 1, 0)), 0, 0, 0
    )
    return head.ljust(284, b"\0") + data.astype(data.dtype.newbyteorder(">")).tobytes(order="F")


PACKED = gz(nifti_bytes())
PLAIN = nifti_bytes()
BGZIP = members(PLAIN, 500)
EXTENDED = header_bytes(SHAPE, np.int16, vox_offset=384)[:348] + b"\1\0\0\0"
NO_FORMS = {"sform_code": 0, "qform_code": 0}
ONLY_QFORM = {"sform_code": 0}
ONLY_SFORM = {"qform_code": 0}
RGB = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")])
RGBA = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1"), ("A", "u1")])

CONTAINER = [
    Case("empty", "refused", "is empty", plain(b"")),
    Case("empty gz payload", "refused", "ends within its header", packed(b"")),
    Case("text", "refused", "no NIfTI", plain(b"These are not the voxels you are looking for.\n" * 20)),
    Case("text named gz", "refused", "is not gzip", written("image.nii.gz", b"hello " * 99)),
    Case("plain named gz", "refused", "is not gzip", written("image.nii.gz", PLAIN)),
    Case("gz named plain", "refused", "not named so", plain(PACKED)),
    Case("gz of text", "refused", "no NIfTI", packed(b"hello " * 99)),
    *[
        Case(
            f"gz cut at {share} %",
            "refused",
            "ends within",
            written("image.nii.gz", PACKED[: len(PACKED) * share // 100]),
        )
        for share in (1, 10, 50, 99)
    ],
    Case("gz without its last byte", "refused", "cut short", written("image.nii.gz", PACKED[:-1])),
    Case(
        "bad checksum",
        "refused",
        "damaged",
        written("image.nii.gz", _changed(PACKED, len(PACKED) - 8, b"\0\0\0\0")),
    ),
    Case(
        "bad length",
        "refused",
        "damaged",
        written("image.nii.gz", _changed(PACKED, len(PACKED) - 4, b"\0\0\0\0")),
    ),
    Case(
        "bit flip",
        "refused",
        "damaged",
        written("image.nii.gz", _changed(PACKED, 1500, bytes([PACKED[1500] ^ 8]))),
    ),
    Case("garbage after gz", "refused", "more bytes follow", written("image.nii.gz", PACKED + b"x")),
    Case("file twice in a row", "refused", "goes on", written("image.nii.gz", PACKED + PACKED)),
    Case("bgzip", "accepted", "", written("image.nii.gz", BGZIP)),
    Case("one member a byte", "accepted", "", written("image.nii.gz", members(PLAIN, 1))),
    Case("two members", "accepted", "", written("image.nii.gz", gz(PLAIN[:1000]) + gz(PLAIN[1000:]))),
    Case("zero padding in a member", "accepted", "", written("image.nii.gz", PACKED + gz(bytes(160)))),
    Case("garbage after bgzip", "refused", "more bytes follow", written("image.nii.gz", BGZIP + b"x")),
    Case("zeros after bgzip", "refused", "more bytes follow", written("image.nii.gz", BGZIP + bytes(9))),
    Case("half a magic after gz", "refused", "more bytes follow", written("image.nii.gz", PACKED + b"\x1f")),
    Case("magic alone after gz", "refused", "cut short", written("image.nii.gz", PACKED + b"\x1f\x8b")),
    Case("bgzip cut", "refused", "ends within", written("image.nii.gz", BGZIP[:-60])),
    Case("bgzip without its last byte", "refused", "cut short", written("image.nii.gz", BGZIP[:-1])),
    Case(
        "bad checksum of the second member",
        "refused",
        "damaged",
        written("image.nii.gz", gz(PLAIN[:1000]) + _changed(gz(PLAIN[1000:]), -8, b"\0\0\0\0")),
    ),
    Case(
        "bad checksum of the first member",
        "refused",
        "damaged",
        written("image.nii.gz", _changed(gz(PLAIN[:1000]), -8, b"\0\0\0\0") + gz(PLAIN[1000:])),
    ),
    Case(
        "bomb in a second member",
        "refused",
        "goes on",
        written("image.nii.gz", PACKED + gz(bytes(70_000_000))),
    ),
    Case("double gz", "refused", "compressed twice", packed(PACKED)),
    Case("bomb behind a small header", "refused", "goes on", packed(PLAIN + bytes(70_000_000))),
    Case("bomb of an extension", "refused", "claims", packed(nifti_bytes(vox_offset=4e9) + bytes(9_000_000))),
    Case("plain cut", "refused", "claims", plain(PLAIN[:-1])),
    Case("plain cut in the header", "refused", "ends within its header", plain(PLAIN[:100])),
    Case("plain with a tail", "refused", "goes on", plain(PLAIN + b"tail")),
    Case("plain with long zeros", "refused", "goes on", plain(PLAIN + bytes(5000))),
    Case("plain with zero padding", "accepted", "", plain(PLAIN + bytes(160))),
    Case("pipe", "refused", "pipe", _fifo),
    Case("folder", "refused", "folder", _folder),
    Case("link loop", "refused", "loop", _loop),
    Case("device", "refused", "device", _device),
    Case("missing", "refused", "no such file", lambda folder: folder / "image.nii"),
    Case("file as a folder", "refused", "not a folder", lambda folder: plain(PLAIN)(folder) / "image.nii"),
    Case("NUL in the name", "refused", "NUL", lambda folder: Path(f"{folder}/a\0b.nii")),
    Case("name too long", "refused", "too long", lambda folder: folder / ("x" * 300 + ".nii")),
    Case("link to a file", "accepted", "", _link),
]

HEADER = [
    Case("more voxels than the file", "refused", "claims", plain(nifti_bytes(dim__1=500))),
    Case("more voxels than the stream", "refused", "ends within its voxels", packed(nifti_bytes(dim__1=500))),
    Case(
        "30000 cubed",
        "refused",
        "claims 54,000,000,000,352 bytes",
        packed(nifti_bytes(dim=[3, 30000, 30000, 30000, 1, 1, 1, 1])),
    ),
    Case("2 TB on a sparse disk", "too large", "memory", _sparse),
    Case("NIfTI-2 with 2^40", "refused", "claims", packed(nifti_bytes(version=2, dim__1=2**40))),
    Case(
        "NIfTI-2 with 2^62 cubed",
        "refused",
        "claims",
        packed(nifti_bytes(version=2, dim=[3, *[2**62] * 3, 1, 1, 1, 1])),
    ),
    Case("negative axis", "refused", "at least 1", plain(nifti_bytes(dim__2=-14))),
    Case("zero axis", "refused", "at least 1", plain(nifti_bytes(dim__2=0))),
    Case("no axes", "refused", "0 axes", plain(nifti_bytes(dim__0=0))),
    Case("eight axes", "refused", "8 axes", plain(nifti_bytes(dim__0=8))),
    Case("offset past the end", "refused", "claims", plain(nifti_bytes(vox_offset=1e6))),
    Case("offset inside the header", "refused", "vox_offset", plain(nifti_bytes(vox_offset=100))),
    Case("offset NaN", "refused", "vox_offset", plain(nifti_bytes(vox_offset=np.nan))),
    Case("offset infinite", "refused", "vox_offset", plain(nifti_bytes(vox_offset=np.inf))),
    Case("offset with a fraction", "refused", "vox_offset", plain(nifti_bytes(vox_offset=352.5))),
    Case("offset negative", "refused", "vox_offset", plain(nifti_bytes(vox_offset=-352))),
    Case(
        "offset odd",
        "accepted",
        "",
        plain(nifti_bytes(vox_offset=355)[:352] + bytes(3) + IMAGE.tobytes(order="F")),
    ),
    Case(
        "huge extension",
        "refused",
        "extension",
        plain(EXTENDED + struct.pack("<ii", 2**30, 6) + bytes(24) + PLAIN[352:]),
    ),
    Case(
        "negative extension",
        "refused",
        "extension",
        plain(EXTENDED + struct.pack("<ii", -16, 6) + bytes(24) + PLAIN[352:]),
    ),
    Case(
        "extension",
        "accepted",
        "",
        plain(EXTENDED + struct.pack("<ii", 32, 6) + b"hello".ljust(24) + PLAIN[352:]),
    ),
    Case("bad magic", "refused", "magic", plain(nifti_bytes(magic=b"xyz"))),
    Case("no magic (ANALYZE)", "refused", "ANALYZE", plain(nifti_bytes(magic=b""))),
    Case("bad header size", "refused", "no NIfTI", plain(nifti_bytes(sizeof_hdr=349))),
    Case("half of a pair", "refused", ".hdr/.img", plain(nifti_bytes(magic=b"ni1"))),
    Case("named .hdr", "refused", ".hdr/.img", written("image.hdr", PLAIN)),
    Case("named .img.gz", "refused", ".hdr/.img", written("image.img.gz", PACKED)),
    Case("named .dcm", "refused", "does not end like an image", written("image.dcm", PLAIN)),
    Case("named .nii only", "refused", "does not end like an image", written(".nii", PLAIN)),
    Case("big endian", "accepted", "", plain(nifti_bytes(order=">"))),
    Case("NIfTI-2", "accepted", "", packed(nifti_bytes(version=2))),
]

TYPES = [
    Case("RGB", "refused", "RGB", plain(nifti_bytes(np.zeros(SHAPE, RGB)))),
    Case("RGBA", "refused", "RGBA", plain(nifti_bytes(np.zeros(SHAPE, RGBA)))),
    Case("complex64", "refused", "complex", plain(nifti_bytes(IMAGE.astype(np.complex64)))),
    Case("complex128", "refused", "complex", plain(nifti_bytes(IMAGE.astype(np.complex128)))),
    Case("float128", "refused", "128-bit", plain(nifti_bytes(datatype=1536, bitpix=128))),
    Case("bits", "refused", "one bit", plain(nifti_bytes(datatype=1, bitpix=1))),
    Case("unknown type", "refused", "unknown datatype 77", plain(nifti_bytes(datatype=77))),
    Case("type zero", "refused", "unknown datatype 0", plain(nifti_bytes(datatype=0))),
    Case("bits disagree", "refused", "bitpix", plain(nifti_bytes(bitpix=32))),
    Case("slope infinite", "refused", "scl_slope", plain(nifti_bytes(scl_slope=np.inf))),
    Case("inter NaN", "refused", "scl_slope", plain(nifti_bytes(scl_slope=2, scl_inter=np.nan))),
    Case("slope zero", "accepted", "", plain(nifti_bytes(scl_slope=0, scl_inter=9))),
    Case("slope NaN", "accepted", "", plain(nifti_bytes(scl_slope=np.nan, scl_inter=np.nan))),
    Case("slope negative", "accepted", "", plain(nifti_bytes(scl_slope=-2, scl_inter=1))),
    Case("int8", "accepted", "", plain(nifti_bytes((IMAGE // 4).astype(np.int8)))),
]

GEOMETRY = [
    Case("sform NaN", "refused", "NaN", plain(nifti_bytes(srow_x__0=np.nan))),
    Case(
        "sform far away",
        "refused",
        "beyond 1e+09",
        plain(nifti_bytes(version=2, **ONLY_SFORM, srow_x__3=1e300)),
    ),
    Case("sform tiny", "refused", "an edge of 1e-42 mm", plain(nifti_bytes(**ONLY_SFORM, srow_x__0=1e-42))),
    Case("sform infinite", "refused", "infinity", plain(nifti_bytes(srow_y__3=np.inf))),
    Case(
        "sform singular",
        "refused",
        "condition",
        plain(nifti_bytes(**ONLY_SFORM, srow_x=[1, 1, 0, 0], srow_y=[1, 1, 0, 0])),
    ),
    Case(
        "sform zero",
        "refused",
        "an edge of 0 mm",
        plain(nifti_bytes(**ONLY_SFORM, srow_x=[0] * 4, srow_y=[0] * 4, srow_z=[0] * 4)),
    ),
    Case(
        "sform of half a nanometre",
        "refused",
        "an edge of 5e-07 mm",
        plain(nifti_bytes(**ONLY_SFORM, srow_x__0=5e-7, srow_y__1=1e-5, srow_z__2=1e-5)),
    ),
    Case(
        "0.2 micron histology",
        "accepted",
        "",
        plain(nifti_bytes(**ONLY_SFORM, srow_x__0=2e-4, srow_y__1=2e-4, srow_z__2=4e-3)),
    ),
    Case(
        "10 nanometres",
        "accepted",
        "",
        plain(nifti_bytes(**ONLY_SFORM, srow_x__0=1e-5, srow_y__1=1e-5, srow_z__2=1e-5)),
    ),
    Case("sform near singular", "refused", "condition", plain(nifti_bytes(**ONLY_SFORM, srow_x__0=1e5))),
    Case("qform NaN", "refused", "qform", plain(nifti_bytes(**ONLY_QFORM, quatern_b=np.nan))),
    Case("qform NaN beside a sform", "refused", "--prefer sform", plain(nifti_bytes(qoffset_x=np.nan))),
    Case("qform no rotation", "refused", "no rotation", plain(nifti_bytes(**ONLY_QFORM, quatern_b=2))),
    Case("qform with size 0", "refused", "pixdim", plain(nifti_bytes(**ONLY_QFORM, pixdim__2=0))),
    Case("qform with size NaN", "refused", "pixdim", plain(nifti_bytes(**ONLY_QFORM, pixdim__2=np.nan))),
    Case("no forms and size infinite", "refused", "pixdim", plain(nifti_bytes(**NO_FORMS, pixdim__3=np.inf))),
    Case("forms 30 mm apart", "refused", "30 mm apart", plain(_shifted(30))),
    Case("forms 1 mm apart", "repaired", "1 mm apart", plain(_shifted(1))),
    Case("forms 0.001 mm apart", "accepted", "", plain(_shifted(0.001))),
    Case("no forms", "repaired", "neither sform nor qform", plain(nifti_bytes(**NO_FORMS))),
    Case("size negative", "repaired", "negative", plain(nifti_bytes(**ONLY_QFORM, pixdim__1=-1))),
    Case("sizes unused", "accepted", "", plain(nifti_bytes(**ONLY_SFORM, pixdim=[np.nan] * 8))),
    Case("metres", "repaired", "metres", plain(nifti_bytes(xyzt_units=1))),
    Case(
        "microns",
        "repaired",
        "microns",
        plain(nifti_bytes(xyzt_units=3, **ONLY_SFORM, srow_x__0=50, srow_y__1=50, srow_z__2=50)),
    ),
    Case("unit unknown", "repaired", "unit 5", plain(nifti_bytes(xyzt_units=5))),
    Case("unit unset", "accepted", "", plain(nifti_bytes(xyzt_units=0))),
    Case("form codes unknown", "accepted", "", plain(nifti_bytes(sform_code=138, qform_code=99))),
    Case("sheared", "accepted", "", plain(nifti_bytes(**ONLY_SFORM, srow_x__1=0.4))),
    Case("left-handed", "accepted", "", plain(nifti_bytes(**ONLY_SFORM, srow_x__0=-1))),
]

DIMENSIONS = [
    Case("one axis", "refused", "two axes", plain(nifti_bytes(IMAGE[:, 0, 0]))),
    Case("one voxel", "refused", "two axes", plain(nifti_bytes(IMAGE[:1, :1, :1]))),
    Case("a line in 3-D", "refused", "two axes", plain(nifti_bytes(IMAGE[:1, :, :1]))),
    Case("a line in 2-D", "refused", "two axes", plain(nifti_bytes(IMAGE[:, :1, 0]))),
    Case("two volumes", "refused", "2 volumes", plain(nifti_bytes(np.stack([IMAGE, IMAGE], -1)))),
    Case("vectors", "refused", "3 volumes", plain(nifti_bytes(np.stack([IMAGE] * 3, -1)[:, :, :, None]))),
    Case(
        "seven axes",
        "refused",
        "4 volumes",
        plain(nifti_bytes(np.stack([IMAGE] * 4, -1).reshape(*SHAPE, 1, 2, 1, 2))),
    ),
    Case("time of 1", "accepted", "", plain(nifti_bytes(IMAGE[..., None]))),
    Case("all seven of 1", "accepted", "", plain(nifti_bytes(IMAGE.reshape(*SHAPE, 1, 1, 1, 1)))),
    Case("one slice", "accepted", "", plain(nifti_bytes(IMAGE[:, 3:4]))),
    Case("2-D by qform", "accepted", "", plain(nifti_bytes(IMAGE[:, :, 0], **ONLY_QFORM, pixdim__3=0))),
    Case("2-D", "accepted", "", plain(nifti_bytes(IMAGE[:, :, 0]))),
    Case(
        "2-D without thickness",
        "repaired",
        "thickness",
        plain(nifti_bytes(IMAGE[:, :, 0], **ONLY_SFORM, srow_z=[0] * 4)),
    ),
]

INTENSITIES = [
    Case("one NaN", "repaired", "1 NaN or infinite", plain(_with_nan(1))),
    Case("one infinity", "repaired", "1 NaN or infinite", plain(_with_nan(1, np.inf))),
    Case("0.2 % NaN", "refused", "4 of 1,680", plain(_with_nan(4))),
    Case("all NaN", "refused", "1,680 of 1,680", plain(_with_nan(1680))),
    Case("beyond float32", "refused", "beyond float32", plain(nifti_bytes(np.full(SHAPE, 1e300)))),
    Case("1e30", "accepted", "", plain(nifti_bytes(np.full(SHAPE, 1e30, np.float32)))),
]

LABEL = [
    Case("fractions", "refused", "fractions", plain(nifti_bytes(LABELS + np.float32(0.5))), "labels"),
    Case(
        "negative labels",
        "refused",
        "the label -",
        plain(nifti_bytes((LABELS - 3).astype(np.int16))),
        "labels",
    ),
    Case(
        "negative float labels",
        "refused",
        "from -3",
        plain(nifti_bytes((LABELS - 3).astype(np.float32))),
        "labels",
    ),
    Case("NaN labels", "refused", "NaN", plain(_with_nan(1)), "labels"),
    Case(
        "float32 labels above 2^24",
        "refused",
        "exactly",
        plain(nifti_bytes(np.full(SHAPE, 2**25, np.float32))),
        "labels",
    ),
    Case("scaled labels", "refused", "fractions", plain(nifti_bytes(LABELS, scl_slope=0.3)), "labels"),
    Case("float labels", "repaired", "float32", plain(nifti_bytes(LABELS.astype(np.float32))), "labels"),
    Case("labels in RGB", "refused", "RGB", plain(nifti_bytes(np.zeros(SHAPE, RGB))), "labels"),
    Case("labels", "accepted", "", plain(nifti_bytes(LABELS)), "labels"),
]

MASK = [
    Case("empty mask", "refused", "empty", plain(nifti_bytes(np.zeros(SHAPE, np.uint8))), "mask"),
    Case("NaN mask", "refused", "NaN", plain(_with_nan(1)), "mask"),
    Case("negative mask", "refused", "holds -1", plain(nifti_bytes(-np.ones(SHAPE, np.int16))), "mask"),
    Case(
        "mask of 0 to 2.5",
        "refused",
        "fractions",
        plain(nifti_bytes(np.linspace(0, 2.5, 1680, dtype="f4").reshape(SHAPE))),
        "mask",
    ),
    Case("RGB mask", "refused", "RGB", plain(nifti_bytes(np.zeros(SHAPE, RGB))), "mask"),
    Case("4-D mask", "refused", "2 volumes", plain(nifti_bytes(np.ones((*SHAPE, 2), np.uint8))), "mask"),
    Case("full mask", "accepted", "", plain(nifti_bytes(np.ones(SHAPE, np.uint8))), "mask"),
]

MGH = [
    Case("mgz", "accepted", "", written("image.mgz", gz(_mgh()))),
    Case("mgh", "accepted", "", written("image.mgh", _mgh())),
    Case("mgz with tags", "accepted", "", written("image.mgz", gz(_mgh() + b"tags" * 99))),
    Case("mgh without orientation", "repaired", "no orientation", written("image.mgh", _mgh(good=0))),
    Case("mgh version 2", "refused", "version 2", written("image.mgh", _mgh(version=2))),
    Case("mgh cut", "refused", "claims", written("image.mgh", _mgh()[:-1])),
    Case("mgz cut", "refused", "ends within", written("image.mgz", gz(_mgh())[:-300])),
    Case(
        "mgz bad checksum",
        "refused",
        "damaged",
        written("image.mgz", _changed(gz(_mgh()), -8 + len(gz(_mgh())), b"\0\0\0\0")),
    ),
    Case("mgh too large", "refused", "claims", written("image.mgh", _mgh(dims=(2**30, 2**30, 2**30, 1)))),
    Case("mgh negative", "refused", "at least 1", written("image.mgh", _mgh(dims=(-1, 2, 2, 1)))),
    Case("mgh unknown type", "refused", "voxel type 9", written("image.mgh", _mgh(kind=9))),
    Case("mgh singular", "refused", "an edge of 0 mm", written("image.mgh", _mgh(axes=(0,) * 9))),
    Case("mgh NaN", "refused", "NaN", written("image.mgh", _mgh(axes=(np.nan,) * 9))),
    Case("mgz frames", "refused", "2 volumes", written("image.mgz", gz(_mgh(np.stack([IMAGE, IMAGE], -1))))),
    Case("mgz bomb in the tags", "refused", "goes on", written("image.mgz", gz(_mgh() + bytes(20 << 20)))),
]

PATHS = [
    Case(f"path {name!a}", "accepted", "", _named(name))
    for name in (
        "a b.nii.gz",
        "a'\"b.nii.gz",
        "a;$(touch x).nii.gz",
        "a\nb.nii.gz",
        "\u00fc.nii.gz",
        "u\u0308.nii.gz",
        "n" * 248 + ".nii.gz",
        "-rf.nii.gz",
        "<script>.nii.gz",
        "UPPER.NII.GZ",
        "dots.in.name.nii.gz",
    )
]

FAMILIES = {
    "container": CONTAINER,
    "header": HEADER,
    "types": TYPES,
    "geometry": GEOMETRY,
    "dimensions": DIMENSIONS,
    "intensities": INTENSITIES,
    "labels": LABEL,
    "masks": MASK,
    "mgh": MGH,
    "paths": PATHS,
}
CASES = [case for cases in FAMILIES.values() for case in cases]
