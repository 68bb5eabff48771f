"""Choosing a prior at run time, and the one way to call it.

A denoiser is any callable ``D(field, sigma) -> field``: (B, d, *shape) in voxels of that grid, sigma the
noise standard deviation in the same voxels, a finite result of the same shape, type and device, the argument
left unchanged. One that declares the attribute ``wants_images = True`` is called as
``D(field, sigma, fixed, warped)`` with two images (B, C, *shape) on the same grid.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from pirate.denoisers import zoo
from pirate.denoisers.classical import Gaussian, Identity
from pirate.denoisers.learned import load_denoiser
from pirate.denoisers.total_variation import TotalVariation
from pirate.errors import InputError, UsageError, printable, reject

NAMED = {"none": Identity, "gaussian": Gaussian, "tv": TotalVariation}
PROBE = (14, 12, 10)  # voxels per axis; unequal, so that exchanged axes are noticed


def choices() -> str:
    """What ``--prior`` takes, in words."""
    return (
        f"{', '.join([*NAMED, *zoo.names()])} (`pirate priors` tells what each is), "
        "a weight file FILE.safetensors, or package.module:function"
    )


class Denoiser(Protocol):
    """Anything that maps a noisy field (B, d, *shape) and sigma, both in voxels, to a cleaner field."""

    def __call__(self, field: Tensor, sigma: float, /) -> Tensor:
        """Return the denoised field."""


@runtime_checkable
class EnergyDenoiser(Protocol):
    """A denoiser whose residual ``z - D(z, sigma)`` is the gradient of an energy that can be told."""

    def energy(self, field: Tensor, sigma: float) -> Tensor:
        """(B,), voxels squared, of fields (B, d, *shape) in voxels."""


class ImageDenoiser(Protocol):
    """A denoiser that also looks at the images; declares ``wants_images = True``."""

    wants_images: bool

    def __call__(self, field: Tensor, sigma: float, fixed: Tensor, warped: Tensor, /) -> Tensor:
        """Return the denoised field (B, d, *shape), voxels; images are (B, C, *shape)."""


def load(
    prior: str, ndim: int, device: torch.device | str = "cpu", resolution: float | None = None
) -> Denoiser | ImageDenoiser:
    """Return the denoiser that `prior` names, after a call on a small field has succeeded.

    ``package.module:function`` imports that module from the Python path and calls the function: it runs
    code of the user's own choice, and only when this form is asked for.

    Args:
        prior: none, gaussian, tv, a prior that ships (pirate, pirate-plus, anatomy, ...), FILE.safetensors, or
            package.module:function.
        ndim: 2 or 3, the number of axes of the fields to come.
        device: where the fields to come live; a learned network is moved there.
        resolution: of the grid on which the prior will act, relative to the image: 1 full, 2 half; weights
            trained at another are refused. None does not check.
    """
    denoiser: Denoiser | ImageDenoiser
    if prior in NAMED:
        denoiser = NAMED[prior]()
    elif prior.lower().endswith(".safetensors"):
        denoiser = load_denoiser(Path(prior), ndim, device, resolution=resolution)
    elif ":" in prior:
        denoiser = _imported(prior)
    elif prior in zoo.names():
        entry = zoo.find(prior, ndim, resolution)
        denoiser = load_denoiser(zoo.path_of(entry), ndim, device, entry.sha256, resolution)
    else:
        raise UsageError(f"There is no prior named {printable(prior)!r}; possible are {choices()}.")
    return checked(denoiser, prior, ndim, torch.device(device))


def checked(
    denoiser: Denoiser | ImageDenoiser, name: str, ndim: int, device: torch.device
) -> Denoiser | ImageDenoiser:
    """Return `denoiser` after a call on a small field of `ndim` axes has succeeded; `name` is for messages."""
    _probe(denoiser, name, ndim, device)
    return denoiser


def call(
    denoiser: Denoiser | ImageDenoiser,
    field: Tensor,
    sigma: float,
    fixed: Tensor | None = None,
    warped: Tensor | None = None,
    *,
    name: str = "the prior",
) -> Tensor:
    """Call a denoiser of either kind and check what it returns.

    Args:
        denoiser: see the top of this file.
        field: (B, d, *shape), voxels.
        sigma: noise standard deviation, voxels.
        fixed: (B, C, *shape), any intensity unit; needed if the denoiser wants images.
        warped: (B, C, *shape), likewise.
        name: the prior as the user named it, for the message.

    Returns:
        (B, d, *shape), voxels, finite.
    """
    if getattr(denoiser, "wants_images", False):
        if fixed is None or warped is None:
            raise UsageError(
                f"{printable(name)} wants the fixed and the warped image, which are not given here."
            )
        result = _guarded(name, lambda: cast(ImageDenoiser, denoiser)(field, sigma, fixed, warped))
    else:
        result = _guarded(name, lambda: cast(Denoiser, denoiser)(field, sigma))
    finding = _fault(result, field)
    if finding:
        expected = f"a finite field {tuple(field.shape)} of {field.dtype} on {field.device}"
        raise reject(name, finding, expected, "Repair the prior or choose another one.")
    return cast(Tensor, result)


def _guarded(name: str, denoise: Callable[[], Any]) -> Any:
    """Call a prior; whatever it raises becomes a refusal that names it."""
    try:
        return denoise()
    except (InputError, UsageError, MemoryError):
        raise
    except Exception as error:  # the function may be the user's: anything can happen while it runs
        finding = f"failed ({type(error).__name__}: {printable(str(error))[:200]})"
        raise reject(name, finding, "D(field, sigma) -> field", "Repair the function.") from error


def _fault(result: Any, field: Tensor) -> str:
    """Say what is wrong with a denoiser's answer; empty if nothing is."""
    if not isinstance(result, Tensor):
        return f"the prior returned {type(result).__name__}, not a tensor"
    if result.shape != field.shape or result.dtype != field.dtype or result.device != field.device:
        return f"the prior returned {tuple(result.shape)} of {result.dtype} on {result.device}"
    # One pass and no copy: a sum in float64 is finite only if every float32 in it is.
    return (
        ""
        if math.isfinite(float(result.detach().sum(dtype=torch.float64)))
        else "the prior returned NaN or Inf"
    )


def _imported(prior: str) -> Denoiser:
    """Import ``package.module:function``."""
    module, _, name = prior.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the user's: anything can happen while it runs
        finding = f"cannot be imported ({type(error).__name__}: {printable(str(error))[:200]})"
        raise reject(prior, finding, choices(), "Check the spelling and PYTHONPATH.") from error
    if not callable(found):
        raise reject(prior, "is not callable", "a function D(field, sigma)", "Name the function itself.")
    return cast(Denoiser, found)


def _probe(denoiser: Denoiser | ImageDenoiser, prior: str, ndim: int, device: torch.device) -> None:
    """Call the denoiser once on a small field and images, and refuse it if it does not keep the contract."""
    shape = PROBE[:ndim]
    generator = torch.Generator().manual_seed(0)
    field = torch.randn(1, ndim, *shape, generator=generator).to(device)
    images = torch.rand(2, 1, 1, *shape, generator=generator).to(device)
    before = field.clone()
    with torch.no_grad():
        call(denoiser, field, 0.5, images[0], images[1], name=prior)
    if not torch.equal(field, before):
        raise reject(prior, "changed its argument in place", "a new tensor", "Work on a copy of the field.")
    if isinstance(denoiser, TotalVariation):
        denoiser.reset()
