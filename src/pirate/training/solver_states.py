"""Where the solver ends on pairs of labelled training subjects: what a corrector is trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pirate.denoisers.planes import View
from pirate.errors import reject
from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.resample import resize_field
from pirate.ops.warp import identity, sample, warp
from pirate.registration import pyramid
from pirate.registration.apply import apply
from pirate.registration.correction import grid_for
from pirate.registration.pair import Pair, extended
from pirate.registration.working import cropped, working_images
from pirate.settings import Level, Settings
from pirate.training.plan import generator
from pirate.training.warping_augment import deformed, mirrored, random_diffeomorphism


class Labelled(Protocol):
    """A subject with labels, as `pirate.data.subjects` reads it."""

    @property
    def name(self) -> str:
        """Unique."""

    @property
    def image(self) -> Tensor:
        """(1, *shape), background 0."""

    @property
    def labels(self) -> Tensor | None:
        """(*shape), integers."""

    @property
    def spacing(self) -> tuple[float, ...]:
        """Mm of a voxel along each axis."""


@dataclass(frozen=True, eq=False)
class State:
    """A pair as the corrector finds it when the solver has ended.

    Args:
        fixed: (1, *shape), as the solver sees it, on the grid of the corrector.
        moving: (1, *shape), after the affine start.
        fixed_labels: (*shape), int16.
        moving_labels: (*shape), int16, after the affine start.
        field: (d, *shape), float16, voxels of this grid.
        spacing: mm of a voxel.
        level: the constants of the solver on this grid.
        shown: (d, *shape), float16, voxels: the field that the corrector is shown where that is another than `field`.
    """

    fixed: Tensor
    moving: Tensor
    fixed_labels: Tensor
    moving_labels: Tensor
    field: Tensor
    spacing: tuple[float, ...]
    level: Level
    shown: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels along each axis."""
        return tuple(self.fixed.shape[1:])

    def boxed(self, shape: Sequence[int], offset: Sequence[int]) -> State:
        """In a box of `shape` voxels from voxel `offset` on: 0 around the images, the field's border repeated."""
        pads = [
            p
            for n, m, o in zip(self.shape[::-1], shape[::-1], offset[::-1], strict=True)
            for p in (o, m - n - o)
        ]

        def continued(field: Tensor) -> Tensor:
            return F.pad(field[None].float(), pads, mode="replicate")[0].to(field.dtype)

        return State(
            F.pad(self.fixed, pads), F.pad(self.moving, pads), F.pad(self.fixed_labels, pads),
            F.pad(self.moving_labels, pads), continued(self.field), self.spacing, self.level,
            None if self.shown is None else continued(self.shown),
        )  # fmt: skip

    def planes(self, view: View, every: int, first: int, least: int) -> list[State]:
        """Every `every`-th plane of a volume from the one numbered `first` on, if `least` of its voxels are labelled.

        Moving image and labels are those that the field has warped, so that the planes' own field is 0; the corrector
        is shown what the field does within the plane.
        """
        field = self.field.float()[None]
        warped = warp(self.moving.float()[None], field)
        labels = sample(self.moving_labels[None, None].float(), identity(field) + field, "nearest")
        some = slice(first, None, every)
        images = [view.planes(x, some) for x in (self.fixed[None], warped)]
        maps = [view.planes(x, some)[:, 0].short() for x in (self.fixed_labels[None, None], labels)]
        shown = view.field_planes(field, some).half()
        spacing = tuple(self.spacing[a] for a in view.axes[:2])
        return [
            State(
                f.clone(),
                m.clone(),
                a.clone(),
                b.clone(),
                torch.zeros_like(u),
                spacing,
                self.level,
                u.clone(),
            )
            for f, m, a, b, u in zip(*images, *maps, shown, strict=True)
            if int((a > 0).sum()) >= least
        ]


def solved(fixed: Labelled, moving: Labelled, settings: Settings, spacing: float, affine: str) -> State:
    """Register a pair as `pirate.registration.register` does, without prior, and keep where it ended.

    Args:
        fixed: the subject that stays.
        moving: the other.
        settings: scheme "compositional".
        spacing: mm of the corrector's grid, see `Corrector.spacing`.
        affine: the start, "none", "rigid", "similarity" or "affine".
    """
    a, b = (_image(s) for s in (fixed, moving))
    pair = Pair(a, b, None, None, _labels(fixed, a.grid), _labels(moving, b.grid), None)
    pair = pair.aligned(affine, False, torch.device("cpu"))
    whole = working_images(pair, torch.device("cpu"), robust=True)
    part, box = cropped(whole)
    stages = pyramid.stages(part, settings)
    field = pyramid.solve(stages, settings).field
    level, coarse = grid_for(stages, spacing)
    maps = [box.cut(torch.from_numpy(x.astype(np.float32))[None, None]) for x in _on_working_grid(pair)]
    maps = [_nearest(x, coarse.shape) for x in maps]
    return State(
        coarse.fixed[0], coarse.moving[0], maps[0], maps[1],
        resize_field(field, coarse.shape)[0].half(), coarse.spacing, level,
    )  # fmt: skip


