"""What methods there are, and what can be said of each before it is run."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pirate.baselines import demons_sitk, greedy, log_demons, syn
from pirate.baselines.child import Tool
from pirate.baselines.nodeo import NodeoSettings
from pirate.errors import UsageError
from pirate.settings import PRESETS


@dataclass(frozen=True)
class Method:
    """A method by its name.

    Args:
        name: what it is called by.
        about: one line.
        ours: a preset of pirate; options are settings.
        needs_weights: a trained network; the weights file must be given.
        symmetric: treats both images alike, and has an inverse of its own.
        presets: by name, the first is the default; empty if there is nothing to set.
        ndims: dimensions it takes.
        tool: another tool, which runs in a process of its own; None for what runs here.
        packages: names, as pip knows them, of what must be installed besides pirate.
    """

    name: str
    about: str
    ours: bool = False
    needs_weights: bool = False
    symmetric: bool = False
    presets: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ndims: tuple[int, ...] = (2, 3)
    tool: Tool | None = None
    packages: tuple[str, ...] = ()

    @property
    def child(self) -> bool:
        """Whether it runs in a process of its own, as another tool."""
        return self.tool is not None

    @property
    def versions(self) -> dict[str, str]:
        """The versions of `packages` that are installed; "missing" where one is not."""
        found = {}
        for name in self.packages:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "missing"
        return found


_NODEO = {
    "published": NodeoSettings(), "multi-step": NodeoSettings(steps=8), "half": NodeoSettings(resolution=2),
}  # fmt: skip
_RIVALS = (
    Method("log-demons", "symmetric log-domain demons, our own implementation; the default takes the force in the "
           "middle of the flow, ends and authors at both ends, as published", symmetric=True,
           presets=log_demons.PRESETS),
    Method("nodeo", "an untrained network as the velocity, fitted to each pair", presets=_NODEO),
    Method("syn", "ANTs SyN, in a process of its own", symmetric=True, presets=syn.PRESETS, tool=syn.ANTS,
           packages=("antspyx",)),
    Method("greedy", "greedy, in a process of its own", presets=greedy.PRESETS, tool=greedy.GREEDY,
           packages=("picsl-greedy", "SimpleITK")),
    Method("demons-sitk", "SimpleITK's demons, in a process of its own", presets=demons_sitk.PRESETS,
           tool=demons_sitk.SITK, packages=("SimpleITK",)),
    Method("voxelmorph", "a trained VoxelMorph", needs_weights=True),
    Method("symnet", "a trained SYMNet", needs_weights=True, symmetric=True),
    Method("gradirn", "a trained GraDIRN", needs_weights=True),
)  # fmt: skip

METHODS: dict[str, Method] = {
    **{name: Method(name, f"pirate's preset {name}", ours=True) for name in PRESETS},
    **{method.name: method for method in _RIVALS},
}
"""Every method by its name: pirate's presets and the rivals."""


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
