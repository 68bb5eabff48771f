"""Learning to take noise off fields, eq. (8): the task that `training.loop.train` solves.

    minimise over the weights   E [ |D(z + sigma e, sigma) - z|^2 / (sigma^2 |e|^2) ]

over fields z of a corpus, noise e of standard deviation 1 and, if it is a range, sigma. The quotient is the share
of the noise power that is left; with one sigma it is the paper's loss but for a constant.

A registration calls D on fields with less noise than sigma says, and near them a network that has never seen any may
expand without bound. So a share of the examples can be calm: ``z + s sigma e`` with s from 0 to 1, sigma as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from pirate.denoisers.conditional import Conditional
from pirate.denoisers.dncnn import DnCNN
from pirate.denoisers.gradient_step import GradientStep
from pirate.denoisers.noise import Noise
from pirate.training.augment import Symmetry, crop, scaled
from pirate.training.plan import Plan, generator

Kind = Literal["dncnn-paper", "dncnn-released", "conditional", "gradient-step"]

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "dncnn-paper": DnCNN.paper,
    "dncnn-released": DnCNN.released,
    "conditional": Conditional,
    "gradient-step": GradientStep,
}
SIGMAS = (0.1, 0.5, 1.0)  # voxels; where a network for a range of noise is validated
VALIDATED = 8  # so many held-out fields at most, evenly spread
ENOUGH = 3_000_000  # numbers in them; three fields are taken even if they have more
SMALLEST = 8  # voxels along each axis of a patch


class Fields(Protocol):
    """A corpus: (d, *shape) fields in voxels of their own grid."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor: ...


@dataclass(frozen=True)
class Preset:
    """What is learned from which noise, and the optimisation that goes with it.

    Args:
        network: one of the four architectures.
        noise: its levels and widths, voxels.
        symmetries: whether fields are turned, mirrored and scaled at random (methods: augment.py).
        patches: voxels along each axis of the training patches, in 2-D and in 3-D.
        plan: default constants of the optimisation.
    """

    network: Kind
    noise: Noise
    symmetries: bool
    patches: tuple[int, int]
    plan: Plan


PRESETS: dict[str, Preset] = {
    "paper": Preset(
        "dncnn-paper", Noise(1.0, 1.0), False, (96, 48), Plan(40_000, 1, 1e-4, "constant", validate_every=500)
    ),
    "released": Preset(
        "dncnn-released",
        Noise(1.0, 1.0),
        False,
        (96, 48),
        Plan(40_000, 1, 1e-4, "constant", validate_every=500),
    ),
    "small": Preset(
        "conditional",
        Noise(0.05, 1.0, 0.0, 2.0, calm=0.15),
        True,
        (64, 40),
        Plan(6000, 2, 3e-3, warmup=50, clip=1.0, validate_every=250),
    ),
    "gradient-step": Preset(
        "gradient-step",
        Noise(0.05, 1.0, 0.0, 2.0),
        True,
        (64, 32),
        Plan(4000, 2, 2e-3, warmup=50, clip=1.0, validate_every=250),
    ),
}
"""Settings by name. paper: 17 layers, ReLU; released: the 6 layers with ELU of the authors' code; both with the
paper's Adam 1e-4, batch 1, 400 epochs of 100 fields and one noise level, to be chosen from `PAPER_SIGMAS`."""

PAPER_SIGMAS = tuple(float(s) for s in range(1, 11))
"""The noise levels the paper tries, voxels of the field's grid."""


