"""Training of VoxelMorph, SYMNet and GraDIRN on the project's one loop: the task and the schedules. No labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pirate.baselines.gradirn import GraDIRN, GraDIRNLoss
from pirate.baselines.symnet import SYMNet, SYMNetLoss
from pirate.baselines.trained import coarsened, scaled
from pirate.baselines.voxelmorph import VoxelMorph, VoxelMorphLoss
from pirate.errors import UsageError, printable, reject
from pirate.evaluation.folding import folding
from pirate.evaluation.overlap import dice, mean_dice
from pirate.grid import Array, Grid
from pirate.image import Image
from pirate.ops.resample import resize_field
from pirate.ops.warp import warp
from pirate.registration.affine import align
from pirate.registration.affine_steps import Kind
from pirate.registration.apply import apply
from pirate.training.plan import Plan
from pirate.training.solver_states import Labelled
from pirate.transform import Transform

Loss = VoxelMorphLoss | SYMNetLoss | GraDIRNLoss
"""Called with the network, fixed and moving, (B, 1, *shape) each."""

PLANS: dict[tuple[str, str, int], Plan] = {
    ("voxelmorph", "authors", 2): Plan(
        150_000, 1, 1e-4, "constant", validate_every=1000, checkpoint_every=500
    ),
    ("voxelmorph", "authors", 3): Plan(
        150_000, 1, 1e-4, "constant", validate_every=1000, checkpoint_every=500
    ),
    ("symnet", "authors", 2): Plan(150_000, 1, 1e-4, "constant", validate_every=1000, checkpoint_every=500),
    ("symnet", "authors", 3): Plan(150_000, 1, 1e-4, "constant", validate_every=1000, checkpoint_every=500),
    ("gradirn", "authors", 2): Plan(12_500, 4, 1e-4, "constant", validate_every=250, checkpoint_every=250),
    ("gradirn", "authors", 3): Plan(12_500, 4, 1e-4, "constant", validate_every=250, checkpoint_every=250),
    ("voxelmorph", "reduced", 2): Plan(
        24_000, 1, 5e-4, warmup=200, clip=1.0, validate_every=1000, patience=8
    ),
    ("voxelmorph", "reduced", 3): Plan(1500, 1, 5e-4, warmup=50, clip=1.0, validate_every=200, patience=8),
    ("symnet", "reduced", 2): Plan(24_000, 1, 3e-4, warmup=200, clip=1.0, validate_every=1000, patience=8),
    ("symnet", "reduced", 3): Plan(1000, 1, 3e-4, warmup=50, clip=1.0, validate_every=200, patience=8),
    ("gradirn", "reduced", 2): Plan(4000, 2, 5e-4, warmup=100, clip=1.0, validate_every=200, patience=8),
    ("gradirn", "reduced", 3): Plan(400, 1, 5e-4, warmup=50, clip=1.0, validate_every=50, patience=8),
}
"""By method, schedule and number of axes. GraDIRN's authors count 500 epochs; here of the paper's 100 pairs."""

METHODS = tuple(dict.fromkeys(method for method, _, _ in PLANS))
SCHEDULES = tuple(dict.fromkeys(schedule for _, schedule, _ in PLANS))


def plan(method: str, schedule: str, ndim: int) -> Plan:
    """The authors' constants of the optimisation, or those reduced to about half an hour on two CPU cores.

    `dataclasses.replace` changes what should be different.
    """
    if (method, schedule, ndim) not in PLANS:
        raise UsageError(
            f"there is no schedule {printable(schedule)} of {printable(method)} in {ndim}-D; expected one of "
            f"{', '.join(SCHEDULES)} of {', '.join(METHODS)} in 2-D or 3-D."
        )
    return PLANS[method, schedule, ndim]


def untrained(
    method: str, ndim: int, similarity: str = "", displacement: bool = False
) -> tuple[nn.Module, Loss]:
    """A network of the authors' size with random weights, and its loss with their constants.

    Args:
        method: one of `METHODS`.
        ndim: 2 or 3.
        similarity: "ncc" or "mse", where the authors have both; "" takes their own choice for brains.
        displacement: VoxelMorph without the exponential.
    """
    known = {"voxelmorph": ("ncc", "mse"), "symnet": ("ncc",), "gradirn": ("mse", "ncc")}
    if method not in known or similarity not in ("", *known[method]):
        choices = "; ".join(f"{name} with {' or '.join(terms)}" for name, terms in known.items())
        raise UsageError(
            f"there is no {printable(method)} with {printable(similarity) or 'any similarity'}; "
            f"expected {choices}."
        )
    if displacement and method != "voxelmorph":
        raise UsageError(f"{method} has no displacement model; only voxelmorph has one.")
    if method == "symnet":
        return SYMNet(ndim), SYMNetLoss()
    if method == "gradirn":
        return GraDIRN(ndim), GraDIRNLoss("ncc", 0.1) if similarity == "ncc" else GraDIRNLoss()
    network = VoxelMorph(ndim, squarings=0) if displacement else VoxelMorph(ndim)
    return network, VoxelMorphLoss("mse", smoothness=0.01) if similarity == "mse" else VoxelMorphLoss()


class Person(Labelled, Protocol):
    """A subject, as `pirate.data.subjects` reads it."""

    @property
    def source(self) -> str:
        """Pairs are drawn within one."""

    @property
    def axes(self) -> Array | None:
        """(3, 3), RAS mm: the step in the world of one voxel along each array axis; None if nobody knows."""


@dataclass(frozen=True, eq=False)
class Learner:
    """A subject as the networks see it.

    Args:
        name: unique.
        source: pairs are drawn within one.
        image: (1, *shape), background 0, bright tissue about 1, at the resolution of the training.
        labels: (*full_shape), integers at full resolution, for measuring only; None without.
    """

    name: str
    source: str
    image: Tensor
    labels: Tensor | None


def learner(person: Person, resolution: int = 1) -> Learner:
    """The subject, scaled and at a resolution of 1 (full), 2 (half), 4, ..."""
    image = coarsened(scaled(person.image)[None], resolution)[0]
    return Learner(person.name, person.source, image, person.labels)


@dataclass(frozen=True, eq=False)
class Posed:
    """A subject in another one's pose; the fields are those of `Person`."""

    name: str
    source: str
    image: Tensor
    labels: Tensor | None
    spacing: tuple[float, ...]
    axes: Array | None = None


