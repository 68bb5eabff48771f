"""What a step should be: the candidates of decision 0004, side by side on training pairs.

    python benchmarks/formulations.py DATA --out docs/results/formulations.md

DATA is a folder with `brain3d/<subject>/{norm,seg35}.nii.gz`. All candidates share the `default` preset's levels,
windows, smoothing and number of steps; folds are counted before any repair.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pirate.energies.composition import gradient_product
from pirate.evaluation.folding import folding
from pirate.evaluation.overlap import dice, mean_dice
from pirate.io.nifti import read_image, read_labels
from pirate.ops.compose import compose, compose_small, exponential, invert, longest
from pirate.ops.resample import half_shape, resize_field, resize_field_adjoint
from pirate.ops.smooth import gaussian
from pirate.ops.warp import warp
from pirate.registration.apply import apply
from pirate.registration.data_term import data_term
from pirate.registration.inputs import common_labels, unit_range
from pirate.registration.pyramid import Stage, stages
from pirate.registration.working import Images, cropped
from pirate.settings import Level, preset
from pirate.transform import Displacement, Transform

PAIRS = (
    ("oasisfs_0009", "oasisfs_0035"), ("fstrain_01", "fstrain_02"),
    ("vxmtut_subj1", "oasisfs_0009"), ("fstrain_04", "fstrain_03"),
)  # fmt: skip
SETTINGS = preset("default", 3)


def step(force: Tensor, level: Level) -> Tensor:
    """The smoothed descent direction, its longest vector of length 1."""
    smooth = gaussian(force, level.force_sigma)
    return smooth * (-level.step / max(longest(smooth), 1e-30))


def descend(levels: Sequence[Stage], change: Callable[[Stage, Tensor], Tensor]) -> Tensor:
    """Coarse to fine, `change` applied to the field as often as the level says."""
    field = torch.zeros(1, 3, *levels[0].images.shape)
    for stage in levels:
        field = resize_field(field, stage.images.shape)
        for _ in range(stage.level.iterations):
            field = change(stage, field)
    return field


def force(stage: Stage, field: Tensor) -> Tensor:
    return data_term(stage.images, SETTINGS, stage.level).force(stage.images.moving, field)[1]


def compositional(levels: Sequence[Stage]) -> Tensor:
    def change(stage: Stage, field: Tensor) -> Tensor:
        return gaussian(compose_small(field, step(force(stage, field), stage.level)), stage.level.field_sigma)

    return descend(levels, change)


def additive(levels: Sequence[Stage]) -> Tensor:
    def change(stage: Stage, field: Tensor) -> Tensor:
        slope = data_term(stage.images, SETTINGS, stage.level).on_field(stage.images.moving, field)[1]
        return gaussian(field + step(slope, stage.level), stage.level.field_sigma)

    return descend(levels, change)


def velocity(levels: Sequence[Stage]) -> Tensor:
    def change(stage: Stage, v: Tensor) -> Tensor:
        return gaussian(v + step(force(stage, exponential(v)), stage.level), stage.level.field_sigma)

    return exponential(descend(levels, change))


def half_field(levels: Sequence[Stage]) -> Tensor:
    """Full-resolution images at the last level, the field at half resolution."""
    *coarse, last = levels
    shape = last.images.shape
    field = resize_field(compositional(coarse), half_shape(shape))
    for _ in range(last.level.iterations):
        slope = resize_field_adjoint(force(last, resize_field(field, shape)), half_shape(shape))
        field = gaussian(compose_small(field, step(slope, last.level)), last.level.field_sigma)
    return resize_field(field, shape)


def half_images(levels: Sequence[Stage]) -> Tensor:
    """No last level at all."""
    return resize_field(compositional(levels[:-1]), levels[-1].images.shape)


def centre_only(levels: Sequence[Stage]) -> Tensor:
    """The gradient of each window's correlation by its own centre voxel alone, as many codes have it."""

    def change(stage: Stage, field: Tensor) -> Tensor:
        f, w, radius = stage.images.fixed, warp(stage.images.moving, field), stage.level.window // 2
        count = stage.level.window**3

        def mean(x: Tensor) -> Tensor:
            for axis in range(3):
                size, pad = [1, 1, 1], [0, 0, 0]
                size[axis], pad[axis] = stage.level.window, radius
                x = F.avg_pool3d(x, size, stride=1, padding=pad)
            return x

        mf, mw = mean(f), mean(w)
        vf, vw = ((mean(x * x) - m * m).clamp_min(0) * count for x, m in ((f, mf), (w, mw)))
        cross = (mean(f * w) - mf * mw) * count
        pull = 2 * cross / (vf * vw + 1e-5) * ((f - mf) - cross / vw.clamp_min(1e-3) * (w - mw))
        pull = (2 * SETTINGS.intensity * (w - f) * (f != 0) - pull) / f.numel()
        return gaussian(
            compose_small(field, step(gradient_product(w, pull), stage.level)), stage.level.field_sigma
        )

    return descend(levels, change)


