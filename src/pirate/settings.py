"""Every constant of a registration under one name; a preset is a value of `Settings`, not a code path."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pirate.errors import UsageError, printable

LARGEST_INTEGER = 2**53
"""Beyond it integers and floating-point numbers part; no setting comes near."""

RESOLUTIONS = (1, 2, 4, 8)
"""What `Settings.resolution` may be: the grid is halved so often."""


SHRINKS = (1, 2, 4, 8, 16)
"""What `Settings.levels` may hold."""

Integers = int | tuple[int, ...]
"""One for all resolution levels, or one for each, the coarsest first."""

Numbers = float | tuple[float, ...]
"""Likewise."""


@dataclass(frozen=True)
class Level:
    """The constants of one resolution level; their meaning is told in `Settings`."""

    shrink: int
    iterations: int
    window: int
    step: float
    force_sigma: float
    field_sigma: float
    tau: float
    sigma: float


@dataclass(frozen=True)
class Settings:
    """Constants of a registration, dimensionless or in voxels, so that none depends on the size of the image.

    The scheme "additive" is eq. (6); with n voxels in the field it is written::

        phi <- phi - gamma [ n grad g + alpha n grad r + tau (phi - D(phi, sigma)) ]

    so that the paper's gamma0 = 5e5 and tau = 1e-7 are 0.581 n and 0.086 / n on its 80 x 96 x 112 grid.

    The scheme "compositional" goes through `levels`, from coarse to fine, and on each repeats::

        d   <- - step G_force grad g / max |G_force grad g|
        phi <- G_field (phi o (id + d))
        phi <- phi - tau (phi - D(phi, sigma))          every so many steps, if there is a prior

    with Gaussians G. Values written as "per level" are one number, or one for each level.
    """

    scheme: Literal["additive", "compositional"] = "additive"
    """How a step changes the field: eq. (6), or composition with a small step, level by level."""
    levels: tuple[int, ...] = (1,)
    """Compositional: shrink factors, the coarsest first; levels for which the image is too small are left out."""
    penalty: Literal["global", "local", "squared", "mutual"] = "global"
    """Data term g: global (eq. 7) or local correlation (eq. 13), squared error, mutual information."""
    window: Integers = 9
    """Side of the local correlation's window, voxels of the level, odd; per level."""
    squared_correlation: bool = True
    """Square the local correlation, as the released code does; eq. (13) prints it plain."""
    intensity: float = 0.0
    """Weight of the mean squared difference that is added to the local correlation; the images are scaled to 1."""
    bins: int = 32
    """Intensity bins of the mutual information."""
    resolution: int = 2
    """The field lives on every so-manieth voxel: 1, 2, 4 or 8; 2 is the paper's half resolution."""
    alpha: float = 0.5
    """Weight of the smoothness r; 0 switches the term S of the ablation off."""
    prior: str = "none"
    """Denoiser D: gaussian, tv, a .safetensors file, package.module:function; none switches R off."""
    tau: Numbers = 0.086
    """Weight of the denoiser's residual phi - D(phi, sigma), dimensionless; per level."""
    sigma: Numbers = 1.0
    """Noise level given to the denoiser, voxels of the field's grid; per level."""
    every: int = 10
    """Compositional: steps from one use of the denoiser to the next."""
    step: Numbers = 1.0
    """Compositional: length |d_1| + ... + |d_d| of a step's longest vector, voxels, at most 1; per level."""
    force_sigma: Numbers = 1.2
    """Compositional: Gaussian on the data term's gradient, voxels of the level; per level."""
    field_sigma: Numbers = 0.4
    """Compositional: Gaussian on the field after each step, voxels of the level; per level."""
    gamma: float = 0.581
    """Step size gamma0, dimensionless."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """How gamma changes: half a cosine to zero (eq. 16), or not at all."""
    iterations: Integers = 500
    """Number of iterations t_max; per level. Anderson and the tolerance may stop earlier."""
    solver: Literal["fixed-point", "anderson"] = "fixed-point"
    """Plain iteration, or Anderson acceleration at a constant step."""
    memory: int = 5
    """Anderson: how many past iterates are mixed."""
    ridge: float = 1e-8
    """Anderson: regularisation relative to the Gram matrix's mean diagonal."""
    tolerance: float = 0.0
    """Additive: stop when residual * gamma0 / gamma, the relative change of a first-size step, is below.
    Compositional: leave a level when a step's gain, averaged over ten, is below this part of the level's gain.
    0: never."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Settings).items():
            object.__setattr__(self, name, _checked("settings", name, getattr(self, name), kind))
        for name, low, high in (
            ("window", 3, 99), ("bins", 4, 256), ("intensity", 0, 1e6), ("alpha", 0, 1e6), ("tau", 0, 1e6),
            ("sigma", 0, 1e3),
            ("every", 1, 1_000_000), ("step", 0, 1), ("force_sigma", 0, 16), ("field_sigma", 0, 16),
            ("gamma", 0, 1e6), ("iterations", 1, 1_000_000), ("memory", 1, 100), ("ridge", 0, 1),
            ("tolerance", 0, 1),
        ):  # fmt: skip
            for value in _each(getattr(self, name)):
                if not (math.isfinite(value) and low <= value <= high):
                    raise UsageError(f"{name} is {value}; expected a number from {low} to {high}.")
        self._check_levels()
        if self.resolution not in RESOLUTIONS:
            raise UsageError(f"resolution is {self.resolution}; expected one of {RESOLUTIONS}.")
        for name in ("gamma", "step"):
            if 0 in _each(getattr(self, name)):
                raise UsageError(f"{name} is 0; expected a positive step, or nothing moves.")
        for window in _each(self.window):
            if window % 2 == 0:
                raise UsageError(f"window is {window}; expected an odd number, so that it has a centre.")

    def _check_levels(self) -> None:
        """Shrink factors that fall, and one value or as many values as levels."""
        allowed = all(s in SHRINKS for s in self.levels)
        if not (self.levels and allowed and list(self.levels) == sorted(set(self.levels), reverse=True)):
            raise UsageError(
                f"levels is {list(self.levels)}; expected falling factors out of {SHRINKS[::-1]}, "
                "for example [4, 2, 1]."
            )
        if self.scheme == "additive" and self.levels != (1,):
            raise UsageError(
                "levels belong to the compositional scheme; the additive one has a single level."
            )
        for name in PER_LEVEL:
            count = len(_each(getattr(self, name)))
            if count not in (1, len(self.levels)):
                raise UsageError(
                    f"{name} has {count} values; expected one, or one for each of the {len(self.levels)} levels."
                )

    def level(self, index: int) -> Level:
        """The constants of a level, the coarsest being 0."""
        values = {name: _each(getattr(self, name)) for name in PER_LEVEL}
        return Level(self.levels[index], **{n: v[index if len(v) > 1 else 0] for n, v in values.items()})

    def smoothed(self, smoothness: float) -> Settings:
        """These settings, the field more or less smooth: 0.5 leaves them, each 0.1 more is a factor `KNOB`."""
        if not (math.isfinite(smoothness) and 0 <= smoothness <= 1):
            raise UsageError(
                f"smoothness is {smoothness}; expected a number from 0 to 1, 0.5 being the default."
            )
        if smoothness == 0.5:
            return self
        if self.scheme == "additive":
            raise UsageError(
                "smoothness belongs to the presets fast, default and best; here, set alpha instead."
            )
        factor = KNOB ** (10 * (smoothness - 0.5))
        return dataclasses.replace(self, field_sigma=tuple(factor * s for s in _each(self.field_sigma)))

    def check_stability(self, ndim: int) -> None:
        """Refuse a smoothing step that diverges: gamma alpha (4 / d^2) (4 d) must stay below 2."""
        multiplier = self.gamma * self.alpha * 16 / ndim
        if multiplier >= 2:
            raise UsageError(
                f"gamma {self.gamma:g} with alpha {self.alpha:g} diverges in {ndim}-D: the smoothing step "
                f"multiplies the shortest wave by {1 - multiplier:.2f}; keep gamma * alpha < {ndim / 8:g}."
            )

    def changed(self, changes: Mapping[str, Any], where: str = "settings") -> Settings:
        """Return a copy with `changes`; an unknown name or a wrong type is refused with a sentence."""
        hints = get_type_hints(Settings)
        clean: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in hints:
                raise UsageError(
                    f"{where}: there is no setting {name!r}; the settings are {', '.join(hints)}."
                )
            clean[name] = _checked(where, name, value, hints[name])
        return dataclasses.replace(self, **clean)


PER_LEVEL = tuple(field.name for field in dataclasses.fields(Level) if field.name != "shrink")
"""Settings that may differ from level to level."""

OTHER_SCHEME = {
    "additive": ("levels", "every", "step", "force_sigma", "field_sigma"),
    "compositional": ("resolution", "alpha", "gamma", "schedule", "solver", "memory", "ridge"),
}
"""Settings without effect in a scheme."""

KNOB = 1.12
"""What a tenth on the smoothness scale multiplies `Settings.field_sigma` by."""


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _checked(where: str, name: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is types.UnionType:  # one value, or one for each level
        one, several = get_args(kind)
        return _checked(where, name, value, several if isinstance(value, list | tuple) else one)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= len(SHRINKS):
            raise UsageError(f"{where}: {name} is {_shown(value)}; expected a list, for example [4, 2, 1].")
        return tuple(_checked(where, name, item, get_args(kind)[0]) for item in value)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UsageError(
                f"{where}: {name} is {_shown(value)}; expected one of {', '.join(get_args(kind))}."
            )
        return value
    if type(value) is int and abs(value) > LARGEST_INTEGER:
        raise UsageError(f"{where}: {name} is an integer beyond 2^53; expected a smaller number.")
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise UsageError(f"{where}: {name} is {_shown(value)}; expected a value of type {kind.__name__}.")
    return value


def _shown(value: Any) -> str:
    """The value for a message, cut short; Python writes neither endless digits nor endless brackets."""
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read ``name=value`` as given to ``--set``; the value is a TOML value, or a bare word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: expected NAME=VALUE, for example --set alpha=0.")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()
    except (ValueError, RecursionError) as error:  # more digits, or deeper brackets, than Python reads
        raise UsageError(
            f"--set {printable(text[:40])}...: the value is too long or nested too deeply; "
            "expected a number, a word, true or false."
        ) from error


PRESETS = ("fast", "default", "best", "paper", "paper-plus")
"""Names that ``--preset`` takes."""

_PLUS: dict[str, Any] = {
    "prior": "pirate-plus", "solver": "anderson", "schedule": "constant", "gamma": 0.581 / 2, "tolerance": 1e-3,
}  # fmt: skip
"""What differs in ``paper-plus``: Anderson needs a map that does not change, so gamma is the cosine's mean."""

