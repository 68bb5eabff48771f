"""A generated pair of brain-like images with labels and the true field between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirate.data.anatomy import REACH_MM, Anatomy, Waves
from pirate.errors import reject
from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.compose import compose, exponential
from pirate.ops.resample import half_shape, resize_field
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity

EXTENT_MM = (153.6, 158.4, 166.4)  # left-right, superior-inferior, posterior-anterior
CENTRE_MM = (0.0, -3.0, -6.0)  # the middle of the grid in the anatomy's coordinates
SLICE_MM = 9.0  # height of the plane of a two-dimensional phantom
TILT_DEGREES = (4.0, -3.0, 6.0)
SOFTNESS = 0.35  # width of a partial-volume edge, voxels


@dataclass(frozen=True)
class Phantom:
    """Two images of one anatomy; ``moving(x + field(x))`` shows the anatomy of ``fixed(x)``.

    `field` is (d, *shape), float32, voxels. Both images lie on one grid. Labels are int16, numbered as in
    `pirate.data.anatomy.LABELS`.
    """

    fixed: Image
    moving: Image
    fixed_labels: Image
    moving_labels: Image
    field: NDArray[np.float32]


def brain_pair(shape: Sequence[int] = (128, 144, 128), seed: int = 0, strength: float = 1.0) -> Phantom:
    """Generate a pair of brain-like images, their labels, and the field that aligns them.

    The fixed anatomy is a function A of position, the moving one is ``A o psi``, psi = exp(-v) for a random,
    multi-scale stationary velocity v without an affine part in the brain; `field` is psi's inverse. Noise,
    bias field and intensity scale differ between the two images. Shape only sets the sampling: the brain
    and its deformation are the same mm at every resolution, so displacements in voxels grow with the shape.

    Args:
        shape: voxels; three entries (axes left, inferior, anterior), or two (axes left, anterior: an axial
            plane); each at least 16.
        seed: the same seed gives the same bytes.
        strength: factor on the velocity; 0 gives the same anatomy twice, 1 displacements up to about 8 mm.

    Returns:
        `Phantom`.
    """
    shape = tuple(int(n) for n in shape)
    if len(shape) not in (2, 3) or min(shape) < 16:
        raise reject(
            "phantom", f"shape {shape}", "two or three axes of at least 16 voxels", "Ask for a larger image."
        )
    if not 0 <= strength <= 1.5:
        raise reject("phantom", f"strength {strength}", "a number from 0 to 1.5", "A larger one would fold.")
    seeds = np.random.SeedSequence(seed).spawn(4)
    anatomy = Anatomy(np.random.default_rng(seeds[0]))
    grid, steps = _grid(shape)
    field, inverse = _diffeomorphism(anatomy, shape, steps, np.random.default_rng(seeds[1]), strength)
    images = []
    for name, displacement, stream in (("fixed", None, seeds[2]), ("moving", inverse, seeds[3])):
        positions = identity(inverse) if displacement is None else identity(inverse) + displacement
        clean, labels = _paint(anatomy, positions[0], steps, shape)
        scanned = _scan(
            clean, labels, np.random.default_rng(stream), steps, scale=1.0 if name == "fixed" else 1.12
        )
        images += [Image(scanned, grid, f"phantom {name}"), Image(labels, grid, f"phantom {name} labels")]
    fixed, fixed_labels, moving, moving_labels = images
    return Phantom(fixed, moving, fixed_labels, moving_labels, field[0].numpy())


def _grid(shape: tuple[int, ...]) -> tuple[Grid, NDArray[np.float64]]:
    """Grid, slightly oblique, and (3, d) mm: the step of each array axis in the anatomy's coordinates."""
    towards = {3: [(-1, 0, 0), (0, 0, -1), (0, 1, 0)], 2: [(-1, 0, 0), (0, 1, 0)]}[len(shape)]
    extent = EXTENT_MM if len(shape) == 3 else (EXTENT_MM[0], EXTENT_MM[2])
    steps = np.array([np.array(t) * e / n for t, e, n in zip(towards, extent, shape, strict=True)]).T
    affine = np.eye(4)
    affine[:3, : len(shape)] = steps
    if len(shape) == 2:
        affine[2, 2] = 2.0
    middle = np.array([(n - 1) / 2 for n in shape])
    tilt = _rotation(*np.deg2rad(TILT_DEGREES))
    affine[:3, :3] = tilt @ affine[:3, :3]
    affine[:3, 3] = tilt @ np.array(CENTRE_MM) + (3.0, -17.0, 12.0) - affine[:3, : len(shape)] @ middle
    return Grid(shape, affine), steps


def _rotation(a: float, b: float, c: float) -> NDArray[np.float64]:
    """Rotation about x by a, then y by b, then z by c, radian."""
    x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    return np.asarray(z @ y @ x)


def _millimetres(positions: Tensor, steps: NDArray[np.float64], shape: tuple[int, ...]) -> Tensor:
    """Map voxel positions (d, *target) of the grid of `shape` to the anatomy's (N, 3), mm."""
    flat = positions.reshape(positions.shape[0], -1).T
    middle = flat.new_tensor([(n - 1) / 2 for n in shape])
    centre = CENTRE_MM if len(shape) == 3 else (*CENTRE_MM[:2], SLICE_MM)
    return (flat - middle) @ torch.from_numpy(steps).to(flat).T + flat.new_tensor(centre)


