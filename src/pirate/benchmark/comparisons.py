"""From rows to the paper's tables: means with intervals, differences to `default` with tests, memory and time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pirate.benchmark import paper
from pirate.benchmark.cases import subjects_of
from pirate.benchmark.entries import REFERENCE, START, Entry
from pirate.benchmark.results import RANKED_BY, Results, bold, count, form, shown, titled
from pirate.benchmark.rows import Row
from pirate.benchmark.tables import Table
from pirate.evaluation.statistics import holm, paired, wilcoxon

ABLATION = (
    "p", "p+s", "p+r", "p+d", "pirate", "pirate-plus", "p+s=zero", "random", "permuted", "gaussian", "tv",
)  # fmt: skip
STEPS = ("pirate-fixed", "pirate", "pirate-plus-fixed", "pirate-plus-cosine", "pirate-plus")
TITLES = {
    "p+s=zero": "zero for R (the same as P+S)", "pirate": "P+R+S = PIRATE", "pirate-plus": "P+D+S = PIRATE+",
}  # fmt: skip
STEP_TITLES = {
    "pirate": "PIRATE, cosine step", "pirate-plus": "PIRATE+, Anderson at the cosine's mean (as in the main table)",
}  # fmt: skip


FEW = 10
"""Pairs below which a bootstrap interval is too narrow to be trusted."""


def tables(results: Results) -> tuple[Table, ...]:
    """All tables for which there is something."""
    found = [
        main(results),
        ablation(results),
        steps(results),
        against_tv(results),
        costs(results),
        corner(results),
    ]
    return tuple(t for t in found if t is not None and t.rows)


def main(results: Results) -> Table:
    """Every method of the main table; with landmark errors where there are landmarks."""
    own = [e for e in results.entries if e.group == "main"]
    landmarks = any(math.isfinite(r.tre) for r in results.rows)
    labelled = any(math.isfinite(r.dice) for r in results.rows)
    columns = [
        *(["DSC [95 %]", "HD95 mm"] if labelled else []),
        *(["TRE mm"] if landmarks else []),
        "similarity", "neg. JD %", "NDV %", "SDlogJ", "seconds",
    ]  # fmt: skip
    there = [n for n in RANKED_BY if any(math.isfinite(getattr(r, n)) for r in results.rows)]
    measure = there[0] if there else RANKED_BY[-1]
    p = corrected(results, own, measure)
    what = {"dice": "DSC", "tre": "TRE", "similarity_after": "similarity"}[measure]
    heading = ("method", "pairs", *columns, f"{what} against `default`", "p (Holm)", "paper")
    lines = []
    for entry in own:
        good = results.good(entry.key)
        cells = [shown(results, entry, good, name) for name in columns]
        difference = _difference(results, good, measure) if entry.key != REFERENCE else "-"
        told = "-" if entry.key not in p else f"{p[entry.key]:.2g}" if p[entry.key] >= 1e-4 else "< 1e-4"
        lines.append(
            (titled(results, entry), count(good, results.pairs), *cells, difference, told,
             paper.of(results.track, entry.key))
        )  # fmt: skip
    heading, lines = without_empty(heading, lines)
    name = "lung" if results.track == "lung" else "main"
    return Table(
        name, "Main table" if name == "main" else "Lung table", _main_note(results, what, heading), heading,
        tuple(lines), bold(results, own, heading, measure_pairs=results.pairs),
    )  # fmt: skip


def without_empty(
    heading: tuple[str, ...], lines: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A table without the columns behind the second that have nothing but "-" in them."""
    kept = [i for i in range(len(heading)) if i < 2 or any(line[i] != "-" for line in lines)]
    return tuple(heading[i] for i in kept), [tuple(line[i] for i in kept) for line in lines]


