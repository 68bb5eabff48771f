"""Chains of transforms in ITK's HDF5 form (.h5), as SimpleITK, ANTs, Slicer and nitransforms read them.

Group 0 says CompositeTransform; groups 1, 2, ... are the parts, the last of which is applied first. Numbers
of a displacement are LPS mm, x fastest, the vector innermost; they are stored as float32, which ITK widens.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.grid import Grid
from pirate.io.atomic import write_bytes
from pirate.io.fields import flattened, itk_form, lps_millimetres, voxel_units
from pirate.io.files import opened
from pirate.io.geometry import LPS
from pirate.io.itk import affine_of, affine_parameters, type_of
from pirate.transform import Displacement, Part, Transform

_SLAB = 8  # planes reordered at a time, so that they stay in the cache
_MOST_PARTS = 64
_DEFLATE_LIMIT = 1032  # deflate cannot expand a byte into more
_LARGEST_HEAP = 1 << 16  # bytes
_LARGEST_ADDRESS = 1 << 40
_FIELD_TYPES = ("DisplacementFieldTransform", "GaussianSmoothingOnUpdateDisplacementFieldTransform")


def write_composite(path: Path, transform: Transform) -> None:
    """Write a transform as one ITK composite; two-dimensional when its fields are on axial planes."""
    parts = [itk_form(part) if isinstance(part, Displacement) else part for part in transform.parts]
    ndims = {part.grid.ndim for part in parts if isinstance(part, Displacement)} or {3}
    if len(ndims) > 1:
        raise reject(
            path,
            "the transform has fields on a plane and on a volume",
            "fields of one dimension",
            "Write the parts into separate files.",
        )
    (ndim,) = ndims
    listed = [_encoded(path, part, ndim) for part in reversed(parts)]
    write_bytes(path, _file_image(listed, ndim))


def read_composite(path: Path, memory_limit: int | None = None) -> Transform:
    """Read an ITK transform file in HDF5 form, composite or single.

    Only the datasets that are needed are opened; each must be stored in this file, hold as many numbers
    as its transform needs, and take at most `memory_limit` bytes.
    """
    expected = "an ITK transform in .h5"
    with opened(path, expected) as raw:  # HDF5 itself would wait for a pipe
        try:
            with h5py.File(path, "r") as file:
                return Transform(tuple(reversed(_listed(path, file, raw, memory_limit))))
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # h5py's words for damage
            raise reject(
                path, "it is not a readable HDF5 file", expected, "Check the path, or write it again."
            ) from error


def _listed(path: Path, file: h5py.File, raw: io.FileIO, memory_limit: int | None) -> list[Part]:
    """Return the parts in the order of the file; `raw` are its bytes."""
    group = _member(path, file, "TransformGroup", h5py.Group)
    if not 1 <= len(group) <= _MOST_PARTS:
        raise reject(path, f"it lists {len(group)} transforms", f"1 to {_MOST_PARTS}", "Write it again.")
    parts: list[Part] = []
    for index in range(len(group)):
        entry = _member(path, group, str(index), h5py.Group)
        kind = _kind(path, entry, raw)
        if index > 0 or not kind.startswith("CompositeTransform"):
            parts.append(_decoded(path, entry, kind, memory_limit))
    return parts


def _encoded(path: Path, part: Part, ndim: int) -> tuple[str, NDArray[Any], NDArray[Any]]:
    """ITK's type name, parameters and fixed parameters of a part."""
    suffix = f"double_{ndim}_{ndim}"
    if not isinstance(part, Displacement):
        return f"AffineTransform_{suffix}", affine_parameters(path, part, ndim), np.zeros(ndim)
    grid = part.grid
    direction = (LPS[:3, :3] @ grid.axes)[:ndim] / np.asarray(grid.spacing)
    origin = (LPS[:3, :3] @ grid.origin)[:ndim]
    fixed = np.concatenate([grid.shape, origin, grid.spacing, direction.ravel()])
    return f"DisplacementFieldTransform_{suffix}", _interleaved(lps_millimetres(part)), fixed


