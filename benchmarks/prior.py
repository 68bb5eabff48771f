"""What a prior on the field is worth: the paper's ablation, the preset that users run, and controls for each.

    python benchmarks/prior.py DATA --out docs/results/prior.md

DATA is a folder with `oasis2d.npz`, `hippocampus/` and `brain3d/`; only validation subjects are registered. The folder
beside the page keeps a row for each pair and variant: an interrupted run goes on there, rows of other weights are made
again, and a page can be made from the rows there are (--only-page). The priors are those that ship.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from _prior import diagnostics, page, runs, variants
from _prior.variants import Variant
from pirate.denoisers import plug, zoo
from pirate.settings import preset

TRACKS = ("oasis2d", "hippocampus", "brain3d")
PAIRS = {
    "oasis2d": {"paper": 100, "default": 100, "curves": 20},
    "hippocampus": {"paper": 100, "default": 100, "curves": 20},
    "brain3d": {"paper": 8, "default": 8, "curves": 2},
}
"""With a network the paper's iteration takes half a minute for a pair of brains: their curves have few pairs."""


def plan(track: str) -> list[Variant]:
    """Variants of a track."""
    ndim = 2 if track == "oasis2d" else 3
    of = "-hippocampus" if track == "hippocampus" else ""
    whole = variants.paper(preset("paper", ndim).alpha, of) + variants.default(of)
    return [v for v in whole if there(v.prior, ndim)]


def there(prior: str, ndim: int) -> bool:
    """Whether the weights that a variant needs ship."""
    name = prior.rpartition(":")[2]
    return name in plug.NAMED or any(e.name == name and e.ndim == ndim for e in zoo.shipped())


def mark(track: str) -> str:
    """Of the denoisers' weights, so that others are diagnosed anew."""
    own = {v.weights(2 if track == "oasis2d" else 3) for v in plan(track) if v.prior.startswith("pirate")}
    return hashlib.sha256(" ".join(sorted(own)).encode()).hexdigest()[:8]


def section(track: str, rows: list[runs.Row], chosen: list[Variant], folder: Path) -> list[str]:
    """The part of the page about one track; its pictures go to `folder`, which lies beside the page."""
    lines = [f"## {track}", ""]
    for name, title, reference in (
        ("paper", "The paper's iteration (eq. 6)", "P+S"),
        ("default", "`default`", "none"),
    ):
        own = [v for v in chosen if v.preset == name and not v.curve]
        if not any(row.variant.startswith(f"{name}/") for row in rows):
            lines += [f"### {title}", "", "Not run.", ""]
            continue
        against = next(v for v in own if v.name == reference)
        lines += [f"### {title}", "", *page.comparison(rows, own, against), *page.contrasts(rows, name)]
        same = page.shared(rows, [v for v in chosen if v.preset == name])  # so that points can be compared
        curves = {
            curve: page.curve_points(same, [v for v in chosen if curve in (v.curve, v.through)])
            for curve in dict.fromkeys(v.curve for v in chosen if v.preset == name and v.curve)
        }
        curves = {curve: points for curve, points in curves.items() if page.registered(points) > 1}
        if curves:
            picture = folder / f"{track}-{name}.png"
            outside = page.draw_curves(
                picture, f"{track}, {title.strip('`')}", curves, page.curve_points(same, own)
            )
            count = len({row.pair for row in same})
            lines += [f"![Dice against folds or roughness]({folder.name}/{picture.name})", ""]
            if outside:
                lines += [f"Outside the picture: {', '.join(outside)}.", ""]
            lines += [f"On the {count} pairs that all have:", ""]
            points = [
                f"{curve} | {p[0]} | {p[1]:.4f} | {p[2]:.4f} | {p[3]:.3f}"
                for curve, ps in curves.items()
                for p in ps
            ]
            lines += page.table("curve | point | Dice | folds % | SDlogJ", points)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--out", type=Path, required=True, help="the page; a folder beside it has the rows and pictures"
    )
    parser.add_argument("--tracks", default=",".join(TRACKS))
    parser.add_argument("--pairs", type=int, default=0, help="at most so many pairs of each track")
    parser.add_argument("--curve-pairs", type=int, help="at most so many pairs for the points of the curves")
    parser.add_argument("--presets", default="paper,default", help="which iterations")
    parser.add_argument(
        "--benchmark", action="append", default=[], metavar="TRACK=OUT",
        help="folder of `pirate benchmark TRACK`, of which the same registrations are taken instead of made again",
    )  # fmt: skip
    parser.add_argument("--note", action="append", default=[], help="a paragraph for the top of the page")
    parser.add_argument(
        "--only-page", action="store_true", help="no registration: a page from the rows there are"
    )
    given = parser.parse_args()
    started = time.monotonic()
    beside = given.out.with_suffix("")
    beside.mkdir(parents=True, exist_ok=True)
    benchmarks = {name: Path(out) for name, _, out in (text.partition("=") for text in given.benchmark)}
    text = [
        "# What a prior on the field is worth",
        "",
        *(line for note in given.note for line in (note, "")),
        "Made by `python benchmarks/prior.py DATA --out docs/results/prior.md`; validation subjects only. "
        "Each row says how many pairs it has. "
        "Brackets: 95 % by the paired bootstrap over pairs; pairs share subjects, so that true intervals are somewhat "
        "wider. Seconds: iteration and repair, median; one thread on slices and hippocampi, two on brains. Every pair "
        "starts as the files place it, except that hippocampi, which are cut out of different places, start from an "
        "affine alignment. Rows that `pirate benchmark` makes, too, are taken from its folder (--benchmark).",
        "",
    ]
    for name in given.tracks.split(","):
        chosen = plan(name)
        folder = benchmarks.get(name)
        rows = list(runs.known(name, chosen, beside, folder).values()) if given.only_page else []
        for iteration in () if given.only_page else given.presets.split(","):
            count = min(PAIRS[name][iteration], given.pairs or PAIRS[name][iteration])
            own = [v for v in chosen if v.preset == iteration]
            points = PAIRS[name]["curves"] if given.curve_pairs is None else given.curve_pairs
            whole, part = (runs.track(name, given.data, n) for n in (count, min(count, points)))
            rows += runs.run(whole, [v for v in own if not v.curve], beside, folder)
            rows += runs.run(part, [v for v in own if v.curve], beside)
        text += section(name, rows, chosen, beside)
    text += ["## The denoisers themselves", ""]
    for name in given.tracks.split(","):
        kept, roc = beside / f"diagnostics-{name}-{mark(name)}.md", beside / f"{name}-roc.png"
        if not given.only_page and not kept.is_file():
            diagnostics.keep(kept, diagnostics.section(runs.track(name, given.data, 40), roc))
        if kept.is_file():
            text += [*kept.read_text().rstrip().splitlines(), ""]
            text += [f"![ROC of the surprise]({beside.name}/{roc.name})", ""]
    given.out.write_text("\n".join(text).rstrip() + "\n")
    print(f"wrote {given.out} in {(time.monotonic() - started) / 60:.0f} min")


if __name__ == "__main__":
    main()
