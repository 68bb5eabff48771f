"""What the `default` preset does beside plain brain pairs: slices, a lung, other contrasts, a turned head, its knob.

    python benchmarks/presets.py DATA --out docs/results/presets.md
    python benchmarks/presets.py --sizes --out docs/results/sizes.md

DATA is a folder with `brain3d/<subject>/{norm,seg35}.nii.gz`, `lung/` and `oasis2d.npz`. With --sizes, generated
pairs of 96, 128, 192 and 256 voxels a side are registered, each in a process of its own: time and memory against size.
Times mean something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from pirate.grid import Grid
from pirate.image import Image
from pirate.io.nifti import read_image, read_labels, read_mask
from pirate.registration.register import register

PAIR = ("oasis_0002", "oasis_0001")
SUBJECTS = ("oasis_0001", "oasis_0002", "oasis_0455")
SMOOTHNESS = (0.0, 0.25, 0.5, 0.75, 1.0)
SIZES = (96, 128, 192, 256)
MAKE_PAIR = """
import sys
import numpy as np
from pirate.data.phantom import brain_pair
made = brain_pair((int(sys.argv[1]),) * 3, seed=0)
np.savez(sys.argv[2], fixed=made.fixed.data, moving=made.moving.data, affine=made.fixed.grid.affine)
"""
ONE_SIZE = """
import json, sys
import numpy as np
from pirate.registration.register import register
with np.load(sys.argv[1]) as pair:
    affine = pair["affine"]
    result = register((pair["fixed"], affine), (pair["moving"], affine), affine="none", threads=2)
