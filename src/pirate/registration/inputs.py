"""What a caller may hand over as an image, and the checks before any work starts."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pirate.denoisers import zoo
from pirate.errors import MemoryExceeded, UsageError, reject
from pirate.grid import Grid
from pirate.image import Image
from pirate.io import nifti
from pirate.io.geometry import Form
from pirate.registration.process import resident_memory
from pirate.settings import Settings
from pirate.transform import Affine

ImageLike = str | os.PathLike[str] | Image | tuple[Any, Any] | Any
"""A path, an `Image`, a nibabel image, or (array, 4 x 4 RAS affine)."""

BRIGHT = 0.9
"""Quantile of what is not background that becomes 1: in a brain it lies in the white matter, whatever its size."""

Kind = Literal["image", "labels", "mask"]

LEAST_OVERLAP = 0.10
"""Share of the fixed image that the moving one must cover; below it the pair is refused."""

PATCHY = 0.8
"""Share of neighbours with the same value, background apart, above which integers look like a label map."""

NOISY = 0.4
"""The same share below which they look like a scan."""

MANY_VALUES = 32
"""Fewer different values say nothing about a map that is not patchy."""

PLANE_ANGLE = 30.0
"""Degrees: two planes further apart than this are not slices of the same orientation."""


def as_image(
    source: ImageLike,
    name: str,
    kind: Kind = "image",
    prefer: Form | None = None,
    memory_limit: int | None = None,
) -> Image:
    """Turn anything a caller may hand over into an `Image`.

    Args:
        source: path, `Image`, nibabel image, or (array, affine RAS mm).
        name: what messages call an image that has no path.
        kind: "image" (float32), "labels" (integers, exact) or "mask" (weights in [0, 1]).
        prefer: which affine of a file whose sform and qform disagree to believe.
        memory_limit: bytes that reading may need.
    """
    reader = {"image": nifti.read_image, "labels": nifti.read_labels, "mask": nifti.read_mask}[kind]
    if isinstance(source, Image):
        checked = nifti.from_array(source.data, source.grid.affine, name=source.name, kind=kind)
        return replace(
            source, data=checked.data.reshape(source.grid.shape), notes=source.notes + checked.notes
        )
    if isinstance(source, str | os.PathLike):
        return reader(Path(source), memory_limit, prefer)
    if isinstance(source, tuple) and len(source) == 2:
        data, affine = source
    elif hasattr(source, "dataobj") and hasattr(source, "affine"):
        data, affine = source.dataobj, source.affine
    else:
        raise UsageError(
            f"{name}: a {type(source).__name__} is not an image; "
            "give a path, a nibabel image, or (array, affine)."
        )
    return nifti.from_array(np.asanyarray(data), np.asarray(affine), name=name, kind=kind)


def check_pair(fixed: Image, moving: Image) -> None:
    """Refuse pairs that no registration can make sense of: constant, tiny, of different dimension."""
    for image, role in ((fixed, "fixed"), (moving, "moving")):
        if float(np.ptp(image.data)) == 0:
            raise reject(
                image.name, f"the {role} image is constant", "an image with contrast", "Check the file."
            )
        if min(image.grid.shape) < 4:
            raise reject(
                image.name, f"the {role} image is {'x'.join(map(str, image.grid.shape))} voxels",
                "at least 4 along each axis", "Give the whole image, or a single slice as a 2-D image.",
            )  # fmt: skip
    if fixed.grid.ndim != moving.grid.ndim:
        raise reject(
            moving.name, f"is {moving.grid.ndim}-D while the fixed image is {fixed.grid.ndim}-D",
            "two images of one dimension", "Extract the matching slice, or give both volumes.",
        )  # fmt: skip


def check_overlap(fixed: Image, moving: Image, affine: Affine) -> None:
    """Refuse a start that leaves the images apart."""
    _check_planes(fixed, moving, affine)
    covered = overlap(fixed.grid, moving.grid, affine)
    if covered < LEAST_OVERLAP:
        raise reject(
            moving.name, f"covers {100 * covered:.0f} % of the fixed image {fixed.name} in world space",
            f"at least {100 * LEAST_OVERLAP:.0f} %",
            "Check both headers, or let the images be brought together: --affine rigid, or --affine FILE.",
        )  # fmt: skip


def overlap(fixed: Grid, moving: Grid, affine: Affine) -> float:
    """Share of the fixed grid that lies inside the moving one, through `affine`; from at most 16^d probes."""
    axes = [np.linspace(0, n - 1, min(n, 16)) for n in fixed.shape]
    probes = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, fixed.ndim)
    there = moving.to_voxel(affine.map(fixed.to_world(probes)))
    inside = (there >= -0.5) & (there <= np.array(moving.shape) - 0.5)
    return float(inside.all(1).mean())


def _check_planes(fixed: Image, moving: Image, affine: Affine) -> None:
    """Two 2-D images must lie in planes of about the same orientation."""
    if fixed.grid.ndim != 2:
        return
    a = np.cross(*(affine.matrix[:3, :3] @ fixed.grid.axes).T)
    b = np.cross(*moving.grid.axes.T)
    cosine = abs(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b))
    angle = float(np.degrees(np.arccos(min(cosine, 1.0))))
    if angle > PLANE_ANGLE:
        raise reject(
            moving.name, f"its plane is turned by {angle:.0f} degrees against the fixed image's",
            "two slices of the same orientation", "Extract both slices along the same axis.",
        )  # fmt: skip


def check_companion(companion: Image, image: Image, role: str) -> Image:
    """Labels or a mask must lie on the grid of their image."""
    if not companion.grid.same_space(image.grid, tolerance=0.05 * min(image.grid.spacing)):
        raise reject(
            companion.name,
            f"the {role} has shape {companion.grid.shape} or a position unlike its image {image.name}",
            f"the image's grid {image.grid.shape}", "Draw or resample it on the image's own grid.",
        )  # fmt: skip
    return companion


def mistaken(image: Image, labels: bool) -> str | None:
    """A sentence if an image looks like a label map or, with `labels`, the reverse; None if it looks right.

    Neighbours in a label map mostly have the same value, those in a scan do not. The background, the most frequent
    value, does not count.
    """
    lines = image.data.reshape(-1, image.data.shape[-1])
    count = max(1, 500_000 // lines.shape[1])  # whole lines, so that neighbours stay together
    if len(lines) > count:
        lines = lines[np.linspace(0, len(lines) - 1, count).astype(np.intp)]
    values, often = np.unique(lines, return_counts=True)
    if len(values) < 3 or (values != np.round(values)).any():
        return None
    here, after = lines[:, :-1], lines[:, 1:]
    background = values[often.argmax()]
    shown = (here != background) | (after != background)
    equal = float(np.mean(here[shown] == after[shown])) if shown.any() else 0.0
    if labels:
        noisy = len(values) > MANY_VALUES and equal < NOISY
        return f"has {len(values):,} values that differ from voxel to voxel, like a scan." if noisy else None
    if equal < PATCHY:
        return None
    return "has whole numbers in patches, like a label map; labels are given with --fixed-labels, --moving-labels."


def common_labels(fixed: Image, moving: Image) -> list[int]:
    """Labels, 0 apart, that both maps hold; none at all is refused."""
    common = np.intersect1d(np.unique(fixed.data), np.unique(moving.data))
    if not (common != 0).any():
        raise reject(moving.name, f"shares no label with {fixed.name}", "common labels", "Check both files.")
    return [int(label) for label in common if label != 0]


def unit_range(data: NDArray[np.float32], robust: bool = False) -> NDArray[np.float32]:
    """Scale intensities to [0, 1]; the background, the smallest value, becomes 0.

    `robust` divides by the quantile `BRIGHT` of what is not background, instead of the largest value, and cuts off
    what is above three times that.
    """
    low, high = float(data.min()), float(data.max())
    if not robust:
        return ((data - low) / (high - low)).astype(np.float32)
    sample = data.ravel()[:: max(1, data.size // 1_000_000)]
    sample = sample[sample > low]
    bright = float(np.quantile(sample, BRIGHT)) if sample.size else high
    scale = np.float32(1 / ((bright if bright > low else high) - low))
    scaled: NDArray[np.float32] = (data - np.float32(low)) * scale
    np.minimum(scaled, np.float32(3), out=scaled)
    return scaled


def bytes_of(gigabytes: float | None) -> int | None:
    """A memory limit in bytes; None stays None, anything but a positive number is refused."""
    if gigabytes is None:
        return None
    if not (math.isfinite(gigabytes) and gigabytes > 0):
        raise UsageError(f"the memory limit is {gigabytes} GB; expected a positive number.")
    return int(gigabytes * 1e9)


def memory_estimate(fixed: tuple[int, ...], moving: tuple[int, ...], settings: Settings, labels: bool) -> int:
    """Bytes that a registration needs above the interpreter: an upper bound, from the arrays it holds at once.

    Args:
        fixed: shape of the fixed image.
        moving: shape of the moving image.
        settings: which terms are used, and the field's resolution.
        labels: whether label maps are measured too.
    """
    n, d = float(np.prod(fixed)), len(fixed)
    field = d * n / settings.resolution**d if settings.scheme == "additive" else d * n  # numbers in the field
    images = 3 * n + 4 * np.prod(
        moving
    )  # both scaled, moving on the fixed grid; files as stored and as float
    copies = 8 if settings.scheme == "additive" else 4
    iteration = copies * field + {"global": 0.5, "local": 3, "squared": 3, "mutual": 4}[settings.penalty] * n
    iteration += 2 * settings.memory * field if settings.solver == "anderson" else 0
    finish = (3 * d + 4) * n  # full field, inverse, their copies for the files, warped, determinants
    measured = 8 * n if labels else 0
    slabs = 64 * 2**20  # what is held of positions at once while resampling
    prior = _prior_numbers(settings, d, field)
    return int(4 * (images + max(iteration, finish) + prior + measured) + slabs)


def _prior_numbers(settings: Settings, d: int, field: float) -> float:
    """What a denoiser of a field of so many numbers holds; it is not always given back before the field is finished."""
    if settings.prior in ("none", "gaussian"):
        return 0.0 if settings.prior == "none" else 2 * field
    if settings.prior == "tv":
        return (2 * d + 4) * field  # 2 d dual fields, and the step that is taken on them
    network = 8 * d * field  # channels of its layers at the field's resolution
    if settings.scheme == "additive":
        return network
    known = [entry for entry in zoo.shipped() if (entry.name, entry.ndim) == (settings.prior, d)]
    if known and zoo.card_of(known[0]).architecture["kind"] == "plane-corrector":
        return 4 * field  # a few planes at a time; kept are their corrections, then the volume between them
    return network / min((entry.resolution for entry in known), default=1) ** d  # one that ships at its own


def available_memory() -> int | None:
    """Bytes that can be had now, by the system and by this container's limit; None where neither says."""
    found = []
    for path, pattern in (
        ("/proc/meminfo", r"MemAvailable:\s+(\d+) kB"),
        ("/sys/fs/cgroup/memory.max", r"(\d+)"),
    ):
        try:
            match = re.search(pattern, Path(path).read_text())
        except OSError:
            continue
        if match:
            found.append(int(match[1]) * (1024 if path.endswith("meminfo") else 1))
    return min(found, default=None)


def check_memory(needed: int, limit: int | None) -> None:
    """Refuse a job that would not fit, before the system kills it half way.

    Args:
        needed: bytes that it takes above what the process holds already.
        limit: bytes for the whole process; None for what the system has left.
    """
    if limit is not None:
        needed += resident_memory()
    allowed = limit if limit is not None else available_memory()
    if allowed is not None and needed > allowed:
        raise MemoryExceeded(
            f"this registration needs about {needed / 1e9:.1f} GB and {allowed / 1e9:.1f} GB are "
            f"{'allowed' if limit is not None else 'available'}; "
            "crop or downsample the images, or close other programs."
        )
