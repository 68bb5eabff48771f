"""Make the priors that ship, from the data to the weights in the package.

    python tools/build_priors.py DATA --work WORK                 all of them (hours on two cores)
    python tools/build_priors.py DATA --work WORK --only anatomy-2d

Every line is a command that a user could type; the last one puts the weights among those that ship. Interrupted, it
goes on where it was. DATA is the data folder (`pirate fields --help`); only its training subjects are used, but for
the figures on the cards of the denoisers, which are measured on fields of validation subjects.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pirate.benchmark import lessons
from pirate.denoisers import zoo


@dataclass(frozen=True)
class Recipe:
    """How a prior is made.

    Args:
        name: that of ``--prior``.
        needs: recipes whose weights it starts from.
        commands: arguments of `pirate`; {data}, {work} and {here} (this recipe's own folder) are filled in.
        weights: the file that ships, in the recipe's folder.
    """

    name: str
    needs: tuple[str, ...]
    commands: tuple[str, ...]
    weights: str


def denoiser(name: str, track: str, resolution: int, count: int, held: int, more: str = "") -> Recipe:
    """Fields by our own solver on training pairs, others on validation pairs to measure with; then eq. (8)."""
    corpus = f"{{work}}/fields-{track}-r{resolution}"
    fields = f"fields --data {{data}} --track {track} --resolution {resolution}"
    return Recipe(
        name,
        (),
        (
            f"{fields} --count {count} --out {corpus}",
            f"{fields} --count {held} --split validation --out {corpus}-validation",
            f"train denoiser {corpus} --measure {corpus}-validation --out {{here}} {more}",
        ),
        "denoiser.safetensors",
    )


def equilibrium(name: str, start: str, track: str, more: str) -> Recipe:
    """From the denoiser `start`, through the fixed point."""
    weights = f"{{work}}/{start}/denoiser.safetensors"
    command = f"train deq {weights} --data {{data}} --track {track} --out {{here}} {more}"
    return Recipe(name, (start,), (command,), "pirate-plus.safetensors")


def anatomy(name: str, track: str, more: str = "", start: str = "") -> Recipe:
    """Supervised, on the labels of training subjects; from the weights of the recipe `start`, if one is named."""
    given = f"--start {{work}}/{start}/anatomy.safetensors " if start else ""
    command = f"train anatomy --data {{data}} --track {track} {given}--out {{here}} {more}"
    return Recipe(name, (start,) if start else (), (command,), "anatomy.safetensors")


DEQ = (
    f"--steps {lessons.PLUS_STEPS} --learning-rate {lessons.PLUS_RATE} --batch {lessons.PLUS_BATCH} "
    f"--pairs {lessons.PLUS_CHECKS} --set {' --set '.join(lessons.PLUS_CHANGES)}"
)
"""The printed weight of the smoothness, 5, turns the denoiser into a smoother that costs Dice; and without the penalty
on growth 40 Anderson steps leave networks with which 500 plain ones diverge."""
DEQ_BRAINS = (
    "--steps 80 --learning-rate 1e-4 --batch 1 --set iterations=20 --pairs 2 --validate-every 20 --threads 1 "
    "--loss smoothness=2 --loss expansion=1"
)
"""Fewer and shorter steps, 15 s each on a core."""


def tuned(track: str) -> str:
    """The options of ``pirate train deq`` for a track, which its benchmark takes too."""
    return f"{DEQ} --loss {' --loss '.join(lessons.PLUS_LOSS[track])}"


RECIPES = {
    "pirate-2d-r1": denoiser("pirate", "oasis2d", 1, 200, 40),
    "pirate-2d-r2": denoiser("pirate", "oasis2d", 2, 200, 40),
    "pirate-3d-r2": denoiser("pirate", "brain3d", 2, 30, 8, "--steps 3000"),
    "pirate-hippocampus": denoiser("pirate-hippocampus", "hippocampus", 2, 400, 40, "--steps 12000"),
    "pirate-plus-2d-r2": equilibrium("pirate-plus", "pirate-2d-r2", "oasis2d", tuned("oasis2d")),
    "pirate-plus-3d-r2": equilibrium("pirate-plus", "pirate-3d-r2", "brain3d", DEQ_BRAINS),
    "pirate-plus-hippocampus": equilibrium(
        "pirate-plus-hippocampus", "pirate-hippocampus", "hippocampus", tuned("hippocampus")
    ),
    "anatomy-2d": anatomy("anatomy", "oasis2d"),
    "anatomy-3d": anatomy(
        "anatomy", "brain3d", "--held-out 0 --learning-rate 8e-4 --threads 1", "anatomy-2d"
    ),
    "anatomy-hippocampus": anatomy("anatomy-hippocampus", "hippocampus", "--steps 1000 --learning-rate 6e-4"),
}
"""By the name of ``--only``."""


def make(key: str, data: Path, work: Path, done: set[str]) -> None:
    """Run the commands of a recipe and of those it needs, and ship the result."""
    if key in done:
        return
    recipe, here = RECIPES[key], work / key
    for needed in recipe.needs:
        make(needed, data, work, done)
    for line in recipe.commands:
        words = [word.format(data=data, work=work, here=here) for word in shlex.split(line)]
        print("pirate", *words, flush=True)
        subprocess.run([sys.executable, "-m", "pirate.cli", *words], check=True)
    again = f"python tools/build_priors.py DATA --work WORK --only {key}"
    entry = zoo.ship(here / recipe.weights, recipe.name, again)
    print(f"{entry.file}: ships as {recipe.name}", flush=True)
    done.add(key)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", choices=sorted(RECIPES), action="append")
    given = parser.parse_args()
    done: set[str] = set()
    for key in given.only or RECIPES:
        make(key, given.data, given.work, done)


if __name__ == "__main__":
    main()
