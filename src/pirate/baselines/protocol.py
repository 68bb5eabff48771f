"""One protocol for every method: two images in, a `Registration` out.

Whoever made the field, the same code reads the images, finds the affine start, inverts, resamples and measures. A
rival's folds are not repaired: they are reported as they are. A method may be followed by one of its presets, as in
``syn:cc``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate.baselines import demons_sitk, greedy, syn
from pirate.baselines.child import Limits, Outcome
from pirate.baselines.log_demons import LogDemonsSettings, log_demons
from pirate.baselines.nodeo import NodeoSettings, nodeo
from pirate.baselines.options import changed
from pirate.baselines.trained import load_network
from pirate.errors import UsageError
from pirate.image import Image
from pirate.registration.finish import Found, as_it_is, finish
from pirate.registration.inputs import ImageLike, unit_range
from pirate.registration.pair import Pair, Sources
from pirate.registration.process import Clock, choose_device, using_threads
from pirate.registration.register import register
from pirate.registration.result import Registration
from pirate.registration.working import Images
from pirate.settings import PRESETS
from pirate.settings import preset as preset_for
from pirate.solvers.solution import Record, Solution, Status
from pirate.transform import Affine

JUDGE = "default"
"""The preset whose data term every method is measured by."""


@dataclass(frozen=True)
class Method:
    """What can be said of a method before it is run.

    Args:
        name: what it is called by.
        about: one line.
        ours: a preset of pirate; options are settings.
        needs_weights: a trained network; the weights file must be given.
        symmetric: treats both images alike, and has an inverse of its own.
        presets: by name, the first is the default; empty if there is nothing to set.
        ndims: dimensions it takes.
        child: runs in a process of its own, as another tool.
    """

    name: str
    about: str
    ours: bool = False
    needs_weights: bool = False
    symmetric: bool = False
    presets: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ndims: tuple[int, ...] = (2, 3)
    child: bool = False


_NODEO = {"published": NodeoSettings(), "multi-step": NodeoSettings(steps=8)}
_RIVALS = (
    Method("log-demons", "symmetric log-domain demons, our own implementation", symmetric=True,
           presets={"default": LogDemonsSettings()}),
    Method("nodeo", "an untrained network as the velocity, fitted to each pair", presets=_NODEO),
    Method("syn", "ANTs SyN, in a process of its own", symmetric=True, presets=syn.PRESETS, child=True),
    Method("greedy", "greedy, in a process of its own", presets=greedy.PRESETS, child=True),
    Method("demons-sitk", "SimpleITK's demons, in a process of its own", presets=demons_sitk.PRESETS, child=True),
    Method("voxelmorph", "a trained VoxelMorph", needs_weights=True),
    Method("symnet", "a trained SYMNet", needs_weights=True, symmetric=True),
    Method("gradirn", "a trained GraDIRN", needs_weights=True),
)  # fmt: skip

METHODS: dict[str, Method] = {
    **{name: Method(name, f"pirate's preset {name}", ours=True) for name in PRESETS},
    **{method.name: method for method in _RIVALS},
}
"""Every method by its name: pirate's presets and the rivals."""


@dataclass(frozen=True)
class Request:
    """How a rival is to be run; see `run`."""

    method: Method
    preset: str
    options: Mapping[str, Any]
    weights: Path | None
    device: torch.device
    limits: Limits

    @property
    def constants(self) -> Any:
        """The preset's settings with the caller's changes; None where there are none."""
        if not self.method.presets:
            if self.options:
                raise UsageError(f"{self.method.name} takes no settings; its weights file has them all.")
            return None
        return changed(self.method.presets[self.preset], self.options, self.method.name)


def find(name: str) -> tuple[Method, str]:
    """The method and the name of its preset that ``METHOD`` or ``METHOD:PRESET`` means."""
    base, _, preset = name.partition(":")
    if base not in METHODS:
        raise UsageError(f"there is no method {base!r}; the methods are {', '.join(METHODS)}.")
    method = METHODS[base]
    known = list(method.presets)
    if preset and preset not in known:
        expected = f"one of {', '.join(known)}" if known else "none"
        raise UsageError(f"{base} has no preset {preset!r}; expected {expected}.")
    return method, preset or (known[0] if known else "")


