"""Symmetries of space, applied to fields and images together.

A symmetry of the voxel lattice is a permutation of the axes followed by flips of some of them. With y = S x the
voxel that x goes to, an image moves with its voxels and a field also turns its vectors:

    image'(S x) = image(x)         field'(S x) = S field(x)        (S without its translation for vectors)

so that warping and moving commute: (image o field)' = image' o field'. The field of a mirrored pair is the
mirrored field; a network that is to know this is trained with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Symmetry:
    """A permutation of the axes, then flips.

    Args:
        order: axis a of the result was axis order[a].
        flips: whether axis a of the result is turned round.
    """

    order: tuple[int, ...]
    flips: tuple[bool, ...]

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))) or len(self.flips) != len(self.order):
            raise ValueError(f"a symmetry permutes its axes and flips each or not, not {self}")

    @classmethod
    def random(cls, ndim: int, generator: torch.Generator) -> Symmetry:
        """Draw one of the ``2^d d!`` symmetries of `ndim` axes."""
        order = torch.randperm(ndim, generator=generator).tolist()
        flips = torch.randint(2, (ndim,), generator=generator).tolist()
        return cls(tuple(order), tuple(bool(f) for f in flips))

    def of_image(self, image: Tensor) -> Tensor:
        """Move an image (..., *shape), any unit, to (..., *permuted shape)."""
        lead = image.ndim - len(self.order)
        moved = image.permute(*range(lead), *[lead + a for a in self.order])
        turned = [lead + a for a, flip in enumerate(self.flips) if flip]
        return moved.flip(turned) if turned else moved

    def of_field(self, field: Tensor) -> Tensor:
        """Move a field (..., d, *shape), voxels, and its components with it, to (..., d, *permuted shape)."""
        channel = field.ndim - len(self.order) - 1
        moved = self.of_image(field).index_select(channel, torch.tensor(self.order, device=field.device))
        signs = field.new_tensor([-1.0 if flip else 1.0 for flip in self.flips])
        return moved * signs.reshape(-1, *[1] * len(self.order))

    def source_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape that this symmetry turns into `shape`."""
        source = [0] * len(shape)
        for axis, size in zip(self.order, shape, strict=True):
            source[axis] = size
        return tuple(source)


def scaled(field: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Multiply a field (..., d, *shape), voxels, by a factor drawn between `low` and `high`, uniform in its logarithm.

    A displacement c times as long is what the same anatomy gives on a grid with voxels 1 / c times as large.
    """
    if not 0 < low <= high:
        raise ValueError(f"the factors of a field need 0 < low <= high, not {low} and {high}")
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    return field * float(low * (high / low) ** share)


def crop(field: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return a part of `field` (..., *larger shape), any unit, of `shape` at a random place; a view."""
    lead = field.ndim - len(shape)
    for axis, size in enumerate(shape, start=lead):
        room = field.shape[axis] - size
        if room < 0:
            raise ValueError(
                f"there is no part of {size} voxels in {field.shape[axis]} along axis {axis - lead}"
            )
        start = int(torch.randint(room + 1, (), generator=generator))
        field = field.narrow(axis, start, size)
    return field
