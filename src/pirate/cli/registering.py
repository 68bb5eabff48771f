"""``pirate register``."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import typer

from pirate.baselines.methods import Method, find
from pirate.baselines.protocol import register_with
from pirate.cli.terminal import Bar, configure_log, interrupts
from pirate.errors import NotConverged, QualityError, UsageError, printable
from pirate.io.config import read_config
from pirate.io.geometry import Form
from pirate.registration.register import register
from pirate.registration.result import OUTPUTS, Registration, prepared
from pirate.reporting.registration import draw
from pirate.settings import PRESETS, Settings, parse_assignment
from pirate.solvers.solution import Status

log = logging.getLogger("pirate")


@dataclass(frozen=True)
class Request:
    """The options of ``pirate register``, as typed."""

    fixed: Path
    moving: Path
    out: Path
    preset: str | None
    method: str | None
    weights: Path | None
    smoothness: float | None
    prior: str | None
    affine: str | None
    fixed_mask: Path | None
    moving_mask: Path | None
    fixed_labels: Path | None
    moving_labels: Path | None
    config: Path | None
    changes: tuple[str, ...]
    write: str
    prefer: str | None
    budget: float | None
    require_convergence: bool
    require_diffeomorphic: bool
    maps: bool
    memory_limit: float | None
    device: str
    threads: int | None
    force: bool
    quiet: bool

    @property
    def chosen(self) -> str:
        """The method, which may be a preset of pirate; the one option says it or both say the same."""
        if None not in (self.preset, self.method) and self.preset != self.method:
            raise UsageError(
                f"--method {self.method} and --preset {self.preset} say different things; give one of them."
            )
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(
                f"there is no preset {self.preset!r}; the presets are {', '.join(PRESETS)}, "
                "and --method names other methods."
            )
        return self.method or self.preset or "default"

    @property
    def settings(self) -> dict[str, Any]:
        """Changes to the preset: the file's, then those of ``--set``."""
        changes = read_config(self.config) if self.config is not None else {}
        return changes | dict(parse_assignment(text) for text in self.changes)

    @property
    def form(self) -> Form | None:
        """Which affine to believe."""
        if self.prefer is not None and self.prefer not in get_args(Form):
            raise UsageError(f"--prefer {self.prefer}: expected sform or qform.")
        return self.prefer  # type: ignore[return-value]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Which files to write."""
        names = (
            OUTPUTS if self.write == "all" else tuple(n.strip() for n in self.write.split(",") if n.strip())
        )
        unknown = sorted(set(names) - set(OUTPUTS))
        if unknown:
            raise UsageError(f"--write {', '.join(unknown)}: expected all, or some of {', '.join(OUTPUTS)}.")
        return names


def run(request: Request) -> None:
    """Check the output folder, register, write everything, say what came out."""
    started = time.perf_counter()
    configure_log(request.quiet)
    interrupts.watch()
    outputs, settings, form = request.outputs, request.settings, request.form
    method, preset = find(request.chosen)
    (_refuse_theirs if method.ours else _refuse_ours)(request, method, preset, settings)
    with prepared(request.out, request.force), Bar(request.quiet) as bar:
        result = (_by_us if method.ours else _by_a_rival)(request, settings, form, bar)
    log.info("writing")
    result.save(request.out, force=True, write=outputs, figures=draw, command=sys.argv)
    report(result, request.out, time.perf_counter() - started)
    if request.require_convergence and result.status not in (Status.CONVERGED, Status.SETTLED):
        raise NotConverged(f"not converged: {result.status.value}. The results were written all the same.")
    if request.require_diffeomorphic and not diffeomorphic(result.metrics):
        raise QualityError(
            f"the field folds: {folds(result.metrics)}. The results were written all the same."
        )
    if result.flags:
        raise QualityError(
            f"look before you trust this: {' '.join(result.flags)} The results were written all the same."
        )


def _by_us(request: Request, settings: dict[str, Any], form: Form | None, bar: Bar) -> Registration:
    return register(
        request.fixed, request.moving, preset=request.chosen, prior=request.prior,
        smoothness=0.5 if request.smoothness is None else request.smoothness,
        affine=request.affine, budget=request.budget, maps=request.maps,
        fixed_mask=request.fixed_mask, moving_mask=request.moving_mask,
        fixed_labels=request.fixed_labels, moving_labels=request.moving_labels,
        device=request.device, threads=request.threads, settings=settings, progress=bar, prefer=form,
        memory_limit=request.memory_limit,
    )  # fmt: skip


