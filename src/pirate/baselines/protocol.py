"""One protocol for every method: two images in, a `Registration` out.

Whoever made the field, the same code reads the images, finds the affine start, inverts, resamples and measures. A
rival's folds are not repaired: they are reported as they are. A method may be followed by one of its presets, as in
``syn:cc``.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pirate.baselines.answers import CHILDREN, SOLVERS, Answer, Request, ask_tool
from pirate.baselines.child import Limits
from pirate.baselines.methods import METHODS, Method, find
from pirate.errors import UsageError, printable, reject
from pirate.image import Image
from pirate.io.geometry import Form
from pirate.registration.finish import Found, as_it_is, finish
from pirate.registration.inputs import ImageLike, bytes_of, check_memory, memory_estimate, unit_range
from pirate.registration.maps import maps_of
from pirate.registration.pair import Pair, Sources
from pirate.registration.process import Clock, choose_device, using_threads
from pirate.registration.register import Progress, register
from pirate.registration.result import Registration
from pirate.registration.rival import Rival
from pirate.registration.working import Images
from pirate.settings import Settings
from pirate.settings import preset as preset_for
from pirate.solvers.solution import Record, Solution
from pirate.transform import Affine

__all__ = [
    "CHILDREN",
    "JUDGE",
    "METHODS",
    "SOLVERS",
    "Method",
    "find",
    "register_with",
    "rival_images",
]

log = logging.getLogger("pirate")

JUDGE = "default"
"""The preset whose data term every method is measured by."""


def register_with(
    name: str,
    fixed: ImageLike,
    moving: ImageLike,
    *,
    options: Mapping[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
    affine: str | os.PathLike[str] | Affine | None = None,
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    prefer: Form | None = None,
    threads: int | None = None,
    device: str = "auto",
    seconds: float = 0.0,
    memory_limit: float | None = None,
    maps: bool = False,
    progress: Progress | None = None,
) -> Registration:
    """Align `moving` to `fixed` by any method; in Python ``pirate.register_with``.

    >>> import pirate
    >>> result = pirate.register_with("syn:cc", "fixed.nii.gz", "moving.nii.gz")  # doctest: +SKIP
    >>> result.save("out")  # doctest: +SKIP

    Args:
        name: a name of `METHODS` (`pirate methods` lists them), with ``:PRESET`` for one of its presets.
        fixed: the image that stays: path, nibabel image, (array, 4 x 4 RAS affine) or `Image`.
        moving: the image that is warped onto it.
        options: changes to the method's settings.
        weights: the weights file, for a method that needs one.
        affine: the start that every method is given, as in `register`: by default "affine".
        fixed_labels: anatomy of the fixed image, only measured.
        moving_labels: anatomy of the moving image, likewise.
        prefer: "sform" or "qform": which to believe where a file's two disagree; else it is refused.
        threads: CPU threads; by default what the environment allows.
        device: "auto", "cpu", "cuda", ... for the methods that run in torch.
        seconds: wall time that another tool may take; 0 is no limit.
        memory_limit: GB that reading and measuring, or another tool, may take.
        maps: also return maps of the field, as in `register`.
        progress: called after each iteration of a method that runs here; another tool's time is logged.

    Returns:
        `Registration`. Of a rival: `rival` says what was run with which constants; `settings` only name the data term
        that it is measured by; the trace is empty if the method tells none; "solve" of the timings is the method's own
        time, "child" what its process took besides; the peak memory of another tool is its process's.
    """
    method, preset = find(name)
    path = _weights(method, weights)
    if method.ours:
        return register(
            fixed, moving, preset=method.name, affine=affine, fixed_labels=fixed_labels, device=device,
            moving_labels=moving_labels, threads=threads, settings=options or {}, memory_limit=memory_limit,
            prefer=prefer, maps=maps, progress=progress,
        )  # fmt: skip
    memory = bytes_of(memory_limit)
    start = "affine" if affine is None else affine
    sources = Sources(fixed, moving, None, None, fixed_labels, moving_labels, start, prefer, memory)
    with using_threads(threads):
        limits = Limits(torch.get_num_threads(), seconds, memory or 0)
        where = choose_device(device)
        return _run(sources, Request(method, preset, options or {}, path, where, limits, progress), maps)


def _weights(method: Method, weights: str | os.PathLike[str] | None) -> Path | None:
    """The weights file of a trained network, which must be there; None for a method without."""
    if not method.needs_weights:
        if weights is not None:
            raise UsageError(f"{method.name} takes no weights file.")
        return None
    if weights is None:
        raise UsageError(
            f"{method.name} is a trained network; give its weights file (--weights), made by "
            f"`pirate train {method.name}`."
        )
    if not Path(weights).is_file():
        raise reject(weights, "there is no such file", f"the weights of {method.name}", "Check --weights.")
    return Path(weights)


def _run(sources: Sources, request: Request, maps: bool) -> Registration:
    """A rival's registration: what can be refused is refused before anything is read."""
    clock, method, constants = Clock(), request.method, request.constants
    if method.tool is not None:
        method.tool.check_installed()
    with clock.stage("read"):
        pair = Pair.read(sources)
        grid = pair.fixed.grid
        judge = preset_for(JUDGE, grid.ndim, grid.voxels)
        shapes = grid.shape, pair.moving.grid.shape
        check_memory(memory_estimate(*shapes, judge, pair.fixed_labels is not None), sources.memory_limit)
    log.info("moving %s -> fixed %s", printable(pair.moving.name), printable(pair.fixed.name))
    with clock.stage("affine"):
        pair = pair.aligned(sources.affine, False, request.device)
    with clock.stage("prepare"):
        images = rival_images(pair, request.device)
        solver = None if method.child else SOLVERS[method.name](request, constants, grid.ndim)
    with clock.stage("solve"):
        answer = ask_tool(request, pair, constants) if solver is None else solver(images)
    if answer.seconds is not None:
        clock.seconds["child"] = clock.seconds["solve"] - answer.seconds
        clock.seconds["solve"] = answer.seconds
    rival = Rival(
        request.name, {} if constants is None else dataclasses.asdict(constants), request.weights, request.digest(),
        method.versions,
    )  # fmt: skip
    return _finished(pair, images, answer, rival, judge, clock, maps)


