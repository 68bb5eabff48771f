"""Whether the rivals are what they are called: SyN against ANTs itself, our log-domain demons against other demons.

    python benchmarks/rivals.py DATA --work WORK --out docs/results/rivals.md

DATA is a folder with `oasis2d.npz`, `hippocampus/` and `brain3d/`. ANTs is called directly in a process of its own, on
the images' own files; its labels are moved and scored there, without any of pirate's code. The demons have the pairs of
the benchmark's pages; WORK keeps their rows, so that an interrupted run goes on. An hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from pirate.baselines import syn
from pirate.baselines.child import THREADS
from pirate.baselines.methods import METHODS
from pirate.baselines.protocol import register_with
from pirate.benchmark.cases import image_of, labels_of, subjects_of
from pirate.benchmark.rows import Row, read_rows
from pirate.data.subjects import Subject, hippocampus, oasis2d, pairs
from pirate.evaluation.statistics import bootstrap
from pirate.io.nifti import write_image

ALLOWED = 0.005
"""Dice by which SyN may differ from ANTs called directly."""

COMMAND = "python benchmarks/rivals.py DATA --work WORK --out docs/results/rivals.md"
REFERENCE = "demons-sitk:diffeomorphic"
DEMONS = ("log-demons", REFERENCE, "demons-sitk", "greedy:sv")
TRACKS = ("oasis2d", "hippocampus", "brain3d")
DIRECT = """
import json, sys
import ants, numpy as np
job = json.loads(sys.argv[1])
words = [word.format(fixed=job["fixed"], moving=job["moving"]) for word in job["words"]]
ants.registration([*words, "--output", f"[{job['out']}/direct_]"], None)
labels = [ants.image_read(job[name]) for name in ("fixed_labels", "moving_labels")]
warp = [f"{job['out']}/direct_0Warp.nii.gz"]
moved = ants.apply_transforms(labels[0], labels[1], warp, interpolator="nearestNeighbor").numpy().round()
fixed, moving = (image.numpy().round() for image in labels)
common = np.intersect1d(fixed[fixed > 0], moving[moving > 0])
dice = [2 * ((fixed == k) & (moved == k)).sum() / ((fixed == k).sum() + (moved == k).sum()) for k in common]
print(json.dumps({"dice": float(np.mean(dice))}))
"""


def files_of(data: Path, role: str, subject: Subject, folder: Path) -> dict[str, str]:
    """The files of a subject: those of the data folder; a slice of the archive is written first."""
    if subject.source == "hippocampus":
        found = {
            kind: next((data / "hippocampus" / kind).glob(f"{subject.name}.nii*"))
            for kind in ("images", "labels")
        }
        return {role: str(found["images"]), f"{role}_labels": str(found["labels"])}
    names = {role: folder / f"{role}.nii.gz", f"{role}_labels": folder / f"{role}_labels.nii.gz"}
    write_image(names[role], image_of(subject).data, image_of(subject).grid)
    write_image(names[f"{role}_labels"], labels_of(subject).data, image_of(subject).grid)
    return {name: str(path) for name, path in names.items()}


def direct(
    files: dict[str, str], ndim: int, folder: Path, settings: syn.SynSettings = syn.PRESETS["cc"]
) -> float:
    """Dice of ANTs called in a process of its own on the files as they are."""
    job = files | {"words": syn.words(settings, ndim), "out": str(folder)}
    environment = os.environ | dict.fromkeys(THREADS, "1")
    done = subprocess.run(
        [sys.executable, "-c", DIRECT, json.dumps(job)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["dice"])


def against_ants(data: Path, chosen: Sequence[tuple[Subject, Subject]]) -> list[str]:
    """Lines of a table: SyN through the protocol and ANTs itself, on the same files with the same parameters."""
    lines = ["| pair | Dice before | SyN `cc`, ours | ANTs directly | difference |", "|---|---|---|---|---|"]
    for fixed, moving in chosen:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files = files_of(data, "fixed", fixed, folder) | files_of(data, "moving", moving, folder)
            ours = register_with(
                "syn:cc", files["fixed"], files["moving"], affine="none", fixed_labels=files["fixed_labels"],
                moving_labels=files["moving_labels"], threads=1,
            ).metrics  # fmt: skip
            theirs = direct(files, len(fixed.spacing), folder)
        difference = ours["dice"] - theirs
        numbers = f"{ours['dice_before']:.4f} | {ours['dice']:.4f} | {theirs:.4f} | {difference:+.4f}"
        line = f"{moving.name} -> {fixed.name} | {numbers}"
        print(line, flush=True)
        lines.append(f"| {line} |")
        if abs(difference) > ALLOWED:
            lines.append(f"\n**{line} differs by more than {ALLOWED:g}.**\n")
    return lines


def rows_of(data: Path, track: str, work: Path) -> list[Row]:
    """The rows of `DEMONS` on all pairs of a track; those that are in `work` already are not made again."""
    out = work / track
    subprocess.run(
        [sys.executable, "-m", "pirate", "benchmark", track, "--data", data, "--out", out, "--methods",
         ",".join(DEMONS), "--skip", "ablation,scaling,timing"],
        check=True,
    )  # fmt: skip
    return [row for row in read_rows(out / "rows.csv") if not row.error]


def demons(data: Path, track: str, work: Path) -> list[str]:
    """Lines of a table: means over the pairs of every method, and the paired difference to SimpleITK's."""
    rows = rows_of(data, track, work)
    found = {name: {r.pair: r for r in rows if r.entry == name.replace(":", "-")} for name in DEMONS}
    other = found[REFERENCE]
    lines = [
        "| method | pairs | Dice | against SimpleITK, diffeomorphic | better on | folds % central / forward / NDV |",
        "|---|---|---|---|---|---|",
    ]
    for name, own in found.items():
        both = [p for p in own if p in other]
        gain = np.array([own[p].dice - other[p].dice for p in both])
        compared = "- | -"
        if name != REFERENCE:
            compared = (
                f"{bootstrap(gain, [subjects_of(p) for p in both]):+.4f} | {(gain > 0).sum()} of {len(gain)}"
            )
        folds = " / ".join(
            f"{np.mean([getattr(r, key) for r in own.values()]):.4f}"
            for key in ("folds", "folds_forward", "ndv")
        )
        dice = np.mean([r.dice for r in own.values()])
        line = f"| `{name}` | {len(own)} | {dice:.4f} | {compared} | {folds} |"
        print(line, flush=True)
        lines.append(line)
    start = np.mean([r.dice_before for r in other.values()])
    return [f"### `{track}`, Dice {start:.4f} at the start", "", *lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--tracks", nargs="+", choices=TRACKS, default=TRACKS, help="on which the demons are run"
    )
    own = parser.parse_args()
    planes = oasis2d(own.data, split="validation")
    volumes = hippocampus(own.data, split="validation")
    versions = ", ".join(
        f"{name} {version}"
        for method in ("syn", "greedy")
        for name, version in METHODS[method].versions.items()
    )
    same = (
        "Ours: copies in a plain frame, a child process, the warp read back, labels moved by pirate. Directly: the "
        "images' own files, `ants.registration` with the same arguments in another process, labels moved by ANTs. "
        f"No affine start. The Dice of both should agree within {ALLOWED:g}."
    )
    about = (
        "`log-demons` is our own implementation, with its default constants; they were chosen by hand on training "
        "pairs, 12 of `oasis2d` and 8 of `hippocampus`, which this command does not repeat. SimpleITK's two filters "
        "work at one resolution and have no velocity; `demons-sitk` is its fast symmetric forces, which the pages of "
        "the benchmark show. The same pairs, starts and threads as there. Brackets: 95 %, as there."
    )
    some = "" if len(own.tracks) == len(TRACKS) else f" --tracks {' '.join(own.tracks)}"
    text = [
        "# The rivals, checked", "",
        f"Made by `{COMMAND}{some}`: validation subjects. {versions}.", "",
        "## SyN `cc` against ANTs called directly", "", same, "",
        *against_ants(own.data, [*pairs(planes, 2, 0), *pairs(volumes, 1, 0)]), "",
        "## Log-domain demons", "", about, "",
        *(line for track in own.tracks for line in demons(own.data, track, own.work)),
    ]  # fmt: skip
    own.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
