"""FreeSurfer volumes (.mgh, .mgz): a big-endian header of 284 bytes, voxels, and tags that are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.io.geometry import check_affine
from pirate.io.gz import DAMAGED, Stream
from pirate.io.header import Layout

TAGS = 16 << 20  # bytes that may follow the voxels
_HEADER = np.dtype(
    [
        ("version", ">i4"),
        ("dims", ">i4", (4,)),  # three axes, frames
        ("type", ">i4"),
        ("dof", ">i4"),
        ("good_ras", ">i2"),
        ("spacing", ">f4", (3,)),  # mm
        ("directions", ">f4", (3, 3)),  # row n: unit vector of axis n, RAS
        ("centre", ">f4", (3,)),  # RAS mm of voxel dims / 2
        ("unused", "V194"),
    ]
)
_STORED = {0: ">u1", 1: ">i4", 3: ">f4", 4: ">i2", 10: ">u2"}
_CORONAL = np.array([[-1, 0, 0], [0, 0, -1], [0, 1, 0]], dtype=np.float64)


def read_mgh(stream: Stream) -> tuple[Layout, NDArray[np.float64], list[str]]:
    """Take the header of an MGH file; return the layout, the affine (4, 4) to RAS mm, and notes."""
    header = np.frombuffer(stream.take(_HEADER.itemsize, "header"), _HEADER)[0]
    if header["version"] != 1:
        raise reject(stream.path, f"it is no MGH file (version {header['version']})", "version 1", DAMAGED)
    shape = tuple(int(n) for n in header["dims"])
    if min(shape) < 1:
        raise reject(stream.path, f"the header claims {shape} voxels", "at least 1 along each axis", DAMAGED)
    kind = int(header["type"])
    if kind not in _STORED:
        raise reject(
            stream.path, f"the header has the unknown voxel type {kind}", "0, 1, 3, 4 or 10", DAMAGED
        )
    affine, notes = _world(header, shape)
    check_affine(affine, stream.path)
    return Layout(shape, np.dtype(_STORED[kind]), _HEADER.itemsize), affine, notes


def _world(header: Any, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], list[str]]:
    """Return ``x = M (i, j, k) + centre - M shape / 2``, M = directions scaled by the voxel sizes."""
    axes, centre, notes = _CORONAL.T, np.zeros(3), ["the header has no orientation: coronal, 1 mm assumed"]
    if header["good_ras"] == 1:
        axes = header["directions"].astype(np.float64).T * header["spacing"].astype(np.float64)
        centre, notes = header["centre"].astype(np.float64), []
    affine = np.eye(4)
    affine[:3, :3] = axes
    affine[:3, 3] = centre - axes @ (np.array(shape[:3]) / 2)
    return affine, notes