def _interleaved(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors (d, *shape) flat, x fastest of the axes, the vector innermost; by planes that fit the cache."""
    result = np.empty(vectors.shape[::-1], vectors.dtype)
    for start in range(0, vectors.shape[1], _SLAB):
        for c, component in enumerate(vectors):
            result[..., start : start + _SLAB, c] = component[start : start + _SLAB].T
    return result.reshape(-1)


def _file_image(listed: list[tuple[str, NDArray[Any], NDArray[Any]]], ndim: int) -> memoryview:
    """Return the bytes of the HDF5 file. They are made in memory: HDF5 crashes when a disk is full."""
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        _fill(file, listed, ndim)
    return image.getbuffer()


def _fill(file: h5py.File, listed: list[tuple[str, NDArray[Any], NDArray[Any]]], ndim: int) -> None:
    text = h5py.string_dtype("ascii")
    for name in ("ITKVersion", "HDFVersion", "OSName", "OSVersion"):
        file.create_dataset(name, data=["pirate"], dtype=text)
    group = file.create_group("TransformGroup")
    group.create_dataset("0/TransformType", data=[f"CompositeTransform_double_{ndim}_{ndim}"], dtype=text)
    for index, (kind, parameters, fixed) in enumerate(listed, start=1):
        group.create_dataset(f"{index}/TransformType", data=[kind], dtype=text)
        group.create_dataset(f"{index}/TransformParameters", data=parameters)
        group.create_dataset(f"{index}/TransformFixedParameters", data=fixed)


def _member(path: Path, parent: h5py.Group, name: str, kind: type) -> Any:
    """Return an object stored in this very file; links that leave it are refused."""
    link = parent.get(name, getlink=True) if name in parent.keys() else None  # noqa: SIM118 - no link is followed
    found = parent[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(found, kind):
        raise reject(
            path,
            f"it has no {parent.name.rstrip('/')}/{name} of its own",
            "the groups and datasets of an ITK transform",
            "Write the transform again with ITK, ANTs or pirate.",
        )
    return found


def _kind(path: Path, entry: h5py.Group, raw: io.FileIO) -> str:
    """Return ITK's name of a transform, a string of variable length.

    HDF5 keeps it as length, address of a heap and number in it, and crashes if a damaged file leads astray;
    so the few bytes are followed here.
    """
    dataset = _member(path, entry, "TransformType", h5py.Dataset)
    if dataset.dtype.kind == "S" and dataset.size == 1:
        return bytes(np.asarray(dataset[()]).ravel()[0]).decode("ascii", "replace")
    start = dataset.id.get_offset() if dataset.size == 1 and h5py.check_string_dtype(dataset.dtype) else None
    return "" if start is None else _heap_string(raw, start).decode("ascii", "replace")


def _heap_string(file: io.FileIO, start: int) -> bytes:
    """Return the string whose reference lies at byte `start`; empty if it leads nowhere."""
    file.seek(start)
    reference = file.read(16)
    length, address, wanted = struct.unpack("<IQI", reference) if len(reference) == 16 else (0, 0, 0)
    file.seek(min(address, _LARGEST_ADDRESS))
    head = file.read(16)
    if length > 200 or head[:4] != b"GCOL":
        return b""
    heap = head + file.read(min(int.from_bytes(head[8:16], "little"), _LARGEST_HEAP))
    at = 16
    while at + 16 <= len(heap):  # number, references, 4 reserved, size, content padded to 8 bytes
        number, size = struct.unpack_from("<H6xQ", heap, at)
        if number == wanted or number == 0:
            return heap[at + 16 : at + 16 + min(size, length)] if number else b""
        at += 16 + (size + 7) // 8 * 8
    return b""


def _numbers(path: Path, entry: h5py.Group, name: str, count: int | None, limit: int | None) -> NDArray[Any]:
    """Read one dataset of `count` numbers (any if None); old ITK spelt the names ``Tranform...``."""
    old = f"Tran{name.removeprefix('Trans')}"
    dataset = _member(path, entry, old if old in entry.keys() else name, h5py.Dataset)  # noqa: SIM118
    claimed, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    most = 256 if count is None else count
    if dataset.dtype.kind != "f" or dataset.size > most or (count is not None and dataset.size != count):
        raise reject(
            path,
            f"{dataset.name} holds {dataset.size:,} values of type {dataset.dtype}",
            f"{'at most ' if count is None else ''}{most:,} floating-point numbers",
            "The file is damaged; write the transform again.",
        )
    if dataset.external or dataset.is_virtual or claimed > stored * (_DEFLATE_LIMIT if dataset.chunks else 1):
        raise reject(
            path,
            f"{dataset.name} claims {claimed:,} bytes and stores {stored:,}",
            "numbers stored in this file",
            "The file is damaged; write the transform again.",
        )
    if limit is not None and claimed > limit:
        raise reject(
            path, f"{dataset.name} needs {claimed:,} bytes", f"at most {limit:,}", "Raise the memory limit."
        )
    return np.asarray(dataset[()]).ravel()


def _decoded(path: Path, entry: h5py.Group, kind: str, limit: int | None) -> Part:
    name, ndim = type_of(path, kind, also=_FIELD_TYPES)
    fixed = _numbers(path, entry, "TransformFixedParameters", None, limit)
    if name not in _FIELD_TYPES:
        return affine_of(path, kind, _numbers(path, entry, "TransformParameters", None, limit), fixed)
    if fixed.size != ndim * (3 + ndim) or not np.isfinite(fixed).all() or fixed[:ndim].min() < 1:
        raise reject(
            path,
            f"a displacement field has the fixed parameters {fixed[:4]} ...",
            "size, origin, spacing and direction",
            "The file is damaged; write the transform again.",
        )
    shape = tuple(int(n) for n in fixed[:ndim])
    count = int(np.prod([*shape, ndim], dtype=object))
    numbers = _numbers(path, entry, "TransformParameters", count, limit)
    with np.errstate(over="ignore"):
        parameters = numbers.astype(np.float32, copy=False)
    if not np.isfinite(parameters).all():
        raise reject(
            path, "it holds NaN or infinite displacements", "finite numbers", "Write the transform again."
        )
    origin, spacing = fixed[ndim : 2 * ndim], fixed[2 * ndim : 3 * ndim]
    axes = fixed[3 * ndim :].reshape(ndim, ndim) * spacing  # LPS
    affine = np.eye(4)
    affine[:ndim, :ndim] = LPS[:ndim, :ndim] @ axes
    affine[:ndim, 3] = LPS[:ndim, :ndim] @ origin
    try:
        grid = Grid(shape, affine)
    except ValueError as error:
        raise reject(
            path, "a displacement field's axes span no volume", "an invertible grid", "Write it again."
        ) from error
    millimetres = parameters.reshape(*shape[::-1], ndim).T  # x fastest, vector innermost
    return flattened(Displacement(grid, voxel_units(axes, millimetres)))
