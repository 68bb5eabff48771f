"""PIRATE+: the prior is trained at the fixed point of the iteration that it takes part in.

Forward, the fixed point phi* of eq. (6) is found by Anderson acceleration at a constant step, without a graph.
Backward, the gradient of the loss of eq. (12) at phi* reaches the prior by one of the modes of `hypergradient`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any, cast

import torch
from torch import Tensor, nn

from pirate.denoisers.plug import Denoiser
from pirate.energies.regularity import Smoothness
from pirate.energies.similarity import Similarity
from pirate.errors import UsageError, reject
from pirate.evaluation.folding import folding
from pirate.ops.resample import resize_field
from pirate.registration.additive import field_shape
from pirate.registration.data_term import data_term
from pirate.registration.operator import Pirate
from pirate.registration.working import Images
from pirate.settings import Settings, preset
from pirate.solvers.anderson import accelerate
from pirate.solvers.solution import Solution, Status, norm
from pirate.training.hypergradient import Backward, adjoint, data_gradient
from pirate.training.objective import OBJECTIVES, Objective, growth

SCALARS = ("alpha", "tau", "sigma")
"""What can be learned besides the network; gamma cannot, for the fixed point does not depend on it."""

STABLE = 0.9
"""Part of the largest stable step of the smoothness term that gamma may reach while alpha is learned."""


def equilibrium_settings(ndim: int, changes: Mapping[str, Any] | None = None) -> Settings:
    """The paper's constants with Anderson acceleration at a constant step, and `changes` to them.

    The step is the mean of the paper's cosine, gamma0 / 2.
    """
    base = preset("paper", ndim)
    base = base.changed(
        {
            "solver": "anderson", "schedule": "constant", "gamma": base.gamma / 2, "iterations": 60,
            "tolerance": 1e-3, "ridge": 1e-6,
        }
    )  # fmt: skip
    settings = base.changed(changes or {}, "equilibrium")
    if settings.scheme != "additive" or settings.solver != "anderson" or settings.prior != "none":
        raise UsageError(
            "equilibrium: the fixed point is that of the additive scheme by Anderson acceleration, with the network "
            "that is trained as prior; leave scheme, solver and prior as they are."
        )
    settings.check_stability(ndim)
    return settings


class Regulariser(nn.Module):
    """The part of a step that learns: ``alpha n grad r(phi) + tau (phi - D(phi, sigma))``.

    A learned scalar is stored as its logarithm, so that it stays positive.

    Args:
        denoiser: D, called as denoiser(field, sigma).
        settings: alpha, tau and sigma to start from.
        learn: which of `SCALARS` are parameters; the others are constants.
    """

    def __init__(self, denoiser: nn.Module, settings: Settings, learn: Collection[str] = ()) -> None:
        super().__init__()
        self.denoiser = denoiser
        level = settings.level(0)
        odd = [name for name in learn if name not in SCALARS]
        if odd:
            raise UsageError(f"learn: {odd[0]!r} cannot be learned; expected some of {', '.join(SCALARS)}.")
        for name, value in zip(SCALARS, (settings.alpha, level.tau, level.sigma), strict=True):
            if name not in learn:
                self.register_buffer(name, torch.tensor(value, dtype=torch.float64), persistent=False)
                continue
            if value <= 0:
                raise UsageError(f"learn: {name} starts at {value}; expected a positive start.")
            self.register_parameter(f"log_{name}", nn.Parameter(torch.tensor(math.log(value))))
        if "sigma" in learn and not self._listens():
            raise UsageError("learn: the network does not depend on sigma; leave it out.")

    def _listens(self) -> bool:
        """Whether the denoiser is a differentiable function of sigma."""
        weight = next(self.denoiser.parameters())
        d = self.ndim
        probe = torch.linspace(0, 1, d * 8**d, dtype=weight.dtype).view(1, d, *[8] * d).to(weight.device)
        sigma = torch.ones((), dtype=weight.dtype, device=weight.device, requires_grad=True)
        with torch.enable_grad():
            result = self.denoiser(probe, sigma).sum()
            (slope,) = torch.autograd.grad(result, sigma, allow_unused=True)
        return slope is not None

    @property
    def ndim(self) -> int:
        """2 or 3: the number of axes of the fields that the network takes."""
        return max(p.ndim for p in self.denoiser.parameters()) - 2

    def scalar(self, name: str) -> Tensor:
        """One of `SCALARS`, without axes."""
        log = getattr(self, f"log_{name}", None)
        return cast(Tensor, getattr(self, name)) if log is None else cast(Tensor, log.exp())

    def scalars(self) -> dict[str, float]:
        """The values of `SCALARS`; tau and alpha without unit, sigma in voxels of the field's grid."""
        return {name: float(self.scalar(name).detach()) for name in SCALARS}

    def forward(self, field: Tensor) -> Tensor:
        """The learned part of F in ``T(phi) = phi - gamma F(phi)``, for a field (B, d, *shape) in voxels."""
        n = field[0, 0].numel()
        alpha, tau, sigma = (self.scalar(name).to(field) for name in SCALARS)
        level: Tensor | float = sigma if sigma.requires_grad else float(sigma)
        result: Tensor = tau * (field - self.denoiser(field, level))
        if hasattr(self, "log_alpha") or float(alpha.detach()) > 0:
            result = result + alpha * n * Smoothness().value_and_gradient(field)[1]
        return result


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """The fixed point for a batch of pairs.

    Args:
        prior: the learned part of the step.
        fixed: (B, 1, *shape), intensities from 0 to 1.
        moving: (B, 1, *shape), likewise.
        settings: of the iteration, see `equilibrium_settings`.
    """

    prior: Regulariser
    fixed: Tensor
    moving: Tensor
    settings: Settings

    @property
    def penalty(self) -> Similarity:
        """The data term g with the fixed images."""
        images = Images(self.fixed, self.moving, None, None, (1.0,) * (self.fixed.ndim - 2))
        return data_term(images, self.settings, self.settings.level(0))

    @property
    def gamma(self) -> float:
        """The step: that of the settings, or less if a learned alpha needs it; the fixed point stays the same."""
        alpha = self.prior.scalars()["alpha"]
        limit = STABLE * (self.fixed.ndim - 2) / 8 / alpha if alpha > 0 else math.inf
        return min(self.settings.gamma, limit) if alpha > self.settings.alpha else self.settings.gamma

    @torch.no_grad()
    def solve(self) -> Solution:
        """Find phi*, (B, d, *field_shape), voxels of its own grid, from a zero field."""
        scalars, s = self.prior.scalars(), self.settings
        denoiser = cast(Denoiser, self.prior.denoiser)
        operator = Pirate(self.penalty, self.moving, None, denoiser, **scalars)
        shape = tuple(self.fixed.shape[2:])
        start = self.moving.new_zeros((len(self.moving), len(shape), *field_shape(shape, s.resolution)))
        return accelerate(
            operator, start, self.gamma, iterations=s.level(0).iterations, tolerance=s.tolerance,
            memory=s.memory, ridge=s.ridge,
        )  # fmt: skip

    def step(self, field: Tensor, curvature: bool = True) -> Tensor:
        """T(field), (B, d, *field_shape), voxels, by operations that autograd can differentiate.

        Args:
            field: (B, d, *field_shape), voxels; a tensor that requires a gradient.
            curvature: whether the data term's gradient is a function of the field, or a constant.
        """
        if curvature:
            slope = data_gradient(self.penalty, self.moving, field)
        else:
            slope = self.penalty.on_field(self.moving, field.detach())[1]
        force: Tensor = field[0, 0].numel() * slope + self.prior(field)
        return field - self.gamma * force


