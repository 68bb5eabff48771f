"""A made-up brain as a function of position: signed distances of structures, painted one over the other.

Positions are mm, axis order right, anterior, superior, origin near the centre of the brain. The brain is
about 128 x 156 x 126 mm. Structures carry the numbers of FreeSurfer's ``aseg`` (left, right).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

LABELS: dict[int, str] = {
    2: "left cerebral white matter",
    41: "right cerebral white matter",
    3: "left cerebral cortex",
    42: "right cerebral cortex",
    4: "left lateral ventricle",
    43: "right lateral ventricle",
    7: "left cerebellar white matter",
    46: "right cerebellar white matter",
    8: "left cerebellar cortex",
    47: "right cerebellar cortex",
    10: "left thalamus",
    49: "right thalamus",
    11: "left caudate",
    50: "right caudate",
    12: "left putamen",
    51: "right putamen",
    17: "left hippocampus",
    53: "right hippocampus",
    16: "brain stem",
    24: "cerebrospinal fluid",
}

CSF, GREY, WHITE = 0.16, 0.55, 0.86
CORTEX_MM = 2.9
SULCUS_MM = 0.65
FLUID_MM = 1.4
REACH_MM = (72.0, 86.0, 76.0)  # half axes of an ellipsoid that holds the brain
CHUNK = 65536  # points at a time; keeps the waves in cache


@dataclass(frozen=True)
class Layer:
    """One structure: where it is, what it looks like, what it is called."""

    distance: Tensor
    """(N,), mm: negative inside."""
    intensity: float
    """In [0, 1], as in a T1 image."""
    left: int
    """Label number where x < 0."""
    right: int
    """Label number where x >= 0."""


class Anatomy:
    """One brain: ellipsoids and tubes for what lies deep, random waves for the folds of the cortex.

    Sulci follow the zero sheets of a random function w of the direction seen from the centre, so they stand
    perpendicular on the surface; the distance from a sheet is ``|w| / |grad w|``. Left and right differ.

    Args:
        generator: draws the waves; the same state gives the same brain.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.folds = Waves.draw(generator, count=32, wavelength=22.0)
        self.lobes = Waves.draw(generator, count=12, wavelength=75.0)
        self.folia = float(generator.uniform(0, 2 * np.pi))

    def layers(self, positions: Tensor) -> Iterator[Layer]:
        """Structures from the outside in; each is painted over what came before.

        Args:
            positions: (N, 3), mm.

        Yields:
            `Layer` with (N,) distances in mm.
        """
        mirrored = _mirrored(positions)
        slow = self.lobes.value(positions)
        depth = -(_cerebral_hull(mirrored) + 0.8 * slow)  # mm below the smooth surface of the cerebrum
        cerebellum, stem = _cerebellum(mirrored), _stem(mirrored)
        yield Layer(_union(-depth, cerebellum, stem, radius=4.0) - FLUID_MM, CSF, 24, 24)
        yield from self._cerebellum(mirrored, cerebellum, slow)
        yield from self._cerebrum(positions, mirrored, depth, slow)
        yield Layer(stem, WHITE * 0.93, 16, 16)
        yield from _deep(mirrored, slow)

    def _cerebrum(self, positions: Tensor, mirrored: Tensor, depth: Tensor, slow: Tensor) -> Iterator[Layer]:
        lateral = mirrored[:, 0]
        callosum = _tube(mirrored, [(0, 32, 4), (0, 22, 21), (0, -4, 28), (0, -30, 22), (0, -40, 8)], 4.5)
        between = _ellipsoid(mirrored, (0, -16, 2), (30, 44, 24))  # no fissure through the centre
        medial = lateral - 0.7 + (6 - between).clamp_min(0) * 3
        surface = _union(-depth, -medial, radius=-3.0)
        sulci = self._sulci(positions, depth, slow)
        sylvian = _sheet(mirrored, slow)
        folded = torch.maximum(surface, torch.maximum(-sulci, -sylvian))  # negative in grey or white matter
        folded = torch.where(callosum < 0, torch.minimum(folded, callosum), folded)
        yield Layer(folded, GREY, 3, 42)
        inner = _union(surface + CORTEX_MM, CORTEX_MM - sulci, CORTEX_MM - sylvian, radius=-1.5)
        temporal = _tube(mirrored, [(30, -8, -8), (40, 10, -27), (43, -14, -26), (38, -40, -12)], 4.0)
        yield Layer(torch.minimum(torch.minimum(inner, callosum), temporal), WHITE, 2, 41)

    def _sulci(self, positions: Tensor, depth: Tensor, slow: Tensor) -> Tensor:
        """Distance (N,), mm, from the fluid in the sulci; they end `reach` mm below the surface."""
        shallow = depth < 24.0
        p, depth, slow = positions[shallow], depth[shallow], slow[shallow]
        radius = torch.linalg.vector_norm(p, dim=1, keepdim=True).clamp_min(20.0)
        onto = p * (
            1 + 0.85 * depth[:, None].clamp_min(0) / radius
        )  # nearly the point of the surface above p
        width = SULCUS_MM * (1.6 - 0.12 * depth).clamp(0.6, 1.6)  # sulci open towards the surface
        w, slope = self.folds.value_and_slope(onto)
        away = w.abs() / slope.clamp_min(0.14)
        reach = 12.5 + 5.0 * slow
        nearest = torch.hypot(away, 0.9 * (depth - reach).clamp_min(0))
        distance = torch.full_like(positions[:, 0], 30.0)
        distance[shallow] = nearest - width
        return distance

    def _cerebellum(self, mirrored: Tensor, outline: Tensor, slow: Tensor) -> Iterator[Layer]:
        lateral, y, z = mirrored.unbind(1)
        leaf = torch.hypot(y + 22, 1.25 * (z + 34)) + 0.12 * lateral + 1.5 * slow
        ridges = torch.cos(2 * torch.pi * leaf / 6.0 + self.folia)
        yield Layer(outline + 0.3 + (ridges - 0.2).clamp_min(0), GREY * 0.97, 8, 47)
        yield Layer(outline + 7.0 + 3.2 * ridges, WHITE * 0.95, 7, 46)


