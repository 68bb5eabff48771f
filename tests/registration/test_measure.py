"""Numbers about a finished registration: the quick way against the plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pirate.evaluation.overlap import dice
from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.compose import invert
from pirate.ops.smooth import gaussian
from pirate.registration.apply import apply
from pirate.registration.measure import TRIPS, _ranked, label_scores, round_trip
from pirate.transform import Affine, Displacement, Transform


@pytest.mark.parametrize("shape", [(1,), (2,), (7, 9), (10, 11, 12)])
def test_ranks_of_the_inverse_error_are_those_of_the_sorted_ones(shape: tuple[int, ...]) -> None:
    error = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    ordered = error.flatten().sort().values
    n = len(ordered)
    assert list(_ranked("inverse_error", error.flatten().numpy()).values()) == [
        ordered[n // 2], ordered[min(n - 1, int(0.999 * n))], ordered[-1],
    ]  # fmt: skip


def test_an_error_that_is_not_a_number_is_the_largest() -> None:
    error = torch.rand(1, 9, 9)
    error[0, 3, 4] = torch.nan
    found = _ranked("inverse_error", error.flatten().numpy())
    assert math.isnan(found["inverse_error_max_voxels"])
    assert math.isfinite(found["inverse_error_median_voxels"])


@pytest.mark.parametrize("shape", [(33, 40), (101, 100, 103)])
def test_the_way_there_and_back_is_that_of_points(shape: tuple[int, ...]) -> None:
    """Against the transforms that points go through, at voxels that stay inside; the larger shape is thinned out."""
    d = len(shape)
    field = 3 * gaussian(torch.randn(1, d, *shape, generator=torch.Generator().manual_seed(1)), 6.0) * 6
    inverse = invert(field).field
    found = round_trip(field, inverse)
    grid = Grid(shape, np.eye(4))
    there, back = (Displacement(grid, f[0].numpy()) for f in (field, inverse))
    thinned = 1 if np.prod(shape) <= TRIPS else 3
    voxels = np.stack(np.meshgrid(*(np.arange(0, n, thinned) for n in shape), indexing="ij"), -1).reshape(
        -1, d
    )
    points = grid.to_world(voxels)
    landed = there.map(points)
    stays = ((grid.to_voxel(landed) >= 0) & (grid.to_voxel(landed) <= np.array(shape) - 1)).all(1)
    returned = np.linalg.norm(back.map(landed[stays]) - points[stays], axis=1)
    np.testing.assert_allclose(found, returned, atol=1e-4)
    assert found.max() > 10 * float(
        invert(field).error[0].median()
    )  # between the voxels an inverse is not exact


def test_nothing_that_stays_inside_is_no_error() -> None:
    assert round_trip(torch.full((1, 2, 5, 6), 99.0), torch.zeros(1, 2, 5, 6)).tolist() == [0.0]


def test_scores_are_dice_of_maps_resampled_one_by_one() -> None:
    rng = np.random.default_rng(0)
    grid = Grid((12, 13, 14), np.diag([1.0, 1.2, 0.9, 1.0]))
    fixed, moving = (
        Image(rng.integers(0, 4, (6, 7, 7)).repeat(2, 0).repeat(2, 1).repeat(2, 2)[:12, :13, :14], grid)
        for _ in range(2)
    )
    matrix = np.eye(4)
    matrix[:3, :3] += 0.03 * rng.normal(size=(3, 3))
    start = Transform((Affine(matrix),))
    field = Displacement(grid, rng.normal(size=(3, *grid.shape)).astype(np.float32))
    forward = Transform((field, Affine(matrix)))
    scores, after = label_scores(fixed, moving, start, forward)
    np.testing.assert_array_equal(after, apply(moving, forward, grid, "nearest").data)
    for name, transform, how in (
        ("dice_before", start, "nearest"), ("dice", forward, "nearest"), ("dice_vote", forward, "vote"),
    ):  # fmt: skip
        assert scores[name] == dice(fixed.data, apply(moving, transform, grid, how).data, [1, 2, 3])
