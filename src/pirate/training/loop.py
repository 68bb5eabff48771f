"""The training loop, the only one in the project.

A task brings the network, the examples, the loss and the validation; a plan brings the constants. Whatever is
random depends on (seed, step, item) alone, so a training that was killed and resumed from its last checkpoint
repeats exactly what it would have done, and several processes do what one does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pirate.errors import UsageError
from pirate.training.plan import Plan
from pirate.training.processes import team
from pirate.training.run import CHECKPOINT, HISTORY, Run
from pirate.training.task import Ended, Observer, Progress, Task, Trained

__all__ = ["CHECKPOINT", "HISTORY", "Ended", "Observer", "Plan", "Progress", "Task", "Trained", "train"]


def train(
    task: Task,
    plan: Plan,
    out: Path,
    observe: Observer | None = None,
    tensorboard: bool = False,
    settings: Mapping[str, object] | None = None,
) -> Trained:
    """Train `task.network`, or go on where the checkpoint in `out` stands; the network ends with the last weights.

    Args:
        task: what is trained.
        plan: the constants of the optimisation.
        out: folder for ``checkpoint.safetensors`` and ``history.csv``; with several processes, one that all share.
        observe: called after every step.
        tensorboard: also write TensorBoard files to ``out/tensorboard``.
        settings: constants of the task (JSON values); a training is not resumed under others.

    Raises:
        InputError: the checkpoint in `out` is damaged or belongs to another plan, task or network.
        NotConverged: a loss or a gradient was not finite; the last good checkpoint stays.
        UsageError: the processes cannot share the work, or TensorBoard is missing.
    """
    writer = _summary_writer() if tensorboard else None
    together = team(task.network, plan.batch)
    with contextlib.ExitStack() as stack:
        gpus = [together.device] if together.device.type == "cuda" else []
        stack.enter_context(torch.random.fork_rng(gpus))  # the caller's random numbers go on undisturbed
        run = Run(task, plan, Path(out), together, settings or {})
        run.begin()
        board = None
        if writer is not None and together.first:  # what was written beyond the checkpoint is dropped
            board = writer(str(run.out / "tensorboard"), purge_step=run.state.step + 1)
            stack.callback(board.close)
        ended = run.ended(None)
        while ended is None:
            run.advance()
            if run.due(plan.validate_every):
                run.validate()
            ended = run.ended(observe)
            if ended is Ended.MINUTES and not run.validated:
                run.validate()
            if board is not None:
                _show(board, run)
            if ended is not None or run.due(plan.checkpoint_every):
                run.save()
        return run.finish(ended)


def _summary_writer() -> Any:
    """TensorBoard's class of writers; the package is loaded only here."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError(
            "training: TensorBoard is not installed; expected the package tensorboard. "
            "Install it with `pip install tensorboard`, or train without it: history.csv has the numbers."
        ) from error
    return SummaryWriter


def _show(board: Any, run: Run) -> None:
    """Write this step's loss to TensorBoard and, if it was validated, everything else."""
    board.add_scalar("loss", run.state.losses[-1], run.state.step)
    if run.validated:
        for name, value in run.state.history[-1].items():
            if name not in ("step", "loss"):
                board.add_scalar(name, value, run.state.step)