MEANING = {
    "DSC [95 %]": "DSC: mean over the labels that both images hold, labels by nearest neighbour, brackets: 95 % by "
    "bootstrap over the pairs, wider where pairs that share a subject vary together",
    "HD95 mm": "HD95: mean over the labels",
    "TRE mm": "TRE: mean distance of the landmarks from where they belong",
    "similarity": "similarity: correlation of the fixed and the warped image",
    "neg. JD %": "neg. JD: voxels with determinant <= 0 by central differences",
    "NDV %": "NDV: non-diffeomorphic volume",
    "SDlogJ": "SDlogJ: standard deviation of the determinant's logarithm",
    "seconds": "seconds: of the registration itself, median of the pairs",
}
"""Of the columns of the main table."""

ALONE = "seconds: the method alone on the machine with all threads, median of a few pairs"


def _main_note(results: Results, what: str, heading: Sequence[str]) -> str:
    known = MEANING | ({"seconds": ALONE} if results.timings else {})
    meanings = [text for column, text in known.items() if column in heading]
    source = "EMPIRE10, lung masks" if results.track == "lung" else "OASIS volumes, 35 labels, GPU"
    sentences = [
        "Every method has the same pairs, or the first of them where the table says so, the same start, the same "
        "threads.",
    ]
    if f"{what} against `default`" in heading:
        interval = " with its 95 % interval, likewise" if len(results.pairs) > 1 else ""
        meanings.append(f"{what} against `default`: paired difference{interval}")
    if "p (Holm)" in heading:
        meanings.append("p: Wilcoxon's signed-rank test against `default`, corrected by Holm for all rows")
    if meanings:
        sentences.append(f"{'; '.join(meanings)}.")
    if "p (Holm)" in heading:
        sentences.append("Wilcoxon's test takes the pairs as independent.")
    if "paper" in heading:
        sentences.append(f"Paper: DSC / neg. JD % / seconds as printed ({source}).")
    sentences.append("Bold: the best of those that use no labels and have every pair.")
    if 1 < len(results.pairs) < FEW:
        sentences.append("So few pairs say little: their intervals are too narrow.")
    return " ".join(sentences)


def ablation(results: Results) -> Table | None:
    """P, S, R, D, and what happens when something else takes R's place."""
    return _smaller(results, "ablation", "Ablation", ABLATION, TITLES, (
        "P: similarity; S: smoothness; R: denoiser trained on noise; D: denoiser tuned through the equilibrium. "
        "Controls take R's place: nothing, the same network with random and with shuffled weights, the Gaussian "
        "filter that changes fields as much as R does, total variation."
    ))  # fmt: skip


def steps(results: Results) -> Table | None:
    """A fixed step against the cosine."""
    return _smaller(results, "step", "Step size", STEPS, STEP_TITLES, (
        "Fixed: the mean of the cosine's step. The paper's PIRATE+ rows: fixed and cosine."
    ))  # fmt: skip


def against_tv(results: Results) -> Table | None:
    """Total variation against the learned denoiser."""
    return _smaller(
        results, "tv", "TV against DnCNN", ("tv", "pirate"), {"tv": "TV", "pirate": "DnCNN (PIRATE)"}, ""
    )


def _smaller(
    results: Results, name: str, title: str, keys: Sequence[str], titles: Mapping[str, str], note: str
) -> Table | None:
    pairs = results.pairs[: results.ablation_pairs]
    here = [(key, e) for key in keys if (e := results.entry(key.partition("=")[0])) is not None]
    if not pairs or not any(e.group != "main" for _, e in here):
        return None
    columns = ("DSC [95 %]", "HD95 mm", "neg. JD %", "NDV %", "SDlogJ", "seconds")
    lines = []
    for key, entry in here:
        good = results.good(entry.key, pairs)
        cells = [shown(results, entry, good, column) for column in columns]
        lines.append(
            (titled(results, entry, titles.get(key)), count(good, pairs), *cells,
             paper.of(results.track, key))
        )  # fmt: skip
    heading, lines = without_empty(("variant", "pairs", *columns, "paper"), lines)
    printed = " Paper: DSC / neg. JD % / seconds as printed." if "paper" in heading else ""
    whole = f"{note} On {_first(len(pairs))}.{printed}".strip()
    return Table(
        name, title, whole, heading, tuple(lines),
        bold(results, [e for _, e in here], heading, measure_pairs=pairs),
    )  # fmt: skip


