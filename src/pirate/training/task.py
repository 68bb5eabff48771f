"""What is trained, how far it is, and what comes out."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from pirate.training.checkpoint import Row


class Task(Protocol):
    """What is trained. The batch and the network's output have whatever shapes and units the task gives them."""

    network: nn.Module

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        """One training example on the CPU, which depends on the generator and on `state` only; equal shapes stack."""

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """The mean loss over the batch, a scalar, and further numbers for the history.

        `batch` has one more axis in front than an example and lies where the network does. Call the `network`
        given here: with several processes it is a wrapper that averages the gradients, and every weight takes part.
        """

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Numbers on validation data, among them "loss", lower is better; in evaluation mode, without gradients."""

    def state(self) -> dict[str, Tensor]:
        """What the task carries from step to step and a checkpoint must keep; empty if nothing."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` returned."""


class Ended(enum.Enum):
    """Why a training ended."""

    STEPS = "all steps were made"
    PATIENCE = "the validation loss came to no new low for too long"
    MINUTES = "the time was up"
    ASKED = "it was asked to stop"


@dataclass(frozen=True)
class Progress:
    """How far a training is; `loss` is of the last step, `validation` the last validation loss."""

    step: int
    steps: int
    seconds: float
    seconds_left: float
    loss: float
    validation: float


Observer = Callable[[Progress], bool]
"""Called after every step, in the first process; returning True ends the training, which can be resumed."""


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Args:
        best: weights with the lowest validation loss (any shapes, no unit), on the CPU.
        best_step: the step after which they were reached.
        step: steps made.
        losses: the loss of every step.
        history: a row for every validation: step, seconds; loss, the task's further numbers, gradient_norm and
            learning_rate, means over the steps since the last row; validation_loss and the other numbers of the
            validation as validation_*. The first row is of step 0, where there is only the validation.
        ended: why it ended; the value is a sentence.
        seconds: of training.
        first: whether this process is the one that writes files (False in all but one under `torchrun`).
    """

    best: dict[str, Tensor]
    best_step: int
    step: int
    losses: list[float]
    history: list[Row]
    ended: Ended
    seconds: float
    first: bool
