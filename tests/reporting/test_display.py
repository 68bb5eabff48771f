import numpy as np
import pytest

from pirate.grid import Grid
from pirate.reporting.display import Display
from pirate.reporting.figures import _determinant_plane

LIA = np.array([[-1.0, 0, 0, 9], [0, 0, 1.5, -8], [0, -2.0, 0, 7], [0, 0, 0, 1]])


def ramps(grid):
    """World coordinates of every voxel, (3, *shape)."""
    index = np.stack(np.meshgrid(*[np.arange(n) for n in grid.shape], indexing="ij"), -1)
    return np.moveaxis(grid.to_world(index), -1, 0)


@pytest.mark.parametrize("flip", range(8))
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_right_is_on_the_right_whatever_the_storage(order, flip):
    affine = np.eye(4)
    affine[:3, :3] = np.diag([1.0, 1.2, 0.8])[:, order] * [1 if flip >> a & 1 else -1 for a in range(3)]
    grid = Grid((9, 10, 11), affine)
    world = ramps(grid)
    display = Display.around(grid, np.ones(grid.shape, dtype=bool))
    for view, (across, up) in zip(display.views, ((0, 1), (0, 2), (1, 2)), strict=True):
        assert (np.diff(display.plane(world[across], view), axis=1) > 0).all()
        assert (np.diff(display.plane(world[up], view), axis=0) > 0).all()
        assert display.letters(view) == (*("LR", "PA", "IS")[across], *("LR", "PA", "IS")[up])


def test_the_three_views_are_named_and_sized():
    grid = Grid((10, 12, 14), LIA)
    display = Display.around(grid, np.ones(grid.shape, dtype=bool))
    assert [v.name for v in display.views] == ["axial", "coronal", "sagittal"]
    assert [display.size_mm(v) for v in display.views] == [(10, 21), (10, 24), (21, 24)]


def test_a_plane_has_one_view_named_by_its_normal_if_the_header_turns_it():
    coronal = np.array([[-1.0, 0, 0, 0], [0, 0, 1.0, 0], [0, -1.0, 0, 0], [0, 0, 0, 1]])
    for affine, name in ((np.eye(4), "slice"), (coronal, "coronal")):
        display = Display.around(Grid((8, 9), affine), np.ones((8, 9), dtype=bool))
        assert [v.name for v in display.views] == [name]
        assert display.plane(np.zeros((8, 9)), display.views[0]).shape == (9, 8)


def test_the_crop_follows_the_foreground():
    grid = Grid((60, 60, 60), np.eye(4))
    mask = np.zeros(grid.shape, dtype=bool)
    mask[20:31, 25:36, 15:46] = True
    display = Display.around(grid, mask)
    assert display.box == (slice(12, 39), slice(17, 44), slice(7, 54))
    assert display.views[0].index == 30
    assert all(display.plane(mask, view).any() for view in display.views)


def test_an_empty_foreground_shows_everything():
    grid = Grid((6, 7), np.eye(4))
    display = Display.around(grid, np.zeros(grid.shape, dtype=bool))
    assert display.plane(np.zeros(grid.shape), display.views[0]).shape == (7, 6)


def test_positions_of_the_identity_are_a_straight_lattice_and_a_world_shift_moves_them():
    grid = Grid((10, 12, 14), LIA)
    display = Display.around(grid, np.ones(grid.shape, dtype=bool))
    axial = display.views[0]
    still = np.zeros((3, *grid.shape), dtype=np.float32)
    across, up = display.positions_mm(still, axial)
    np.testing.assert_allclose(across, np.broadcast_to(np.arange(10) + 0.5, across.shape))
    np.testing.assert_allclose(up, np.broadcast_to(((np.arange(14) + 0.5) * 1.5)[:, None], up.shape))
    moved = still.copy()
    moved[0] = -2  # array axis 0 runs to the left: 2 mm to the right
    moved[2] = 1  # array axis 2 runs to the front: 1.5 mm
    right, front = display.positions_mm(moved, axial)
    np.testing.assert_allclose(right - across, 2)
    np.testing.assert_allclose(front - up, 1.5)


def test_the_determinant_of_a_slab_is_that_of_the_whole():
    import torch

    from pirate.ops.jacobian import determinant

    grid = Grid((10, 12, 14), LIA)
    field = np.random.default_rng(0).standard_normal((3, *grid.shape)).astype(np.float32)
    whole = determinant(torch.from_numpy(field)[None])[0].numpy()
    display = Display.around(grid, np.ones(grid.shape, dtype=bool))
    for view in display.views:
        np.testing.assert_allclose(
            _determinant_plane(display, field, view), display.plane(whole, view), rtol=1e-5
        )
