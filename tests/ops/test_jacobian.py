"""Determinants of known maps; folding; the digital diffeomorphism test on cells computed by hand."""

import itertools
import math

import pytest
import torch

from pirate.ops.derivative import central_difference, forward_difference
from pirate.ops.jacobian import determinant, folding_ratio, nondiffeomorphic, simplex_determinants
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def affine_field(matrix, shape, shift=0.0):
    """Field of x -> matrix x + shift."""
    grid = identity(torch.zeros(1, len(shape), *shape, dtype=torch.float64))
    return torch.einsum("ab,nb...->na...", matrix, grid) + shift - grid


@pytest.mark.parametrize("shape", [(6, 7), (4, 5, 6)])
@pytest.mark.parametrize("seed", range(4))
def test_determinant_of_an_affine_map_is_that_of_its_matrix(shape, seed):
    d = len(shape)
    matrix = noise(d, d, seed=seed)
    expected = float(torch.linalg.det(matrix))
    values = determinant(affine_field(matrix, shape, 3.0))
    torch.testing.assert_close(values, torch.full_like(values, expected), rtol=0, atol=1e-10)
    inner = (slice(None), *[slice(0, -1)] * d)
    values = determinant(affine_field(matrix, shape, 3.0), forward_difference)[inner]
    torch.testing.assert_close(values, torch.full_like(values, expected), rtol=0, atol=1e-10)


def test_determinant_of_a_quadratic_map_is_exact_inside():
    """(x, y, z) -> (x + .1 x y, y + .05 y^2 + .02 x z, z + .03 z^2 - .04 x y); derivatives by hand."""
    like = torch.zeros(1, 3, 6, 7, 8, dtype=torch.float64)
    x, y, z = identity(like)[0]
    field = torch.stack([0.1 * x * y, 0.05 * y**2 + 0.02 * x * z, 0.03 * z**2 - 0.04 * x * y])[None]
    zero = torch.zeros_like(x)
    rows = [
        [1 + 0.1 * y, 0.1 * x, zero],
        [0.02 * z, 1 + 0.1 * y, 0.02 * x],
        [-0.04 * y, -0.04 * x, 1 + 0.06 * z],
    ]
    matrix = torch.stack([torch.stack(row, -1) for row in rows], -2)
    inner = (slice(1, -1),) * 3
    expected = torch.linalg.det(matrix)[inner]
    torch.testing.assert_close(determinant(field)[0][inner], expected, rtol=0, atol=1e-10)