def symmetric(levels: Sequence[Stage]) -> Tensor:
    """Both images move, each by its own field, to a middle; the forward field is one after the other's inverse."""
    a = b = torch.zeros(1, 3, *levels[0].images.shape)
    for stage in levels:
        pair, level = stage.images, stage.level
        a, b = resize_field(a, pair.shape), resize_field(b, pair.shape)
        for _ in range(level.iterations):
            warped = Images(warp(pair.fixed, a), pair.moving, None, None, pair.spacing)
            back = Images(warp(pair.moving, b), pair.fixed, None, None, pair.spacing)
            pulls = force(Stage(level, back), a), force(Stage(level, warped), b)
            a = gaussian(compose_small(a, step(pulls[0], level)), level.field_sigma)
            b = gaussian(compose_small(b, step(pulls[1], level)), level.field_sigma)
    return compose(b, invert(a).field)


CANDIDATES = {
    "compositional (the choice)": compositional,
    "additive": additive,
    "stationary velocity": velocity,
    "field at half resolution on the last level": half_field,
    "no full-resolution level": half_images,
    "centre-only gradient": centre_only,
    "symmetric": symmetric,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=len(PAIRS))
    given = parser.parse_args()
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in CANDIDATES}
    for subjects in PAIRS[: given.pairs]:
        fixed, moving = (read_image(given.data / "brain3d" / s / "norm.nii.gz") for s in subjects)
        labels = [read_labels(given.data / "brain3d" / s / "seg35.nii.gz") for s in subjects]
        tensors = [torch.from_numpy(unit_range(i.data, robust=True))[None, None] for i in (fixed, moving)]
        part, box = cropped(Images(tensors[0], tensors[1], None, None, (1.0, 1.0, 1.0)))
        levels = stages(part, SETTINGS)
        for name, candidate in CANDIDATES.items():
            start = time.perf_counter()
            with torch.no_grad():
                field = box.fill(candidate(levels))
            seconds = time.perf_counter() - start
            forward = Transform((Displacement(fixed.grid, field[0].numpy()),))
            warped = apply(labels[1], forward, fixed.grid, "nearest")
            score = mean_dice(dice(labels[0].data, warped.data, common_labels(*labels)))
            m = folding(field)
            found[name].append(
                (score, m["folds_percent"], m["folds_forward_percent"], m["nondiffeomorphic_cells"], seconds)
            )
            print(subjects, name, found[name][-1], flush=True)
    rows = []
    for name, values in found.items():
        d, central, forward, cells, seconds = np.mean(values, 0)
        rows.append(f"| {name} | {d:.4f} | {central:.4f} | {forward:.4f} | {cells:.0f} | {seconds:.1f} |")
    page = [
        "# What a step should be", "",
        f"Means over {given.pairs} training pairs, before any repair, by",
        "`python benchmarks/formulations.py DATA --out docs/results/formulations.md`.",
        "The seconds of the centre-only gradient are those of plain torch; all others use the compiled kernels.", "",
        "| candidate | Dice | folds central % | folds forward % | bad cells | seconds |", "|---|---|---|---|---|---|",
        *rows,
    ]  # fmt: skip
    given.out.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
