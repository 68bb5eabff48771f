"""What a page holds, whatever it is written in: sections of tables and figures, and how it was made."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pirate.benchmark.lessons import STEPS, precision_of
from pirate.benchmark.measured import Measured
from pirate.benchmark.tables import Table
from pirate.reporting.benchmark.drawing import title_of
from pirate.reporting.benchmark.style import Figure
from pirate.reporting.benchmark.training import column, read_history
from pirate.reporting.benchmark.words import counted
from pirate.reporting.display import Array

SECTIONS: dict[str, tuple[str, ...]] = {
    "main": ("results", "dice-time", "dice-folds", "landmarks", "warped", "grids", "jacobian"),
    "lung": (),
    "ablation": ("ablation", "ablation-grids", "ablation-jacobian"),
    "step": ("step",),
    "tv": ("tv",),
    "memory_time": ("scalability",),
    "corner": ("corner",),
    "convergence": ("convergence", "nfe", "training"),
}
"""Name of a table to the names of the figures that belong below it."""

FOLDERS = {"--data": "DATA", "--out": "OUT", "-o": "OUT"}
TITLES = {
    "main": "Numerical results", "lung": "Numerical results", "ablation": "Ablation", "step": "Step size",
    "tv": "TV against DnCNN", "memory_time": "Memory, time and scalability", "corner": "Corner case",
    "convergence": "Convergence and training",
}  # fmt: skip

LATE, IMPROVING = 0.2, 0.02
"""Last part of a training's steps, and the part of the descent there from which on more steps are worthwhile."""

BESIDE = "A column `paper` holds what the paper prints; its images, labels and machine are others."


@dataclass(frozen=True)
class Section:
    """A heading, its tables, its figures; `name` is unique."""

    name: str
    title: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]


def sections(tables: Sequence[Table], figures: Sequence[Figure]) -> list[Section]:
    """Every table and every figure once; those without a place of their own come last."""
    found = []
    left_tables, left_figures = list(tables), list(figures)
    for name, wanted in SECTIONS.items():
        own = tuple(t for t in left_tables if t.name == name)
        if name == "main" and any(t.name == "lung" for t in tables):  # the main table of that track
            own = tuple(t for t in left_tables if t.name in ("main", "lung"))
        drawn = tuple(f for f in left_figures if f.path.stem in wanted)
        left_tables = [t for t in left_tables if t not in own]
        left_figures = [f for f in left_figures if f not in drawn]
        if own or drawn:
            found.append(Section(name, TITLES[name], own, drawn))
    if left_tables or left_figures:
        found.append(Section("more", "More", tuple(left_tables), tuple(left_figures)))
    return found


def title(measured: Measured) -> str:
    """Of the page."""
    return f"Benchmark: {measured.track.title}"


def machine(measured: Measured) -> str:
    """Processor, cores and memory in a line."""
    facts = measured.machine
    cores = facts.get("cores", "")
    parts = [
        facts.get("processor", ""),
        counted(int(cores), "core") if cores else "",
        facts.get("memory", ""),
    ]
    return ", ".join(filter(None, parts))


def made_so(measured: Measured) -> list[str]:
    """What was reduced or is particular, in sentences."""
    pairs = counted(len(measured.track.pairs), "pair")
    found = [measured.track.note] if measured.track.note else []
    if 0 < measured.ablation_pairs < len(measured.track.pairs):
        few = counted(measured.ablation_pairs, "pair")
        found.append(
            f"Main table: {pairs}. Ablation, step size and denoisers: the first {few}, to save time."
        )
    else:
        found.append(f"{pairs[:1].upper()}{pairs[1:]}.")
    found += [_trained(title_of(measured, name), folder) for name, folder in measured.training.items()]
    if measured.spent is not None:
        found.append(f"Computing time of the whole page, training included: {measured.spent}.")
    return [*filter(None, found), BESIDE]


def _trained(name: str, folder: Path) -> str:
    """How long a training took, and where it was best."""
    history = read_history(folder)
    steps, losses = column(history, "validation_loss")
    if not len(losses):
        return ""
    best = int(losses.argmin())
    minutes = history[-1].get("seconds", float("nan")) / 60
    told = f" in {minutes:.0f} minutes on this machine" if minutes == minutes else ""
    lowest = f"validation loss lowest at step {int(steps[best]):,}"
    return f"{name} was trained for {int(steps[-1]):,} steps{told}; {lowest}{_late(steps, losses)}."


def _late(steps: Array, losses: Array) -> str:
    """How much of the descent of a validation loss, (n,) at steps (n,), came last; empty if nothing did."""
    early = losses[steps <= (1 - LATE) * steps[-1]]
    if not len(early) or not losses.min() < early.min():
        return ""
    share = float((early.min() - losses.min()) / (losses[0] - losses.min()))
    told = f", {100 * share:.1f} % of its descent in the last {100 * LATE:.0f} % of the steps"
    return told + (": more steps would help" if share > IMPROVING else "")


def commands(measured: Measured) -> list[str]:
    """What to type to make it again; what is trained is trained by the first."""
    track = measured.track
    made = portable(measured.command) or f"pirate benchmark {track.name} --data DATA --out OUT"
    methods = {e.base for e in measured.entries if e.trained}
    trained = [m for m in measured.training if m in methods]
    return [made, *(_training(track.training, m, measured.training[m]) for m in trained)]


def _training(track: str, method: str, folder: Path) -> str:
    """The command of one training alone, as its `folder` has it."""
    steps = STEPS.get((track, method))
    more = f" --steps {steps}" if steps is not None else ""
    more += " --precision bfloat16" if precision_of(folder, method) == "bfloat16" else ""
    return f"pirate train {method} --data DATA --track {track} --out OUT/{method}{more}"


def portable(command: str) -> str:
    """A command line without the folders of one machine; those that it names become DATA and OUT."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation that does not end
        return command
    for i, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if option in FOLDERS and equals:
            words[i] = f"{option}={FOLDERS[option]}"
        elif i and words[i - 1] in FOLDERS:
            words[i] = FOLDERS[words[i - 1]]
    return shlex.join(words)


def link(target: Path, page: Path) -> str:
    """A relative address of a file beside a page."""
    return quote(Path(os.path.relpath(target, page.parent)).as_posix())
