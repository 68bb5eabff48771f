"""One displacement field, whoever made it, measured by one code.

    python measuring.py JOB.json

JOB names the TRANSFORM (absent for the start), FIXED, MOVING, their labels, the tool's own WARPED image and
the file OUT for the numbers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pirate.evaluation.folding import folding
from pirate.evaluation.overlap import mean_dice
from pirate.evaluation.surface import surface_distances
from pirate.io.nifti import read_image, read_labels
from pirate.io.transforms import read_transform
from pirate.registration.apply import apply
from pirate.registration.measure import label_scores
from pirate.transform import Transform

AGREEMENT = 0.999
"""Smallest correlation of the image warped by our reading of the transform with the tool's own."""


def numbers(job: dict[str, Any]) -> dict[str, float]:
    """Dice (nearest, vote), HD95, folding of the field, agreement with the tool's own warped image."""
    fixed, moving = read_image(Path(job["fixed"])), read_image(Path(job["moving"]))
    start = Transform(())
    chain = read_transform(Path(job["transform"])) if job.get("transform") else start
    displacement = chain.on(fixed.grid)
    forward = Transform((displacement,))
    result: dict[str, float] = {}
    if job.get("warped"):
        own = read_image(Path(job["warped"]))
        result["agreement"] = agreement(apply(moving, forward, fixed.grid).data, own.data)
    fixed_labels, moving_labels = (read_labels(Path(job[f"{side}_labels"])) for side in ("fixed", "moving"))
    scores, warped_labels = label_scores(fixed_labels, moving_labels, start, forward)
    distances = surface_distances(
        fixed_labels.data, warped_labels, fixed.grid.spacing, list(scores["dice"])
    ).values()
    return result | {
        "dice": mean_dice(scores["dice"]),
        "dice_vote": mean_dice(scores["dice_vote"]),
        "labels": float(len(scores["dice"])),
        "hd95_mm": float(np.mean([d.hd95_mm for d in distances])),
        **folding(torch.from_numpy(displacement.field)[None]),
    }


def agreement(ours: np.ndarray, own: np.ndarray) -> float:
    """Pearson correlation of two warped images; refused below `AGREEMENT`."""
    if ours.shape != own.shape:
        raise SystemExit(f"the tool's warped image is {own.shape}, expected {ours.shape}")
    value = float(np.corrcoef(ours.ravel().astype(np.float64), own.ravel().astype(np.float64))[0, 1])
    if not value > AGREEMENT:
        raise SystemExit(
            f"the transform, as read here, does not give the tool's own warped image: correlation {value:.6f}, "
            f"expected more than {AGREEMENT}"
        )
    return value


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(job["out"]).write_text(json.dumps(numbers(job), indent=1))


if __name__ == "__main__":
    main()
