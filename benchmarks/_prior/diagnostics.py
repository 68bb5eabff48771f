"""What kind of maps the shipped denoisers are, how well they denoise, and whether they know a bad field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from _prior.page import table
from _prior.runs import Track, Worker
from _prior.variants import SIGMA, Variant
from pirate.data.subjects import Subject
from pirate.denoisers import zoo
from pirate.denoisers.classical import Gaussian
from pirate.denoisers.learned import Learned, load_denoiser
from pirate.denoisers.noise import Noise
from pirate.denoisers.total_variation import TotalVariation
from pirate.evaluation.gain import gain
from pirate.evaluation.probes import asymmetry, largest_singular_value
from pirate.evaluation.surprise import surprise
from pirate.ops.resample import half_shape, resize_field

SIGMAS = (0.1, 0.25, 0.5, 1.0)
COLOURED = (1.0, 2.0)
"""Voxels: width of the Gaussian that colours the noise."""

FIELDS = {"oasis2d": 12, "hippocampus": 8, "brain3d": 2}
"""Validation pairs whose fields are denoised."""

JUDGED = 24
"""Pairs that the surprise has to tell from spoilt ones."""


def solver_fields(track: Track, count: int) -> list[Tensor]:
    """Fields (1, d, *shape), voxels, of validation pairs by `default`, without a prior."""
    worker = Worker(track, None)
    plain = Variant("none", "default")
    return [torch.from_numpy(worker.register(plain, *pair).field)[None] for pair in track.pairs[:count]]


def on_grid(field: Tensor, resolution: float) -> Tensor:
    """A field (1, d, *shape) on the grid that is `resolution` times as coarse."""
    shape: tuple[int, ...] = tuple(field.shape[2:])
    for _ in range(round(np.log2(resolution))):
        shape = half_shape(shape)
    return field if shape == tuple(field.shape[2:]) else resize_field(field, shape)


def denoisers(ndim: int, of: str) -> dict[str, Learned]:
    """Shipped denoisers of the field alone for a data set, by name and resolution; `of` ends their names."""
    found = {}
    for entry in zoo.shipped():
        if entry.ndim == ndim and entry.name in (f"pirate{of}", f"pirate-plus{of}"):
            learned = load_denoiser(zoo.path_of(entry), ndim)
            if not learned.wants_images:
                found[f"{entry.name} {ndim}-D, 1/{entry.resolution:g}"] = learned
    return found


def denoising(fields: Sequence[Tensor], ndim: int, of: str) -> list[str]:
    """A table of gains and of the Jacobian for every denoiser of a data set."""
    rows = []
    for name, learned in denoisers(ndim, of).items():
        own = [on_grid(field, learned.card.resolution) for field in fields]
        probes = [asymmetry(learned, own[0], SIGMA), largest_singular_value(learned, own[0], SIGMA)]
        for sigma in SIGMAS:
            cells = []
            for noise in (Noise(sigma, sigma, *COLOURED), None):
                g = gain(learned, [f[0] for f in own], sigma, noise, with_total_variation=ndim == 2)
                tv = f"{g.total_variation:.2f}" if ndim == 2 else "-"
                cells.append(f"{g.denoiser:.2f} / {g.gaussian:.2f} / {tv} | {g.over_gaussian:+.2f}")
            first = sigma == SIGMAS[0]
            rows.append(
                f"{name if first else ''} | {sigma} | {' | '.join(cells)} | "
                + (f"{probes[0]:.3f} | {probes[1]:.2f}" if first else " | ")
            )
    for kind, denoiser in (("Gaussian, width sigma", Gaussian()), ("TV", TotalVariation())):
        field = on_grid(fields[0], 2 if ndim == 3 else 1)
        rho, largest = asymmetry(denoiser, field, SIGMA), largest_singular_value(denoiser, field, SIGMA)
        rows.append(f"{kind} | | | | | | {rho:.3f} | {largest:.2f}")
    head = (
        "denoiser | sigma | coloured noise: dB, best Gaussian, TV | over Gaussian | white: dB, best Gaussian, TV | "
        "over Gaussian | asymmetry | largest singular value"
    )
    return table(head, rows)


def spoilt(track: Track, kind: str, rng: np.random.Generator) -> list[tuple[Subject, Subject]]:
    """Pairs that should not register well: a mirrored or turned moving image, shuffled pieces, or noise."""
    import dataclasses

    pairs = []
    for fixed, moving in track.pairs[:JUDGED]:
        image = moving.image
        if kind == "upside down":
            image = image.flip(-1)
        elif kind == "turned by 90 degrees":
            image = _turned(image)
        elif kind == "noise":
            noise = torch.from_numpy(rng.random(tuple(image.shape), dtype=np.float32))
            image = noise * (image > 0)
        elif kind == "shuffled blocks":
            image = _shuffled(image, rng)
        pairs.append((fixed, dataclasses.replace(moving, image=image.contiguous())))
    return pairs


def _turned(image: Tensor) -> Tensor:
    """Turned in the plane of the last two axes, cut and padded to the old size."""
    turned = image.transpose(-1, -2).flip(-1)
    result = torch.zeros_like(image)
    sizes = [min(a, b) for a, b in zip(image.shape, turned.shape, strict=True)]
    there, here = (
        tuple(slice((n - s) // 2, (n - s) // 2 + s) for n, s in zip(x.shape, sizes, strict=True))
        for x in (turned, result)
    )
    result[here] = turned[there]
    return result


def _shuffled(image: Tensor, rng: np.random.Generator) -> Tensor:
    """Quarters of the first axis in another order: every piece is right, the whole is not."""
    pieces = list(torch.chunk(image, 4, dim=1))
    return torch.cat([pieces[i] for i in (2, 0, 3, 1)], dim=1)


def area_under_roc(good: NDArray[np.float64], bad: NDArray[np.float64]) -> float:
    """Share of (good, bad) pairs in which the bad one has the higher score."""
    return float(np.mean((bad[:, None] > good[None]) + 0.5 * (bad[:, None] == good[None])))


def draw_roc(path: Path, title: str, good: NDArray[np.float64], bad: dict[str, NDArray[np.float64]]) -> None:
    """Share of spoilt registrations that a threshold finds against the share of good ones that it blames."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), dpi=150)
    for colour, (kind, scores) in zip(("#31688e", "#c1440e", "#35b779", "#7a5195"), bad.items(), strict=True):
        limits = np.sort(np.concatenate([good, scores, [np.inf]]))[::-1]
        blamed, found = ([float(np.mean(values >= t)) for t in limits] for values in (good, scores))
        label = f"{kind}, area {area_under_roc(good, scores):.3f}"
        axes.plot([*blamed, 1.0], [*found, 1.0], color=colour, lw=1.8, label=label)
    axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=1, ls=":")
    axes.set_xlabel("share of good registrations that are blamed")
    axes.set_ylabel("share of spoilt ones that are found")
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def judging(track: Track, picture: Path) -> list[str]:
    """Whether the surprise of the data set's own denoiser tells spoilt registrations from good ones.

    (`register --maps` asks `pirate`, whatever the images.)
    """
    ndim = track.pairs[0][0].image.ndim - 1
    entry = zoo.find(f"pirate{track.suffix}", ndim)
    learned = load_denoiser(zoo.path_of(entry), ndim)
    sigma, expected = (float(learned.card.metrics[name]) for name in ("surprise_sigma", "residual_rms"))
    worker, plain = Worker(track, None), Variant("none", "default")
    rng = np.random.default_rng(0)

    def scores(pairs: Sequence[tuple[Subject, Subject]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found, ends = [], []
        for fixed, moving in pairs:
            result = worker.register(plain, fixed, moving)
            field = torch.from_numpy(result.field)[None]
            mask = (fixed.image[None] > 0).float()
            step = round(learned.card.resolution)
            found.append(surprise(learned, field, sigma, expected, mask=mask, resolution=step).score)
            ends.append(result.metrics["penalty_after"])
        return np.array(found), np.array(ends, np.float64)

    good, good_end = scores(track.pairs[:JUDGED])
    rows = [f"good | {len(good)} | {np.median(good):.2f} | - | {np.median(good_end):.3f} | -"]
    every = {}
    for kind in ("upside down", "turned by 90 degrees", "shuffled blocks", "noise"):
        bad, bad_end = scores(spoilt(track, kind, rng))
        every[kind] = bad
        rows.append(
            f"{kind} | {len(bad)} | {np.median(bad):.2f} | {area_under_roc(good, bad):.3f} | "
            f"{np.median(bad_end):.3f} | {area_under_roc(good_end, bad_end):.3f}"
        )
    head = "registrations | pairs | surprise score, median | area under ROC | data term at the end | its area under ROC"
    draw_roc(picture, f"{track.name}: surprise of the prior", good, every)
    note = "Every pair is of two subjects: the wrong subject would be no error here, the wrong image is."
    return [f"### {track.name}: does the prior know a bad field?", "", note, "", *table(head, rows)]


def section(track: Track, picture: Path) -> list[str]:
    """The part of the page about the denoisers of one track; the ROC goes to `picture`."""
    ndim = track.pairs[0][0].image.ndim - 1
    table = denoising(solver_fields(track, FIELDS[track.name]), ndim, track.suffix)
    return [f"### Denoising fields of {track.name}", "", *table, *judging(track, picture)]


def keep(path: Path, lines: Sequence[str]) -> None:
    """Write the section to a file from which a page can be made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