@dataclass(frozen=True)
class Variation:
    """How subjects are changed before they are registered.

    Args:
        partners: which label is which in a mirror, see `mirror_partners`.
        mirror: part of the subjects that is mirrored.
        deform: part of the subjects that is deformed.
        largest: voxels, of a random diffeomorphism's velocity, at most.
    """

    partners: Mapping[int, int]
    mirror: float = 0.5
    deform: float = 0.5
    largest: float = 6.0

    def __call__(self, subject: Labelled, generator: torch.Generator) -> Labelled:
        """The subject, perhaps in a mirror, perhaps deformed; image and labels alike."""
        if subject.labels is None:
            raise reject(subject.name, "it has no labels", "a labelled subject", "Leave it out.")
        image, labels = subject.image, subject.labels
        chance = torch.rand(3, generator=generator).tolist()
        if chance[0] < self.mirror:
            image, labels = mirrored(image, labels, self.partners)
        if chance[1] < self.deform:
            field = random_diffeomorphism(labels.shape, self.largest * chance[2], generator)
            image, labels = deformed(image, labels, field)
        return Variant(subject.name, image, labels, subject.spacing)


@dataclass(frozen=True, eq=False)
class Variant:
    """A changed subject; the fields are those of `Labelled`."""

    name: str
    image: Tensor
    labels: Tensor | None
    spacing: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Solver:
    """How training pairs are registered: what `solved` takes beside the pair."""

    settings: Settings
    spacing: float
    affine: str

    def states(
        self, subjects: Sequence[Labelled], count: int, seed: int, vary: Variation | None = None
    ) -> Iterator[State]:
        """Register `count` random pairs of different subjects, changed by `vary` if it is given."""
        if len(subjects) < 2:
            raise reject("subjects", f"there are {len(subjects)}", "two or more with labels", "Give more.")
        for k in range(count):
            random = generator(seed, k)
            i, j = torch.randperm(len(subjects), generator=random)[:2].tolist()
            fixed, moving = subjects[i], subjects[j]
            if vary is not None:
                fixed, moving = vary(fixed, random), vary(moving, random)
            yield solved(fixed, moving, self.settings, self.spacing, self.affine)


def in_one_box(states: Sequence[State], unit: int, seed: int) -> list[State]:
    """All states in boxes of one shape, multiples of `unit` voxels, each somewhere in its box."""
    box = [-unit * (-max(sizes) // unit) for sizes in zip(*(s.shape for s in states), strict=True)]
    result = []
    for k, state in enumerate(states):
        random = generator(seed, k)
        offset = [
            int(torch.randint(b - n + 1, (1,), generator=random))
            for b, n in zip(box, state.shape, strict=True)
        ]
        result.append(state.boxed(box, offset))
    return result


def _image(subject: Labelled) -> Image:
    affine = np.diag([*subject.spacing, *[1.0] * (4 - len(subject.spacing))])
    data = subject.image[0].numpy()
    return Image(data, Grid(data.shape, affine), subject.name)


def _labels(subject: Labelled, grid: Grid) -> Image:
    if subject.labels is None:
        raise reject(subject.name, "it has no labels", "a labelled subject", "Leave it out.")
    return Image(subject.labels.numpy(), grid, subject.name)


def _on_working_grid(pair: Pair) -> list[np.ndarray]:
    """Both label maps on the fixed grid with its margins, the moving ones through the affine start."""
    if pair.fixed_labels is None or pair.moving_labels is None:
        raise ValueError("a pair to train on has labels")
    grid = extended(pair.fixed.grid, pair.margins)
    moved = apply(pair.moving_labels, pair.start, grid, "nearest").data
    return [np.pad(pair.fixed_labels.data, pair.margins), moved]


def _nearest(labels: Tensor, shape: Sequence[int]) -> Tensor:
    """Labels (1, 1, *source) at the voxels of the resized grid, (*shape), int16."""
    axes = [
        torch.arange(n, dtype=torch.float32) * ((s - 1) / max(n - 1, 1))
        for n, s in zip(shape, labels.shape[2:], strict=True)
    ]
    positions = torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]
    return sample(labels, positions, "nearest")[0, 0].to(torch.int16)