def _diffeomorphism(
    anatomy: Anatomy,
    shape: tuple[int, ...],
    steps: NDArray[np.float64],
    generator: np.random.Generator,
    strength: float,
) -> tuple[Tensor, Tensor]:
    """Field and its inverse, both (1, d, *shape), voxels.

    psi = exp(-v) is fixed first; the field is then refined until ``psi(x + field(x)) = x``. With
    ``psi(phi(x)) = x + r(x)`` the step ``phi <- phi o (id - r)`` leaves an error of second order in r.
    """
    coarse = half_shape(shape)
    velocity = _velocity(anatomy, coarse, shape, steps, generator) * strength
    inverse, field = (gaussian(resize_field(exponential(v), shape), 0.8) for v in (-velocity, velocity))
    for _ in range(2):
        residual = compose(inverse, field)
        field = compose(field, -residual)
    for _ in range(3):
        field = field - compose(inverse, field)
    return field, inverse


def _velocity(
    anatomy: Anatomy,
    coarse: tuple[int, ...],
    shape: tuple[int, ...],
    steps: NDArray[np.float64],
    generator: np.random.Generator,
) -> Tensor:
    """Random waves of three sizes, 0 at the grid's border, least-squares affine part in the brain removed.

    Returns:
        (1, d, *coarse), voxels of the coarse grid.
    """
    d = len(shape)
    coarse_steps = steps * [(n - 1) / (c - 1) for n, c in zip(shape, coarse, strict=True)]
    where = _millimetres(identity(torch.empty(1, d, *coarse))[0], coarse_steps, coarse)
    velocity = torch.zeros(d, where.shape[0])
    for wavelength, amplitude in ((110.0, 2.1), (62.0, 1.6), (36.0, 0.75)):
        for axis in range(d):
            velocity[axis] += amplitude * Waves.draw(generator, 10, wavelength).value(where)
    inside = next(anatomy.layers(where)).distance < 0
    design = torch.cat([where, torch.ones_like(where[:, :1])], 1).double()
    normal = design[inside].T @ design[inside]
    affine = torch.linalg.pinv(normal) @ (design[inside].T @ velocity[:, inside].T.double())
    velocity -= (design @ affine).T.float()
    velocity /= torch.from_numpy(np.linalg.norm(coarse_steps, axis=0)).float()[:, None]  # mm to voxels
    return (velocity.reshape(1, d, *coarse)) * _window(coarse)


def _window(shape: tuple[int, ...]) -> Tensor:
    """1 inside, falling smoothly to 0 over the outer twelfth of each axis; (*shape)."""
    window = torch.ones(shape)
    for axis, n in enumerate(shape):
        edge = torch.linspace(0, 1, n)
        rise = (torch.minimum(edge, 1 - edge) * 12).clamp(0, 1)
        profile = rise * rise * (3 - 2 * rise)
        window = window * profile.view([-1 if a == axis else 1 for a in range(len(shape))])
    return window


def _paint(
    anatomy: Anatomy, positions: Tensor, steps: NDArray[np.float64], shape: tuple[int, ...]
) -> tuple[Tensor, NDArray[np.int16]]:
    """Clean intensities in [0, 1] and labels, (*shape), of the anatomy at `positions` (d, *shape), voxels."""
    where = _millimetres(positions, steps, shape)
    near = (where / where.new_tensor(REACH_MM)).square().sum(1) < 1
    image, filled = torch.zeros_like(where[:, 0]), torch.zeros_like(where[:, 0], dtype=torch.int16)
    where = where[near]
    softness = SOFTNESS * float(np.linalg.norm(steps, axis=0).mean())
    right = where[:, 0] >= 0
    value, labels = image[near], filled[near]
    for layer in anatomy.layers(where):
        share = torch.sigmoid(-layer.distance / softness)
        value = torch.lerp(value, torch.full_like(value, layer.intensity), share)
        side = torch.where(right, layer.right, layer.left).to(torch.int16)
        labels = torch.where(layer.distance < 0, side, labels)
    image[near], filled[near] = value, labels
    return image.reshape(shape), filled.reshape(shape).numpy()


def _scan(
    clean: Tensor,
    labels: NDArray[np.int16],
    generator: np.random.Generator,
    steps: NDArray[np.float64],
    scale: float,
) -> NDArray[np.float32]:
    """Add point spread, bias, noise and scale; 0 outside the brain. (*shape), intensities to about 110."""
    shape = tuple(clean.shape)
    where = _millimetres(identity(clean[None, None])[0], steps, shape)
    bias = torch.exp(0.045 * Waves.draw(generator, 6, 180.0).value(where)).reshape(shape)
    noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
    noise = 0.028 * gaussian(noise[None, None], 0.45)[0, 0]
    blurred = gaussian(clean[None, None], 0.4)[0, 0]
    values = (blurred * bias + noise).clamp_min(0.01) * (110.0 * scale)
    return torch.where(torch.from_numpy(labels != 0), values, torch.zeros(())).numpy()
