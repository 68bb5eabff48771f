"""Do a segmenter's posteriors help as further channels of the data term? Tried on slices. Supervised.

    python benchmarks/posteriors.py DATA --work WORK --out docs/results/posteriors.md

A U-Net learns the 24 labels of `oasis2d.npz` from training subjects. Then the data term of `default` is

    g(fixed, warped) + weight * mean over voxels of sum_c (P_c - Q_c o phi)^2,

P and Q its posteriors of the fixed and of the moving image, on every level of the pyramid. The weight is chosen on
pairs of training subjects that the segmenter has not seen; the table is of validation pairs. WORK keeps the segmenter.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _prior.page import table
from pirate.data import subjects
from pirate.data.subjects import Subject
from pirate.energies.composition import gradient_product
from pirate.energies.similarity import Similarity
from pirate.evaluation.folding import folding
from pirate.evaluation.overlap import dice, mean_dice
from pirate.evaluation.statistics import paired
from pirate.ops.resample import resize
from pirate.ops.warp import warp
from pirate.registration import pyramid
from pirate.registration.data_term import data_term
from pirate.registration.working import Images
from pirate.settings import Level, Settings, preset
from pirate.training.warping_augment import changed_intensities, random_diffeomorphism

HELD_OUT = 24
"""Training subjects on whose pairs the weight is chosen."""

CHOOSING, MEASURED = 20, 100
"""Pairs."""

WEIGHTS = (0.5, 2.0, 8.0, 32.0)
STEPS, BATCH = 800, 4


class Segmenter(nn.Module):
    """A U-Net of three halvings: (B, 1, *shape) to (B, labels, *shape), logits."""

    def __init__(self, labels: int, width: int = 16) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 4 * width]
        self.down = nn.ModuleList(_pair(a, b) for a, b in zip([1, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(_pair(a + b, b) for a, b in zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.last = nn.Conv2d(width, labels, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of every label."""
        x, kept = image, []
        for i, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for part, other in zip(self.up, kept[-2::-1], strict=True):
            x = part(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), other], 1))
        return self.last(x)


def _pair(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1), nn.InstanceNorm2d(b, affine=True), nn.LeakyReLU(0.1),
        nn.Conv2d(b, b, 3, padding=1), nn.InstanceNorm2d(b, affine=True), nn.LeakyReLU(0.1),
    )  # fmt: skip


def learn(people: Sequence[Subject], numbers: Sequence[int], path: Path) -> Segmenter:
    """Train on images with changed intensities, half of them deformed; or read what an earlier run trained."""
    torch.manual_seed(0)
    network = Segmenter(len(numbers))
    if path.is_file():
        network.load_state_dict(torch.load(path, weights_only=True))
        return network
    classes = [_classes(s, numbers) for s in people]
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, STEPS)
    random, started = torch.Generator().manual_seed(0), time.monotonic()
    for step in range(STEPS):
        images, maps = [], []
        for i in torch.randint(len(people), (BATCH,), generator=random).tolist():
            image, label = people[i].image[None], classes[i][None, None].float()
            if torch.rand((), generator=random) < 0.5:
                field = random_diffeomorphism(image.shape[2:], 6.0, random)
                image, label = warp(image, field), warp(label, field, "nearest")
            images.append(changed_intensities(image[0], random, 0.5)[None])
            maps.append(label[:, 0].long())
        loss = F.cross_entropy(network(torch.cat(images)), torch.cat(maps))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 100 == 99:
            left = (time.monotonic() - started) / (step + 1) * (STEPS - step - 1)
            print(f"segmenter: step {step + 1} of {STEPS}, loss {loss:.3f}, {left:.0f} s left", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), path)
    return network


def _classes(subject: Subject, numbers: Sequence[int]) -> Tensor:
    labels = subject.labels
    if labels is None:
        raise SystemExit(f"{subject.name} has no labels")
    return sum(
        (i * (labels == n).long() for i, n in enumerate(numbers)), torch.zeros_like(labels, dtype=torch.long)
    )


