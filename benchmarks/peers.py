"""Our presets against ANTs SyN, greedy and demons: accuracy, folding, time and memory, in one go.

    python benchmarks/peers.py DATA --out docs/results/peers.md

DATA is a folder with `brain3d/<subject>/{norm,seg35}.nii.gz`. Every registration is a process of its own with
`--threads` threads, and starts from the alignment of the files: nobody estimates an affine. Every result is
read back as one displacement field on the fixed grid and measured by the same code. Needs the `baselines` extra.
Beside the page come a table (.csv) and a picture (-dice-time.png).

With --work the results of each run are kept there and used again if inputs, parameters, versions and
code are the same.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _peers import page, plan
from _peers.plan import START, Method, Pair
from _peers.processes import RunError
from _peers.runs import Bench, combined, versions

MEASURED = "measured"  # what the lines about measurements are called
DEFAULT_METHODS = ("fast", "default", "best", *(peer.name for peer in plan.PEERS))


class Progress:
    """One line for each run and each measurement, with the time left."""

    def __init__(self, waiting: Sequence[str]) -> None:
        self.waiting = [*waiting]
        self.total = len(self.waiting)
        self.taken: dict[str, list[float]] = {}

    def done(self, kind: str, pair: Pair, note: str, seconds: float = 0.0, method: str = "") -> None:
        """Print what came out; only what took time counts for the estimate."""
        self.waiting.remove(kind)
        if seconds > 0:
            self.taken.setdefault(kind, []).append(seconds)
        left, certain = plan.time_left(self.taken, self.waiting)
        count = self.total - len(self.waiting)
        sign = "about" if certain else "more than"
        name = f"{method} {kind}" if method else kind
        print(
            f"[{count}/{self.total}] {pair.name} {name}: {note}; {sign} {left / 60:.0f} min left", flush=True
        )


def one_pair(
    bench: Bench, pair: Pair, runs: Sequence[tuple[Method, int]], progress: Progress
) -> list[dict[str, Any]]:
    """Every method on one pair; a method that fails is a row that says why."""
    repeats: dict[str, list[dict[str, Any]]] = {}
    errors: dict[str, str] = {}
    for method, repeat in runs:
        if method.name in errors:
            progress.done(method.name, pair, "not repeated")
            continue
        started = time.perf_counter()
        try:
            found = bench.once(pair, method, repeat)
        except RunError as error:
            errors[method.name] = str(error)
            progress.done(method.name, pair, f"FAILED, {error}", time.perf_counter() - started)
            continue
        repeats.setdefault(method.name, []).append(found)
        note = f"{found['registration_s']:.2f} s of {found['whole_s']:.1f} s, {found['peak_mb']:.0f} MB"
        if found["reused"]:
            progress.done(method.name, pair, f"{note} (from {found['when']})")
        else:
            progress.done(method.name, pair, note, time.perf_counter() - started)
    rows = []
    for name in (START, *dict.fromkeys(method.name for method, _ in runs)):
        started = time.perf_counter()
        row = {"pair": pair.name, "group": pair.group, "method": name}
        row |= {"error": errors[name]} if name in errors else measured(bench, pair, name, repeats.get(name))
        note = f"Dice {row['dice']:.4f}" if "error" not in row else f"FAILED, {row['error']}"
        progress.done(MEASURED, pair, note, time.perf_counter() - started, name)
        rows.append(row)
    return rows


def measured(bench: Bench, pair: Pair, name: str, repeats: Sequence[dict[str, Any]] | None) -> dict[str, Any]:
    """Times and numbers of one method on one pair (none of a registration: the start), or the error."""
    try:
        found = combined(repeats) if repeats is not None else None
        return (found or {}) | bench.measured(pair, name, found)
    except RunError as error:
        return {"error": str(error)}


def all_pairs(bench: Bench, options: argparse.Namespace, methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Every pair in turn."""
    pairs = plan.pairs(options.pairs)
    missing = bench.missing(pairs)
    if missing:
        raise SystemExit(f"{missing[0]}: there is no such file; expected brain3d/<subject>/ in DATA.")
    order = plan.order(methods, options.repeats)
    kept = [
        (i, [r for r in order if not plan.skipped(r[0], i, options.long_pairs, None)])
        for i in range(len(pairs))
    ]
    steps = [[m.name for m, _ in runs] for _, runs in kept]
    progress = Progress([s for names in steps for s in (*names, *[MEASURED] * (1 + len(set(names))))])
    rows: list[dict[str, Any]] = []
    first: dict[str, float] = {}
    for i, runs in kept:
        slow = [r for r in runs if plan.skipped(r[0], i, options.long_pairs, first.get(r[0].name))]
        for method, _ in slow:
            progress.done(method.name, pairs[i], "left out, slow")
            progress.done(MEASURED, pairs[i], "left out", method=method.name)
        rows += one_pair(bench, pairs[i], [r for r in runs if r not in slow], progress)
        if i == 0:
            first = {r["method"]: r["registration_s"] for r in rows if "registration_s" in r}
    return rows


def machine() -> dict[str, Any]:
    """What ran this: processor, load at the start, what `pirate doctor` says."""
    try:
        model = next(
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = "unknown processor"
    return {"processor": model, "processors": os.cpu_count(), "load": os.getloadavg()[0]}


def doctor() -> str:
    done = subprocess.run([sys.executable, "-m", "pirate", "doctor"], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip()


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    about, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about,
        epilog=rest,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--out", type=Path, required=True, help="the page, a .md file")
    parser.add_argument("--methods", nargs="+", default=[*DEFAULT_METHODS], metavar="NAME")
    parser.add_argument("--pairs", nargs="+", metavar="FIXED:MOVING", help="by default all eight")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="of our own runs, for the median of the times")
    parser.add_argument("--long-pairs", type=int, default=2, help="pairs on which long methods run")
    parser.add_argument("--work", type=Path, help="keep results here and use them again")
    parser.add_argument("--fresh", action="store_true", help="use nothing that is kept")
    parser.add_argument("--timeout", type=float, default=14400.0, help="seconds that one run may take")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of our own runs")
    parser.add_argument(
        "--trial", action="store_true", help="few iterations of the peers: tests the machinery"
    )
    options = parser.parse_args(words)
    for name in ("threads", "repeats", "long_pairs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


def command(options: argparse.Namespace) -> str:
    """The command that a reader would type: DATA for the data's folder, no other paths than --out."""
    words = ["python", "benchmarks/peers.py", "DATA", "--out", f"docs/results/{options.out.name}"]
    if tuple(options.methods) != DEFAULT_METHODS:
        words += ["--methods", *options.methods]
    words += ["--pairs", *options.pairs] if options.pairs else []
    for name, usual in (("threads", 2), ("repeats", 3), ("long_pairs", 2)):
        if getattr(options, name) != usual:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    words += ["--set", *options.set] if options.set else []
    return shlex.join([*words, *(["--trial"] if options.trial else [])])


def main() -> None:
    options = parsed()
    methods = plan.methods(options.methods, options.set, options.trial)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = machine() | {"command": command(options), "threads": options.threads, "trial": options.trial}
    with tempfile.TemporaryDirectory(prefix="peers-") as private:
        work = (options.work or Path(private)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(options.data.resolve(), work, options.threads, options.timeout, options.fresh)
        rows = all_pairs(bench, options, methods)
    about["doctor"] = doctor()
    about["versions"] = versions([name for method in methods for name in method.packages])
    page.write(options.out, rows, methods, about)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
