"""A training under way: its steps, validations and checkpoints."""

from __future__ import annotations

import csv
import io
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from pirate.errors import NotConverged, UsageError, printable, reject
from pirate.io.atomic import unwritable, write_text
from pirate.training import checkpoint
from pirate.training.checkpoint import Row, State, copied, learning
from pirate.training.plan import Plan, generator, seed_of
from pirate.training.processes import Team
from pirate.training.task import Ended, Observer, Progress, Task, Trained

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.csv"


class Run:
    """A training under way."""

    def __init__(
        self, task: Task, plan: Plan, out: Path, together: Team, settings: Mapping[str, object]
    ) -> None:
        if together.world > 1 and task.state():
            raise UsageError(
                "training: the task carries a state from step to step, which several processes cannot share; "
                "expected one process. Start it without torchrun."
            )
        self.task, self.plan, self.out, self.team = task, plan, out, together
        self.record = plan.record() | {f"task {name}": value for name, value in settings.items()}
        self.network = self.wrapped = task.network.train()
        self.optimiser = torch.optim.Adam(learning(self.network).values(), lr=plan.learning_rate)
        self.state = State()
        self.checkpoint = out / CHECKPOINT
        self.saved: int | None = None
        self.started, self.before = time.monotonic(), State()

    def begin(self) -> None:
        """Validate the untrained network and write the first checkpoint, if there is none; then load it."""
        if self.team.first and not self.checkpoint.exists():
            _make(self.out)
            self.validate()
            self.save()
        self.team.told(0)  # the others read only after the first has written
        self.state, carried = checkpoint.load(self.checkpoint, self.network, self.optimiser, self.record)
        if self.team.told(self.state.step) != self.state.step:
            finding = "the processes see different checkpoints"
            raise reject(self.out, finding, "one folder for all", "Choose a folder that all machines share.")
        self.task.restore(carried)
        self.wrapped = self.team.wrapped(self.network)
        self.saved, self.before, self.started = self.state.step, replace(self.state), time.monotonic()
        if self.team.first:
            _tidy(self.out)
            write_text(self.out / HISTORY, table(self.state.history))

    def advance(self) -> None:
        """Make one step: batch, loss, gradient, update."""
        step, plan, state = self.state.step, self.plan, self.state
        torch.manual_seed(seed_of(plan.seed, step, plan.batch + self.team.rank))  # for dropout and the like
        batch = self.batch(step)
        for group in self.optimiser.param_groups:
            group["lr"] = plan.rate(step)
        self.optimiser.zero_grad()
        half = plan.precision == "bfloat16"
        with torch.autocast(self.team.device.type, torch.bfloat16, enabled=half):
            loss, numbers = self.task.loss(self.wrapped, batch)
        numbers = self.team.mean({"loss": 0.0} | numbers | {"loss": loss.item()})
        self.demand_finite(
            "the loss", numbers["loss"]
        )  # the mean: one bad process stops all, before any update
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), plan.clip or math.inf).item()
        self.demand_finite("the norm of the gradient", norm)
        self.optimiser.step()
        state.step += 1
        state.losses.append(numbers["loss"])
        for name, value in (numbers | {"gradient_norm": norm, "learning_rate": plan.rate(step)}).items():
            total, count = state.tally.get(name, (0.0, 0))
            state.tally[name] = (total + value, count + 1)

    def batch(self, step: int) -> dict[str, Tensor]:
        """This process's share of a step's examples, stacked: (share, ...) each, in the task's units."""
        items = range(self.team.rank, self.plan.batch, self.team.world)
        examples = [self.task.example(generator(self.plan.seed, step, item)) for item in items]
        return {name: torch.stack([e[name] for e in examples]).to(self.team.device) for name in examples[0]}

    def validate(self) -> None:
        """Add a row to the history and keep the weights if they are the best; the first process only."""
        if not self.team.first:
            return
        state = self.state
        torch.manual_seed(self.plan.seed)  # the same random numbers in every validation
        self.network.eval()
        with torch.no_grad():
            found = self.task.validate(self.network)
        self.network.train()
        self.demand_finite("the validation loss", found["loss"])
        row = {"step": state.step, "seconds": self.seconds()}
        row |= {name: total / count for name, (total, count) in state.tally.items()}
        state.history.append(row | {f"validation_{name}": value for name, value in found.items()})
        state.tally = {}
        if found["loss"] < state.best_loss:
            state.best_loss, state.best_step = found["loss"], state.step
            state.best = {name: copied(value) for name, value in self.network.state_dict().items()}

    @property
    def validated(self) -> bool:
        """Whether the last row of the history is of this step."""
        return bool(self.state.history) and self.state.history[-1]["step"] == self.state.step

    def due(self, every: int) -> bool:
        """Whether something comes now that comes every so many steps, and after the last."""
        return self.state.step % every == 0 or self.state.step == self.plan.steps

    def ended(self, observe: Observer | None) -> Ended | None:
        """Why the training ends here, by the word of the first process, or None."""
        reasons = list(Ended)
        number = -1
        if self.team.first:
            reason = self.reason(observe is not None and observe(self.progress()))
            number = -1 if reason is None else reasons.index(reason)
        number = self.team.told(number)
        return None if number < 0 else reasons[number]

    def reason(self, asked: bool) -> Ended | None:
        """Why the training ends here, if it does."""
        if self.state.step >= self.plan.steps:
            return Ended.STEPS
        stale = sum(row["step"] > self.state.best_step for row in self.state.history)
        if self.plan.patience and stale >= self.plan.patience:
            return Ended.PATIENCE
        if self.plan.minutes and self.seconds() >= 60 * self.plan.minutes:
            return Ended.MINUTES
        return Ended.ASKED if asked else None

    def seconds(self) -> float:
        """Training time, this part and those before."""
        return self.before.seconds + time.monotonic() - self.started

    def progress(self) -> Progress:
        """How far it is; the time left is that of the steps left, at the pace of this part of the training."""
        state, plan, seconds = self.state, self.plan, self.seconds()
        pace = (seconds - self.before.seconds) / max(state.step - self.before.step, 1)
        left = (plan.steps - state.step) * pace
        if plan.minutes:
            left = min(left, max(60 * plan.minutes - seconds, 0.0))
        validation = state.history[-1]["validation_loss"]
        return Progress(state.step, plan.steps, seconds, left, state.losses[-1], validation)

    def save(self) -> None:
        """Write the checkpoint and the history; the first process only."""
        for name, value in self.network.state_dict().items():
            self.demand_finite(f"a weight ({name})", 0.0 if bool(torch.isfinite(value).all()) else math.nan)
        self.saved = self.state.step
        if self.team.first:
            self.state.seconds = self.seconds()
            checkpoint.save(
                self.checkpoint, self.network, self.optimiser, self.state, self.task.state(), self.record
            )
            write_text(self.out / HISTORY, table(self.state.history))

    def demand_finite(self, what: str, value: float) -> None:
        """Stop at a number that is not finite; the checkpoint on the disk stays as it is."""
        if not math.isfinite(value):
            good = f"The last good checkpoint, of step {self.saved}, is {printable(self.checkpoint)}; lower "
            lower = "the learning rate or clip the gradient, and train into another folder."
            untrained = "No step was made; check the starting weights and the validation data."
            raise NotConverged(
                f"training: {what} is {value} at step {self.state.step}; expected a finite number. "
                + (untrained if self.saved is None else good + lower)
            )

    def finish(self, ended: Ended) -> Trained:
        """What came out; all processes return the same, as the first one wrote it."""
        self.team.told(0)
        if not self.team.first:
            self.state, _ = checkpoint.load(self.checkpoint, self.network, self.optimiser, self.record)
        state = self.state
        return Trained(
            state.best, state.best_step, state.step, state.losses, state.history, ended, state.seconds,
            self.team.first,
        )  # fmt: skip


def table(history: list[Row]) -> str:
    """The history as CSV: a column for every name, empty where a row has no such number (step 0: no loss)."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in reversed(history) for name in row)))
    writer.writeheader()
    writer.writerows(history)
    return text.getvalue()


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        finding = f"the folder cannot be made ({error.strerror})"
        raise unwritable(out, finding, "a place one may write to", "Choose another folder.") from error


def _tidy(out: Path) -> None:
    """Remove what a killed training left half written."""
    for part in out.glob(".part-*"):
        if re.match(r"\.part-[0-9a-f]{12}", part.name) and part.is_file():
            part.unlink(missing_ok=True)
