import pytest
import torch

from pirate.ops.jacobian import determinant, simplex_determinants
from pirate.ops.unfold import Constraints, Region

SHAPES = [(7, 9), (6, 5, 7), (2, 5, 7), (2, 2)]


def rough(shape, seed=0, size=0.5):
    return size * torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(seed))


def whole(field):
    """A region in which every voxel is free."""
    return Region(field, torch.arange(field[0, 0].numel()), 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_its_determinants_are_the_operators(shape):
    field = rough(shape)
    region = whole(field)
    wide = field.double()
    central = region.central(torch.arange(len(region.sites)))
    torch.testing.assert_close(central, determinant(wide).flatten())
    simplices = region.of_simplices(torch.arange(region.corners.shape[1]))
    expected = torch.stack([v.flatten() for v in simplex_determinants(wide)])
    torch.testing.assert_close(simplices, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_its_rows_are_the_slopes_of_the_determinants(shape):
    """|row| = 1, and moving along a row raises its determinant at the rate that `lacking` was divided by."""
    field = rough(shape, 1, 0.3 if min(shape) > 2 else 1.5)
    region = whole(field)
    central = region.central(torch.arange(len(region.sites)))
    simplex = region.of_simplices(torch.arange(region.corners.shape[1]))
    rows = region._constraints(central, simplex, 0.4, 0.5)
    values = torch.cat([central[central < 0.4], simplex[simplex < 0.4]])
    assert len(values) == len(rows.lacking) > 0
    for row in range(0, len(values), max(1, len(values) // 12)):
        only = torch.zeros_like(rows.lacking)
        only[row] = 1
        x = rows._spread(only)
        assert float((x**2).sum()) == pytest.approx(1, rel=1e-6)
        slopes = []
        for step in (1e-5, -1e-5):
            region.values = region.values.index_add(1, rows.vertices, step * x)
            c = region.central(torch.arange(len(region.sites)))
            s = region.of_simplices(torch.arange(region.corners.shape[1]))
            slopes.append(torch.cat([c[central < 0.4], s[simplex < 0.4]])[row])
            region.values = region.values.index_add(1, rows.vertices, -step * x)
        slope = float(slopes[0] - slopes[1]) / 2e-5
        lacking = min((0.6 - float(values[row])) / slope, 0.5)
        assert float(rows.lacking[row]) == pytest.approx(lacking, rel=1e-4)


def test_the_change_is_the_shortest_that_satisfies_the_rows():
    generator = torch.Generator().manual_seed(3)
    ends = torch.stack([torch.randperm(40, generator=generator)[:4] for _ in range(6)], 1)
    slopes = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    rows = Constraints.of(torch.full((6,), 0.1, dtype=torch.float64), ends, slopes, 1.0)
    vertices, x = rows.least_change(1.0)
    dense = torch.zeros(6, 2 * len(vertices), dtype=torch.float64)
    for row in range(6):
        only = torch.zeros(6, dtype=torch.float64)
        only[row] = 1
        dense[row] = rows._spread(only).flatten()
    expected = torch.linalg.pinv(dense) @ rows.lacking
    torch.testing.assert_close(x.flatten(), expected, rtol=0.3, atol=0.02)


@pytest.mark.parametrize("shape", [(15, 16), (13, 14, 15)])
def test_only_what_is_within_reach_moves(shape):
    field = torch.zeros(1, len(shape), *shape)
    centre = tuple(n // 2 for n in shape)
    field[(0, 0, *centre)] = -1.3
    fold = torch.tensor([sum(c * s for c, s in zip(centre, field.stride()[2:], strict=True))])
    moved = field.clone()
    region = Region(field, fold, 1)
    assert region.project(0.01, 0.002, 25)
    region.write(moved)
    box = tuple(slice(c - 1, c + 3) for c in centre)
    changed = (moved != field).any(1)[0]
    assert bool(changed.any())
    changed[box] = False
    assert not bool(changed.any())


def test_what_cannot_be_raised_is_left_at_its_best():
    """A mirrored line: the two free voxels cannot turn it."""
    field = torch.zeros(1, 2, 30, 2)
    field[0, 0] = -2 * torch.arange(30.0)[:, None]
    region = Region(field, torch.tensor([30]), 1)
    assert not region.project(0.01, 0.002, 10)