class Denoising:
    """Noise taken off random patches of a corpus; validated on whole held-out fields.

    Args:
        network: called as network(field, sigma), sigma (B,) in voxels.
        training: fields to learn from.
        held_out: fields of other subjects.
        noise: levels and widths.
        patch: voxels along each axis; less where the fields are smaller.
        symmetries: see `Preset`.
    """

    def __init__(
        self,
        network: nn.Module,
        training: Fields,
        held_out: Fields,
        noise: Noise,
        patch: int,
        symmetries: bool,
    ) -> None:
        if len(training) == 0 or len(held_out) == 0:
            raise ValueError("a denoiser needs fields to learn from and others to be validated on")
        shape = training[0].shape[1:]
        edge = min(patch, *shape)
        if edge < SMALLEST:
            raise ValueError(f"the patches have {edge} voxels along an axis and need {SMALLEST}")
        self.network, self.training, self.held_out = network, training, held_out
        self.noise, self.symmetries = noise, symmetries
        self.patch = (edge,) * len(shape)

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw a patch (d, *patch), its noisy version, both voxels, sigma () and the power of all its noise ()."""
        index = int(torch.randint(len(self.training), (), generator=generator))
        field = self.training[index]
        clean = crop(field, self.patch, generator)
        if self.symmetries:
            clean = Symmetry.random(len(self.patch), generator).of_field(clean)
            clean = scaled(clean, 0.5, 2.0, generator)
        sigma = self.noise.level(generator)
        noise = sigma * self.noise.unit(len(self.patch), self.patch, generator)
        noisy = clean + self.noise.share(generator) * noise
        power = noise.square().mean()
        return {"clean": clean.contiguous(), "noisy": noisy, "sigma": torch.tensor(sigma), "power": power}

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """Mean share of the noise power left, of a batch of clean and noisy (B, d, *patch), sigma and power (B,)."""
        clean, noisy = batch["clean"], batch["noisy"]
        left = (network(noisy, batch["sigma"]) - clean).square().flatten(1).mean(1)
        return (left / batch["power"]).mean(), {}

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Share of the noise power left on held-out fields: for each sigma, and as "loss" their mean."""
        shares = {f"left_{s:g}": share_left(network, self.held_out, self.noise.at(s)) for s in self.sigmas()}
        return {"loss": sum(shares.values()) / len(shares), **shares}

    def sigmas(self) -> tuple[float, ...]:
        """The noise levels, voxels, at which the network is validated."""
        inside = tuple(s for s in SIGMAS if self.noise.sigma_min <= s <= self.noise.sigma_max)
        return inside or (self.noise.sigma_max,)

    def state(self) -> dict[str, Tensor]:
        """Nothing is carried from step to step: {}."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing to restore."""


def share_left(network: nn.Module, fields: Fields, noise: Noise) -> float:
    """Return ``mean over fields of |D(z + n) - z|^2 / |n|^2``, on at most 8 of `fields`, always with the same noise.

    Args:
        network: called as network(field, sigma).
        fields: (d, *shape), voxels.
        noise: one level, its widths.
    """
    count = min(len(fields), VALIDATED, max(3, ENOUGH // fields[0].numel()))
    shares = []
    for k in range(count):
        clean = fields[k * len(fields) // count]
        rng = generator(20_040_297, k)
        n = noise.sigma_min * noise.unit(len(clean), clean.shape[1:], rng)
        with torch.no_grad():
            denoised = network((clean + n)[None], noise.sigma_min)[0]
        shares.append(float((denoised - clean).square().mean() / n.square().mean()))
    return sum(shares) / count


def best_of(
    sigmas: Sequence[float], fit: Callable[[float], nn.Module], score: Callable[[nn.Module, float], float]
) -> tuple[float, nn.Module, dict[float, float]]:
    """Train one network for each noise level and keep the one that registers best, as the paper does.

    Args:
        sigmas: levels, voxels.
        fit: trains a network for a level.
        score: e.g. mean Dice on validation pairs with that network as the prior; higher is better.

    Returns:
        The best level, its network, and the scores of all.
    """
    if not sigmas:
        raise ValueError("there is no noise level to choose from")
    networks = {sigma: fit(sigma) for sigma in sigmas}
    scores = {sigma: score(network, sigma) for sigma, network in networks.items()}
    best = max(sigmas, key=lambda sigma: scores[sigma])
    return best, networks[best], scores