@dataclass(eq=False)
class EquilibriumTask:
    """Training of a prior by registering random pairs of subjects; no labels are used.

    Args:
        network: the learned part of the step, a `Regulariser`.
        images: of the training subjects, (1, *shape) each, one shape, intensities from 0 to 1.
        held_out: pairs (fixed, moving) for validation, (1, *shape) each.
        settings: of the iteration.
        sources: one name for each image; pairs are drawn within a source. None: they all come from one.
        objective: the loss.
        backward: how its gradient goes back through the fixed point.
    """

    network: nn.Module
    images: Sequence[Tensor]
    held_out: Sequence[tuple[Tensor, Tensor]]
    settings: Settings
    sources: Sequence[str] | None = None
    objective: Objective = OBJECTIVES["paper"]
    backward: Backward = default(default_factory=Backward)
    partners: list[list[int]] = default(init=False)
    """For each image, the indices of those it can be paired with."""

    def __post_init__(self) -> None:
        names = ["" for _ in self.images] if self.sources is None else list(self.sources)
        self.partners = [
            [j for j, n in enumerate(names) if n == name and j != i] for i, name in enumerate(names)
        ]
        if not any(self.partners) or not self.held_out:
            raise reject(
                "subjects",
                f"{len(self.images)} training images and {len(self.held_out)} pairs for validation",
                "two or more training images of one source, and a pair to validate on",
                "Add subjects.",
            )

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        """An ordered pair of two different training subjects, (1, *shape) each."""
        able = [i for i, others in enumerate(self.partners) if others]
        first = able[_draw(len(able), generator)]
        second = self.partners[first][_draw(len(self.partners[first]), generator)]
        return {"fixed": self.images[first], "moving": self.images[second]}

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """The mean loss of a batch of pairs, (B, 1, *shape) each, at their fixed points; without unit.

        Its value is the loss, its derivative the hypergradient of the mode: with w constant,

            l + < T(phi*), w > - < T(phi*), w >        of which only the first product is differentiated
        """
        prior = cast(Regulariser, getattr(network, "module", network))
        problem = Equilibrium(prior, batch["fixed"], batch["moving"], self.settings)
        solution = problem.solve()
        values, pull, terms = self.objective.value_and_gradient(problem.fixed, problem.moving, solution.field)
        lost = solution.status is Status.DIVERGED
        pull = pull.mul_(0.0 if lost else 1 / len(pull))
        found = adjoint(
            lambda phi: problem.step(phi, self.backward.bends), solution.field, pull, self.backward
        )
        inner = -problem.gamma * (network(solution.field) * found.w).sum()
        log = (
            terms
            | _progress(solution)
            | {"pull": float(norm(pull).norm()), "adjoint": float(norm(found.w).norm())}
        )
        loss = values.mean().to(inner.dtype) + inner - inner.detach()
        if self.objective.expansion > 0:  # also where the solve diverged, for growth is why it does
            sigma = prior.scalars()["sigma"]
            grown = growth(lambda z: prior.denoiser(z, sigma), solution.field)
            loss = loss + self.objective.expansion * (grown - 1).relu().square().mean()
            log |= {"growth": float(grown.detach().max())}
        if self.backward.mode == "exact":
            log |= {"products": float(found.products), "adjoint_residual": found.residual}
        return loss, log | prior.scalars()

    @torch.no_grad()
    def validate(self, network: nn.Module) -> dict[str, float]:
        """Loss, its terms, folds in percent, evaluations and residual, averaged over the held-out pairs."""
        rows = [self.measure(network, fixed[None], moving[None]) for fixed, moving in self.held_out]
        return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}

    @torch.no_grad()
    def measure(self, network: nn.Module, fixed: Tensor, moving: Tensor) -> dict[str, float]:
        """What `validate` averages, for one pair (1, 1, *shape) each."""
        prior = cast(Regulariser, getattr(network, "module", network))
        like = next(prior.denoiser.parameters())
        problem = Equilibrium(prior, fixed.to(like), moving.to(like), self.settings)
        solution = problem.solve()
        values, _, terms = self.objective.value_and_gradient(problem.fixed, problem.moving, solution.field)
        folds = folding(resize_field(solution.field, problem.fixed.shape[2:]))
        measured = {name: folds[name] for name in ("folds_percent", "ndv_percent", "sd_log_jacobian")}
        sigma, loss = prior.scalars()["sigma"], float(values.mean())
        measured["growth"] = float(growth(lambda z: prior.denoiser(z, sigma), solution.field)[0])
        loss += self.objective.expansion * max(measured["growth"] - 1, 0) ** 2
        return {"loss": loss} | terms | measured | _progress(solution)

    def state(self) -> dict[str, Tensor]:
        """Nothing is carried from step to step: a dictionary without tensors of any shape or unit."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """There is nothing to restore from `state`, which holds no tensors of any shape or unit."""


def _draw(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (1,), generator=generator))


def _progress(solution: Solution) -> dict[str, float]:
    """Evaluations, the smallest residual and whether the iteration diverged."""
    return {
        "nfe": float(solution.evaluations),
        "residual": min(r.residual for r in solution.trace if math.isfinite(r.residual)),
        "diverged": float(solution.status is Status.DIVERGED),
    }
