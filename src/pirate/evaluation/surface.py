"""Distances between the surfaces of two label maps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from pirate.errors import reject
from pirate.evaluation.overlap import Labels, check_labels


@dataclass(frozen=True)
class SurfaceDistance:
    """How far apart two surfaces are.

    A surface is the set of the label's voxels with a face neighbour outside the label (the image's border
    counts as outside). d(A, B) holds, for each surface voxel of A, the distance to the nearest one of B.
    """

    hd95_mm: float
    """``max(P95 d(A, B), P95 d(B, A))``: the larger of the two directed 95th percentiles, mm."""
    assd_mm: float
    """Mean of d(A, B) and d(B, A) taken together: average symmetric surface distance, mm."""
    hd_mm: float
    """``max(max d(A, B), max d(B, A))``: Hausdorff distance, mm."""


def surface_distances(
    fixed_labels: Labels,
    warped_labels: Labels,
    spacing_mm: Sequence[float],
    labels: Iterable[int] | None = None,
) -> dict[int, SurfaceDistance]:
    """Surface distances of every label that is present in both maps, the background 0 excluded.

    Args:
        fixed_labels: (*shape), integers, two or three axes.
        warped_labels: the same shape, integers.
        spacing_mm: voxel size along each array axis, mm.
        labels: which to report; by default all. One that a map lacks is left out.

    Returns:
        label to `SurfaceDistance`, mm.
    """
    check_labels(fixed_labels, warped_labels)
    if len(spacing_mm) != fixed_labels.ndim or min(spacing_mm) <= 0:
        raise reject(
            "spacing",
            f"{tuple(spacing_mm)} for {fixed_labels.ndim} axes",
            "one positive voxel size in mm for each axis",
            "Take Grid.spacing of the fixed image.",
        )
    boxes_a, boxes_b = _boxes(fixed_labels), _boxes(warped_labels)
    wanted = boxes_a if labels is None else [int(v) for v in labels]
    result = {}
    for value in wanted:
        if value in boxes_a and value in boxes_b and value != 0:
            box = tuple(
                slice(min(a.start, b.start), max(a.stop, b.stop))
                for a, b in zip(boxes_a[value], boxes_b[value], strict=True)
            )
            result[value] = _distance(fixed_labels[box] == value, warped_labels[box] == value, spacing_mm)
    return result


def _boxes(labels: Labels) -> dict[int, tuple[slice, ...]]:
    """Smallest box around each label other than 0."""
    values, index = np.unique(labels, return_inverse=True)
    found = ndimage.find_objects(index.reshape(labels.shape).astype(np.int32) + 1)
    return {int(v): box for v, box in zip(values, found, strict=True) if v != 0}


def _distance(a: NDArray[np.bool_], b: NDArray[np.bool_], spacing_mm: Sequence[float]) -> SurfaceDistance:
    surface_a, surface_b = _surface(a), _surface(b)
    to_b = ndimage.distance_transform_edt(~surface_b, sampling=spacing_mm)[surface_a]
    to_a = ndimage.distance_transform_edt(~surface_a, sampling=spacing_mm)[surface_b]
    return SurfaceDistance(
        hd95_mm=float(max(np.percentile(to_b, 95), np.percentile(to_a, 95))),
        assd_mm=float(np.concatenate([to_b, to_a]).mean()),
        hd_mm=float(max(to_b.max(), to_a.max())),
    )


def _surface(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Voxels that an erosion by the face-connected cross removes."""
    return np.asarray(mask & ~ndimage.binary_erosion(mask))
