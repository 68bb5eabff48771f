"""From the folder of a benchmark to everything that a page is made from."""

from __future__ import annotations

from pirate.benchmark import kept, lessons
from pirate.benchmark.comparisons import tables
from pirate.benchmark.elapsed import spent
from pirate.benchmark.entries import START
from pirate.benchmark.kept import Exhibit, Kept, read_held
from pirate.benchmark.measured import Measured
from pirate.benchmark.plan import Plan, read_record
from pirate.benchmark.results import Results
from pirate.benchmark.rows import Row, read_rows
from pirate.benchmark.timing import read_sizes, read_timings


def gather(plan: Plan, strict: bool = True) -> Measured:
    """Read rows, times, pictures and trainings; make the tables.

    Args:
        plan: what was asked for.
        strict: leave out what was made from other content than the plan's.
    """
    keys = {e.key for e in plan.entries}
    few = {
        e.key: {plan.track.pairs[i] for i in plan.pairs_of(e)}
        for e in plan.entries
        if e.key in plan.track.few
    }
    known = set(plan.track.pairs)
    rows = tuple(r for r in _rows(plan, strict) if r.entry in keys and r.pair in few.get(r.entry, known))
    timings = tuple(t for t in read_timings(plan.out / "timing.csv") if t.entry in keys)
    training = lessons.effort(plan.entries, plan.track.ndim, plan.weights)
    results = Results(
        plan.track.name, plan.track.pairs, plan.entries, rows, timings, plan.ablation_pairs, training
    )
    record = read_record(plan.out) or {}
    return Measured(
        plan.track, plan.entries, rows, timings, tables(results), exhibits(plan, rows, strict),
        lessons.folders(plan.out), tuple(s for s in read_sizes(plan.out / "scaling.csv") if s.entry in keys),
        {str(k): str(v) for k, v in record.get("machine", {}).items()}, plan.ablation_pairs, plan.command,
        spent(plan.out),
    )  # fmt: skip


def _rows(plan: Plan, strict: bool) -> list[Row]:
    return read_rows(plan.out / "rows.csv", plan.wanted if strict else None)


def exhibits(plan: Plan, rows: tuple[Row, ...], strict: bool = True) -> tuple[Exhibit, ...]:
    """The pairs that are shown, with what was kept of them."""
    by_key = {(r.entry, r.pair): r for r in rows if not r.error}
    found = []
    for role, index in kept.roles(rows, plan.track.pairs).items():
        name = plan.track.pairs[index]
        own = []
        for entry in plan.entries:
            path = kept.path_of(plan.out, index, name, entry.key)
            held = read_held(path, plan.made_from(entry, index) if strict else None)
            row = by_key.get((entry.key, name))
            if held is not None and row is not None:
                own.append(
                    Kept(entry, row, held.field, held.warped, held.warped_labels, held.trace, held.snapshots)
                )
        if any(k.entry.key != START for k in own):
            found.append(Exhibit(plan.track.cases[index], role, tuple(own)))
    return tuple(found)