def _first(count: int) -> str:
    return "the first pair" if count == 1 else f"the first {count} pairs"


def costs(results: Results) -> Table | None:
    """Memory and running time, of registering and of training."""
    if not results.timings:
        return None
    training = results.training or {}
    lines: list[tuple[str, ...]] = []
    for entry in results.entries:
        timing, learned = results.timing(entry.key), training.get(entry.key, (math.nan, math.nan))
        if (
            entry.key == START
            or entry.group not in ("main", "tv")
            or (timing is None and entry.group == "tv")
        ):
            continue
        seconds, memory = (timing.median, timing.peak_mb) if timing is not None else (math.nan, math.nan)
        cost = paper.cost_of(results.track, entry.key)
        lines.append(
            (titled(results, entry), form(memory, ".0f"), form(seconds, "time"), form(learned[0], ".1f"),
             form(learned[1], ".0f"), cost)
        )  # fmt: skip
    heading, lines = without_empty(
        ("method", "memory MB", "seconds", "training minutes", "training memory MB", "paper"), lines
    )
    printed = " Paper: MB of registering / MB of training / seconds of an epoch of training, on a GPU."
    threads = max(t.threads for t in results.timings)
    return Table(
        "memory_time", "Memory and running time",
        f"Each method alone in a fresh process, {threads} threads; memory: largest resident size of that process, for "
        "other tools that of theirs. Training on this machine; of our priors as their cards tell."
        + printed * ("paper" in heading),
        heading, tuple(lines),
    )  # fmt: skip


def corner(results: Results) -> Table | None:
    """Every method on the pair on which `default` gains least."""
    gains = {p: r.dice - r.dice_before for p, r in results.good(REFERENCE).items()}
    gains = {p: g for p, g in gains.items() if math.isfinite(g)}
    if len(gains) < 2:
        return None
    pair = min(gains, key=lambda p: gains[p])
    columns = ("DSC", "HD95 mm", "neg. JD %", "NDV %", "SDlogJ", "seconds")
    own = [e for e in results.entries if e.group == "main"]
    lines = []
    for entry in own:
        good = results.good(entry.key, [pair])
        gain = "-" if not good else f"{good[pair].dice - good[pair].dice_before:+.4f}"
        cells = [shown(results, entry, good, column) for column in columns]
        lines.append((titled(results, entry), *cells, gain))
    heading = ("method", *columns, "gain")
    return Table(
        "corner", "Corner case: the smallest gain of `default`", f"The pair {pair}.", heading, tuple(lines),
        bold(results, own, heading, measure_pairs=[pair]),
    )  # fmt: skip


def corrected(results: Results, entries: Sequence[Entry], measure: str) -> dict[str, float]:
    """p of Wilcoxon's test against `default` on the pairs that both have, Holm-corrected, by key."""
    reference = results.good(REFERENCE)
    found = {}
    for entry in entries:
        own = results.good(entry.key)
        both = [p for p in results.pairs if p in own and p in reference]
        if entry.key != REFERENCE and len(both) > 1:
            found[entry.key] = wilcoxon(*([getattr(s[p], measure) for p in both] for s in (own, reference)))
    return dict(zip(found, holm(list(found.values())).tolist(), strict=True))


def _difference(results: Results, good: Mapping[str, Row], measure: str) -> str:
    reference = results.good(REFERENCE)
    both = [p for p in results.pairs if p in good and p in reference]
    if not both:
        return "-"
    ours, theirs = ([getattr(s[p], measure) for p in both] for s in (good, reference))
    found = paired(ours, theirs, [subjects_of(p) for p in both])
    return f"{found:+.4f}" if len(both) > 1 else f"{found.mean:+.4f}"