t = result.timings
print(json.dumps({
    "seconds": t["prepare"] + t["solve"] + t["repair"], "steps": t["solve"], "megabytes": result.peak_memory / 1e6,
    "expected": result.metrics["estimated_solve_seconds"], "expected_mb": result.metrics["estimated_memory_mb"],
}))
"""


def brain(data: Path, subject: str) -> tuple[Image, Image]:
    folder = data / "brain3d" / subject
    return read_image(folder / "norm.nii.gz"), read_labels(folder / "seg35.nii.gz")


def table(head: str, rows: list[str]) -> list[str]:
    return [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in rows), ""]


def folded(m: Any) -> str:
    return f"{m['folds_percent']:.4f} / {m['folds_forward_percent']:.4f} / {m['ndv_percent']:.4f}"


def slices(data: Path, count: int) -> list[str]:
    """Random pairs of validation subjects, drawn with a fixed seed."""
    archive = np.load(data / "oasis2d.npz")
    split, norm, seg = archive["split"], archive["norm"], archive["seg24"]
    subjects = np.flatnonzero(split == "validation")
    rng = np.random.default_rng(0)
    grid = Grid(norm.shape[1:], np.eye(4))
    rows, dice, folds, seconds = [], [], [], []
    pairs = [rng.choice(subjects, 2, replace=False) for _ in range(count)]
    for preset in ("fast", "default", "best"):
        dice, start, folds, seconds = [], [], [], []
        for a, b in pairs:
            images = [Image(norm[i].astype(np.float32), grid, f"slice {i}") for i in (a, b)]
            labels = [Image(seg[i].astype(np.int16), grid, f"labels {i}") for i in (a, b)]
            r = register(
                *images,
                preset=preset,
                affine="none",
                fixed_labels=labels[0],
                moving_labels=labels[1],
                threads=2,
            )
            dice.append(r.metrics["dice"])
            start.append(r.metrics["dice_before"])
            folds.append(
                r.metrics["folds_percent"] + r.metrics["folds_forward_percent"] + r.metrics["ndv_percent"]
            )
            seconds.append(r.timings["prepare"] + r.timings["solve"] + r.timings["repair"])
        rows.append(
            f"{preset} | {np.mean(start):.4f} | {np.mean(dice):.4f} | {np.max(folds):.4f} | {np.median(seconds):.3f}"
        )
    head = "preset | Dice before | Dice | worst pair: folds central + forward + NDV % | seconds (median)"
    return [f"## {count} random pairs of validation slices (oasis2d, 24 labels)", "", *table(head, rows)]


def lung(data: Path) -> list[str]:
    folder = data / "lung"
    fixed, moving = read_image(folder / "fixed.nii.gz"), read_image(folder / "moving.nii.gz")
    points = {
        name: image.grid.to_world(np.loadtxt(folder / f"{name}_landmarks_vox.txt", ndmin=2)[:, :3])
        for name, image in (("fixed", fixed), ("moving", moving))
    }
    masks = {f"{n}_mask": read_mask(folder / f"{n}_mask.nii.gz") for n in ("fixed", "moving")}
    rows = [f"start | {np.linalg.norm(points['fixed'] - points['moving'], axis=1).mean():.2f} | - | -"]
    for preset in ("fast", "default", "best"):
        for affine in ("none", "affine"):
            for used in ({}, masks):
                r = register(fixed, moving, preset=preset, affine=affine, threads=2, **used)  # type: ignore[arg-type]
                error = np.linalg.norm(r.forward.map(points["fixed"]) - points["moving"], axis=1).mean()
                rows.append(
                    f"{preset}, affine {affine}, {'masks' if used else 'no masks'} | {error:.2f} | "
                    f"{folded(r.metrics)} | {r.timings['solve']:.1f}"
                )
    return [
        "## Lung (landmarks)",
        "",
        *table("run | error mm | folds central / forward / NDV % | steps s", rows),
    ]


def contrast(data: Path) -> list[str]:
    """Invert and gamma-distort the moving image: 1 - (v / max)^0.6 inside the head."""
    (fixed, fixed_labels), (moving, moving_labels) = (brain(data, s) for s in PAIR)
    scaled = moving.data / moving.data.max()
    other = replace(
        moving, data=np.where(moving.data > 0, 1.05 - scaled**0.6, 0).astype(np.float32), name="inverted"
    )
    rows = []
    for name, image, changes in (
        ("same contrast, default", moving, {}),
        ("same contrast, mutual information", moving, {"penalty": "mutual"}),
        ("inverted, mutual information", other, {"penalty": "mutual"}),
        ("inverted, default (local correlation alone, chosen by itself)", other, {}),
    ):
        r = register(
            fixed, image, affine="none", fixed_labels=fixed_labels, moving_labels=moving_labels, settings=changes,
            threads=2,
        )  # fmt: skip
        rows.append(f"{name} | {r.metrics['dice']:.4f} | {folded(r.metrics)} | {r.timings['solve']:.1f}")
    return ["## Another contrast", "", *table("run | Dice | folds central / forward / NDV % | steps s", rows)]


def pose(data: Path) -> list[str]:
    """The moving image turned by 30 degrees about (1, 1, 1) and shifted by 40 mm, in its header."""
    (fixed, fixed_labels), (moving, moving_labels) = (brain(data, s) for s in PAIR)
    axis, angle = np.ones(3) / np.sqrt(3), np.radians(30)
    cross = np.cross(np.eye(3), axis)
    motion = np.eye(4)
    motion[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
    motion[:3, 3] = 40 * np.array([0.6, -0.64, 0.48])
    rows = []
    for name, matrix, affine in (
        ("as it is, --affine none", np.eye(4), "none"), ("as it is", np.eye(4), "affine"),
        ("turned and shifted", motion, "affine"),
    ):  # fmt: skip
        there = [replace(i, grid=Grid(i.grid.shape, matrix @ i.grid.affine)) for i in (moving, moving_labels)]
        r = register(
            fixed, there[0], affine=affine, fixed_labels=fixed_labels, moving_labels=there[1], threads=2
        )
        rows.append(f"{name} | {r.metrics['dice']:.4f} | {folded(r.metrics)} | {r.timings['affine']:.1f}")
    return ["## A turned head", "", *table("run | Dice | folds central / forward / NDV % | affine s", rows)]


def knob(data: Path) -> list[str]:
    (fixed, fixed_labels), (moving, moving_labels) = (brain(data, s) for s in PAIR)
    rows = []
    for value in SMOOTHNESS:
        r = register(
            fixed, moving, affine="none", smoothness=value, fixed_labels=fixed_labels, moving_labels=moving_labels,
            threads=2,
        )  # fmt: skip
        m = r.metrics
        rows.append(
            f"{value} | {m['dice']:.4f} | {m['penalty_after']:.4f} | {m['sd_log_jacobian']:.3f} | "
            f"{folded(m)} | {m['inverse_error_median_voxels']:.3f} / {m['inverse_error_p999_voxels']:.3f}"
        )
    head = "smoothness | Dice | data term | SDlogJ | folds central / forward / NDV % | inverse error median / 99.9 %"
    return ["## The knob", "", *table(head, rows)]


def expected(data: Path) -> list[str]:
    """What was said before the start, against what it took, on every ordered pair of three subjects."""
    images = [brain(data, subject)[0] for subject in SUBJECTS]
    rows = []
    for preset in ("fast", "default", "best"):
        taken, ratios, steps = [], [], []
        for fixed, moving in itertools.permutations(images, 2):
            r = register(fixed, moving, preset=preset, threads=2)
            taken.append(r.timings["solve"])
            ratios.append(r.metrics["estimated_solve_seconds"] / taken[-1])
            steps.append(len(r.trace))
        rows.append(
            f"{preset} | {len(ratios)} | {min(taken):.2f} to {max(taken):.2f} | {min(steps)} to {max(steps)} | "
            f"{min(ratios):.2f} / {statistics.median(ratios):.2f} / {max(ratios):.2f} | "
            f"{sum(abs(x - 1) <= 0.3 for x in ratios)} | {r.peak_memory / 1e6:.0f} | "
            f"{r.metrics['estimated_memory_mb']:.0f}"
        )
    head = (
        "preset | pairs | steps s | steps | time expected / taken: least, median, most | within 30 % | "
        "peak MB of this process so far | expected before"
    )
    return ["## Time and memory, expected and taken", "", *table(head, rows)]


def sizes() -> list[str]:
    rows = []
    for n in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            pair = f"{folder}/pair.npz"
            subprocess.run([sys.executable, "-c", MAKE_PAIR, str(n), pair], check=True)
            done = subprocess.run(
                [sys.executable, "-c", ONE_SIZE, pair], capture_output=True, text=True, check=True
            )
        r = json.loads(done.stdout)
        rows.append(
            f"{n}^3 | {r['seconds']:.2f} | {1e9 * r['seconds'] / n**3:.0f} | {r['steps']:.2f} / {r['expected']:.2f} | "
            f"{r['megabytes']:.0f} | {r['expected_mb']:.0f}"
        )
        print(rows[-1], flush=True)
    head = (
        "voxels | registration s | ns per voxel | steps s: taken / expected before | peak MB of the process | "
        "MB expected before"
    )
    return [
        "## Time and memory against size (generated brains, `default`, two threads)",
        "",
        *table(head, rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--slices", type=int, default=100, help="number of slice pairs")
    given = parser.parse_args()
    start = time.perf_counter()
    if given.sizes:
        command, parts = "--sizes", sizes()
    elif given.data is None:
        parser.error("DATA is missing")
    else:
        command, parts = "DATA", []
        for part in (lambda d: slices(d, given.slices), lung, contrast, pose, knob, expected):
            parts += part(given.data)
            print("\n".join(parts[-12:]), flush=True)
    title = "Size" if given.sizes else "The default preset in other situations"
    text = [
        f"# {title}",
        "",
        f"Made by `python benchmarks/presets.py {command} --out ...`, two threads.",
        "",
        *parts,
    ]
    given.out.write_text("\n".join(text).rstrip() + "\n")
    print(f"wrote {given.out} in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