def run(
    name: str,
    fixed: ImageLike,
    moving: ImageLike,
    *,
    options: Mapping[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
    affine: str | os.PathLike[str] | Affine = "none",
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    threads: int | None = None,
    device: str = "auto",
    seconds: float = 0.0,
    memory_limit: float | None = None,
) -> Registration:
    """Align `moving` to `fixed` by any method.

    Args:
        name: a name of `METHODS`, with ``:PRESET`` for one of its presets.
        fixed: the image that stays: path, nibabel image, (array, 4 x 4 RAS affine) or `Image`.
        moving: the image that is warped onto it.
        options: changes to the method's settings.
        weights: the weights file, for a method that needs one.
        affine: the start that every method is given, as in `register`; by default the headers alone.
        fixed_labels: anatomy of the fixed image, only measured.
        moving_labels: anatomy of the moving image, likewise.
        threads: CPU threads; by default what the environment allows.
        device: "auto", "cpu", "cuda", ... for the methods that run in torch.
        seconds: wall time that another tool may take; 0 is no limit.
        memory_limit: GB that another tool, or reading, may take.

    Returns:
        `Registration`. Of a rival: `settings` name the data term that it is measured by; the metrics "method" and
        "options" say what was run; "solve" of the timings is the method's own time, "child" what its process took
        besides; the peak memory of another tool is its process's.
    """
    method, preset = find(name)
    if method.needs_weights and weights is None:
        raise UsageError(
            f"{name} is a trained network; give its weights file, made by `pirate train {name}`."
        )
    if not method.needs_weights and weights is not None:
        raise UsageError(f"{name} takes no weights file.")
    if method.ours:
        return register(
            fixed, moving, preset=method.name, affine=affine, fixed_labels=fixed_labels, device=device,
            moving_labels=moving_labels, threads=threads, settings=options or {}, memory_limit=memory_limit,
        )  # fmt: skip
    memory = int((memory_limit or 0) * 1e9)
    sources = Sources(
        fixed, moving, None, None, fixed_labels, moving_labels, affine, memory_limit=memory or None
    )
    with using_threads(threads):
        limits = Limits(torch.get_num_threads(), seconds, memory)
        path = None if weights is None else Path(weights)
        request = Request(method, preset, options or {}, path, choose_device(device), limits)
        return _run(sources, request)


def _run(sources: Sources, request: Request) -> Registration:
    clock, method = Clock(), request.method
    constants = request.constants
    with clock.stage("read"):
        pair = Pair.read(sources)
    with clock.stage("affine"):
        pair = pair.aligned(sources.affine, False, request.device)
    with clock.stage("prepare"):
        images = rival_images(pair, request.device)
        solver = None if method.child else SOLVERS[method.name](request, constants, pair.fixed.grid.ndim)
    with clock.stage("solve"):
        answer = _child(request, pair, constants) if solver is None else solver(images)
    if answer.seconds is not None:
        clock.seconds["child"] = clock.seconds["solve"] - answer.seconds
        clock.seconds["solve"] = answer.seconds
    trace = answer.trace or (Record(0, np.nan, np.nan, np.nan, np.nan),)
    solution = Solution(answer.field, answer.status, trace, len(trace))
    found = Found(images, solution, as_it_is(answer.field), answer.inverse, answer.peak_memory)
    told = {
        "method": method.name + (f":{request.preset}" if request.preset else ""),
        "options": {} if constants is None else dataclasses.asdict(constants),
        "weights": None if request.weights is None else str(request.weights),
    }
    return finish(
        pair, found, preset_for(JUDGE, pair.fixed.grid.ndim, pair.fixed.grid.voxels), clock, (), told
    )


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
    status: Status = Status.FINISHED
    seconds: float | None = None
    peak_memory: int | None = None


def rival_images(pair: Pair, device: torch.device) -> Images:
    """Both images on the fixed grid, background 0 and bright tissue about 1, as `working_images` without margins."""
    moving = Image(unit_range(pair.moving.data, robust=True), pair.moving.grid, pair.moving.name)
    cut = tuple(slice(a, a + n) for (a, _), n in zip(pair.margins, pair.fixed.grid.shape, strict=True))
    arrays = unit_range(pair.fixed.data, robust=True), pair.on_working_grid(moving)[cut]
    tensors = [
        torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))[None, None].to(device) for x in arrays
    ]
    return Images(tensors[0], tensors[1], None, None, tuple(pair.fixed.grid.spacing))


Solver = Callable[[Images], Answer]


def _demons(request: Request, constants: LogDemonsSettings, ndim: int) -> Solver:
    def solve(images: Images) -> Answer:
        found = log_demons(images, constants)
        return Answer(found.field, found.inverse, found.trace, found.status)

    return solve


def _nodeo(request: Request, constants: NodeoSettings, ndim: int) -> Solver:
    def solve(images: Images) -> Answer:
        trace: list[Record] = []

        def observe(record: Record) -> bool:
            trace.append(record)
            return False

        field = nodeo(images.fixed, images.moving, constants, observe)
        return Answer(field, trace=tuple(trace))

    return solve


def _network(request: Request, constants: None, ndim: int) -> Solver:
    network = load_network(Path(request.weights or ""), ndim, request.method.name, request.device)

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


def _child(request: Request, pair: Pair, constants: Any) -> Answer:
    found = CHILDREN[request.method.name](pair, constants, request.limits)
    return Answer(found.field, found.inverse, found.trace, Status.FINISHED, found.seconds, found.peak_memory)