@dataclass(frozen=True, eq=False)
class WithPosteriors(Similarity):
    """A data term and the squared difference of posteriors; `fixed` and `fixed_mask` are those of the term."""

    term: Similarity = None  # type: ignore[assignment]
    posteriors: tuple[Tensor, Tensor] = None  # type: ignore[assignment]
    weight: float = 1.0

    def value_and_gradient(self, warped: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of the image alone; the posteriors are warped in `force`."""
        return self.term.value_and_gradient(warped, mask)

    def force(
        self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The term's and that of the posteriors."""
        value, force = self.term.force(moving, field, moving_mask, out)
        fixed, other = self.posteriors
        warped = warp(other, field)
        difference = warped - fixed
        scale = self.weight / fixed[0, 0].numel()
        value = value + scale * difference.square().sum().double()
        for c in range(fixed.shape[1]):
            force += gradient_product(
                warped[:, c : c + 1].contiguous(), 2 * scale * difference[:, c : c + 1].contiguous()
            )
        return value, force


def registered(
    fixed: Subject, moving: Subject, settings: Settings, maps: tuple[Tensor, Tensor], weight: float
) -> Tensor:
    """The field (1, 2, *shape), voxels, before any repair."""
    images = Images(fixed.image[None], moving.image[None], None, None, fixed.spacing)

    def term(here: Images, chosen: Settings, level: Level) -> Similarity:
        plain = data_term(here, chosen, level)
        small = tuple(resize(m, here.shape).contiguous() for m in maps)
        return plain if weight == 0 else WithPosteriors(here.fixed, None, plain, (small[0], small[1]), weight)

    with patch.object(pyramid, "data_term", term), torch.no_grad():
        return pyramid.solve(pyramid.stages(images, settings), settings).field


def scores(
    pairs: Sequence[tuple[Subject, Subject]], network: Segmenter, weight: float
) -> tuple[list[float], list[float]]:
    """Dice and folds in percent of every pair."""
    settings = preset("default", 2)
    overlaps, folds = [], []
    for fixed, moving in pairs:
        field = registered(
            fixed, moving, settings, (posterior(network, fixed), posterior(network, moving)), weight
        )
        if fixed.labels is None or moving.labels is None:
            raise SystemExit("labels are missing")
        warped = warp(moving.labels[None, None].float(), field, "nearest")[0, 0].short()
        overlaps.append(mean_dice(dice(fixed.labels.short().numpy(), warped.numpy())))
        folds.append(folding(field)["folds_percent"])
    return overlaps, folds


def posterior(network: Segmenter, subject: Subject) -> Tensor:
    """(1, labels - 1, *shape): all but the background."""
    with torch.no_grad():
        return network(subject.image[None]).softmax(1)[:, 1:].contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for the segmenter")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    given = parser.parse_args()
    people = subjects.oasis2d(given.data, split="train")
    order = torch.randperm(len(people), generator=torch.Generator().manual_seed(0)).tolist()
    kept, fit = [people[i] for i in order[:HELD_OUT]], [people[i] for i in order[HELD_OUT:]]
    numbers = sorted({0, *(int(n) for s in fit if s.labels is not None for n in s.labels.unique())})
    network = learn(fit, numbers, given.work / "segmenter.pt").eval()
    choosing = subjects.pairs(kept, CHOOSING, seed=0)
    tried = {w: float(np.mean(scores(choosing, network, w)[0])) for w in (0.0, *WEIGHTS)}
    best = max(WEIGHTS, key=lambda w: tried[w])
    others = subjects.oasis2d(given.data, split="validation")
    own = [
        mean_dice(dice(_classes(s, numbers).numpy(), network(s.image[None]).argmax(1)[0].numpy()))
        for s in others
    ]
    pairs = subjects.pairs(others, MEASURED, seed=0)
    plain, with_them = scores(pairs, network, 0.0), scores(pairs, network, best)
    rows = [
        f"none | {len(pairs)} | {np.mean(plain[0]):.4f} | - | {np.mean(plain[1]):.4f}",
        f"posteriors, weight {best:g} (supervised) | {len(pairs)} | {np.mean(with_them[0]):.4f} | "
        f"{paired(with_them[0], plain[0]):+.4f} | {np.mean(with_them[1]):.4f}",
    ]
    text = [
        "# A segmenter's posteriors in the data term",
        "",
        "Made by `python benchmarks/posteriors.py DATA --work WORK --out docs/results/posteriors.md`: "
        + _what(),
        "",
        f"The segmenter itself has a mean Dice of {np.mean(own):.4f} on the {len(own)} validation slices.",
        "",
        *table("weight | Dice of held-out training pairs", [f"{w:g} | {d:.4f}" for w, d in tried.items()]),
        *table("channels | validation pairs | Dice | gain | folds %, before repair", rows),
    ]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text("\n".join(text).rstrip() + "\n")


def _what() -> str:
    return (
        "slices, `default` with the squared difference of a U-Net's posteriors of 24 labels added to its data term on "
        "every level, solver only, no repair. Supervised."
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
