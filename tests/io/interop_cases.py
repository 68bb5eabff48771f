"""Grids, fields and readers shared by the interoperability tests."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from pirate.grid import Grid
from pirate.io.atomic import sha256_of
from pirate.io.composite import write_composite
from pirate.io.fields import write_field
from pirate.io.itk import write_affine
from pirate.io.transforms import AFFINE, DONE, FORWARD_WARP, INVERSE_WARP
from pirate.transform import Affine, Displacement, Transform

sitk = pytest.importorskip("SimpleITK")
ants = pytest.importorskip("ants")

FLIP = np.array([-1.0, -1.0, 1.0])
ORIENTATIONS = list(itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3)))
OBLIQUE = range(6)


def rotation(rng):
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.sign(np.linalg.det(q))


def oriented_grid(permutation, signs, shape=(7, 8, 9)):
    """A grid whose array axis a runs along world axis permutation[a], with a sign; anisotropic."""
    affine = np.eye(4)
    affine[:3, :3] = 0
    for axis, (world, sign) in enumerate(zip(permutation, signs, strict=True)):
        affine[world, axis] = sign * (1.0, 1.5, 2.25)[axis]
    affine[:3, 3] = -affine[:3, :3] @ (np.array(shape) - 1) / 2 + (3, -2, 5)
    return Grid(shape, affine)


def oblique_grid(seed, shape=(8, 7, 9)):
    """A turned, anisotropic grid; left-handed for odd seeds."""
    rng = np.random.default_rng(seed)
    affine = np.eye(4)
    affine[:3, :3] = rotation(rng) * (0.9, 1.6, 2.1) @ np.diag([-1.0 if seed % 2 else 1.0, 1, 1])
    affine[:3, 3] = -affine[:3, :3] @ (np.array(shape) - 1) / 2 + rng.normal(size=3)
    return Grid(shape, affine.astype(np.float32))


def plane_grid(seed, shape=(11, 12)):
    """An axial plane, turned about z, mirrored for odd seeds."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi)
    affine = np.eye(4)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    affine[:2, :2] = turn * (1.3, 0.8) @ np.diag([-1.0 if seed % 2 else 1.0, 1])
    affine[:2, 3] = -affine[:2, :2] @ (np.array(shape) - 1) / 2 + rng.normal(size=2)
    affine[2, 3] = 17.0
    return Grid(shape, affine.astype(np.float32))


def smooth_field(rng, grid, size=1.5):
    noise = np.stack([gaussian_filter(rng.normal(size=grid.shape), 1.5) for _ in range(grid.ndim)])
    return Displacement(grid, (size * noise / np.abs(noise).max()).astype(np.float32))


def small_affine(rng, ndim=3):
    matrix = np.eye(4)
    matrix[:ndim, :ndim] += 0.05 * rng.normal(size=(ndim, ndim))
    matrix[:ndim, 3] = rng.normal(size=ndim)
    return Affine(matrix)


def inner_points(rng, grid, count=50):
    return grid.to_world(rng.uniform(0, np.array(grid.shape) - 1, size=(count, grid.ndim)))


def through_sitk(transform, world, ndim=3):
    moved = world.copy()
    for row, point in enumerate(world):
        moved[row, :ndim] = FLIP[:ndim] * transform.TransformPoint((FLIP * point)[:ndim].tolist())
    return moved


def sitk_field(path):
    return sitk.DisplacementFieldTransform(sitk.Cast(sitk.ReadImage(str(path)), sitk.sitkVectorFloat64))


def sitk_chain(ndim, *parts_in_order):
    chain = sitk.CompositeTransform(ndim)
    for part in reversed(parts_in_order):  # the last added is applied first
        chain.AddTransform(part)
    return chain


def through_ants(files_in_order, world, ndim=3):
    """ANTs' points are LPS; without `whichtoinvert` it inverts a .mat that is listed first."""
    import pandas as pd

    frame = pd.DataFrame((world * FLIP)[:, :ndim], columns=list("xyz")[:ndim])
    moved = ants.apply_transforms_to_points(
        ndim, frame, [str(f) for f in files_in_order], whichtoinvert=[False] * len(files_in_order)
    )
    result = world.copy()
    result[:, :ndim] = moved[list("xyz")[:ndim]].to_numpy() * FLIP[:ndim]
    return result


class Case:
    """A registration's files, forward and inverse, written by us into `folder`."""

    def __init__(self, folder, fixed, moving, seed):
        rng = np.random.default_rng(seed)
        self.fixed, self.moving, self.folder, self.rng = fixed, moving, folder, rng
        affine = small_affine(rng, fixed.ndim)
        self.forward = Transform((smooth_field(rng, fixed), affine))
        self.inverse = Transform((affine.inverse(), smooth_field(rng, fixed)))
        self.warp, self.back, self.affine = folder / FORWARD_WARP, folder / INVERSE_WARP, folder / AFFINE
        self.composite, self.composite_back = folder / "forward.h5", folder / "inverse.h5"
        write_field(self.warp, self.forward.parts[0])
        write_field(self.back, self.inverse.parts[1])
        write_affine(self.affine, affine, fixed.ndim)
        write_composite(self.composite, self.forward)
        write_composite(self.composite_back, self.inverse)
        outputs = {p.name: sha256_of(p) for p in (self.warp, self.back, self.affine)}
        (folder / DONE).write_text(json.dumps({"outputs": outputs}))
        self.undo = folder / "affine_inverse.txt"
        write_affine(self.undo, affine.inverse(), fixed.ndim)
        self.points = inner_points(rng, fixed)
