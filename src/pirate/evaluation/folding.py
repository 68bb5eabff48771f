"""Does the field fold, and how unevenly does it change volume? One compiled pass, or slab by slab in torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as default

import torch
from torch import Tensor

from pirate import kernels
from pirate.errors import InputError, reject
from pirate.ops.derivative import forward_difference
from pirate.ops.jacobian import determinant, simplex_determinants

CLAMP = 1e-9  # smallest determinant whose logarithm is taken
SLAB_VOXELS = 400_000


def folding(field: Tensor, mask: Tensor | None = None) -> dict[str, float]:
    """Folding and volume change of ``positions = identity + field``, in all or in a region.

    - folds_percent: voxels with determinant <= 0, central differences (one-sided at the border), % of voxels.
    - folds_forward_percent: the same with forward differences, % of the voxels that have all next neighbours.
    - ndv_percent: non-diffeomorphic volume, % of the number of voxels: half the sum of the negative volumes
      of all simplices of the cells (Liu et al., IJCV 2024); 0 for a digital diffeomorphism.
    - nondiffeomorphic_cells: number of cells with a simplex of volume <= 0.
    - min_determinant, max_determinant: of the central differences.
    - sd_log_jacobian: standard deviation over the voxels of ``log(max(determinant, 1e-9))``, natural
      logarithm. (Learn2Reg's script takes ``log(determinant + 3)`` instead: its values are smaller.)

    Args:
        field: (1, d, *shape), voxels, any device.
        mask: (*shape), bool; by default every voxel counts. A cell counts when its first corner is inside.

    Returns:
        the seven values above.
    """
    shape = tuple(field.shape[2:])
    if field.ndim < 4 or field.shape[0] != 1 or field.shape[1] != len(shape):
        raise reject(
            "field", f"shape {tuple(field.shape)}", "one field (1, d, *shape)", "Measure one at a time."
        )
    if mask is not None and (tuple(mask.shape) != shape or not bool(mask.any())):
        raise reject("mask", f"shape {tuple(mask.shape)}", f"a region of the grid {shape}", "Check the mask.")
    if kernels.usable(field):
        found = kernels.fold_sums(field, mask)
        if not found.finite:
            raise _not_finite()
        return _of_kernel(found)
    if not bool(torch.isfinite(field).all()):
        raise _not_finite()
    sums = _Sums()
    with torch.no_grad():
        for start, stop in _slabs(shape):
            sums.add(field, mask, start, stop)
    return sums.result()


def _not_finite() -> InputError:
    return reject(
        "field", "values that are not finite", "numbers", "The registration diverged; run it again."
    )


def _of_kernel(sums: kernels.FoldSums) -> dict[str, float]:
    mean = sums.logs / sums.voxels
    return {
        "folds_percent": 100.0 * sums.folds / sums.voxels,
        "folds_forward_percent": 100.0 * sums.forward_folds / max(sums.cells, 1),
        "ndv_percent": 100.0 * sums.volume / sums.voxels,
        "nondiffeomorphic_cells": float(sums.bad_cells),
        "min_determinant": sums.least,
        "max_determinant": sums.largest,
        "sd_log_jacobian": max(sums.squares / sums.voxels - mean**2, 0.0) ** 0.5,
    }


@dataclass
class _Sums:
    voxels: int = 0
    folds: int = 0
    forward_voxels: int = 0
    forward_folds: int = 0
    cells: int = 0
    volume: float = 0.0
    smallest: float = float("inf")
    largest: float = float("-inf")
    logs: list[tuple[int, float, float]] = default(
        default_factory=list
    )  # count, mean, sum of squares about it

    def add(self, field: Tensor, mask: Tensor | None, start: int, stop: int) -> None:
        """Account for planes `start` to `stop` (exclusive) of axis 0."""
        n = field.shape[2]
        low, high = max(start - 1, 0), min(stop + 1, n)
        slab = field[:, :, low:high]
        own = slice(start - low, stop - low)
        inside = None if mask is None else mask[start:stop].to(field.device, torch.bool)
        self._central(determinant(slab)[0, own], inside)
        here = field[:, :, start : min(stop + 1, n)]  # cells and forward differences look one plane ahead
        if min(here.shape[2:]) > 1:
            first = tuple(slice(0, k - 1) for k in here.shape[2:])
            region = None if inside is None else inside[first]
            self._forward(determinant(here, forward_difference)[0][first], region)
            self._cells(here, region)

    def _central(self, values: Tensor, inside: Tensor | None) -> None:
        values = values.flatten() if inside is None else values[inside]
        if values.numel() == 0:
            return
        self.voxels += values.numel()
        self.folds += int((~(values > 0)).sum())
        self.smallest = min(self.smallest, float(values.min()))
        self.largest = max(self.largest, float(values.max()))
        variance, mean = torch.var_mean(values.clamp_min(CLAMP).log().double(), correction=0)
        self.logs.append((values.numel(), float(mean), float(variance) * values.numel()))

    def _forward(self, values: Tensor, inside: Tensor | None) -> None:
        values = values if inside is None else values[inside]
        self.forward_voxels += values.numel()
        self.forward_folds += int((~(values > 0)).sum())

    def _cells(self, here: Tensor, inside: Tensor | None) -> None:
        factorial = {2: 2.0, 3: 6.0}[here.shape[1]]
        bad: Tensor | None = None
        for value in simplex_determinants(here):
            wrong = ~(value[0] > 0) if inside is None else ~(value[0] > 0) & inside
            if bool(wrong.any()):
                self.volume += float(-value[0][wrong].double().sum()) / factorial / 2
                bad = wrong if bad is None else bad | wrong
        self.cells += int(bad.sum()) if bad is not None else 0

    def result(self) -> dict[str, float]:
        mean = sum(count * m for count, m, _ in self.logs) / self.voxels
        squares = sum(s + count * (m - mean) ** 2 for count, m, s in self.logs)  # within and between slabs
        return {
            "folds_percent": 100.0 * self.folds / self.voxels,
            "folds_forward_percent": 100.0 * self.forward_folds / max(self.forward_voxels, 1),
            "ndv_percent": 100.0 * self.volume / self.voxels,
            "nondiffeomorphic_cells": float(self.cells),
            "min_determinant": self.smallest,
            "max_determinant": self.largest,
            "sd_log_jacobian": (squares / self.voxels) ** 0.5,
        }


def _slabs(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Ranges of axis 0 of about `SLAB_VOXELS` voxels each."""
    plane = 1
    for n in shape[1:]:
        plane *= n
    thick = max(1, SLAB_VOXELS // plane)
    for start in range(0, shape[0], thick):
        yield start, min(start + thick, shape[0])