@dataclass(frozen=True)
class Waves:
    """A sum of plane waves of one wavelength with variance 1: ``w(p) = sqrt(2/n) sum cos(k.p + phase)``."""

    vectors: Tensor  # (n, 3), radian / mm
    phases: Tensor  # (n,)

    @classmethod
    def draw(cls, generator: np.random.Generator, count: int, wavelength: float) -> Waves:
        """Draw `count` waves of about `wavelength` mm in random directions."""
        directions = generator.standard_normal((count, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        number = 2 * np.pi / (wavelength * generator.uniform(0.85, 1.25, (count, 1)))
        phases = generator.uniform(0, 2 * np.pi, count)
        return cls(torch.from_numpy(directions * number).float(), torch.from_numpy(phases).float())

    def value(self, positions: Tensor) -> Tensor:
        """Return w, (N,), at positions (N, 3), mm."""
        parts = [torch.cos(p @ self.vectors.T + self.phases).sum(1) for p in torch.split(positions, CHUNK)]
        return torch.cat(parts) * math.sqrt(2 / len(self.phases))

    def value_and_slope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Value (N,) and length of the gradient (N,), 1 / mm."""
        values, slopes = [], []
        for p in torch.split(positions, CHUNK):
            angle = p @ self.vectors.T + self.phases
            values.append(torch.cos(angle).sum(1))
            slopes.append(torch.linalg.vector_norm(torch.sin(angle) @ self.vectors, dim=1))
        scale = math.sqrt(2 / len(self.phases))
        return torch.cat(values) * scale, torch.cat(slopes) * scale


def _mirrored(positions: Tensor) -> Tensor:
    """Positions (N, 3), mm, with the distance from the midline as first column."""
    return torch.cat([positions[:, :1].abs(), positions[:, 1:]], 1)


def _deep(mirrored: Tensor, slow: Tensor) -> Iterator[Layer]:
    """Nuclei and ventricles, mm; `mirrored` (N, 3) has the distance from the midline as its first column."""
    wobble = 0.6 * slow
    yield Layer(_tube(mirrored, [(24, -6, -19), (27, -20, -16), (25, -33, -8)], 5.2) + wobble, GREY, 17, 53)
    yield Layer(_ellipsoid(mirrored, (25.5, 4, 1), (6.5, 18, 12)) + wobble, GREY * 1.12, 12, 51)
    yield Layer(_ellipsoid(mirrored, (10.5, -17, 6), (8.5, 15, 10)) + wobble, GREY * 1.2, 10, 49)
    body = _ellipsoid(mirrored, (14.5, 17, 6), (5.5, 10, 10))
    tail = _tube(mirrored, [(15, 12, 12), (18, -6, 19), (21, -24, 18)], 3.6)
    yield Layer(_union(body, tail, radius=3.0) + wobble, GREY * 1.08, 11, 50)
    horn = _tube(mirrored, [(11, 31, 3), (8, 22, 11), (8, 8, 18), (11, -10, 21), (17, -26, 17)], 3.4)
    atrium = _tube(mirrored, [(19, -30, 15), (25, -40, 6), (23, -50, 2), (20, -60, 1)], 3.6)
    front = _ellipsoid(mirrored, (9.5, 24, 8), (4.5, 10, 8))
    yield Layer(_union(horn, atrium, front, radius=5.0) + wobble, CSF, 4, 43)
    yield Layer(_ellipsoid(mirrored, (0, -12, 2), (1.9, 14, 10)), CSF, 24, 24)


def _cerebral_hull(mirrored: Tensor) -> Tensor:
    """Smooth surface around the cerebrum: wide behind, narrow in front, flat below, with temporal lobes."""
    lateral, y, z = mirrored.unbind(1)
    half_width = 63.0 - 0.06 * y - 0.0011 * (y + 14).square()
    half_height = 38.0 + 20.0 * torch.sigmoid((z - 4) / 7)
    cube = (
        (lateral / half_width).abs().pow(2.3)
        + (y.abs() / 77).pow(2.3)
        + ((z - 4).abs() / half_height).pow(2.3)
    )
    main = (cube.clamp_min(1e-6).pow(1 / 2.3) - 1) * 55.0
    temporal = _ellipsoid(mirrored, (42, 3, -28), (18, 37, 17))
    return _union(main, temporal, radius=6.0)


def _cerebellum(mirrored: Tensor) -> Tensor:
    lobe = _ellipsoid(mirrored, (21, -46, -43), (29, 25, 18))
    vermis = _ellipsoid(mirrored, (0, -44, -40), (12, 21, 16))
    return _union(lobe, vermis, radius=5.0)


def _stem(mirrored: Tensor) -> Tensor:
    tube = _tube(mirrored, [(0, -15, -10), (0, -14, -28), (0, -19, -48), (0, -26, -64)], 8.0)
    pons = _ellipsoid(mirrored, (0, -11, -31), (14, 11, 13))
    return _union(tube, pons, radius=4.0)


def _sheet(mirrored: Tensor, slow: Tensor) -> Tensor:
    """Distance, mm, from the Sylvian fissure: a sheet from the side to the insula, rising to the back."""
    lateral, y, z = mirrored.unbind(1)
    lateral = lateral + 1.5 * slow - 0.006 * (y - 3).square()
    across = z + 9.0 + 0.30 * y - 0.25 * (lateral - 36) + 2.0 * slow  # 0 on the sheet
    outside = torch.stack([(36.0 - lateral).clamp_min(0), ((y - 3).abs() - 30).clamp_min(0)]).square().sum(0)
    flat = torch.sqrt(across.square() * 0.9 + outside) - 1.0
    height = z + 0.30 * y
    insula = torch.hypot(lateral - 39.5 + 0.035 * height.square(), (height.abs() - 11).clamp_min(0))
    inner = torch.hypot(insula, ((y - 3).abs() - 20).clamp_min(0)) - 1.0
    return torch.minimum(flat, inner)


def _ellipsoid(p: Tensor, centre: tuple[float, float, float], radii: tuple[float, float, float]) -> Tensor:
    """Distance, mm, from an ellipsoid, to first order: ``k0 (k0 - 1) / k1``, k0 = |p / r|, k1 = |p / r^2|."""
    offset = p - p.new_tensor(centre)
    r = p.new_tensor(radii)
    k0: Tensor = torch.linalg.vector_norm(offset / r, dim=1)
    k1: Tensor = torch.linalg.vector_norm(offset / r**2, dim=1).clamp_min(1e-6)
    return k0 * (k0 - 1) / k1


def _tube(p: Tensor, points: list[tuple[float, float, float]], radius: float) -> Tensor:
    """Distance, mm, from a bent tube that tapers at both ends."""
    nearest: Tensor | None = None
    for a, b in pairwise(points):
        start, along = p.new_tensor(a), p.new_tensor(b) - p.new_tensor(a)
        offset = p - start
        share = ((offset @ along) / along.square().sum()).clamp(0, 1)
        away = torch.linalg.vector_norm(offset - share[:, None] * along, dim=1) - radius
        nearest = away if nearest is None else _union(nearest, away, radius=2.0)
    if nearest is None:
        raise ValueError("a tube needs at least two points")
    return nearest


def _union(*distances: Tensor, radius: float) -> Tensor:
    """Smooth union (`radius` > 0) or intersection (`radius` < 0) of distances, blended over |radius| mm."""
    result = distances[0]
    sign = 1.0 if radius > 0 else -1.0
    for other in distances[1:]:
        a, b = sign * result, sign * other
        blend = (abs(radius) - (a - b).abs()).clamp_min(0) / abs(radius)
        result = sign * (torch.minimum(a, b) - 0.25 * abs(radius) * blend.square())
    return result
