"""The page, with its table (.csv) and picture beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import picture, targets
from .plan import Method
from .tables import Row, as_csv, good, mean, mean_table, pair_table, partial

EXPLAINED = (
    "Each registration is a process of its own, all on the same threads, one after the other; nobody estimates an "
    "affine. Every transform is read back as one displacement field in voxels of the fixed grid, checked against "
    "the tool's own warped image (correlation above 0.999), and measured by the same code. **Dice**: mean over the "
    "labels that both maps hold (35 structures at most), labels warped by nearest neighbour; (vote): by the linear "
    "vote. **HD95**: mean over the labels of the larger directed 95th percentile. **folds %**: voxels with "
    "determinant <= 0 by central differences; **forward %**: by forward differences; **NDV %**: non-diffeomorphic "
    "volume; **cells**: cells with a simplex of volume <= 0. **SDlogJ**: standard deviation of the logarithm of the "
    "determinant. **registration s**: from images in memory to the final transform (ours: every stage of run.json "
    "but reading, inverse, resampling and measuring; `syn`: the call of `ants.registration`, which also writes its "
    "two warps). **whole s**: the process from start to end; ours also inverts, measures with the labels and writes "
    "all files and figures, the peers write the warp and the warped image. **MB** (10^6 bytes): largest resident size. "
)


def write(out: Path, rows: Sequence[Row], methods: Sequence[Method], about: Mapping[str, Any]) -> None:
    """Write the page to `out`, the table and the picture beside it."""
    image = out.with_name(f"{out.stem}-dice-time.png")
    groups = list(dict.fromkeys(r["group"] for r in rows))
    points = points_of(rows, methods, groups[0])
    out.with_suffix(".csv").write_text(as_csv(rows))
    out.write_text(text(rows, methods, about, image.name if points else None))
    if points:
        count = max(p.total for p in points)
        picture.draw(image, points, f"{groups[0]}, mean over {count} pair{'s' if count > 1 else ''}")


def points_of(rows: Sequence[Row], methods: Sequence[Method], group: str) -> list[picture.Point]:
    """A point for each method that registered a pair of the group."""
    total = len({r["pair"] for r in rows if r["group"] == group})
    found = []
    for method in methods:
        own = list(good(rows, method.name, group).values())
        seconds, dice = mean(own, "registration_s"), mean(own, "dice")
        if seconds is not None and dice is not None:
            found.append(picture.Point(method.name, seconds, dice, method.ours, len(own), total))
    return found


def text(rows: Sequence[Row], methods: Sequence[Method], about: Mapping[str, Any], image: str | None) -> str:
    """The whole page."""
    groups = list(dict.fromkeys(r["group"] for r in rows))
    ours = [m.name for m in methods if m.ours]
    reference = "default" if "default" in ours else (ours[0] if ours else None)
    lines = ["# Our presets and their peers", ""]
    if about["trial"]:
        lines += ["**A trial of the machinery with few iterations of the peers: not a result.**", ""]
    lines += [head(rows, methods, about), "", EXPLAINED + repeated(rows), ""]
    lines += ["| method | what is run |", "|---|---|", "| start | no registration |"]
    lines += [f"| {m.name} | {m.about} |" for m in methods] + [""]
    for group in groups:
        count = len({r["pair"] for r in rows if r["group"] == group})
        lines += [f"## {group}: means over {count} pair{'s' if count > 1 else ''}", ""]
        lines += mean_table(rows, group)
        notes = partial(rows, group, reference)
        lines += ["", *notes, ""] if notes else [""]
    if image:
        lines += [f"![Dice against registration time]({image})", ""]
    lines += ["## Targets", "", f"On the {targets.GROUP} pairs unless it says otherwise.", ""]
    lines += ["| target | measured | met |", "|---|---|---|"]
    answer = {True: "yes", False: "**no**", None: "-"}
    lines += [f"| {v.target} | {v.measured} | {answer[v.met]} |" for v in targets.verdicts(rows)] + [""]
    lines += ["## Each pair", ""]
    for pair in dict.fromkeys(r["pair"] for r in rows):
        lines += [f"### {pair}", "", *pair_table(rows, pair), ""]
    return "\n".join([*lines, "## Machine", "", "```", about["doctor"], "```", ""])


def head(rows: Sequence[Row], methods: Sequence[Method], about: Mapping[str, Any]) -> str:
    """Command, machine, versions, dates, and where a peer is ahead."""
    ours, peers = [m.name for m in methods if m.ours], [m.name for m in methods if not m.ours]
    packages = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    when = sorted(r["when"] for r in rows if "when" in r)
    span = f"Run from {when[0]} to {when[-1]}. " if when else ""
    old = sum(bool(r.get("reused")) for r in rows)
    kept = (
        f"{old} of {len(when)} results were taken from an earlier run of the same inputs and code. "
        if old
        else ""
    )
    return (
        f"Made by `{about['command']}` on {about['processor']} ({about['processors']} processors, {about['threads']} "
        f"threads used; load average {about['load']:.1f} at the start), {packages}. {span}{kept}"
        f"{targets.where_peers_win(rows, ours, peers)}"
    )


def repeated(rows: Sequence[Row]) -> str:
    """How often ours ran."""
    counts = sorted({r["repeats"] for r in rows if r.get("repeats", 1) > 1})
    if not counts:
        return "Every registration ran once."
    times = " or ".join(map(str, counts))
    return (
        f"Ours ran {times} times between the peers: median times, largest memory, and the same field each time "
        "(checked); peers ran once."
    )
