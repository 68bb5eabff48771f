"""What stored numbers mean: intensities, labels or a mask, each with its own law."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pirate.errors import reject
from pirate.io.volume import Volume

NONFINITE_SHARE = 1e-3
_EXACT = {2: 2**11, 4: 2**24, 8: 2**53, 16: 2**53}  # bytes of a float: every whole number up to here is exact
_FINITE = "Replace NaN and infinity in the image first."
_NEAREST = "Labels must be resampled with nearest neighbours and stored as integers."


def intensities(volume: Volume) -> tuple[NDArray[np.float32], list[str]]:
    """Return float32 values in C order; up to 0.1 % NaN or infinite ones become the smallest finite one."""
    with np.errstate(over="ignore", invalid="ignore"):
        data = volume.values().astype(np.float32, order="C")
    if not np.issubdtype(volume.stored.dtype, np.floating) and not volume.layout.scaled:
        return data, []
    finite = np.isfinite(data)
    broken = data.size - int(np.count_nonzero(finite))
    if broken == 0:
        return data, []
    if broken > NONFINITE_SHARE * data.size:
        finding = f"{broken:,} of {data.size:,} voxels are NaN, infinite or beyond float32"
        raise reject(volume.path, finding, f"at most {NONFINITE_SHARE:.1%}", _FINITE)
    lowest = data[finite].min()
    data[~finite] = lowest
    return data, [f"{broken:,} NaN or infinite voxels were set to the smallest finite value, {lowest:g}"]


def labels(volume: Volume) -> tuple[NDArray[Any], list[str]]:
    """Return whole numbers from 0 in C order; a stored integer type is kept, floats become int32 or int64."""
    data = np.ascontiguousarray(volume.values())
    if np.issubdtype(data.dtype, np.integer):
        if data.min() < 0:
            raise reject(volume.path, f"it holds the label {data.min()}", "labels from 0", _NEAREST)
        return data.astype(data.dtype.newbyteorder("="), copy=False), []
    limit = _EXACT[data.dtype.itemsize]
    if not np.isfinite(data).all():
        raise reject(volume.path, "it holds NaN or infinite labels", "whole numbers from 0", _NEAREST)
    if data.min() < 0 or data.max() > limit:
        finding = f"it holds labels from {data.min():g} to {data.max():g} in {data.dtype.name}"
        raise reject(volume.path, finding, f"0 to {limit:,}, which that type keeps exactly", _NEAREST)
    if (fractions := np.count_nonzero(data != np.rint(data))) > 0:
        finding = f"{fractions:,} voxels hold fractions of a label"
        raise reject(volume.path, finding, "whole numbers from 0", _NEAREST)
    kind = np.int32 if data.max() < 2**31 else np.int64
    return data.astype(kind), [
        f"labels were stored as {volume.stored.dtype.name}: read as {np.dtype(kind).name}"
    ]


def mask(volume: Volume) -> tuple[NDArray[np.float32], list[str]]:
    """Return float32 in [0, 1], C order: whole numbers above 0 are inside, fractions up to 1 stay."""
    data = np.ascontiguousarray(volume.values())
    if not np.isfinite(data).all():
        raise reject(volume.path, "the mask holds NaN or infinity", "numbers from 0 to 1", _FINITE)
    if data.min() < 0:
        raise reject(
            volume.path, f"the mask holds {data.min():g}", "numbers from 0 to 1", "Correct the mask."
        )
    if data.max() == 0:
        raise reject(volume.path, "the mask is empty", "voxels above 0", "Draw the mask, or leave it out.")
    if data.max() <= 1:
        return data.astype(np.float32), []
    if not np.issubdtype(data.dtype, np.integer) and (data != np.rint(data)).any():
        finding = f"the mask holds fractions and numbers up to {data.max():g}"
        raise reject(volume.path, finding, "a soft mask from 0 to 1, or whole numbers", "Rescale the mask.")
    return (data > 0).astype(np.float32), []
