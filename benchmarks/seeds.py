"""How much of a prior's worth is the luck of its seed: small networks trained three times.

    python benchmarks/seeds.py DATA --work WORK --out docs/results/seeds.md

DATA is a folder with `oasis2d.npz`, `hippocampus/` and `brain3d/`. Every network is trained by a command that a user
could type, on one core; WORK keeps the trainings and a row for each pair, and an interrupted run goes on there.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from _prior import page, runs
from _prior.variants import Variant
from pirate.denoisers import zoo
from pirate.io.weights import Card, Scalar, load_weights

SEEDS = (0, 1, 2)
PAIRS = {"paper": 12, "default": 100}
CORPUS = "fields --data {data} --track oasis2d --resolution 2"
LEARN = "train denoiser {work}/fields --measure {work}/fields-validation --minutes 5 --threads 1"
EQUILIBRIUM = (
    "--steps 200 --learning-rate 1e-4 --batch 2 --set iterations=40 --pairs 8 --threads 1 "
    "--loss smoothness=1 --loss expansion=1"
)
"""As what ships (`tools/build_priors.py`)."""


@dataclass(frozen=True)
class Network:
    """What is trained once for each seed.

    Args:
        name: for tables and folders.
        command: of `pirate`, without seed and folder; {data}, {work} and {seed} are filled in.
        weights: the file that it writes.
        track: where it is tried.
        preset: in which iteration.
        seeds: of its trainings.
    """

    name: str
    command: str
    weights: str
    track: str = "oasis2d"
    preset: str = "paper"
    seeds: tuple[int, ...] = SEEDS

    def variant(self, seed: int, work: Path) -> Variant:
        """A registration with the network of one seed."""
        return Variant(f"{self.name}, seed {seed}", self.preset, str(self.file(seed, work)))

    def file(self, seed: int, work: Path) -> Path:
        """The weights of one seed."""
        return work / f"{self.name}-{seed}" / self.weights


DENOISERS = (
    Network("small", LEARN, "denoiser.safetensors"),
    Network("gradient-step", f"{LEARN} --preset gradient-step", "denoiser.safetensors"),
    Network("paper", f"{LEARN} --preset paper", "denoiser.safetensors", seeds=(0,)),
    Network("released", f"{LEARN} --preset released", "denoiser.safetensors", seeds=(0,)),
)
"""Of fields on half the grid of the slices."""

EQUILIBRIA = (
    Network(
        "PIRATE+",
        f"train deq {{work}}/small-{{seed}}/denoiser.safetensors --data {{data}} --track oasis2d {EQUILIBRIUM}",
        "pirate-plus.safetensors",
    ),
)
CORRECTORS = (
    Network(
        "anatomy-hippocampus",
        "train anatomy --data {data} --track hippocampus --steps 1000 --learning-rate 6e-4 --threads 1",
        "anatomy.safetensors",
        "hippocampus",
        "default",
    ),
)
BRAINS = (
    Network(
        "anatomy-brains",
        "train anatomy --data {data} --track brain3d --start {slices} --held-out 0 --learning-rate 8e-4 --threads 1",
        "anatomy.safetensors",
        "brain3d",
        "default",
    ),
)
"""All start from the network for slices that ships."""

REFERENCE = {"paper": Variant("P+S", "paper"), "default": Variant("none", "default")}


def pirate(line: str, data: Path, work: Path, seed: int = 0) -> None:
    """Run one command of `pirate`."""
    slices = zoo.path_of(zoo.find("anatomy", 2))
    words = [word.format(data=data, work=work, seed=seed, slices=slices) for word in shlex.split(line)]
    print("pirate", *words, flush=True)
    subprocess.run([sys.executable, "-m", "pirate.cli", *words], check=True)


def learn(networks: Sequence[Network], data: Path, work: Path) -> None:
    """Train what is not there yet."""
    for network in networks:
        for seed in network.seeds:
            if not network.file(seed, work).is_file():
                folder = network.file(seed, work).parent
                pirate(f"{network.command} --seed {seed} --out {shlex.quote(str(folder))}", data, work, seed)


def card(network: Network, seed: int, work: Path) -> Card:
    """What a training says of itself."""
    return load_weights(network.file(seed, work))[1]


def gains(work: Path) -> list[str]:
    """How well each denoiser denoises, as its card has it."""
    rows = []
    for network in DENOISERS:
        for seed in network.seeds:
            m = card(network, seed, work).metrics
            cells = [_gain(m, n) for n in ("coloured", "white")]
            rows.append(
                f"{network.name} | {seed} | {m['steps']} | {m['sigma']} | {' | '.join(cells)} | "
                f"{float(m['asymmetry']):.2f} | {float(m['largest_singular_value']):.2f}"
            )
    head = (
        "network | seed | steps | sigma | coloured noise: dB | over the best Gaussian | white: dB | "
        "over the best Gaussian | asymmetry | largest singular value"
    )
    return page.table(head, rows)


def _gain(metrics: Mapping[str, Scalar], noise: str) -> str:
    """DB and DB over the best Gaussian; a network of one level of white noise was not measured with coloured noise."""
    own, other = (metrics.get(f"{noise}_{name}") for name in ("db", "best_gaussian_db"))
    if not isinstance(own, float) or not isinstance(other, float):
        return "- | -"
    return f"{own:.2f} | {own - other:+.2f}"


def registering(networks: Sequence[Network], data: Path, work: Path) -> list[str]:
    """What each is worth in a registration, and how far the seeds lie apart."""
    track, preset = networks[0].track, networks[0].preset
    here = runs.track(track, data, PAIRS[preset])
    chosen = [(n, s, n.variant(s, work)) for n in networks for s in n.seeds]
    reference = REFERENCE[preset]
    rows = runs.run(here, [reference, *(v for _, _, v in chosen)], work)
    lines = page.comparison(rows, [reference, *(v for _, _, v in chosen)], reference)
    for network in networks:
        if len(network.seeds) > 1:
            every = [
                page.difference(rows, network.variant(s, work).key, reference.key, "dice").mean
                for s in network.seeds
            ]
            lines += [
                f"{network.name}: gain over {reference.name} {np.mean(every):+.4f}, standard deviation over "
                f"{len(every)} seeds {np.std(every, ddof=1):.4f}.",
                "",
            ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for trainings and rows")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    parser.add_argument("--only-train", choices=("denoisers", "correctors"), help="train these, no page")
    given = parser.parse_args()
    data, work = given.data, given.work
    if given.only_train != "correctors":
        for count, split, folder in ((200, "train", "fields"), (40, "validation", "fields-validation")):
            pirate(f"{CORPUS} --count {count} --split {split} --out {{work}}/{folder}", data, work)
        learn(DENOISERS, data, work)
        learn(EQUILIBRIA, data, work)
    if given.only_train != "denoisers":
        learn([*CORRECTORS, *BRAINS], data, work)
    if given.only_train:
        return
    text = [
        "# Seeds: how much of a prior's worth is luck",
        "",
        "Made by `python benchmarks/seeds.py DATA --work WORK --out docs/results/seeds.md`; trained on training "
        "subjects, measured on validation subjects. Each denoiser learns from the same fields at half resolution on "
        "one core, for five minutes or all steps of its preset, whichever ends first. Brackets: 95 % by the paired "
        "bootstrap over pairs. Seconds are to be compared within a table at most: trainings may go on beside.",
        "",
        "## Denoising fields of slices",
        "",
        "small: noise-conditional, no biases, coloured noise; gradient-step: D = I - grad g; paper: DnCNN of 17 "
        "layers; released: the 6 layers of the authors' code. The last two learn one noise level "
        "and were trained once.",
        "",
        *gains(work),
        "## The paper's iteration with each, slices",
        "",
        *registering([*DENOISERS, *EQUILIBRIA], data, work),
        "## `default` with the anatomy-aware prior (supervised), hippocampi",
        "",
        *registering(CORRECTORS, data, work),
        "## The same, whole brains",
        "",
        "Trained plane by plane from the network for slices that ships, on all seven labelled training brains.",
        "",
        *registering(BRAINS, data, work),
    ]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    main()
