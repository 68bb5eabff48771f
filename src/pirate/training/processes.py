"""One process or several: what `torchrun` started works on one training together.

Rank r of n takes items r, r + n, r + 2 n, ... of every batch. The loss is a mean over the batch, so the mean of
the ranks' gradients is the gradient of the whole batch, and n processes do what one would do.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pirate.errors import UsageError

PATIENCE = timedelta(hours=6)
"""How long a process waits for the others: the first one validates while they wait."""


@dataclass(frozen=True)
class Team:
    """The processes of a training; one that is alone is rank 0 of 1."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process validates and writes."""
        return self.rank == 0

    def wrapped(self, network: nn.Module) -> nn.Module:
        """`network`, or a wrapper that starts from rank 0's weights and averages the gradients."""
        if self.world == 1:
            return network
        return DistributedDataParallel(network, [self.device] if self.device.type == "cuda" else None)

    def mean(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each of `numbers` averaged over the processes, which all give the same names."""
        if self.world == 1:
            return dict(numbers)
        names = sorted(numbers)
        values = torch.tensor([numbers[name] for name in names], dtype=torch.float64, device=self.device)
        dist.all_reduce(values)
        means = dict(zip(names, (values / self.world).tolist(), strict=True))
        return {name: means[name] for name in numbers}

    def told(self, number: int) -> int:
        """The `number` of rank 0; until it has one, the others wait here."""
        if self.world == 1:
            return number
        value = torch.tensor([number], dtype=torch.int64, device=self.device)
        dist.broadcast(value, 0)
        return int(value.item())


def team(network: nn.Module, batch: int) -> Team:
    """The processes that train `network` with `batch` examples a step; on GPUs the network moves to its own.

    `torchrun` tells by the environment: RANK and WORLD_SIZE, and LOCAL_RANK for the GPU.
    """
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if world == 1:
        return Team(0, 1, device)
    if batch % world:
        raise UsageError(
            f"training: a batch of {batch} cannot be shared by {world} processes; expected a multiple of {world}. "
            "Change the batch or the number of processes."
        )
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
        network.to(device)
    if (
        not dist.is_initialized()
    ):  # once for all trainings of a process: the launcher's store serves one group only
        importlib.import_module("torch._dynamo")  # before there is a group that it could hold on to: `_leave`
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        atexit.register(_leave)
    return Team(rank, world, device)


def _leave() -> None:
    """Leave the group while Python still runs: gloo's threads end with the last reference to it.

    A thread that wakes up while the interpreter is taken down aborts the process. Wrappers that average gradients
    refer to the group in cycles, which the collector finds; functions of `torch._dynamo`, defined while there is a
    group, have it as the default of an argument for good, so that module is loaded before.
    """
    dist.destroy_process_group()
    gc.collect()
