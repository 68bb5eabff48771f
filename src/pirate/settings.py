"""Every constant of a registration under one name; a preset is a value of `Settings`, not a code path."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pirate.errors import UsageError, printable

LARGEST_INTEGER = 2**53
"""Beyond it integers and floating-point numbers part; no setting comes near."""

RESOLUTIONS = (1, 2, 4, 8)
"""What `Settings.resolution` may be: the grid is halved so often."""


@dataclass(frozen=True)
class Settings:
    """Constants of the iteration, eq. (6), in dimensionless form.

    With n voxels in the field, eq. (6) is written::

        phi <- phi - gamma [ n grad g + alpha n grad r + tau (phi - D(phi, sigma)) ]

    so that no constant depends on the size of the image: the paper's gamma0 = 5e5 and tau = 1e-7 are
    0.581 n and 0.086 / n on its 80 x 96 x 112 grid.
    """

    penalty: Literal["global", "local", "squared", "mutual"] = "global"
    """Data term g: global (eq. 7) or local correlation (eq. 13), squared error, mutual information."""
    window: int = 9
    """Side of the local correlation's window, voxels, odd."""
    squared_correlation: bool = True
    """Square the local correlation, as the released code does; eq. (13) prints it plain."""
    bins: int = 32
    """Intensity bins of the mutual information."""
    resolution: int = 2
    """The field lives on every so-manieth voxel: 1, 2, 4 or 8; 2 is the paper's half resolution."""
    alpha: float = 0.5
    """Weight of the smoothness r; 0 switches the term S of the ablation off."""
    prior: str = "none"
    """Denoiser D: gaussian, tv, a .safetensors file, package.module:function; none switches R off."""
    tau: float = 0.086
    """Weight of the denoiser's residual phi - D(phi, sigma), dimensionless."""
    sigma: float = 1.0
    """Noise level given to the denoiser, voxels of the field's grid."""
    gamma: float = 0.581
    """Step size gamma0, dimensionless."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """How gamma changes: half a cosine to zero (eq. 16), or not at all."""
    iterations: int = 500
    """Number of iterations t_max; Anderson may stop earlier."""
    solver: Literal["fixed-point", "anderson"] = "fixed-point"
    """Plain iteration, or Anderson acceleration at a constant step."""
    memory: int = 5
    """Anderson: how many past iterates are mixed."""
    ridge: float = 1e-8
    """Anderson: regularisation relative to the Gram matrix's mean diagonal."""
    tolerance: float = 0.0
    """Stop when residual * gamma0 / gamma, the relative change of a first-size step, is below; 0: never."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Settings).items():
            object.__setattr__(self, name, _checked("settings", name, getattr(self, name), kind))
        for name, low, high in (
            ("window", 3, 99), ("bins", 4, 256), ("alpha", 0, 1e6), ("tau", 0, 1e6),
            ("sigma", 0, 1e3), ("gamma", 0, 1e6), ("iterations", 1, 1_000_000), ("memory", 1, 100),
            ("ridge", 0, 1), ("tolerance", 0, 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise UsageError(f"{name} is {value}; expected a number from {low} to {high}.")
        if self.resolution not in RESOLUTIONS:
            raise UsageError(f"resolution is {self.resolution}; expected one of {RESOLUTIONS}.")
        if self.gamma == 0:
            raise UsageError("gamma is 0; expected a positive step, or nothing moves.")
        if self.window % 2 == 0:
            raise UsageError(f"window is {self.window}; expected an odd number, so that it has a centre.")

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


def _checked(where: str, name: str, value: Any, kind: Any) -> Any:
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


PRESETS = ("paper",)
"""Names that ``--preset`` takes."""


def preset(name: str, ndim: int) -> Settings:
    """Return the settings of a preset for images of `ndim` axes.

    ``paper`` is eq. (6) to the letter: half-resolution field, global correlation, 500 cosine steps. In 2-D
    the normalisation of r has 4 / d^2 = 1 instead of 4 / 9, and alpha = 0.5 would diverge; alpha = 1/3
    keeps the smoothing multiplier of the 3-D constants, 1.55.
    """
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    return Settings(alpha=0.5 if ndim == 3 else 1 / 3)
