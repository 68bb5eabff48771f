"""Images, labels and masks in and out: the public face of the checked door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pirate.image import Image
from pirate.io import values
from pirate.io.geometry import Form
from pirate.io.nifti_write import Nifti, placed, save, write_image
from pirate.io.volume import Volume, array_volume, read_volume

__all__ = [
    "Nifti",
    "from_array",
    "load_verified",
    "placed",
    "read_image",
    "read_labels",
    "read_mask",
    "save",
    "write_image",
]


def read_image(path: Path, memory_limit: int | None = None, prefer: Form | None = None) -> Image:
    """Read intensities: float32, C order, two or three axes, every value finite.

    Args:
        path: .nii, .nii.gz, .mgh or .mgz.
        memory_limit: bytes that reading may need; the machine's memory if not given.
        prefer: which of two contradicting affines to believe.
    """
    return _image(read_volume(path, memory_limit, prefer), "image")


def read_labels(path: Path, memory_limit: int | None = None, prefer: Form | None = None) -> Image:
    """Read labels: integers of the stored type, exact; negative numbers and fractions are refused."""
    return _image(read_volume(path, memory_limit, prefer), "labels")


def read_mask(path: Path, memory_limit: int | None = None, prefer: Form | None = None) -> Image:
    """Read a mask: float32 in [0, 1], 0 outside; whole numbers above 0 are 1, fractions stay soft."""
    return _image(read_volume(path, memory_limit, prefer), "mask")


def load_verified(
    path: Path, memory_limit: int | None = None, prefer: Form | None = None
) -> tuple[Nifti, str]:
    """Read a file of any number of axes, vectors included.

    Returns:
        A nibabel image in memory, intensity scale applied, and the file's sha256. Its header is a new one:
        shape, type, affine in RAS mm and intent code; nothing else of the file's header is trusted.
    """
    volume = read_volume(path, memory_limit, prefer)
    data = volume.values()
    nifti = placed(data.astype(data.dtype.newbyteorder("="), copy=False), volume.affine)
    nifti.header["intent_code"] = volume.intent
    return nifti, volume.sha256


def from_array(data: NDArray[Any], affine: NDArray[Any], name: str = "array", kind: str = "image") -> Image:
    """Make an `Image` of an array under the laws that hold for a file.

    Args:
        data: two or three axes, further ones of length 1; real numbers.
        affine: (4, 4), voxel index to RAS mm.
        name: what messages call it.
        kind: "image", "labels" or "mask", as in `read_image`, `read_labels` and `read_mask`.
    """
    return _image(array_volume(data if kind == "image" else data.copy(), affine, name), kind)


def _image(volume: Volume, kind: str) -> Image:
    meaning = {"image": values.intensities, "labels": values.labels, "mask": values.mask}[kind]
    grid = volume.grid()
    data, notes = meaning(volume)
    return Image(data.reshape(grid.shape), grid, str(volume.path), (*volume.notes, *notes), volume.sha256)
