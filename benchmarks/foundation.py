"""The `paper` preset on real images: P, P+S and P+TV+S on two brain pairs, and P+S on a lung and a slice.

    python benchmarks/foundation.py DATA --out docs/results/foundation.md

DATA is a folder with `brain3d/<subject>/{norm,seg35}.nii.gz`, `lung/` and `oasis2d.npz`. Each run is one
call of the installed `pirate` command in its own process, two threads, one after the other.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

PAIRS = (("oasis_0002", "oasis_0001"), ("oasis_0373", "oasis_0140"))
VARIANTS: dict[str, tuple[str, ...]] = {
    "P": ("--set", "alpha=0", "--prior", "none"),
    "P+S": ("--prior", "none"),
    "P+TV+S": ("--prior", "tv"),
}


def pirate(*words: str | Path) -> float:
    """Run the command; return its seconds. Exit code 1, a quality flag, is a result like any other."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "pirate", *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pirate {' '.join(map(str, words))}\n{done.stderr}")
    return time.perf_counter() - start


def register(
    fixed: Path, moving: Path, out: Path, labels: tuple[Path, Path] | None, *options: str
) -> dict[str, Any]:
    words: list[str | Path] = ["register", fixed, moving, "--out", out, "--threads", "2", "--quiet", *options]
    if labels is not None:
        words += ["--fixed-labels", labels[0], "--moving-labels", labels[1]]
    seconds = pirate(*words)
    run: dict[str, Any] = json.loads((out / "run.json").read_text())
    with (out / "trace.csv").open() as stream:
        run["trace"] = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(stream)]
    return run | {"seconds": seconds}


def verdict(trace: list[dict[str, float]]) -> str:
    """What the residual says about convergence, once the vanishing step is divided out."""
    first, last = trace[0], trace[-1]
    tail = [r["residual_per_step"] for r in trace[int(0.8 * len(trace)) :]]
    fell = tail[0] / max(tail[-1], 1e-300)
    state = "still falling" if fell > 2 else "a plateau"
    return (
        f"residual {first['residual']:.1e} -> {last['residual']:.1e}; residual/step "
        f"{first['residual_per_step']:.1e} -> {last['residual_per_step']:.1e}, over the last fifth {state}"
    )


def row(name: str, run: dict[str, Any]) -> str:
    m = run["metrics"]
    dice = f"{m['dice_before']:.4f} | {m['dice']:.4f} | {m['dice_vote']:.4f}" if "dice" in m else "- | - | -"
    return (
        f"| {name} | {dice} | {m['folds_percent']:.4f} | {m['ndv_percent']:.4f} | {m['sd_log_jacobian']:.3f} | "
        f"{run['timings_s']['solve']:.1f} | {run['seconds']:.1f} | {run['peak_memory_mb']} |"
    )


ABOUT = (
    "Made by `python benchmarks/foundation.py DATA --out docs/results/foundation.md`.",
    "The `paper` preset: eq. (6), half-resolution field, global correlation, 500 cosine steps. P = similarity",
    "alone, S = smoothness, TV = total variation as the denoiser (sigma 1). Dice is the mean over labels present",
    "in both; folds are voxels with determinant <= 0 by central differences; command seconds include start-up,",
    "reading, inverse, metrics, figures and writing everything.",
)
HEAD = (
    "| run | Dice before | Dice (nearest) | Dice (vote) | folds % | NDV % | SDlogJ "
    "| iteration s | command s | MB |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def brains(data: Path, work: Path) -> list[str]:
    lines = ["## Brains, 160 x 192 x 224, 35 labels", "", HEAD]
    verdicts = []
    for fixed, moving in PAIRS:
        a, b = data / "brain3d" / fixed, data / "brain3d" / moving
        labels = (a / "seg35.nii.gz", b / "seg35.nii.gz")
        known = all(p.exists() for p in labels)
        for name, options in VARIANTS.items():
            out = work / f"{fixed}-{name}"
            run = register(a / "norm.nii.gz", b / "norm.nii.gz", out, labels if known else None, *options)
            lines.append(row(f"{fixed} <- {moving}, {name}", run))
            verdicts.append(f"- {fixed} <- {moving}, {name}: {verdict(run['trace'])}.")
            print(lines[-1], flush=True)
    return [
        *lines,
        "",
        "Does the iteration come to rest? (the step of eq. 16 goes to zero, so the residual must)",
        "",
        *verdicts,
    ]


def lung(data: Path, work: Path) -> list[str]:
    folder = data / "lung"
    points = []
    for side in ("fixed", "moving"):
        affine = nib.load(folder / f"{side}.nii.gz").affine
        voxels = np.loadtxt(folder / f"{side}_landmarks_vox.txt")
        world = nib.affines.apply_affine(affine, voxels)
        points.append(work / f"lung_{side}.csv")
        np.savetxt(points[-1], world, delimiter=",", header="x,y,z", comments="")
    labels = (folder / "fixed_mask.nii.gz", folder / "moving_mask.nii.gz")
    run = register(folder / "fixed.nii.gz", folder / "moving.nii.gz", work / "lung", labels)
    pirate(
        "evaluate",
        work / "lung",
        "--fixed-points",
        points[0],
        "--moving-points",
        points[1],
        "--out",
        work / "lung.json",
    )
    error = json.loads((work / "lung.json").read_text())["points_mm"]
    return [
        "## Lung, 115 x 157 x 129 at 1.366 x 1.366 x 2.5 mm, no masks used", "", HEAD, row("lung, P+S", run), "",
        f"Landmark error, {len(np.loadtxt(points[0], delimiter=',', skiprows=1))} pairs: "
        f"{error['before']['mean']:.2f} -> {error['after']['mean']:.2f} mm on average, "
        f"{error['before']['median']:.2f} -> {error['after']['median']:.2f} mm median.",
    ]  # fmt: skip


def slices(data: Path, work: Path, count: int = 5) -> list[str]:
    store = np.load(data / "oasis2d.npz")
    chosen = np.flatnonzero(store["split"] == "validation")[: count + 1]
    for k in chosen:
        nib.save(nib.Nifti1Image(store["norm"][k], np.eye(4)), work / f"{k}.nii.gz")
        nib.save(nib.Nifti1Image(store["seg24"][k].astype(np.uint8), np.eye(4)), work / f"{k}_seg.nii.gz")
    lines = ["## Slices, 160 x 192, 24 labels, the first validation subjects in order", "", HEAD]
    for a, b in itertools.pairwise(chosen):
        labels = (work / f"{a}_seg.nii.gz", work / f"{b}_seg.nii.gz")
        run = register(work / f"{a}.nii.gz", work / f"{b}.nii.gz", work / f"slice-{a}", labels)
        lines.append(row(f"slice {a} <- {b}, P+S", run))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        parts = [brains(options.data, work), lung(options.data, work), slices(options.data, work)]
        doctor = subprocess.run(
            [sys.executable, "-m", "pirate", "doctor"], capture_output=True, text=True, check=True
        )
    text = [
        "# The foundation, measured", "",
        *ABOUT, "",
        *(line for part in parts for line in [*part, ""]),
        "## Machine", "", "```", doctor.stdout.strip(), "```", "",
    ]  # fmt: skip
    options.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