def _finished(
    pair: Pair, images: Images, answer: Answer, rival: Rival, judge: Settings, clock: Clock, maps: bool
) -> Registration:
    """Invert, resample and measure what a rival found, with its folds."""
    told = rival.told
    drawn: dict[str, Image] = {}
    if maps:
        with clock.stage("maps"):
            drawn, scores = maps_of(answer.field, pair.fixed, answer.field.device)
            told |= scores
    log.info("inverting and measuring")
    trace = answer.trace or (Record(0, np.nan, np.nan, np.nan, np.nan),)  # what is measured wants one
    solution = Solution(answer.field, answer.status, trace, len(answer.trace))
    found = Found(images, solution, as_it_is(answer.field), answer.inverse, answer.peak_memory)
    result = finish(pair, found, judge, clock, (), told, drawn)
    return dataclasses.replace(result, trace=answer.trace, rival=rival)


def rival_images(pair: Pair, device: torch.device) -> Images:
    """Both images on the fixed grid, background 0 and bright tissue about 1, as `working_images` without margins."""
    moving = Image(unit_range(pair.moving.data, robust=True), pair.moving.grid, pair.moving.name)
    cut = tuple(slice(a, a + n) for (a, _), n in zip(pair.margins, pair.fixed.grid.shape, strict=True))
    arrays = unit_range(pair.fixed.data, robust=True), pair.on_working_grid(moving)[cut]
    tensors = [
        torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))[None, None].to(device) for x in arrays
    ]
    return Images(tensors[0], tensors[1], None, None, tuple(pair.fixed.grid.spacing))
