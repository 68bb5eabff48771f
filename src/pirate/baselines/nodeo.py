"""NODEO (Wu et al., CVPR 2022): an untrained network is the velocity of all voxels at once, fitted to each pair.

The network sees where the voxels are, never the images. With positions phi in [-1, 1] along each axis, phi(0) the grid:

    d phi / dt = V(phi),   V = 0.001 F(phi),   phi(1) by `steps` Euler steps of length 1 / steps
    field      = (phi(1) - phi(0)) (n - 1) / 2                                    voxels, n the size of each axis
    loss       = g + folding h + smoothness s + velocity m

    g = 1 - mean of the squared local correlation,            h = mean relu(1/2 - |J|)^2
    s = sum over the axes of mean (forward difference)^2,     m = mean |V(phi)|^2

The published code differs from its paper and from itself in places; here these are put right:

- it takes a single Euler step, whatever its name promises; one is the default here too, and `steps` is a real
  integration over the same time, by plain backpropagation (theirs would lengthen the time instead);
- its grid lists components last axis first and scales them first axis first, and by n instead of n - 1, so that in an
  image that is not a cube each component has another axis's scale; here component c is axis c, scaled by its own n - 1;
- it means to keep the best of the last fifty iterations by g h but never stores the best value, and so keeps the last;
  here the value is stored, and equal products are told apart by g;
- its linear layer has 864 inputs, right for 160 x 144 x 192 only; here the number follows from the image, 2-D or 3-D,
  and sizes that four does not divide are upsampled to the image's own;
- its determinants are those of a grid scaled by n instead of n - 1; here they are in voxels;
- its weights are read from the command line as whole numbers, so that 0.05 or 5e-5 cannot be given; here each is a
  number, `--set smoothness=0.1`;
- its "average Dice" is that of one label, the first of its list; here it is the mean over all labels of both images;
- its share of folds counts determinants below 0 by forward differences, over the (n - 1)^3 voxels that have all next
  neighbours; here, as for every method, it counts those not above 0 by central differences over all voxels, and the
  one by forward differences, with 0 itself counted, stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pirate.baselines.parts import halved
from pirate.denoisers.convolution import CONVOLUTIONS
from pirate.energies import Folding, LocalCorrelation
from pirate.energies.local import box_sum
from pirate.errors import NotConverged, reject
from pirate.ops.derivative import forward_difference, forward_difference_adjoint
from pirate.ops.resample import resize_field
from pirate.ops.warp import identity
from pirate.solvers.solution import Record

LAYERS = 5
"""Stride-2 convolutions after the first halving."""

COARSE = 4
"""The network puts out a velocity on every so-manieth voxel."""

Observer = Callable[[Record], bool]
"""Called after every iteration; returning True ends the fit, with the best field so far."""


@dataclass(frozen=True)
class NodeoSettings:
    """The published constants."""

    iterations: int = 300
    """Steps of Adam (amsgrad)."""
    learning_rate: float = 0.005
    """Of Adam."""
    steps: int = 1
    """Euler steps of the flow; 1 is what the published code does."""
    window: int = 21
    """Side of the local correlation's window, voxels, odd."""
    folding: float = 2.5
    """Weight of h."""
    margin: float = 0.5
    """Determinant below which h counts."""
    smoothness: float = 0.05
    """Weight of s, the field in voxels."""
    velocity: float = 5e-5
    """Weight of m, V in normalised units."""
    scale: float = 0.001
    """V is so much of the network's output."""
    channels: int = 32
    """Of the convolutions."""
    bottleneck: int = 16
    """Numbers between the two linear layers."""
    box: int = 15
    """Side of the box filter on the output, voxels, odd."""
    judged: int = 50
    """So many last iterations compete for the result."""
    resolution: int = 1
    """2 fits the pair at half resolution, in an eighth of the time for a volume; 1 is the published full one."""
    seed: int = 0
    """Of the network's first weights."""

    def __post_init__(self) -> None:
        counts = ("iterations", "steps", "channels", "bottleneck", "judged")
        numbers = ("learning_rate", "folding", "smoothness", "velocity", "scale")
        for name in counts:
            if getattr(self, name) < 1:
                raise reject(name, str(getattr(self, name)), "1 or more", "Correct the setting.")
        for name in numbers:
            if not 0 <= getattr(self, name) < math.inf:
                raise reject(name, str(getattr(self, name)), "a number from 0", "Correct the setting.")
        if self.resolution not in (1, 2):
            raise reject("resolution", str(self.resolution), "1 or 2", "Correct the setting.")
        if self.box < 1 or self.box % 2 == 0:
            raise reject("box", str(self.box), "an odd number", "Use for example 15.")


