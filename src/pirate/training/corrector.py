"""Training of the anatomy-aware prior: one differentiated correction of states in which the solver ends. Supervised.

    loss = 1 - soft Dice(fixed labels, moving labels o (id + u')) + folds mean relu(least - J)^2
           + rough mean |grad r|^2 + data g(fixed, moving o (id + u')),      u' = u o (id - r) - r

u is where the solver has ended, or an earlier output of the network itself, in either case after a few more data
steps; nothing before r is differentiated (Jacobian-free backpropagation). Anatomical labels take part. A plane of a
volume is warped before, so that its own u is 0, and takes no steps; the network is shown what the volume's field does
within the plane, and J is that of this after r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import mul

import torch
from torch import Tensor, nn

from pirate.denoisers.corrector import Corrector
from pirate.denoisers.planes import PlaneCorrector
from pirate.energies.local import LocalCorrelation
from pirate.evaluation.overlap import dice, mean_dice
from pirate.ops.compose import compose
from pirate.ops.derivative import forward_difference
from pirate.ops.jacobian import determinant
from pirate.ops.warp import identity, sample, warp
from pirate.registration.data_term import data_term
from pirate.registration.pyramid import Step
from pirate.registration.working import Images
from pirate.settings import Settings
from pirate.training.solver_states import State
from pirate.training.warping_augment import changed_intensities, flip_field


@dataclass(frozen=True)
class Recipe:
    """Constants of the training.

    Args:
        folds: weight of the folding term.
        least: determinant below which a voxel counts as folding.
        rough: weight of the correction's squared gradient.
        data: weight of the data term, one minus squared local correlation.
        window: of the data term, voxels.
        own: part of the examples that start at an earlier output of the network.
        data_steps: up to so many steps of the solver's finest level come before a correction.
        remembered: earlier outputs that are kept.
        intensities: strength of the intensity changes.
    """

    folds: float = 10.0
    least: float = 0.15
    rough: float = 0.02
    data: float = 0.1
    window: int = 9
    own: float = 0.25
    data_steps: int = 4
    remembered: int = 64
    intensities: float = 0.5


class CorrectorTask:
    """The task of `pirate.training.loop.train` that trains a `Corrector`.

    Args:
        network: what is trained.
        states: where the solver ended on training pairs, all of one shape.
        held_out: states of pairs of other subjects, for validation; of the same shape, or volumes for `acting`.
        settings: of the solver.
        recipe: constants.
        acting: makes of the network what corrects the held-out states; the network itself by default.
    """

    def __init__(
        self,
        network: Corrector,
        states: Sequence[State],
        held_out: Sequence[State],
        settings: Settings,
        recipe: Recipe | None = None,
        acting: Callable[[Corrector], Corrector | PlaneCorrector] | None = None,
    ) -> None:
        self.network: nn.Module = network
        self.acting = acting
        self.states, self.held_out = list(states), list(held_out)
        self.settings = settings
        self.recipe = recipe if recipe is not None else Recipe()
        field = self.states[0].field
        self._own = torch.zeros(self.recipe.remembered, *field.shape, dtype=torch.float16)
        self._whose = torch.full((self.recipe.remembered,), -1)
        self._next = 0

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        """One state, perhaps of the network's own making, after a few data steps, perhaps in a mirror."""
        recipe = self.recipe
        chance = torch.rand(3, generator=generator).tolist()
        filled = int((self._whose >= 0).sum())
        if filled and chance[0] < recipe.own:
            slot = int(torch.randint(filled, (1,), generator=generator))
            index, field = int(self._whose[slot]), self._own[slot]
        else:
            index = int(torch.randint(len(self.states), (1,), generator=generator))
            field = self.states[index].field
        state = self.states[index]
        count = 0 if state.shown is not None else int(chance[1] * (recipe.data_steps + 1))
        moved = advance(state, field.float()[None], self.settings, count)
        shown = moved if state.shown is None else state.shown.float()[None]
        flip = chance[2] < 0.5
        images = [
            changed_intensities(x.float(), generator, recipe.intensities) for x in (state.fixed, state.moving)
        ]
        maps = [state.fixed_labels, state.moving_labels]
        if flip:
            moved, shown = flip_field(moved, 0), flip_field(shown, 0)
            images, maps = [x.flip(1) for x in images], [x.flip(0) for x in maps]
        return {
            "fixed": images[0], "moving": images[1], "fixed_labels": maps[0], "moving_labels": maps[1],
            "field": moved[0], "shown": shown[0], "index": torch.tensor(index), "flip": torch.tensor(flip),
        }  # fmt: skip

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """The loss at the top of this file, and its parts; the outputs are remembered."""
        recipe = self.recipe
        fixed, moving, field = batch["fixed"], batch["moving"], batch["field"]
        with torch.no_grad():
            warped = warp(moving, field)
        shown = batch["shown"]
        r = corrector_in(network).correction(shown, fixed, warped)
        following = compose(field, -r)
        overlap = soft_dice(batch["fixed_labels"], batch["moving_labels"], following)
        whole = compose(shown, -r)  # of a plane it is the volume's field that may fold
        folds = (recipe.least - determinant(whole)).clamp_min(0).square().mean()
        rough = sum((forward_difference(r, a).square().mean() for a in range(r.shape[1])), r.new_zeros(()))
        data = _data(fixed, moving, following, recipe.window)
        total = 1 - overlap + recipe.folds * folds + recipe.rough * rough + recipe.data * data
        if torch.is_grad_enabled():
            self._remember(following.detach(), batch)
        return total, {
            "dice": float(overlap.detach()), "folding": float(folds.detach()), "rough": float(rough.detach()),
            "data": float(data.detach()), "length": float(r.detach().square().mean().sqrt()),
        }  # fmt: skip

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Dice of held-out pairs before and after one correction, nearest labels; the loss is 1 - the latter."""
        corrector = corrector_in(network)
        corrector.eval()
        acting = corrector if self.acting is None else self.acting(corrector)
        before, after = [], []
        with torch.no_grad():
            for state in self.held_out:
                field = state.field.float()[None]
                fixed, moving = state.fixed.float()[None], state.moving.float()[None]
                following = acting(field, 0.0, fixed, warp(moving, field))
                before.append(hard_dice(state, field))
                after.append(hard_dice(state, following))
        corrector.train()
        mean, start = sum(after) / len(after), sum(before) / len(before)
        return {"loss": 1 - mean, "dice_before": start, "gain": mean - start}

    def state(self) -> dict[str, Tensor]:
        """The remembered outputs."""
        return {"own": self._own, "whose": self._whose, "next": torch.tensor(self._next)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up the remembered outputs of a checkpoint."""
        self._own, self._whose, self._next = (
            state["own"].clone(),
            state["whose"].clone(),
            int(state["next"]),
        )

    def _remember(self, fields: Tensor, batch: dict[str, Tensor]) -> None:
        """Keep outputs (B, d, *shape), voxels, out of the mirror, in place of the oldest."""
        for field, index, flip in zip(fields, batch["index"], batch["flip"], strict=True):
            kept = flip_field(field[None], 0)[0] if bool(flip) else field
            slot = self._next % len(self._whose)
            self._own[slot], self._whose[slot] = kept.half(), index
            self._next += 1


