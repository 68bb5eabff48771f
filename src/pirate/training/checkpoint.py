"""Checkpoints: all that a training needs to go on as if nothing had happened, in one safetensors file.

Tensors by name: ``weights/*`` and ``best/*`` of the network, ``adam/*`` (moments and counts), ``task/*`` and
``losses``. The header holds the rest as JSON. Random numbers depend on (seed, step, item) only, and the learning
rate on the step: the step is the random state, the position in the data and the position in the schedule.
safetensors has no checksum of its own, so the header carries one over everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from pirate.errors import printable, reject
from pirate.io.atomic import write_bytes

FORMAT = "pirate training 1"
ELSEWHERE = "Train into another folder, or remove the checkpoint to start anew."

Row = dict[str, float]


@dataclass
class State:
    """Where a training stands.

    Args:
        step: updates made.
        seconds: of training so far.
        losses: one for every step.
        history: one row for every validation.
        tally: sum and count of the numbers of the steps since the last row.
        best: weights with the lowest validation loss, on the CPU.
        best_step: when they were reached.
        best_loss: their validation loss.
    """

    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    history: list[Row] = field(default_factory=list)
    tally: dict[str, tuple[float, int]] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_step: int = 0
    best_loss: float = float("inf")


def save(
    path: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    state: State,
    task: Mapping[str, Tensor],
    plan: Mapping[str, object],
) -> None:
    """Write a checkpoint, whole or not at all; `task` is what the task carries along (any shapes, any unit)."""
    tensors = {f"weights/{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in state.best.items()}
    tensors |= {f"task/{name}": value for name, value in task.items()}
    tensors |= _moments(network, optimiser)
    tensors["losses"] = torch.tensor(state.losses, dtype=torch.float64)
    stored = {name: copied(value) for name, value in tensors.items()}
    names = ("step", "seconds", "history", "tally", "best_step", "best_loss")
    record = json.dumps({"plan": dict(plan)} | {name: getattr(state, name) for name in names})
    header = {"format": FORMAT, "record": record, "sha256": _digest(stored, record)}
    write_bytes(path, safetensors.torch.save(stored, header))


def load(
    path: Path, network: nn.Module, optimiser: torch.optim.Optimizer, plan: Mapping[str, object]
) -> tuple[State, dict[str, Tensor]]:
    """Put a checkpoint's weights and moments in place; return the state and what the task carried along.

    Nothing is changed unless the file is whole, was written under the same `plan` and fits the network.
    """
    tensors, record = _read(path)
    _check_plan(path, record["plan"], json.loads(json.dumps(dict(plan))))
    weights = _part(tensors, "weights/")
    _check_fit(path, weights, network.state_dict())
    network.load_state_dict(weights)
    optimiser.load_state_dict(
        {"state": _by_index(network, tensors), "param_groups": optimiser.state_dict()["param_groups"]}
    )
    state = State(
        step=record["step"],
        seconds=record["seconds"],
        losses=tensors["losses"].tolist(),
        history=record["history"],
        tally={name: (total, count) for name, (total, count) in record["tally"].items()},
        best=_part(tensors, "best/"),
        best_step=record["best_step"],
        best_loss=record["best_loss"],
    )
    return state, _part(tensors, "task/")


def copied(tensor: Tensor) -> Tensor:
    """A copy on the CPU (any shape), contiguous, that shares memory with nothing."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def learning(network: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters (any shapes, no unit) that the training changes, by name, in the order the optimiser has them."""
    return {name: value for name, value in network.named_parameters() if value.requires_grad}


def _moments(network: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's memory, ``adam/KEY/PARAMETER``; parameters that never had a gradient have none."""
    return {
        f"adam/{key}/{name}": value
        for name, parameter in learning(network).items()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def _by_index(network: nn.Module, tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Adam's memory as its ``load_state_dict`` wants it: by the number of the parameter."""
    index = {name: i for i, name in enumerate(learning(network))}
    memory: dict[int, dict[str, Tensor]] = {}
    for label, value in _part(tensors, "adam/").items():
        key, name = label.split("/", 1)
        memory.setdefault(index[name], {})[key] = value
    return memory


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _digest(tensors: Mapping[str, Tensor], record: str) -> str:
    """SHA-256 over the record and every tensor with its name, type and shape."""
    digest = hashlib.sha256(record.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the record of a whole checkpoint; anything else is refused."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: copied(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        finding = f"the checkpoint cannot be read ({printable(str(error))[:200]})"
        raise reject(path, finding, "an intact file", ELSEWHERE) from None
    if header.get("format") != FORMAT:
        raise reject(path, "it is not the checkpoint of a training", f"the format {FORMAT!r}", ELSEWHERE)
    if _digest(tensors, header.get("record", "")) != header.get("sha256"):
        raise reject(path, "the checkpoint is damaged", "the sha256 in its header", ELSEWHERE)
    record: dict[str, Any] = json.loads(header["record"])
    return tensors, record


IMPLIED: dict[str, object] = {"precision": "single", "task planes": 0, "task slices": 0}
"""Constants that checkpoints of earlier versions do not tell, because there was no choice."""


def _check_plan(path: Path, before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Refuse to go on under another plan: the result would be that of neither."""
    before = {name: value for name, value in IMPLIED.items() if name in now} | dict(before)
    for name in sorted(before.keys() | now.keys()):
        if name not in before or name not in now or before[name] != now[name]:
            finding = f"it was trained with {name} {before.get(name, 'unset')}"
            expected = f"{name} {now.get(name, 'unset')}, as asked for now"
            raise reject(path, finding, printable(expected), ELSEWHERE)


def _check_fit(path: Path, weights: Mapping[str, Tensor], network: Mapping[str, Tensor]) -> None:
    """Refuse weights of another network."""
    for name in sorted(weights.keys() | network.keys()):
        if name not in weights or name not in network:
            where = "checkpoint" if name in weights else "network"
            raise reject(path, f"only the {where} has weights named {name}", "one network", ELSEWHERE)
        found, expected = weights[name], network[name]
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise reject(
                path, f"{name} is {_kind(found)}", f"{_kind(expected)}, as the network has it", ELSEWHERE
            )


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