_VOLUME = {
    "fast": {"iterations": (40, 20, 4), "window": (7, 5, 5), "field_sigma": (0.6, 0.4, 0.38)},
    "default": {"iterations": (60, 45, 9), "window": (7, 7, 7), "field_sigma": (0.6, 0.4, 0.38)},
    "best": {"iterations": (100, 80, 60), "window": (7, 7, 9), "field_sigma": (0.6, 0.4, 0.38)},
}
_SMALL = {
    "fast": {"iterations": (60, 60, 20)},
    "default": {"iterations": (100, 100, 40)},
    "best": {"iterations": (200, 150, 60)},
}
_PLANE = {
    "fast": {"iterations": (40, 40, 20)},
    "default": {"iterations": (80, 80, 60)},
    "best": {"iterations": (150, 150, 120)},
}
"""How the presets of a dimension differ; decision 0004 has the reasons."""

SMALL = 400_000
"""Voxels of a volume up to which fine steps are so cheap that there are more of them."""


def preset(name: str, ndim: int, voxels: int | None = None) -> Settings:
    """Return the settings of a preset for images of `ndim` axes and so many voxels, a large volume if not said.

    ``paper`` is eq. (6) to the letter: half-resolution field, global correlation, 500 cosine steps. In 2-D
    the normalisation of r has 4 / d^2 = 1 instead of 4 / 9, and alpha = 0.5 would diverge; alpha = 1/3
    keeps the smoothing multiplier of the 3-D constants, 1.55. ``paper-plus`` is the same with the denoiser that was
    tuned through the equilibrium, by Anderson acceleration at a frozen step.

    ``fast``, ``default`` and ``best`` are the compositional scheme: local correlation with a little of the squared
    difference, the field smoothed strongly where it is coarse and weakly where it is fine; they differ in the steps.
    Planes and small volumes take more fine steps, which cost them little; small volumes have constants of their own.
    """
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    if name.startswith("paper"):
        paper = Settings(alpha=0.5 if ndim == 3 else 1 / 3, sigma=0.5)
        return paper if name == "paper" else dataclasses.replace(paper, **_PLUS)
    base = Settings(
        scheme="compositional", penalty="local", levels=(4, 2, 1), intensity=10.0, tau=1.0, sigma=0.5,
        force_sigma=1.2, step=1.0, tolerance=0.0002,
    )  # fmt: skip
    if ndim == 2:
        own = base.changed(
            {"window": (9, 17, 21), "field_sigma": (1.2, 0.6, 0.35), "force_sigma": 1.0, "tolerance": 2e-5}
        )
        return own.changed(_PLANE[name])
    if voxels is not None and voxels <= SMALL:
        own = base.changed(
            {"window": (7, 5, 5), "intensity": 0.0, "force_sigma": 1.5, "field_sigma": 0.5, "tolerance": 0.0}
        )
        return own.changed(_SMALL[name])
    return base.changed(_VOLUME[name])
