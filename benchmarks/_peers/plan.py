"""What is run: pairs, methods and their parameters, and the order of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

GROUPS: dict[str, tuple[str, ...]] = {
    "OASIS": ("oasis_0001", "oasis_0002", "oasis_0455"),
    "fstrain": ("fstrain_05", "fstrain_06"),
}
PRESETS = ("fast", "default", "best", "paper")
START = "start"
SLOW_SECONDS = 120.0
"""A method that may be slow, and needs longer than this on the first pair, runs on the first pairs only."""


@dataclass(frozen=True)
class Pair:
    """The subject that stays and the one that is warped onto it."""

    fixed: str
    moving: str
    group: str

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.fixed} <- {self.moving}"

    @property
    def folder(self) -> str:
        """How folders call it."""
        return f"{self.fixed}--{self.moving}"


@dataclass(frozen=True)
class Method:
    """One of ours (`tool` pirate) or a peer.

    Args:
        name: in the tables.
        tool: "pirate", or a function of ``tools.py``.
        parameters: what is not the tool's default; part of what a kept result is recognised by.
        shorter: parameters that replace some of them in a trial of the machinery.
        packages: whose versions count.
        about: one line for the page.
        long: runs on the first pairs only: "always", "slow" (if the first pair took too long), "never".
    """

    name: str
    tool: str
    packages: tuple[str, ...]
    about: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    shorter: Mapping[str, Any] = field(default_factory=dict)
    long: str = "never"

    @property
    def ours(self) -> bool:
        """Whether it is a preset of pirate."""
        return self.tool == "pirate"


PEERS = (
    Method(
        "syn", "ants_syn", ("antspyx",), "ANTsPy SyNOnly, its defaults (Mattes, 40x20x0)",
        shorter={"reg_iterations": [4, 2, 0]},
    ),
    Method(
        "syn-cc", "ants_syn", ("antspyx",), "ANTsPy SyNOnly, CC radius 4, 100x70x50x20",
        {"syn_metric": "CC", "syn_sampling": 4, "reg_iterations": [100, 70, 50, 20]},
        {"reg_iterations": [4, 2, 1, 1]}, "always",
    ),
    Method(
        "greedy-ncc", "greedy", ("picsl-greedy", "SimpleITK"), "greedy NCC 2x2x2, 100x50x10, default sigmas",
        {"options": "-m NCC 2x2x2 -n 100x50x10"}, {"options": "-m NCC 2x2x2 -n 5x3x1"},
    ),
    Method(
        "greedy-ncc-s", "greedy", ("picsl-greedy", "SimpleITK"),
        "greedy NCC 2x2x2, 100x50x10, sigmas 1.5 mm and 0.5 mm",
        {"options": "-m NCC 2x2x2 -n 100x50x10 -s 1.5mm 0.5mm"},
        {"options": "-m NCC 2x2x2 -n 5x3x1 -s 1.5mm 0.5mm"},
    ),
    Method(
        "greedy-wncc", "greedy", ("picsl-greedy", "SimpleITK"),
        "greedy WNCC 2x2x2, 100x100x40, sigmas 1.5 mm and 0.5 mm",
        {"options": "-m WNCC 2x2x2 -n 100x100x40 -s 1.5mm 0.5mm"},
        {"options": "-m WNCC 2x2x2 -n 5x3x1 -s 1.5mm 0.5mm"},
    ),
    Method(
        "demons", "demons", ("SimpleITK",),
        "SimpleITK fast symmetric forces demons, histogram matched, 200 iterations, sigma 1 voxel, one resolution",
        {"iterations": 200, "histogram_levels": 1024, "match_points": 7, "displacement_sigma": 1.0},
        {"iterations": 5}, "slow",
    ),
)  # fmt: skip


def preset(name: str, changes: Sequence[str] = ()) -> Method:
    """One of ours; `changes` are NAME=VALUE."""
    about = f"pirate register --preset {name} --affine none" + "".join(f" --set {c}" for c in changes)
    return Method(name, "pirate", ("torch", "numpy", "scipy"), about, {"preset": name, "changes": [*changes]})


def methods(names: Sequence[str], changes: Sequence[str] = (), shorter: bool = False) -> list[Method]:
    """Return the methods of these names, presets with `changes`, peers with fewer iterations if `shorter`."""
    peers = {peer.name: peer for peer in PEERS}
    chosen = []
    for name in dict.fromkeys(names):
        if name in PRESETS:
            chosen.append(preset(name, changes))
        elif name in peers:
            peer = peers[name]
            parameters = {**peer.parameters, **peer.shorter} if shorter else dict(peer.parameters)
            about = f"{peer.about}; here shortened" if shorter else peer.about
            chosen.append(Method(peer.name, peer.tool, peer.packages, about, parameters, {}, peer.long))
        else:
            raise SystemExit(f"--methods {name}: expected some of {', '.join([*PRESETS, *peers])}.")
    return chosen


def pairs(chosen: Sequence[str] | None = None) -> list[Pair]:
    """All ordered pairs within a group, the later subject fixed first; or those named FIXED:MOVING.

    Args:
        chosen: names, e.g. ``oasis_0002:oasis_0001``; all eight by default.
    """
    every = [Pair(b, a, group) for group, ids in GROUPS.items() for a, b in permutations(ids, 2)]
    if not chosen:
        return every
    known = {f"{p.fixed}:{p.moving}": p for p in every}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"--pairs {' '.join(unknown)}: expected FIXED:MOVING, some of {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(chosen)]


def order(chosen: Sequence[Method], repeats: int) -> list[tuple[Method, int]]:
    """Runs of one pair: each peer once, ours `repeats` times, spread evenly between the peers.

    Returns:
        (method, number of the repeat from 0), ours first.
    """
    ours, peers = [m for m in chosen if m.ours], [m for m in chosen if not m.ours]
    rounds = max(repeats, 1) if ours else 1
    runs: list[tuple[Method, int]] = []
    for k in range(rounds):
        runs += [(method, k) for method in ours]
        first, last = k * len(peers) // rounds, (k + 1) * len(peers) // rounds
        runs += [(method, 0) for method in peers[first:last]]
    return runs


def skipped(method: Method, index: int, long_pairs: int, first_seconds: float | None) -> bool:
    """Whether a long method leaves out the pair number `index`.

    Args:
        method: which.
        index: of the pair, from 0.
        long_pairs: so many pairs long methods run on.
        first_seconds: what the method took on the first pair, where it is known.
    """
    slow = method.long == "slow" and first_seconds is not None and first_seconds > SLOW_SECONDS
    return index >= long_pairs and (method.long == "always" or slow)


def time_left(taken: Mapping[str, Sequence[float]], waiting: Sequence[str]) -> tuple[float, bool]:
    """Seconds for the `waiting` runs, from what runs of each method have taken.

    Returns:
        seconds, and whether every waiting method has been timed (else the sum is a lower bound).
    """
    seconds = sum(sum(taken[name]) / len(taken[name]) for name in waiting if taken.get(name))
    return seconds, all(taken.get(name) for name in waiting)