def test_determinant_multiplies_under_composition_of_affine_maps():
    a, b = torch.eye(3, dtype=torch.float64) + 0.2 * noise(2, 3, 3)
    one, other, both = (determinant(affine_field(m, (4, 4, 4))) for m in (a, b, a @ b))
    torch.testing.assert_close(both, one * other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("difference", [central_difference, forward_difference])
def test_determinant_is_differentiable(difference):
    field = (0.3 * noise(1, 3, 3, 4, 3)).requires_grad_()
    assert torch.autograd.gradcheck(lambda f: determinant(f, difference), (field,))


def test_folding_ratio_counts_voxels_per_image():
    field = torch.zeros(2, 2, 8, 5, dtype=torch.float64)
    field[1, 0, 4] = -3.0  # row 4 jumps back over rows 2 and 3
    central, forward = folding_ratio(field), folding_ratio(field, forward_difference)
    assert central.tolist() == [0, 1 / 8]  # slope of row 3 is 1 - 3/2; of row 5 is 1 + 3/2
    assert forward.tolist() == [0, 1 / 7]  # row 3 to 4 is 1 - 3; 7 x 4 forward cells
    mirror = affine_field(torch.diag(torch.tensor([-1.0, 1.0], dtype=torch.float64)), (4, 5))
    assert folding_ratio(mirror).item() == folding_ratio(mirror, forward_difference).item() == 1
    collapsed = affine_field(torch.diag(torch.tensor([0.0, 1.0], dtype=torch.float64)), (4, 5))
    assert folding_ratio(collapsed).item() == 1


@pytest.mark.parametrize(("shape", "count"), [((3, 4), 4), ((3, 4, 3), 10)])
def test_simplices_of_the_identity_and_of_an_affine_map(shape, count):
    d = len(shape)
    still = list(simplex_determinants(torch.zeros(1, d, *shape, dtype=torch.float64)))
    assert len(still) == count
    assert [float(v.flatten()[0]) for v in still] == [1.0] * 2**d + [2.0] * (count - 2**d)
    assert all(v.shape == (1, *[n - 1 for n in shape]) for v in still)
    matrix = noise(d, d, seed=3)
    for before, after in zip(still, simplex_determinants(affine_field(matrix, shape)), strict=True):
        torch.testing.assert_close(after, before * torch.linalg.det(matrix), rtol=0, atol=1e-10)


def test_a_split_of_the_cell_adds_up_to_its_volume():
    """With linear faces, both splits into five tetrahedra fill the same cube: 4 corners + 1 inner = 6."""
    values = [float(v) for v in simplex_determinants(torch.zeros(1, 3, 2, 2, 2, dtype=torch.float64))]
    even = [c for c in range(8) if bin(c).count("1") % 2 == 0]
    odd = [c for c in range(8) if c not in even]
    assert sum(values[c] for c in odd) + values[8] == 6
    assert sum(values[c] for c in even) + values[9] == 6


@pytest.mark.parametrize(
    ("move", "cells", "volume"),
    [
        ((0.0, 0.0), 0, 0.0),
        ((0.4, 0.4), 0, 0.0),
        ((1.0, 0.0), 1, 0.0),  # the corner lands on its neighbour: a triangle of no area
        ((2.0, 0.0), 1, 0.5),  # past it: triangles (00) and (10) have area -1/2 each, halved
        ((1.0, 1.0), 1, 0.25),  # onto the opposite corner: triangle (00) has area -1/2
    ],
)
def test_one_cell_in_2d_by_hand(move, cells, volume):
    """Corner (0, 0) moves by `move`. Triangles at (00): 1 - a - b, (01): 1 - b, (10): 1 - a, (11): 1."""
    a, b = move
    field = torch.zeros(1, 2, 2, 2, dtype=torch.float64)
    field[0, :, 0, 0] = torch.tensor(move, dtype=torch.float64)
    values = [float(v) for v in simplex_determinants(field)]
    assert values == pytest.approx([1 - a - b, 1 - b, 1 - a, 1.0], abs=1e-12)
    expected = sum(max(-v, 0) for v in values) / 2 / 2
    count, amount = nondiffeomorphic(field)
    assert count.item() == cells
    assert amount.item() == pytest.approx(expected)
    assert amount.item() == pytest.approx(volume)


def test_one_cell_in_3d_by_hand():
    """Corner (0,0,0) moves by t along (1,1,1): its own tetrahedron has 1 - 3 t, the inner one 2 - 3 t,
    those of its three neighbours 1 - t, all others keep 1 and 2."""
    for t in (0.2, 0.5, 1.5):
        field = torch.zeros(1, 3, 2, 2, 2, dtype=torch.float64)
        field[0, :, 0, 0, 0] = t
        values = [float(v) for v in simplex_determinants(field)]
        near = {(0, 0, 1), (0, 1, 0), (1, 0, 0)}
        expected = [
            1 - 3 * t if c == (0, 0, 0) else 1 - t if c in near else 1.0
            for c in itertools.product((0, 1), repeat=3)
        ]
        expected += [2 - 3 * t, 2.0]
        assert values == pytest.approx(expected, abs=1e-12)
        count, volume = nondiffeomorphic(field)
        assert count.item() == (1 if t > 1 / 3 else 0)
        assert volume.item() == pytest.approx(sum(max(-v, 0) for v in expected) / 6 / 2)


@pytest.mark.parametrize("shape", [(20, 22), (10, 11, 12)])
def test_a_smooth_diffeomorphism_has_none(shape):
    d = len(shape)
    field = gaussian(noise(2, d, *shape), 2.0)
    field = field / field.abs().max()
    count, volume = nondiffeomorphic(field)
    assert count.tolist() == [0, 0]
    assert volume.tolist() == [0, 0]
    assert folding_ratio(field).tolist() == [0, 0]


def test_a_checkerboard_fold_is_invisible_to_central_differences_but_not_to_the_cells():
    """Alternating +-0.6 along axis 0: central slopes are 0, yet every other cell is turned over."""
    field = torch.zeros(1, 2, 9, 6, dtype=torch.float64)
    field[0, 0] = 0.6 * (-1.0) ** torch.arange(9, dtype=torch.float64)[:, None]
    assert (determinant(field)[:, 1:-1] == 1).all()
    count, volume = nondiffeomorphic(field)
    assert count.item() == 4 * 5
    assert volume.item() == pytest.approx(4 * 5 * 0.2)  # determinant 1 - 1.2 over each cell's whole area


def test_a_mirrored_axis_has_all_its_volume_turned_over():
    field = affine_field(torch.diag(torch.tensor([-2.0, 1, 1], dtype=torch.float64)), (4, 5, 6))
    count, volume = nondiffeomorphic(field)
    assert count.item() == 3 * 4 * 5
    assert volume.item() == pytest.approx(2 * 3 * 4 * 5)
    assert math.isfinite(volume.item())


def test_a_field_needs_two_or_three_components():
    with pytest.raises(ValueError, match="two or three components"):
        nondiffeomorphic(torch.zeros(1, 4, 2, 2, 2, 2))