class Velocity(nn.Module):
    """F: positions (1, d, *shape) in [-1, 1] to a velocity (1, d, *shape) in that unit, before `scale`.

    Halved, five stride-2 convolutions, two linear layers with little between them, upsampled, box-filtered.
    """

    def __init__(self, shape: Sequence[int], settings: NodeoSettings) -> None:
        super().__init__()
        d = len(shape)
        self.shape = tuple(shape)
        self.coarse = tuple(-(-n // COARSE) for n in shape)
        for axis, (c, n) in enumerate(zip(self.coarse, self.shape, strict=True)):
            self.register_buffer(f"axis{axis}", upsampled(c, n, settings.box), persistent=False)
        convolution = CONVOLUTIONS[d]
        widths = [d] + [settings.channels] * LAYERS
        self.convolutions = nn.ModuleList(
            convolution(a, b, 3, stride=2, padding=1, padding_mode="replicate") for a, b in pairwise(widths)
        )
        self.narrow = nn.Linear(settings.channels * features(shape), settings.bottleneck)
        self.widen = nn.Linear(settings.bottleneck, d * math.prod(self.coarse))

    def forward(self, positions: Tensor) -> Tensor:
        """The velocity, (1, d, *shape), at every voxel, of these positions, (1, d, *shape)."""
        d = len(self.shape)
        mode = "bilinear" if d == 2 else "trilinear"
        x = F.interpolate(positions, size=_halved(self.shape), mode=mode, align_corners=True)
        for k, convolution in enumerate(self.convolutions, 1):
            x = convolution(x)
            x = F.relu(x) if k < LAYERS else x
        velocity: Tensor = self.widen(F.relu(self.narrow(x.flatten(1)))).view(1, d, *self.coarse)
        for axis, matrix in enumerate(self.buffers()):
            velocity = torch.tensordot(velocity, matrix, dims=([axis + 2], [0])).movedim(-1, axis + 2)
        return velocity


def upsampled(coarse: int, size: int, box: int) -> Tensor:
    """(coarse, size): twice the linear upsampling by 2, then the mean of `box` voxels with 0 outside, along one axis.

    All of it is linear and the same along every axis, so that one small product an axis does it.
    """
    rows = torch.eye(coarse)[None]
    for n in (min(2 * coarse, size), size):
        rows = F.interpolate(rows, size=n, mode="linear", align_corners=False)
    return box_sum(rows, box)[0] / box


def features(shape: Sequence[int]) -> int:
    """Voxels that are left of `shape` after the halving and the convolutions."""
    size = _halved(shape)
    for _ in range(LAYERS):
        size = tuple((n + 1) // 2 for n in size)
    return math.prod(size)


def _halved(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(1, n // 2) for n in shape)


def integrate(
    velocity: Callable[[Tensor], Tensor], positions: Tensor, steps: int
) -> tuple[Tensor, list[Tensor]]:
    """Follow ``d phi / dt = velocity(phi)`` from time 0 to 1 by Euler steps of length 1 / steps.

    Args:
        velocity: any unit of `positions` per unit time.
        positions: (1, d, *shape), phi(0).
        steps: how many; the error is halved when they are doubled.

    Returns:
        phi(1), (1, d, *shape), and the velocities along the way.
    """
    along = []
    for _ in range(steps):
        along.append(velocity(positions))
        positions = positions + along[-1] / steps
    return positions, along


def unit_positions(shape: Sequence[int], like: Tensor) -> tuple[Tensor, Tensor]:
    """The grid in [-1, 1] along each axis, (1, d, *shape), and voxels per unit, (1, d, 1, ...): (n - 1) / 2."""
    d = len(shape)
    voxels = torch.tensor([max(n - 1, 1) / 2 for n in shape], dtype=like.dtype, device=like.device)
    voxels = voxels.view(1, d, *[1] * d)
    return identity(like.new_empty((1, d, *shape))) / voxels - 1, voxels


def smoothness(field: Tensor) -> tuple[Tensor, Tensor]:
    """s and ds/dfield for a field (1, d, *shape), voxels; each mean runs over the differences that there are."""
    value = torch.zeros((), dtype=torch.float64, device=field.device)
    gradient = torch.zeros_like(field)
    for axis, n in enumerate(field.shape[2:]):
        if n > 1:
            count = field.numel() // n * (n - 1)
            change = forward_difference(field, axis)
            value += change.double().square().sum() / count
            gradient += forward_difference_adjoint(change, axis) * (2 / count)
    return value, gradient


@dataclass(frozen=True, eq=False)
class Loss:
    """The terms that depend on the field, with the analytic gradients of the project's energies."""

    penalty: LocalCorrelation
    moving: Tensor
    settings: NodeoSettings

    def __call__(self, field: Tensor) -> tuple[float, float, float, Tensor]:
        """g; weighted h; their sum with weighted s; its gradient, for a field (1, d, *shape), voxels, no graph."""
        own = self.settings
        g, gradient = self.penalty.on_field(self.moving, field)
        h, unfolding = Folding(own.margin, "forward").value_and_gradient(field)
        s, smoothing = smoothness(field)
        gradient = gradient + own.folding * unfolding + own.smoothness * smoothing
        folds = own.folding * float(h)
        return float(g), folds, float(g) + folds + own.smoothness * float(s), gradient


def nodeo(
    fixed: Tensor, moving: Tensor, settings: NodeoSettings | None = None, observe: Observer | None = None
) -> Tensor:
    """Align one pair.

    Args:
        fixed: (1, 1, *shape), two or three axes of at least 4 voxels, intensities about 0 to 1.
        moving: (1, 1, *shape), likewise, on the same grid.
        settings: constants; the published ones by default.
        observe: called after every iteration.

    Returns:
        (1, d, *shape), voxels: the field that is best by g h among the last iterations.
    """
    settings = settings or NodeoSettings()
    _check(fixed, moving, settings.resolution)
    shape = tuple(fixed.shape[2:])
    if settings.resolution == 2:
        half = nodeo(halved(fixed), halved(moving), replace(settings, resolution=1), observe)
        return resize_field(half, shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = Velocity(shape, settings).to(fixed.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, amsgrad=True)
    loss = Loss(LocalCorrelation(fixed, window=settings.window), moving, settings)
    start, voxels = unit_positions(shape, fixed)
    best: tuple[tuple[float, float], Tensor] | None = None
    before = torch.zeros_like(start)
    for t in range(settings.iterations):
        field, speed = _flow(network, start, voxels, settings)
        here = field.detach().contiguous()
        if not float(here.abs().max()) < sum(shape):
            raise NotConverged(
                f"NODEO diverged in iteration {t + 1}: the field leaves the image. Lower the learning rate."
            )
        similarity, folds, energy, gradient = loss(here)
        energy += settings.velocity * float(speed.detach())
        rank = (similarity * folds, similarity)
        if best is None or t <= settings.iterations - settings.judged or rank < best[0]:
            best = rank, here
        optimiser.zero_grad()
        torch.autograd.backward([field, speed], [gradient, torch.full_like(speed, settings.velocity)])
        optimiser.step()
        change = float((here - before).norm() / here.norm().clamp_min(1e-12))
        before = here
        if observe is not None and observe(
            Record(t, settings.learning_rate, energy, change, change / settings.learning_rate)
        ):
            break
    return before if best is None else best[1]


def _flow(network: Velocity, start: Tensor, voxels: Tensor, settings: NodeoSettings) -> tuple[Tensor, Tensor]:
    """The field (1, d, *shape), voxels, and m, both with their graphs."""
    with torch.enable_grad():
        end, along = integrate(lambda phi: settings.scale * network(phi), start, settings.steps)
        return (end - start) * voxels, torch.stack([v.square().sum(1).mean() for v in along]).mean()


def _check(fixed: Tensor, moving: Tensor, resolution: int) -> None:
    least = 4 * resolution
    if fixed.ndim not in (4, 5) or fixed.shape[:2] != (1, 1) or min(fixed.shape[2:]) < least:
        raise reject(
            "fixed", f"shape {tuple(fixed.shape)}", f"(1, 1, *shape), two or three axes of at least {least} voxels",
            "Give one image.",
        )  # fmt: skip
    if moving.shape != fixed.shape:
        raise reject(
            "moving", f"shape {tuple(moving.shape)}", f"that of fixed, {tuple(fixed.shape)}",
            "Resample it to the fixed image's grid.",
        )  # fmt: skip
