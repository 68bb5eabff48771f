"""Networks from weight files: built from the card, filled strictly, ready for use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from pirate.denoisers import zoo
from pirate.denoisers.conditional import Conditional
from pirate.denoisers.corrector import Corrector
from pirate.denoisers.dncnn import DnCNN
from pirate.denoisers.gradient_step import GradientStep
from pirate.denoisers.planes import PlaneCorrector
from pirate.errors import printable, reject
from pirate.io.weights import Card, load_weights

ARCHITECTURES: dict[str, type[nn.Module]] = {
    "dncnn": DnCNN,
    "conditional": Conditional,
    "gradient-step": GradientStep,
    "corrector": Corrector,
    "plane-corrector": PlaneCorrector,
}


@dataclass(frozen=True, eq=False)
class Learned:
    """A network from a weight file, ready for use: evaluation mode, no gradients for its weights.

    Args:
        network: the module, called as network(field, sigma).
        card: what the file says about it.
    """

    network: nn.Module
    card: Card

    @property
    def wants_images(self) -> bool:
        """Whether the network also looks at the fixed and the warped image."""
        return bool(getattr(self.network, "wants_images", False))

    def __call__(
        self, field: Tensor, sigma: float, fixed: Tensor | None = None, warped: Tensor | None = None
    ) -> Tensor:
        """Denoise `field` (B, d, *shape), voxels, in float32; the result has the type of `field`.

        Images are (B, C, *shape), any intensity unit, and given only to a network that wants them.
        """
        if self.wants_images:
            images = [image.float() for image in (fixed, warped) if image is not None]
            guided: Tensor = self.network(field.float(), sigma, *images)
            return guided.to(field.dtype)
        result: Tensor = self.network(field.float(), sigma)
        return result.to(field.dtype)

    def covers(self, sigma: float) -> bool:
        """Tell whether `sigma`, voxels of the grid at hand, lies in the range of the training."""
        return self.card.sigma_min <= sigma <= self.card.sigma_max


class LearnedEnergy(Learned):
    """A learned denoiser with ``z - D(z, sigma) = grad g_sigma(z)``, g_sigma known."""

    def energy(self, field: Tensor, sigma: float) -> Tensor:
        """g_sigma, (B,), voxels squared, float64, of a field (B, d, *shape) in voxels."""
        network = cast(GradientStep, self.network)
        with torch.no_grad():
            return network.energy(field.float(), sigma)


def load_denoiser(
    path: Path,
    ndim: int,
    device: torch.device | str = "cpu",
    sha256: str | None = None,
    resolution: float | None = None,
) -> Learned:
    """Build the network that the card of a weight file describes and fill it, names and shapes equal.

    Args:
        path: a file written by `pirate.io.weights.save_weights`.
        ndim: 2 or 3; a network for another number of axes is refused.
        device: where to put it.
        sha256: expected digest of the file; None does not check.
        resolution: of the grid on which it will act, relative to the image; None does not check.
    """
    tensors, card = load_weights(path, sha256)
    _check_card(path, card, ndim, resolution)
    network = _empty_network(path, card)
    wanted = {name: tuple(t.shape) for name, t in network.state_dict().items()}
    given = {name: tuple(t.shape) for name, t in tensors.items()}
    if wanted != given:
        raise reject(
            path,
            _difference(wanted, given),
            "the names and shapes of the network on the card",
            "The card belongs to other weights; export the file again.",
        )
    network.load_state_dict(tensors, strict=True, assign=True)
    kind = LearnedEnergy if hasattr(network, "energy") else Learned
    return kind(network.eval().requires_grad_(False).to(device), card)


def _check_card(path: Path, card: Card, ndim: int, resolution: float | None) -> None:
    """Refuse weights for other fields than those to come."""
    if card.ndim != ndim:
        finding = f"the network denoises {card.ndim}-D fields"
        raise reject(path, finding, f"one for {ndim}-D fields", "Choose weights trained in that dimension.")
    if card.unit != "voxel":
        finding = f"the network works in {printable(card.unit)[:40]}"
        raise reject(path, finding, "the unit voxel", "Train it on fields in voxels.")
    if resolution is not None and not zoo.fits(card.resolution, resolution):
        raise reject(
            path,
            f"the network was trained on grids of resolution {card.resolution:g}",
            f"{resolution:g}, of the grid on which the prior acts here (1 is that of the image, 2 half of it)",
            "Choose weights of that resolution, or train some with `pirate train denoiser`.",
        )


def _empty_network(path: Path, card: Card) -> nn.Module:
    """Build the network of the card without memory for its weights, so that no card can exhaust it."""
    arguments = dict(card.architecture)
    kind = arguments.pop("kind", None)
    if kind not in ARCHITECTURES:
        finding = f"the card names the architecture {printable(str(kind))[:40]!r}"
        raise reject(path, finding, " or ".join(ARCHITECTURES), "Use a newer pirate, or other weights.")
    try:
        with torch.device("meta"):
            return ARCHITECTURES[str(kind)](ndim=card.ndim, **arguments)
    except (TypeError, ValueError) as error:
        finding = f"the card's architecture cannot be built ({printable(str(error))[:200]})"
        raise reject(path, finding, f"the arguments of {kind}", "Export the file again.") from None


def _difference(wanted: dict[str, tuple[int, ...]], given: dict[str, tuple[int, ...]]) -> str:
    """Name the first tensor that is missing, superfluous or of another shape."""
    for name in sorted(wanted.keys() | given.keys()):
        if name not in given:
            return f"tensor {name} is missing"
        if name not in wanted:
            return f"tensor {printable(name)[:80]} does not belong to the network"
        if wanted[name] != given[name]:
            return f"tensor {name} has shape {given[name]}, not {wanted[name]}"
    return ""