def corrector_in(network: nn.Module) -> Corrector:
    """The corrector itself, also where a wrapper for several processes holds it."""
    inner = getattr(network, "module", network)
    if not isinstance(inner, Corrector):
        raise TypeError(f"a Corrector is trained here, not a {type(inner).__name__}")
    return inner


def advance(state: State, field: Tensor, settings: Settings, count: int) -> Tensor:
    """`field` (1, d, *shape), voxels, after `count` more steps of the solver on this grid."""
    if count == 0:
        return field
    images = Images(state.fixed.float()[None], state.moving.float()[None], None, None, state.spacing)
    step = Step(images, data_term(images, settings, state.level), state.level)
    field, spare, other = field.clone(), torch.empty_like(field), torch.empty_like(field)
    with torch.no_grad():
        for _ in range(count):
            step(field, spare, other, LATE_STEP * state.level.step)
    return field


LATE_STEP = 0.25
"""By this the solver's steps have been shortened when it ends."""


def soft_dice(fixed_labels: Tensor, moving_labels: Tensor, field: Tensor) -> Tensor:
    """Mean over pairs and structures of ``2 sum f w / (sum f + sum w)``, w the linearly warped moving structure.

    Structures present in both maps of a pair count, all alike.

    Args:
        fixed_labels: (B, *shape), integers.
        moving_labels: (B, *shape), integers.
        field: (B, d, *shape), voxels.

    Returns:
        scalar in [0, 1].
    """
    d, n = field.shape[1], int(max(fixed_labels.max(), moving_labels.max())) + 1
    f, m = fixed_labels.long().flatten(1), moving_labels.long().flatten(1)
    positions = identity(field) + field
    lower = positions.detach().floor()
    part = positions - lower
    votes, sizes = 0.0 * part[:, 0].flatten(1), part.new_zeros(len(f), n)
    for corner in product(
        (0, 1), repeat=d
    ):  # w(x) = sum over corners c of weight_c(x) [m(c) is the structure]
        weight = reduce(mul, (part[:, a] if c else 1 - part[:, a] for a, c in enumerate(corner))).flatten(1)
        label = m.gather(1, _flat(lower, corner))
        votes = votes + weight * (label == f)
        sizes = sizes.scatter_add(1, label, weight)
    joint = part.new_zeros(len(f), n).scatter_add(1, f, votes)  # sum f w of every structure
    count = part.new_zeros(len(f), n).scatter_add(1, f, torch.ones_like(votes))
    source = part.new_zeros(len(f), n).scatter_add(1, m, torch.ones_like(votes))
    present = ((count > 0) & (source > 0)).to(part.dtype)[:, 1:]
    overlap = 2 * joint[:, 1:] / (count + sizes)[:, 1:].clamp_min(1e-6)
    mean: Tensor = ((overlap * present).sum(1) / present.sum(1).clamp_min(1)).mean()
    return mean


def _flat(lower: Tensor, corner: Sequence[int]) -> Tensor:
    """Flat index (B, voxels) of the voxel `lower` (B, d, *shape) + `corner`; the border is repeated outside."""
    index = torch.zeros_like(lower[:, 0], dtype=torch.long)
    for axis, (n, c) in enumerate(zip(lower.shape[2:], corner, strict=True)):
        index = index * n + (lower[:, axis] + c).clamp(0, n - 1).long()
    return index.flatten(1)


def hard_dice(state: State, field: Tensor) -> float:
    """Mean Dice over the structures present in both, labels warped by nearest neighbour; field (1, d, *shape)."""
    warped = sample(state.moving_labels[None, None].float(), identity(field) + field, "nearest")
    return mean_dice(dice(state.fixed_labels.numpy(), warped[0, 0].to(torch.int16).numpy()))


def _data(fixed: Tensor, moving: Tensor, field: Tensor, window: int) -> Tensor:
    """g(field) with the analytic derivative: ``g + <dg/du, u - u>``, the second u not differentiated."""
    still = field.detach()
    with torch.no_grad():
        value, gradient = LocalCorrelation(fixed, None, window=window).on_field(moving, still)
    slope = (gradient * (field - still)).sum()
    return (value.float().sum() + slope) / len(fixed)
