"""Skull stripping by deepbet (Fisch et al. 2024), an optional package whose weights come with it.

It runs in a process of its own on our copy of the image, without a network connection; its mask is read back through
our own door.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pirate.baselines.child import Limits, Tool, run_job
from pirate.errors import PirateError, UsageError, reject
from pirate.image import Image
from pirate.io import nifti

DEEPBET = Tool("deepbet", "skull stripping", ("deepbet",), extra="pip install 'pirate-reg[bet]'")

LEAST_SHARE = 0.01
"""Of an image that is brain; less means that there is no head in it."""


@dataclass(frozen=True, eq=False)
class Stripped:
    """A brain without its skull.

    Args:
        brain: the image, 0 outside the brain.
        mask: 1 in the brain, 0 elsewhere, uint8, on the same grid.
        seconds: that the networks took.
    """

    brain: Image
    mask: Image
    seconds: float


def strip(image: Image, threshold: float = 0.5, limits: Limits | None = None) -> Stripped:
    """Find the brain in a T1-weighted head and set everything else to 0.

    Args:
        image: a volume, intensities.
        threshold: of the network's probability, 0 to 1; a lower one keeps more.
        limits: threads, seconds and memory of the process.
    """
    if not 0 < threshold < 1:
        raise UsageError(f"the threshold is {threshold}; expected a number between 0 and 1.")
    if image.grid.ndim != 3:
        raise reject(image.name, "a plane", "a volume", "Strip the volume that it was cut from.")
    DEEPBET.check_installed()
    with tempfile.TemporaryDirectory(prefix="pirate-") as name:
        folder = Path(name)
        nifti.write_image(folder / "image.nii.gz", image.data.astype(np.float32), image.grid)
        job = {"image": str(folder / "image.nii.gz"), "threshold": threshold}
        result, _ = run_job(DEEPBET, folder, job, limits or Limits())
        found = nifti.read_labels(folder / "mask.nii.gz")
    if not found.grid.same_space(image.grid, tolerance=1e-3 * min(image.grid.spacing)):
        raise PirateError(
            f"{image.name}: the mask lies elsewhere than the image; expected the same grid. Try another version of "
            "deepbet."
        )
    inside = found.data != 0
    if inside.mean() < LEAST_SHARE:
        raise reject(
            image.name, f"{100 * inside.mean():.2f} % of it are brain", f"at least {100 * LEAST_SHARE:g} %",
            "Is it a T1-weighted head?",
        )  # fmt: skip
    brain = np.where(inside, image.data, 0).astype(np.float32)
    return Stripped(
        Image(brain, image.grid, image.name, image.notes),
        Image(inside.astype(np.uint8), image.grid, image.name),
        float(result["seconds"]),
    )
