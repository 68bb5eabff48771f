"""What is compared: the rows of the tables, and how each is run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pirate
from pirate.baselines.methods import METHODS, find
from pirate.benchmark.controls import SIGMA
from pirate.denoisers import plug, zoo
from pirate.errors import UsageError, printable
from pirate.io.atomic import sha256_of
from pirate.settings import SMALL, preset

START = "start"
REFERENCE = "default"
"""Key of the entry that all others are compared with."""

GROUPS = ("main", "ablation", "control", "step", "tv")
FIXED_STEP: dict[str, Any] = {"schedule": "constant", "gamma": 0.581 / 2}
"""A constant step of the cosine's mean."""


@dataclass(frozen=True)
class Entry:
    """A row of a table.

    Args:
        key: unique, for files.
        title: as the tables have it.
        method: a name of `baselines.protocol.METHODS`, with ``:PRESET`` for one of its presets; empty for the start.
        group: one of `GROUPS`.
        options: changes to the method's settings.
        prior: of our presets: a name that ``--prior`` takes, or a control of `controls.built`; empty for none.
        supervised: whether labels took part in the training of something in it.
        ours: a preset of pirate.
        trained: a network that needs weights.
    """

    key: str
    title: str
    method: str
    group: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prior: str = ""
    supervised: bool = False
    ours: bool = False
    trained: bool = False

    @property
    def base(self) -> str:
        """The method without its preset."""
        return self.method.partition(":")[0]

    @property
    def paper(self) -> bool:
        """Whether it is the paper's iteration, eq. (6)."""
        return self.method.startswith("paper")

    def digest(self, ndim: int, weights: Path | None = None) -> str:
        """SHA-256 of everything that its result depends on besides the pair and the threads."""
        versions = METHODS[self.base].versions if self.base in METHODS else {}
        facts = {
            **asdict(self), "options": dict(self.options), "title": "", "group": "", "pirate": pirate.__version__,
            "tool": versions, "constants": self._constants(ndim),
            "weights": sha256_of(weights) if weights is not None and weights.is_file() else "",
            "prior_file": self._prior_sha256(ndim),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    def _constants(self, ndim: int) -> list[dict[str, Any]]:
        """Of its method or preset, before `options` change them: rows made with others are of no use."""
        if not self.method:
            return []
        method, name = find(self.method)
        if method.ours:
            return [asdict(preset(method.name, ndim, voxels)) for voxels in (SMALL, None)]
        return [asdict(method.presets[name])] if name else []

    def _prior_sha256(self, ndim: int) -> str:
        name = self.prior.rpartition(":")[2]
        return " ".join(e.sha256 for e in zoo.shipped() if e.name == name and e.ndim == ndim)

    def obstacle(self, ndim: int, weights: Path | None = None, why_not: str = "") -> str:
        """Why it cannot be run at all; empty if nothing is known against it.

        Args:
            ndim: 2 or 3.
            weights: the file of a trained network, if there is one.
            why_not: there is none.
        """
        if self.trained and weights is None:
            return why_not or f"no weights: pirate train {self.base}, or --weights {self.base}=FILE"
        name = self.prior.rpartition(":")[2]
        if not name or name in plug.NAMED:
            return ""
        try:
            zoo.find(name, ndim, preset("paper", ndim).resolution if self.paper else None)
        except UsageError:
            command = "anatomy" if "anatomy" in name else "deq" if "plus" in name else "denoiser"
            return f"no weights ship for this: pirate train {command}"
        return ""


def entries(of: str = "", large: bool = False) -> tuple[Entry, ...]:
    """Everything that is compared.

    Args:
        of: what the names of the priors end with, where a data set has its own.
        large: the volumes are so large that NODEO, an hour for a pair on two cores, is fitted at half resolution.
    """
    return (*_rivals(large), *_ours(of), *_ablation(of))


def _rivals(large: bool) -> tuple[Entry, ...]:
    return (
        Entry(START, "start", "", "main"),
        Entry("syn-default", "SyN (ANTsPy's default)", "syn:antspy-default", "main"),
        Entry("syn-cc", "SyN (CC)", "syn:cc", "main"),
        Entry("log-demons", "Log-Demons", "log-demons", "main"),
        Entry("nodeo", "NODEO (half resolution)", "nodeo:half", "main")
        if large
        else Entry("nodeo", "NODEO", "nodeo", "main"),
        Entry("voxelmorph", "VoxelMorph", "voxelmorph", "main", trained=True),
        Entry("symnet", "SYMNet", "symnet", "main", trained=True),
        Entry("gradirn", "GraDIRN", "gradirn", "main", trained=True),
        Entry("greedy", "greedy", "greedy", "main"),
        Entry("demons-sitk", "demons (SimpleITK)", "demons-sitk", "main"),
    )


def _ours(of: str) -> tuple[Entry, ...]:
    return (
        _paper("pirate", "PIRATE", "main", f"pirate{of}"),
        _paper("pirate-plus", "PIRATE+", "main", f"pirate-plus{of}", method="paper-plus"),
        Entry("fast", "pirate `fast`", "fast", "main", ours=True),
        Entry(REFERENCE, "pirate `default`", "default", "main", ours=True),
        Entry("best", "pirate `best`", "best", "main", ours=True),
        Entry(
            "default-anatomy", "pirate `default`, anatomy prior (supervised)", "default", "main",
            {"sigma": SIGMA}, f"anatomy{of}", supervised=True, ours=True,
        ),
    )  # fmt: skip


def _ablation(of: str) -> tuple[Entry, ...]:
    pirate_, plus = f"pirate{of}", f"pirate-plus{of}"
    return (
        _paper("p", "P", "ablation", "", {"alpha": 0.0}),
        _paper("p+s", "P+S", "ablation", ""),
        _paper("p+r", "P+R", "ablation", pirate_, {"alpha": 0.0}),
        _paper("p+d", "P+D", "ablation", plus, {"alpha": 0.0}),
        _paper("random", "random network for R", "control", f"random:{pirate_}"),
        _paper("permuted", "permuted weights for R", "control", f"permuted:{pirate_}"),
        _paper("gaussian", "Gaussian as strong as R", "control", f"gaussian:{pirate_}"),
        _paper("tv", "TV for R", "tv", "tv"),
        _paper("pirate-fixed", "PIRATE, fixed step", "step", pirate_, FIXED_STEP),
        _paper("pirate-plus-cosine", "PIRATE+, cosine step", "step", plus),
        _paper("pirate-plus-fixed", "PIRATE+, fixed step", "step", plus, FIXED_STEP),
    )


def _paper(
    key: str,
    title: str,
    group: str,
    prior: str,
    changes: Mapping[str, Any] | None = None,
    method: str = "paper",
) -> Entry:
    options = dict(changes or {}) | ({"sigma": SIGMA} if prior else {})
    return Entry(key, title, method, group, options, prior, ours=True)


def chosen(
    known: Sequence[Entry], names: Sequence[str] | None, skip: Sequence[str] = ()
) -> tuple[Entry, ...]:
    """The entries that `names` ask for, in the order of `known`; the start is always among them.

    Args:
        known: all.
        names: keys, methods, presets of rivals as ``METHOD:PRESET``, or groups; None takes all.
        skip: groups that are left out unless a name asks for one of theirs; "ablation" is all but "main".
    """
    left_out = {g for g in GROUPS if g != "main"} if "ablation" in skip else set()
    if names is None:
        return tuple(e for e in known if e.group not in left_out)
    methods = {e.method if e.ours else e.base for e in known} | {e.method for e in known}
    presets = [n for n in dict.fromkeys(names) if n.partition(":")[2] and n not in methods]
    known = [*known, *(_of_preset(n) for n in presets)]
    methods |= {e.method for e in known}
    keys = {e.key for e in known}
    unknown = [n for n in names if n not in keys | methods | set(GROUPS)]
    if unknown or "" in names:
        raise UsageError(
            f"--methods {printable(', '.join(unknown))}: expected some of {', '.join(e.key for e in known)}, "
            f"or the groups {', '.join(GROUPS)}, or METHOD:PRESET of a rival."
        )
    groups = {n for n in names if n in GROUPS} - keys
    groups |= {"control", "tv"} if "ablation" in groups else set()
    others = set(names) - keys - groups  # a key beats a method of the same name
    return tuple(
        e
        for e in known
        if e.key in (START, *names)
        or e.group in groups - left_out
        or {e.method, "" if e.ours else e.base} & others
    )


def _of_preset(name: str) -> Entry:
    """A row for ``METHOD:PRESET`` of a rival that the tables do not have by themselves."""
    find(name)
    return Entry(name.replace(":", "-"), f"`{name}`", name, "main")


def weights_name(text: str) -> tuple[str, Path]:
    """Read ``METHOD=FILE`` as given to ``--weights``."""
    method, equals, file = text.partition("=")
    able = [m.name for m in METHODS.values() if m.needs_weights]
    if not equals or method not in able:
        raise UsageError(
            f"--weights {printable(text)}: expected METHOD=FILE, METHOD one of {', '.join(able)}."
        )
    return method, Path(file)
