"""Maps over the voxels that tell about a field, and one score that needs neither labels nor a cohort."""

from __future__ import annotations

import torch
from torch import Tensor

from pirate.denoisers import zoo
from pirate.denoisers.learned import load_denoiser
from pirate.evaluation.surprise import surprise
from pirate.image import Image
from pirate.ops.jacobian import determinant

FLOOR = 1e-3
"""Determinants below it are shown as it is: a logarithm needs a positive number."""

JUDGE = "pirate"
"""The shipped prior that is asked."""


def maps_of(field: Tensor, fixed: Image, device: torch.device) -> tuple[dict[str, Image], dict[str, float]]:
    """The maps of a field (1, d, *shape), voxels of the fixed grid, and the surprise score.

    ``log_jacobian``: the logarithm of the Jacobian determinant: below 0 the moving image was enlarged, above it was
    shrunk. ``surprise``: |phi - D(phi)| of the shipped prior, voxels; the score is its root mean square where the
    fixed image is not background, divided by what good fields of the prior's training have.
    """
    grid = fixed.grid
    logarithm = determinant(field)[0].clamp_min(FLOOR).log()
    maps = {"log_jacobian": Image(logarithm.float().cpu().numpy(), grid, "log_jacobian")}
    judges = [e for e in zoo.shipped() if e.name == JUDGE and e.ndim == grid.ndim]
    if not judges:
        return maps, {}
    judge = load_denoiser(zoo.path_of(judges[0]), grid.ndim, device, judges[0].sha256)
    sigma, expected = (float(judge.card.metrics[name]) for name in ("surprise_sigma", "residual_rms"))
    shown = torch.from_numpy(fixed.data > fixed.data.min())[None, None].to(field)
    found = surprise(judge, field, sigma, expected, mask=shown, resolution=round(judge.card.resolution))
    maps["surprise"] = Image(found.map[0, 0].float().cpu().numpy(), grid, "surprise")
    return maps, {"surprise_score": found.score}
