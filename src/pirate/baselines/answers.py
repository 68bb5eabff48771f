"""How each rival is asked, and what it answers: a field on the fixed grid."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirate.baselines import demons_sitk, greedy, syn
from pirate.baselines.child import Limits, Outcome
from pirate.baselines.log_demons import LogDemonsSettings, log_demons
from pirate.baselines.methods import Method
from pirate.baselines.nodeo import NodeoSettings, nodeo
from pirate.baselines.options import changed
from pirate.baselines.trained import load_network
from pirate.errors import UsageError
from pirate.io.atomic import sha256_of
from pirate.registration.pair import Pair
from pirate.registration.register import Progress
from pirate.registration.working import Images
from pirate.solvers.solution import Record, Status

log = logging.getLogger("pirate")

INTERVAL = 10.0
"""Seconds between two lines that say how long another tool has been running."""


@dataclass(frozen=True)
class Request:
    """How a rival is to be run; see `protocol.register_with`."""

    method: Method
    preset: str
    options: Mapping[str, Any]
    weights: Path | None
    device: torch.device
    limits: Limits
    progress: Progress | None = None

    @property
    def name(self) -> str:
        """METHOD, or METHOD:PRESET where it has presets."""
        return self.method.name + (f":{self.preset}" if self.preset else "")

    @property
    def constants(self) -> Any:
        """The preset's settings with the caller's changes; None where there are none."""
        if not self.method.presets:
            if self.options:
                raise UsageError(f"{self.method.name} takes no settings; its weights file has them all.")
            return None
        return changed(self.method.presets[self.preset], self.options, self.method.name)

    def digest(self) -> str | None:
        """SHA-256 of the weights file, hexadecimal; None for a method without."""
        return None if self.weights is None else sha256_of(self.weights)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a rival found on the fixed grid.

    Args:
        field: (1, d, *shape), voxels.
        inverse: likewise, its own; None if it has none.
        trace: its iterations, empty if it has none.
        status: why it stopped.
        seconds: by the clock of another tool; None where ours counts.
        peak_memory: bytes, of another tool's process; None for this one.
    """

    field: Tensor
    inverse: Tensor | None = None
    trace: tuple[Record, ...] = ()
    status: Status = Status.ENDED
    seconds: float | None = None
    peak_memory: int | None = None


Solver = Callable[[Images], Answer]


def _observer(request: Request, total: int, trace: list[Record]) -> Callable[[Record], bool]:
    """Keeps every record and tells of it; `total` is the largest number of iterations."""

    def observe(record: Record) -> bool:
        trace.append(record)
        if request.progress is not None:
            request.progress(request.method.name, len(trace), total, record)
        return False

    return observe


def _demons(request: Request, constants: LogDemonsSettings, ndim: int) -> Solver:
    total = sum(constants.of_level(index) for index in range(len(constants.levels)))

    def solve(images: Images) -> Answer:
        found = log_demons(images, constants, _observer(request, total, []))
        return Answer(found.field, found.inverse, found.trace, found.status)

    return solve


def _nodeo(request: Request, constants: NodeoSettings, ndim: int) -> Solver:
    def solve(images: Images) -> Answer:
        trace: list[Record] = []
        observe = _observer(request, constants.iterations, trace)
        field = nodeo(images.fixed, images.moving, constants, observe)
        return Answer(field, trace=tuple(trace), status=Status.FINISHED)

    return solve


def _network(request: Request, constants: None, ndim: int) -> Solver:
    path = Path(request.weights or "")
    network = load_network(path, ndim, request.method.name, request.device, request.digest())

    def solve(images: Images) -> Answer:
        found = network.fields(images.fixed, images.moving)
        return Answer(found.field, found.inverse)

    return solve


SOLVERS: dict[str, Callable[[Request, Any, int], Solver]] = {
    "log-demons": _demons, "nodeo": _nodeo, "voxelmorph": _network, "symnet": _network, "gradirn": _network,
}  # fmt: skip

CHILDREN: dict[str, Callable[[Pair, Any, Limits], Outcome]] = {
    "syn": syn.syn, "greedy": greedy.greedy, "demons-sitk": demons_sitk.demons_sitk,
}  # fmt: skip


def ask_tool(request: Request, pair: Pair, constants: Any) -> Answer:
    """Let another tool register the pair, in a process of its own; say every ten seconds that it still runs."""
    told = ", ".join(f"{name} {version}" for name, version in request.method.versions.items())
    log.info("%s runs in a process of its own (%s)", request.name, told)
    with speaking(request.name):
        found = CHILDREN[request.method.name](pair, constants, request.limits)
    trace = tuple(r for r in found.trace if r.energy == r.energy)  # a record without a number tells nothing
    return Answer(found.field, found.inverse, trace, Status.ENDED, found.seconds, found.peak_memory)


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """While the block lasts, log every `INTERVAL` seconds how long it has lasted."""
    ended, start = threading.Event(), time.monotonic()

    def speak() -> None:
        while not ended.wait(INTERVAL):
            log.info("%s has been running for %.0f s", name, time.monotonic() - start)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