def _by_a_rival(request: Request, settings: dict[str, Any], form: Form | None, bar: Bar) -> Registration:
    return register_with(
        request.chosen, request.fixed, request.moving, options=settings, weights=request.weights,
        affine=request.affine, maps=request.maps,
        fixed_labels=request.fixed_labels, moving_labels=request.moving_labels,
        device=request.device, threads=request.threads, progress=bar, prefer=form,
        memory_limit=request.memory_limit,
    )  # fmt: skip


def _refuse_theirs(request: Request, method: Method, preset: str, settings: Mapping[str, Any]) -> None:
    """Refuse options that mean something to other methods only, and a convergence that nothing decides."""
    if request.weights is not None:
        raise UsageError(f"--weights: no meaning for {method.name}; a prior is given by --prior.")
    if request.require_convergence and method.name == "paper" and not settings.get("tolerance"):
        raise UsageError("--require-convergence needs a tolerance; add for example --set tolerance=0.001.")


def _refuse_ours(request: Request, method: Method, preset: str, settings: Mapping[str, Any]) -> None:
    """Refuse options that mean something to pirate's own presets only."""
    ours = ("smoothness", "prior", "fixed_mask", "moving_mask", "budget")
    given = [f"--{name.replace('_', '-')}" for name in ours if getattr(request, name) is not None]
    if given:
        raise UsageError(f"{', '.join(given)}: no meaning for {method.name}; only for pirate's own presets.")
    if request.require_convergence:
        known = getattr(method.presets.get(preset), "tolerance", 0.0)
        if not settings.get("tolerance", known):
            raise UsageError(f"--require-convergence: {method.name} has no tolerance that could be met.")


def diffeomorphic(metrics: Mapping[str, Any]) -> bool:
    """No voxel folds, by central differences, forward differences and simplices."""
    names = ("folds_percent", "folds_forward_percent", "nondiffeomorphic_cells")
    return all(metrics[name] == 0 for name in names)


def folds(metrics: Mapping[str, Any]) -> str:
    """The three measures of folding in words."""
    return (
        f"folded voxels {metrics['folds_percent']:.4f} % (central), "
        f"{metrics['folds_forward_percent']:.4f} % (forward), NDV {metrics['ndv_percent']:.4f} %"
    )


def data_term_name(settings: Settings) -> str:
    """What the data term measures, as a formula in words."""
    names = {"global": "1 - correlation", "local": "1 - local correlation", "squared": "squared error"}
    name = names.get(settings.penalty, "- mutual information")
    more = f" + {settings.intensity:g} x squared difference" if settings.intensity else ""
    return f"data term, {name}{more if settings.penalty == 'local' else ''}:"


def report(result: Registration, out: Path, seconds: float) -> None:
    """Print the few numbers that matter, then the folder."""
    m = result.metrics
    if result.rival is not None:
        typer.echo(f"method {result.rival.name}")
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    if "dice" in m:
        typer.echo(f"Dice {m['dice_before']:.4f} -> {m['dice']:.4f} (nearest), {m['dice_vote']:.4f} (vote)")
    if m["penalty_after"] is not None:
        typer.echo(f"{data_term_name(result.settings)} {m['penalty_before']:.4f} -> {m['penalty_after']:.4f}")
    mended = f"; {m['repaired_voxels']} voxels were mended" if m["repaired_voxels"] else ""
    typer.echo(folds(m) + mended)
    typer.echo(
        f"there and back by forward and inverse: off by {m['round_trip_median_voxels']:.3f} voxel median, "
        f"{m['round_trip_p999_voxels']:.3f} at 99.9 %, {m['round_trip_max_voxels']:.2f} at most"
    )
    if "surprise_score" in m:
        typer.echo(f"surprise of the prior {m['surprise_score']:.2f} (1 is usual)")
    typer.echo(ending(result))
    whose = "iteration" if result.rival is None else result.rival.name
    where = " of its process" if "child" in result.timings else ""
    typer.echo(
        f"time {seconds:.1f} s ({whose} {result.timings['solve']:.1f} s), "
        f"memory {result.peak_memory / 1e6:.0f} MB{where}"
    )
    typer.echo(f"results in {printable(out)}")


def ending(result: Registration) -> str:
    """How many iterations there were, as far as the method tells, and why it stopped."""
    status = result.status
    rest = f"{len(result.trace)} iterations; " if result.trace else ""
    if result.settings.scheme == "additive":
        rest = f"{len(result.trace)} iterations, residual/step {result.trace[-1].residual_per_step:.1e}; "
    if status is Status.ENDED:
        return f"{rest}{status.value}"
    if status is Status.EXHAUSTED and result.settings.tolerance == 0:
        return f"{rest}no tolerance was set"
    return f"{rest}{status.name.lower()}: {status.value}"
