"""A field and an affine to write and read."""

from __future__ import annotations

import numpy as np

from pirate.grid import Grid
from pirate.transform import Affine, Displacement


def sample_grid(shape=(5, 6, 7)):
    affine = np.array([[-1.0, 0, 0, 9], [0, 0, 1.5, -4], [0, 2, 0, 3], [0, 0, 0, 1]])
    return Grid(shape, affine if len(shape) == 3 else np.diag([-1.0, 1.5, 2, 1]))


def sample_field(shape=(5, 6, 7), seed=0):
    values = np.random.default_rng(seed).normal(size=(len(shape), *shape))
    return Displacement(sample_grid(shape), values.astype(np.float32))


def sample_affine():
    matrix = np.eye(4)
    matrix[:2, :2] = [[1.1, 0.2], [-0.1, 0.9]]
    matrix[:2, 3] = 3, -4
    return Affine(matrix)