def posed(person: Person, reference: Person, kind: Kind) -> Posed:
    """The subject brought onto `reference` by a rigid, similarity or affine alignment; labels by nearest neighbour."""
    fixed, moving = _image(reference), _image(person)
    transform = Transform((align(fixed, moving, kind).affine,))
    labels = None
    if person.labels is not None:
        map_ = Image(person.labels.numpy(), moving.grid, person.name)
        labels = torch.from_numpy(apply(map_, transform, fixed.grid, "nearest").data)
    image = torch.from_numpy(apply(moving, transform, fixed.grid).data)[None]
    return Posed(person.name, person.source, image, labels, reference.spacing, reference.axes)


def _image(person: Person) -> Image:
    data = person.image[0].numpy()
    affine = np.diag([*person.spacing, *[1.0] * (4 - len(person.spacing))])
    if person.axes is not None:
        affine[:3, :3] = person.axes
    return Image(data, Grid(data.shape, affine), person.name)


@dataclass(eq=False)
class PairTask:
    """The task of `pirate.training.loop.train` that trains a network to align random pairs of subjects.

    Args:
        network: one of those of `untrained`.
        loss_of: its loss.
        subjects: to learn from, images of one shape.
        held_out: pairs (fixed, moving) for validation.
        pairs: (fixed, moving), places in `subjects`, to draw from; none: any two of one source are a pair.
    """

    network: nn.Module
    loss_of: Loss
    subjects: Sequence[Learner]
    held_out: Sequence[tuple[Learner, Learner]]
    pairs: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        sources = [s.source for s in self.subjects]
        self._able = [i for i, source in enumerate(sources) if sources.count(source) > 1]
        if not self._able or not self.held_out:
            raise reject(
                "subjects",
                f"{len(self.subjects)} to learn from and {len(self.held_out)} pairs for validation",
                "two or more of one source, and a pair to validate on",
                "Add subjects.",
            )

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        """An ordered pair of different subjects of one source, (1, *shape) each, background 0, tissue about 1."""
        if self.pairs:
            fixed, moving = self.pairs[_draw(len(self.pairs), generator)]
            return {"fixed": self.subjects[fixed].image, "moving": self.subjects[moving].image}
        first = self._able[_draw(len(self._able), generator)]
        source = self.subjects[first].source
        others = [i for i in self._able if i != first and self.subjects[i].source == source]
        second = others[_draw(len(others), generator)]
        return {"fixed": self.subjects[first].image, "moving": self.subjects[second].image}

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """The mean loss of a batch of pairs, (B, 1, *shape) each, no unit, and its parts."""
        scored = self.loss_of(network, batch["fixed"], batch["moving"])
        return scored.value, scored.terms

    @torch.no_grad()
    def validate(self, network: nn.Module) -> dict[str, float]:
        """Loss, its parts, folds in percent and, with labels, Dice, averaged over the held-out pairs."""
        rows = [self.measured(network, fixed, moving) for fixed, moving in self.held_out]
        names = dict.fromkeys(name for row in rows for name in row)
        found = {name: [row[name] for row in rows if name in row] for name in names}
        return {name: sum(values) / len(values) for name, values in found.items()}

    def measured(self, network: nn.Module, fixed: Learner, moving: Learner) -> dict[str, float]:
        """What `validate` averages, for one pair."""
        device = next(network.parameters()).device
        scored = self.loss_of(network, fixed.image[None].to(device), moving.image[None].to(device))
        row = {"loss": scored.value.item()} | scored.terms
        row["folds_percent"] = folding(scored.field)["folds_percent"]
        if fixed.labels is not None and moving.labels is not None:
            field = resize_field(scored.field, fixed.labels.shape).cpu()
            warped = warp(moving.labels[None, None].float(), field, "nearest")[0, 0]
            row["dice"] = mean_dice(dice(fixed.labels.numpy(), warped.to(torch.int16).numpy()))
        return {name: value for name, value in row.items() if name == "loss" or math.isfinite(value)}

    def state(self) -> dict[str, Tensor]:
        """Nothing is carried from step to step: a dictionary without tensors of any shape or unit."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """There is nothing to restore from `state`, which holds no tensors of any shape or unit."""


def _draw(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (1,), generator=generator))
