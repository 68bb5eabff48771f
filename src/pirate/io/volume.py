"""The one door through which voxels come in: every byte verified, every claim checked first."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.grid import Grid
from pirate.io import mgz
from pirate.io.geometry import Form, check_affine, world
from pirate.io.gz import DAMAGED, Stream, opened, too_large
from pirate.io.header import Layout, check_extensions, check_layout, read_header

PADDING = 4096  # zero bytes that some writers leave after the last voxel
_PACKED = {".nii": False, ".nii.gz": True, ".mgh": False, ".mgz": True, ".mgh.gz": True}
_PAIRS = (".hdr", ".img", ".hdr.gz", ".img.gz")


@dataclass(frozen=True, eq=False)
class Volume:
    """What a verified file holds, before anyone decides what it means.

    Args:
        path: for messages.
        stored: voxels as in the file, any number of axes, first axis fastest in memory.
        layout: how they were stored; ``value = layout.slope * stored + layout.inter``.
        affine: (4, 4), index along the first three axes to RAS mm.
        notes: sentences about repairs.
        sha256: of the file's bytes, empty for an array.
        intent: NIfTI code of what the numbers are, 0 if not said.
    """

    path: Path
    stored: NDArray[Any]
    layout: Layout
    affine: NDArray[np.float64]
    notes: tuple[str, ...] = ()
    sha256: str = ""
    intent: int = 0

    def values(self) -> NDArray[Any]:
        """Return what the stored numbers mean: themselves, or float64 if the header scales them."""
        if not self.layout.scaled:
            return self.stored
        with np.errstate(over="ignore", invalid="ignore"):
            return self.stored.astype(np.float64) * self.layout.slope + self.layout.inter

    def grid(self) -> Grid:
        """Return the grid of one number per voxel: a volume, or a plane if one axis has a single voxel."""
        shape = self.layout.shape
        frames = math.prod(shape[3:])
        if frames > 1:
            finding = f"it holds {frames} volumes ({' x '.join(map(str, shape))})"
            raise reject(self.path, finding, "one volume", "Pick one, for example the first or the mean.")
        space = (*shape, 1, 1)[:3]
        kept = [axis for axis in range(3) if space[axis] > 1]
        if len(kept) < 2:
            finding = f"it has {' x '.join(map(str, shape))} voxels"
            raise reject(self.path, finding, "at least two axes of two voxels", "Use an image or a volume.")
        dropped = [axis for axis in range(3) if axis not in kept]
        slice_axis = dropped[0] if dropped and len(shape) >= 3 else None
        return Grid(tuple(space[axis] for axis in kept), self.affine[:, [*kept, *dropped, 3]], slice_axis)


def read_volume(path: Path, memory_limit: int | None = None, prefer: Form | None = None) -> Volume:
    """Read and verify `path` (.nii, .nii.gz, .mgh, .mgz).

    Args:
        path: a regular file.
        memory_limit: bytes that the voxels may need, as stored and once more in float32; the machine's
            memory if not given.
        prefer: which of two contradicting affines to believe.
    """
    path = Path(path)
    ending = _ending(path)
    limit = _physical_memory() if memory_limit is None else memory_limit
    with opened(path, _PACKED[ending]) as stream:
        if ending.startswith(".nii"):
            return _read_nifti(stream, limit, prefer)
        return _read_mgh(stream, limit)


def read_grid(path: Path, prefer: Form | None = None) -> Grid:
    """Where the voxels of a file lie, by its header alone; the voxels are not read, and so not verified.

    Args:
        path: as in `read_volume`.
        prefer: likewise.
    """
    path = Path(path)
    ending = _ending(path)
    with opened(path, _PACKED[ending]) as stream:
        if ending.startswith(".nii"):
            header = read_header(stream)
            layout = check_layout(header, stream)
            affine = world(header, (*layout.shape, 1, 1)[:3], path, prefer)[0]
        else:
            layout, affine, _ = mgz.read_mgh(stream)
    return Volume(path, np.zeros(0), layout, affine).grid()


def array_volume(data: NDArray[Any], affine: NDArray[Any], name: str) -> Volume:
    """Hold an array, first three axes spatial, and its affine (4, 4) to RAS mm to the laws of a file."""
    if data.dtype.kind not in "buif":
        raise reject(name, f"the voxels are {data.dtype}", "real numbers", "Convert the array first.")
    if data.size == 0 or not 1 <= data.ndim <= 7:
        raise reject(
            name, f"the array has the shape {data.shape}", "an image or a volume", "Check the array."
        )
    if affine.shape != (4, 4):
        raise reject(
            name, f"the affine has the shape {affine.shape}", "(4, 4)", "Give voxel index to RAS mm."
        )
    affine = affine.astype(np.float64)
    check_affine(affine, Path(name))
    stored = data.view(np.uint8) if data.dtype.kind == "b" else data
    return Volume(Path(name), stored, Layout(data.shape, stored.dtype, 0), affine)


def _read_nifti(stream: Stream, limit: int, prefer: Form | None) -> Volume:
    header = read_header(stream)
    layout = check_layout(header, stream)
    space = (*layout.shape, 1, 1)[:3]
    affine, notes = world(header, space, stream.path, prefer)
    _admit(stream, layout, limit)
    check_extensions(stream.take(layout.offset - int(header.sizeof_hdr), "header extensions"), header, stream)
    stored = _voxels(stream, layout)
    if any(stream.finish(PADDING)):
        raise reject(stream.path, "the file goes on after its last voxel", "nothing more", DAMAGED)
    intent = int(header["intent_code"])
    return Volume(stream.path, stored, layout, affine, tuple(notes), stream.sha256, intent)


def _read_mgh(stream: Stream, limit: int) -> Volume:
    layout, affine, notes = mgz.read_mgh(stream)
    _admit(stream, layout, limit)
    stored = _voxels(stream, layout)
    stream.finish(mgz.TAGS)
    return Volume(stream.path, stored, layout, affine, tuple(notes), stream.sha256)


def _admit(stream: Stream, layout: Layout, limit: int) -> None:
    stream.admit(layout.offset + layout.nbytes, limit)
    need = layout.nbytes + 4 * layout.voxels
    if need > limit:
        raise too_large(stream.path, need, limit)


def _voxels(stream: Stream, layout: Layout) -> NDArray[Any]:
    voxels = stream.take(layout.nbytes, "voxels")
    return np.frombuffer(voxels, layout.dtype).reshape(layout.shape, order="F")


def _ending(path: Path) -> str:
    name = path.name.lower()
    matches = [ending for ending in _PACKED if name.endswith(ending) and name != ending]
    if matches:
        return max(matches, key=len)
    if name.endswith(_PAIRS):
        raise reject(
            path,
            "it is one half of a .hdr/.img pair",
            "header and voxels in one file",
            "Export it as .nii.gz.",
        )
    remedy = "Convert the image first, for example DICOM with dcm2niix."
    raise reject(path, "the name does not end like an image", ".nii, .nii.gz, .mgh or .mgz", remedy)


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
