"""How a training goes, apart from what is trained: the constants of the optimisation."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from pirate.errors import UsageError

Schedule = Literal["constant", "cosine"]
Precision = Literal["single", "bfloat16"]


@dataclass(frozen=True)
class Plan:
    """Constants of an optimisation with Adam. All but `minutes` define the result; a resumed training keeps them."""

    steps: int
    """Updates of the weights."""
    batch: int = 8
    """Examples for one update, over all processes."""
    learning_rate: float = 1e-3
    """Of Adam, at its highest."""
    schedule: Schedule = "cosine"
    """How the learning rate goes on after the warm-up."""
    warmup: int = 0
    """Steps over which the learning rate rises."""
    clip: float = 0.0
    """Largest Euclidean norm of the gradient of all weights, longer ones are shortened; 0 is no limit."""
    validate_every: int = 100
    """Steps between validations; there is one before the first step and one after the last."""
    checkpoint_every: int = 100
    """Steps between checkpoints; a kill costs at most so many steps."""
    patience: int = 0
    """Validations in a row without a new lowest loss that end the training; 0 never ends it."""
    precision: Precision = "single"
    """Of the numbers that convolutions multiply and return in a step; weights, losses and validation stay single. Where
    the processor multiplies bfloat16 itself, half precision takes about half the time; elsewhere it is slower."""
    seed: int = 0
    """Of every random number of the training."""
    minutes: float = 0.0
    """Of training, over all its parts, after which it ends; 0 is no limit. The schedule counts steps, not minutes."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "validate_every", "checkpoint_every"):
            _demand(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("warmup", "clip", "patience", "seed", "minutes"):
            number = getattr(self, name)
            _demand(0 <= number < math.inf, name, number, "0 or more")
        _demand(0 < self.learning_rate < math.inf, "learning_rate", self.learning_rate, "a number above 0")
        _demand(self.warmup < self.steps, "warmup", self.warmup, f"fewer than the {self.steps} steps")
        for name, known in (("schedule", get_args(Schedule)), ("precision", get_args(Precision))):
            _demand(getattr(self, name) in known, name, getattr(self, name), " or ".join(known))

    def rate(self, step: int) -> float:
        """Learning rate of step k = 0, 1, ...; with w steps of warm-up, K steps and the highest rate r::

            r (k + 1) / w                                   k < w
            r  or  r (1 + cos(pi (k - w) / (K - w))) / 2    k >= w, constant or cosine

        A function of the step alone: the step of a checkpoint is the position in the schedule.
        """
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.learning_rate
        share = (step - self.warmup) / (self.steps - self.warmup)
        return self.learning_rate * (1 + math.cos(math.pi * share)) / 2

    def record(self) -> dict[str, int | float | str]:
        """Everything that defines the result, by name; the time limit only cuts it off."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "minutes"}


def seed_of(*numbers: int) -> int:
    """A seed that depends on every one of `numbers`; 32 bits, which is all that torch's CPU generator takes."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=4).digest(), "little")


def generator(*numbers: int) -> torch.Generator:
    """A random generator on the CPU for `numbers`, e.g. (seed, step, item)."""
    return torch.Generator().manual_seed(seed_of(*numbers))


def _demand(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise UsageError(f"training: {name} is {value!r}; expected {expected}. Correct the plan.")
