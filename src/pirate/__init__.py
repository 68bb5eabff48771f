"""PIRATE: deformable image registration with a plug-and-play prior on the displacement field.

>>> import pirate
>>> result = pirate.register("fixed.nii.gz", "moving.nii.gz")  # doctest: +SKIP
>>> result.save("out")  # doctest: +SKIP
>>> rival = pirate.register_with("syn:cc", "fixed.nii.gz", "moving.nii.gz")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "register": "pirate.registration.register",
    "register_with": "pirate.baselines.protocol",
    "Registration": "pirate.registration.result",
    "Settings": "pirate.settings",
    "Image": "pirate.image",
    "Grid": "pirate.grid",
    "Transform": "pirate.transform",
    "PirateError": "pirate.errors",
    "read_image": "pirate.io.nifti",
    "read_labels": "pirate.io.nifti",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that ``import pirate`` costs nothing."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'pirate' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
