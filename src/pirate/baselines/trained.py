"""A trained VoxelMorph, SYMNet or GraDIRN, from its weight file to fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from pirate.baselines.gradirn import GraDIRN
from pirate.baselines.parts import Fields
from pirate.baselines.symnet import SYMNet
from pirate.baselines.voxelmorph import VoxelMorph
from pirate.errors import printable, reject
from pirate.io.weights import Card, load_weights
from pirate.ops.resample import half_shape, resize, resize_field
from pirate.ops.smooth import gaussian
from pirate.registration.inputs import unit_range

NETWORKS: dict[str, type[nn.Module]] = {"voxelmorph": VoxelMorph, "symnet": SYMNet, "gradirn": GraDIRN}

TASK = "registration of a pair of images"

RESOLUTIONS = (1, 2, 4, 8)
"""Grids of a training relative to the images: 1 full, 2 half, ..."""

BLUR = 1.0
"""Sigma in voxels of the Gaussian before an image is halved."""


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network from a weight file: evaluation mode, no gradients for its weights.

    Args:
        network: one of `NETWORKS`.
        card: what the file says about it.
    """

    network: nn.Module
    card: Card

    @property
    def method(self) -> str:
        """Its name in `NETWORKS`."""
        return str(self.card.architecture["kind"])

    def fields(self, fixed: Tensor, moving: Tensor) -> Fields:
        """Align a pair of any size.

        Args:
            fixed: (1, 1, *shape), any intensity unit; it is scaled as in the training.
            moving: (1, 1, *shape), likewise, on the same grid.

        Returns:
            the field and, where the method has one, its inverse; (1, d, *shape), voxels, float32.
        """
        self._check(fixed, moving)
        shape = tuple(fixed.shape[2:])
        device = next(self.network.parameters()).device
        images = [coarsened(scaled(image).to(device), self.card.resolution) for image in (fixed, moving)]
        with torch.no_grad():
            found = cast(Callable[[Tensor, Tensor], Fields], self.network.fields)(*images)
        if found.field.shape[2:] == fixed.shape[2:]:
            return found
        inverse = None if found.inverse is None else resize_field(found.inverse, shape)
        return Fields(resize_field(found.field, shape), inverse)

    def field(self, fixed: Tensor, moving: Tensor) -> Tensor:
        """The field alone, (1, d, *shape), voxels; arguments as in `fields`."""
        return self.fields(fixed, moving).field

    def _check(self, fixed: Tensor, moving: Tensor) -> None:
        d = self.card.ndim
        if fixed.ndim != d + 2 or fixed.shape[:2] != (1, 1):
            raise reject(
                "fixed", f"the shape is {tuple(fixed.shape)}", f"(1, 1, *shape), {d} axes", "Give one image."
            )
        if moving.shape != fixed.shape:
            raise reject(
                "moving", f"the shape is {tuple(moving.shape)}", f"that of fixed, {tuple(fixed.shape)}",
                "Resample it to the fixed image's grid.",
            )  # fmt: skip
        for name, image in (("fixed", fixed), ("moving", moving)):
            if not float(image.max() - image.min()) > 0:
                raise reject(
                    name, "it is constant or not finite", "an image with contrast", "Check the image."
                )


def scaled(image: Tensor) -> Tensor:
    """An image of any unit and shape with background 0 and bright tissue about 1, float32, as networks see it."""
    return torch.from_numpy(unit_range(image.detach().cpu().float().numpy(), robust=True))


def coarsened(image: Tensor, resolution: float) -> Tensor:
    """An image (B, 1, *shape), any intensity unit, halved until it is `resolution` (1, 2, 4, ...) times as coarse."""
    while resolution > 1:
        image = resize(gaussian(image, BLUR), half_shape(image.shape[2:]))
        resolution /= 2
    return image


def load_network(
    path: Path,
    ndim: int,
    method: str | None = None,
    device: torch.device | str = "cpu",
    sha256: str | None = None,
) -> TrainedNetwork:
    """Build the network that the card of a weight file describes and fill it, names and shapes equal.

    Args:
        path: a file written by ``pirate train voxelmorph``, ``symnet`` or ``gradirn``.
        ndim: 2 or 3; a network for another number of axes is refused.
        method: a name in `NETWORKS`, to refuse any other; None takes what the card says.
        device: where to put it.
        sha256: expected digest of the file; None does not check.
    """
    tensors, card = load_weights(path, sha256)
    _check_card(path, card, ndim, method)
    network = _empty(path, card)
    wanted = {name: tuple(t.shape) for name, t in network.state_dict().items()}
    given = {name: tuple(t.shape) for name, t in tensors.items()}
    if wanted != given:
        odd = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))[0]
        raise reject(
            path,
            f"tensor {printable(odd)[:80]} has shape {given.get(odd)}, in the network {wanted.get(odd)}",
            "the names and shapes of the network on the card",
            "The card belongs to other weights; export the file again.",
        )
    network.load_state_dict(tensors, strict=True, assign=True)
    return TrainedNetwork(network.eval().requires_grad_(False).to(device), card)


def _check_card(path: Path, card: Card, ndim: int, method: str | None) -> None:
    """Refuse weights of another kind, for other images, or in another unit."""
    kind = card.architecture.get("kind")
    if kind not in NETWORKS or (method is not None and kind != method):
        finding = f"the card names the architecture {printable(str(kind))[:40]!r}"
        known = " or ".join(NETWORKS) if method is None else method
        raise reject(path, finding, known, f"Train one with `pirate train {method or 'voxelmorph'}`.")
    if card.ndim != ndim:
        finding = f"the network aligns {card.ndim}-D images"
        raise reject(path, finding, f"one for {ndim}-D images", "Choose weights trained in that dimension.")
    if card.unit != "voxel" or card.resolution not in RESOLUTIONS:
        finding = f"fields in {printable(card.unit)[:40]} at resolution {card.resolution:g}"
        raise reject(path, finding, "fields in voxel at resolution 1, 2, 4 or 8", "Export the file again.")


def _empty(path: Path, card: Card) -> nn.Module:
    """Build the network of the card without memory for its weights, so that no card can exhaust it."""
    arguments = dict(card.architecture)
    kind = str(arguments.pop("kind"))
    try:
        with torch.device("meta"):
            return NETWORKS[kind](ndim=card.ndim, **arguments)
    except (TypeError, ValueError) as error:
        finding = f"the card's architecture cannot be built ({printable(str(error))[:200]})"
        raise reject(path, finding, f"the arguments of {kind}", "Export the file again.") from None
