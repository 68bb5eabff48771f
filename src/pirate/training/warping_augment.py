"""Changes of labelled subjects that keep image and labels true to each other: more anatomies from few.

Mirroring exchanges left and right labels; random diffeomorphisms move image and labels alike; gamma, contrast, bias
field and noise change intensities only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pirate.ops.compose import exponential
from pirate.ops.resample import resize
from pirate.ops.warp import identity, sample, warp

COARSE = 12
"""Voxels from one node of a random velocity or bias field to the next."""


def mirror_partners(labels: Sequence[Tensor], axis: int = 0) -> dict[int, int]:
    """Which label is which after mirroring, found from the overlap of label maps with their mirror images.

    Label k becomes the label l with the largest Dice overlap of mirror(k) and l over all maps, if l likewise
    becomes k; else it stays k.

    Args:
        labels: maps (*shape), integers, roughly centred along `axis`.
        axis: left-right.
    """
    values = sorted(
        {v for map_ in labels for v in torch.bincount(map_.flatten()).nonzero().flatten().tolist()} - {0}
    )
    row = {v: i for i, v in enumerate(values)}
    joint = torch.zeros(len(values) + 1, len(values) + 1, dtype=torch.float64)
    table = torch.zeros(max(values, default=0) + 1, dtype=torch.long)
    for value, i in row.items():
        table[value] = i + 1
    for map_ in labels:
        here = table[map_.long()]
        code = here.flip(axis) * (len(values) + 1) + here
        joint += torch.bincount(code.flatten(), minlength=joint.numel()).double().view_as(joint)
    counts = joint.sum(0)
    overlap = (2 * joint / (counts[:, None] + counts[None, :]).clamp_min(1))[1:, 1:]
    best = overlap.argmax(1).tolist() if values else []
    return {v: values[best[i]] if best[best[i]] == i else v for i, v in enumerate(values)}


def mirrored(
    image: Tensor, labels: Tensor, partners: Mapping[int, int], axis: int = 0
) -> tuple[Tensor, Tensor]:
    """The subject in a mirror: image (1, *shape) and labels (*shape), left and right labels exchanged."""
    table = torch.arange(int(labels.max()) + 1, dtype=labels.dtype)
    for before, after in partners.items():
        if before < len(table):
            table[before] = after
    return image.flip(axis + 1), table[labels.long()].flip(axis)


def flip_field(field: Tensor, axis: int) -> Tensor:
    """A field (B, d, *shape), voxels, in a mirror across `axis`: reversed, and that component negated."""
    flipped = field.flip(axis + 2)
    sign = torch.ones(field.shape[1], dtype=field.dtype, device=field.device)
    sign[axis] = -1
    return flipped * sign.view(1, -1, *[1] * (field.ndim - 2))


def random_diffeomorphism(shape: Sequence[int], largest: float, generator: torch.Generator) -> Tensor:
    """The flow of a smooth random velocity whose longest component is `largest` voxels: (1, d, *shape), voxels."""
    nodes = [max(2, n // COARSE) for n in shape]
    velocity = resize(torch.randn(1, len(nodes), *nodes, generator=generator), shape)
    for _ in range(2):  # resize is linear: smooth its kinks
        velocity = resize(resize(velocity, [max(2, n // 4) for n in shape]), shape)
    return exponential(velocity * (largest / float(velocity.abs().max().clamp_min(1e-6))))


def deformed(image: Tensor, labels: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
    """Image (1, *shape) and labels (*shape) where `field` (1, d, *shape), voxels, points."""
    moved = sample(labels[None, None].float(), identity(field) + field, "nearest")
    return warp(image[None], field)[0], moved[0, 0].to(labels.dtype)


def changed_intensities(image: Tensor, generator: torch.Generator, strength: float = 1.0) -> Tensor:
    """Another scanner: ``image <- b a image^gamma + noise`` where the image is not background.

    gamma and the contrast a differ from 1 by up to a quarter, the smooth bias b by about a tenth, the noise has a
    standard deviation of up to 0.03, all times `strength`.

    Args:
        image: (1, *shape), background 0, about 1 at most.
        generator: of the random numbers.
        strength: 0 changes nothing.
    """
    gamma, contrast, spread = (torch.rand(3, generator=generator) * strength).tolist()
    gamma, contrast = 1 + 0.5 * (gamma - 0.5 * strength), 1 + 0.5 * (contrast - 0.5 * strength)
    shape = image.shape[1:]
    nodes = [max(2, n // (4 * COARSE)) for n in shape]
    bias = resize(torch.randn(1, 1, *nodes, generator=generator), shape)[0]
    noise = torch.randn(image.shape, generator=generator) * (0.03 * spread)
    changed = contrast * image.clamp_min(0).pow(gamma) * torch.exp(0.1 * strength * bias) + noise
    return torch.where(image > 0, changed.clamp_min(0), image)
