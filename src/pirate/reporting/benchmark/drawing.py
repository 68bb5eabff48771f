"""Every figure of a benchmark for which there is something to show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pirate.benchmark.entries import START
from pirate.benchmark.measured import Measured
from pirate.reporting.benchmark import exhibits, landmarks, style, training
from pirate.reporting.benchmark import scores as gathered
from pirate.reporting.benchmark.results import results
from pirate.reporting.benchmark.scaling import scaling, series
from pirate.reporting.benchmark.scatter import against_folds, against_time
from pirate.reporting.benchmark.scores import Score
from pirate.reporting.benchmark.style import Figure
from pirate.reporting.benchmark.words import counted


def draw(measured: Measured, folder: Path) -> list[Figure]:
    """Draw into `folder`, made if missing; what has no data has no figure.

    Returns:
        the figures in the order of a page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *_numbers(measured, folder),
        *exhibits.of_methods(measured, folder),
        *_ablation(measured, folder),
        *exhibits.of_variants(measured, folder),
        *_costs(measured, folder),
    ]


def _numbers(measured: Measured, folder: Path) -> Iterator[Figure]:
    """Overlap, time, folds and landmarks of the main methods."""
    every = gathered.scores(measured)
    found = gathered.having(every, "dice")
    title = measured.track.title
    if found:
        start = gathered.before(measured, "dice_before")
        told = counted(len(gathered.pairs_of(found)), "pair")
        path = results(folder / "results.png", found, start, f"{title}: DSC and folds of each pair")
        caption = f"DSC and folded voxels of every method on {told}, best mean on top. {exhibits.FOLDS}"
        yield Figure(path, "Numerical results", caption)
        mean = float(start.mean()) if len(start) else float("nan")
        if any(np.isfinite(s.seconds) and s.seconds > 0 for s in found):
            path = against_time(folder / "dice-time.png", found, mean, f"{title}: overlap against time")
            alone = ", the method alone on the machine" if measured.timings else ""
            caption = f"Mean DSC over {told} against the median time of a pair{alone}."
            yield Figure(path, "DSC against time", caption)
        if gathered.having(found, "folds"):
            path = against_folds(folder / "dice-folds.png", found, mean, f"{title}: overlap against folding")
            caption = f"Mean DSC over {told} against mean folds. {exhibits.FOLDS}"
            yield Figure(path, "DSC against negative JD", caption)
    yield from _landmarks(measured, folder, gathered.having(every, "tre"))


def _landmarks(measured: Measured, folder: Path, found: Sequence[Score]) -> Iterator[Figure]:
    if not found:
        return
    errors, unit = landmarks.of_each(found, measured.exhibits)
    start = errors.get(START, np.zeros(0)) if unit == "landmark" else gathered.before(measured, "tre_before")
    texts = f"{measured.track.title}: landmark error", unit
    path = landmarks.landmarks(folder / "landmarks.png", found, errors, start, texts)
    caption = (
        f"Distance of the landmarks from where they belong, mm, before and after; a point is one {unit}."
    )
    yield Figure(path, "Landmark error", caption)


def _ablation(measured: Measured, folder: Path) -> Iterator[Figure]:
    """The parts of the paper's method and the controls, on the pairs of the table beside it."""
    variants = gathered.having(gathered.scores(measured, exhibits.VARIANTS), "dice")
    if not variants:
        return
    whole = [s for s in gathered.scores(measured) if s.entry.key in exhibits.WHOLE]
    run = gathered.pairs_of(variants)  # with those that are shown in pictures
    pairs = run & set(measured.track.pairs[: measured.ablation_pairs]) or run
    plain = [dataclasses.replace(s, entry=dataclasses.replace(s.entry, ours=False)) for s in variants]
    found = gathered.on_pairs([*plain, *gathered.having(whole, "dice")], pairs)
    start = gathered.before(measured, "dice_before", pairs)
    mean = float(start.mean()) if len(start) else float("nan")
    note = "P data term, S smoothness, R denoiser, D denoiser trained by DEQ · disc: the whole method · hollow: folds"
    path = against_folds(folder / "ablation.png", found, mean, "Ablation: what each part is worth", note)
    caption = (
        f"Mean DSC against mean folds on {counted(len(pairs), 'pair')}. {exhibits.PARTS} {exhibits.FOLDS}"
    )
    yield Figure(path, "Ablation", caption)


def _costs(measured: Measured, folder: Path) -> Iterator[Figure]:
    """Sizes, evaluations along the training, losses."""
    if series(measured.scaling, "seconds"):
        path = scaling(folder / "scalability.png", measured.scaling, measured.entries, "Scalability")
        caption = "Time of a registration and peak memory of its process against the size of the images."
        yield Figure(path, "Scalability", caption)
    histories = {
        title_of(measured, name): training.read_history(place) for name, place in measured.training.items()
    }
    evaluated = {n: rows for n, rows in histories.items() if any("validation_nfe" in row for row in rows)}
    if evaluated:
        path = training.nfe(folder / "nfe.png", evaluated, "NFE along the training of PIRATE+")
        caption = (
            "Evaluations of the operator until its fixed point rests, and the residual it reaches, along the "
        )
        yield Figure(path, "NFE", f"{caption}DEQ training.")
    learned = {n: rows for n, rows in histories.items() if any("validation_loss" in row for row in rows)}
    if learned:
        path = training.losses(folder / "training.png", learned, "Training of the networks")
        caption = (
            "Loss along every training; each method has a loss of its own, so that heights do not compare."
        )
        yield Figure(path, "Training", caption)


def title_of(measured: Measured, method: str) -> str:
    """What a trained method is called in the tables."""
    keys = [e for e in measured.entries if e.key == method] + [
        e for e in measured.entries if e.base == method
    ]
    return style.name_of(keys[0]) if keys else method
