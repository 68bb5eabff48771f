"""Sums and marks of folds equal their torch twins, for any number of threads and instruction set."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pirate import kernels
from pirate.errors import InputError
from pirate.ops.derivative import forward_difference
from pirate.ops.jacobian import CELL_FOLD, CENTRAL_FOLD, determinant, mark_folds, simplex_determinants

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="the extension is not built"),
    pytest.mark.usefixtures("instruction_set"),
]

SHAPES = [(13, 10, 27), (8, 16, 24), (9, 7, 5), (2, 2, 2), (5, 1, 11), (1, 6, 9), (21, 34), (16, 7), (1, 12)]


def rough(shape: tuple[int, ...], seed: int = 0, size: float = 0.6) -> Tensor:
    return size * torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(seed))


def first(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The part of (1, *shape) that begins a cell."""
    return values[0][tuple(slice(0, n - 1) for n in shape)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masked", [False, True])
def test_the_sums_are_those_of_the_twins(shape, masked):
    field = rough(shape)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    inside = mask if masked else torch.ones_like(mask)
    found = []
    for n in (1, 2, 5):
        kernels.set_threads(n)
        found.append(kernels.fold_sums(field, mask if masked else None))
    assert found[0] == found[1] == found[2]
    sums, wide = found[0], field.double()
    central = determinant(wide)[0][inside]
    here = inside[tuple(slice(0, n - 1) for n in shape)]
    forward = first(determinant(wide, forward_difference), shape)[here]
    simplices = torch.stack([v[0][here] for v in simplex_determinants(wide)])
    assert sums.voxels == int(inside.sum())
    assert sums.cells == int(here.sum())
    assert sums.folds == int((central <= 0).sum())
    assert sums.forward_folds == int((forward <= 0).sum())
    assert sums.bad_cells == int((simplices <= 0).any(0).sum())
    factor = 2 * (6 if len(shape) == 3 else 2)
    assert sums.volume == pytest.approx(float((-simplices).clamp_min(0).sum()) / factor, rel=1e-5)
    assert sums.least == pytest.approx(float(central.min()), rel=1e-5, abs=1e-6)
    assert sums.largest == pytest.approx(float(central.max()), rel=1e-5)
    logs = central.clamp_min(1e-9).log()
    assert sums.logs == pytest.approx(float(logs.sum()), rel=1e-4, abs=1e-4 * len(logs))
    assert sums.squares == pytest.approx(float((logs**2).sum()), rel=1e-4)
    assert sums.finite


def test_the_identity_has_exact_sums():
    sums = kernels.fold_sums(torch.zeros(1, 3, 6, 7, 9))
    assert (sums.folds, sums.forward_folds, sums.bad_cells, sums.volume) == (0, 0, 0, 0)
    assert (sums.logs, sums.squares, sums.least, sums.largest) == (0, 0, 1, 1)


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 0.3, 0.7, 1.0, 1.4, 5.0, 1e4])
def test_the_logarithm_is_exact(factor):
    """Stretching axis 0 by a factor makes it the determinant everywhere."""
    field = torch.zeros(1, 2, 2, 40, dtype=torch.float32)
    field[0, 0, 1] = factor - 1
    value = float(torch.tensor(factor - 1, dtype=torch.float32).add(1).clamp_min(1e-9).double().log())
    assert kernels.fold_sums(field).logs / 80 == pytest.approx(value, rel=3e-7, abs=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_marks_are_those_of_the_twin(shape, epsilon):
    field = rough(shape, 2, 0.4)
    with kernels.disabled():
        _, expected = mark_folds(field.double(), epsilon)
        _, above = mark_folds(field.double(), epsilon + 1e-4)
        _, below = mark_folds(field.double(), epsilon - 1e-4)
    clear = above == below
    assert bool(clear.float().mean() > 0.9)
    for n in (1, 2, 5):
        kernels.set_threads(n)
        count, marks = mark_folds(field, epsilon)
        assert count == int((marks > 0).sum())
        assert torch.equal(marks[clear], expected[clear])
    assert kernels.mark_folds(field, epsilon, marks.fill_(7))[1] is marks
    assert torch.equal(marks[clear], expected[clear])


def test_a_mark_says_which_determinant_it_is():
    field = torch.zeros(1, 2, 9, 9)
    field[0, 0, 4, 4] = -1.2  # voxel (4, 4) passes (3, 4): cells fold, central differences reach over it
    _, marks = mark_folds(field)
    assert not bool((marks == CENTRAL_FOLD).any())
    assert (marks == CELL_FOLD).nonzero().tolist() == [[3, 3], [3, 4]]
    field[0, 0, 4, 4], field[0, 0, 5, 4] = -1.2, -2.2
    assert mark_folds(field)[1][4, 4] & CENTRAL_FOLD


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_is_a_fold(value):
    field = torch.zeros(1, 3, 5, 6, 7)
    field[0, 1, 2, 3, 4] = value
    sums = kernels.fold_sums(field)
    assert not sums.finite
    assert sums.bad_cells > 0
    assert mark_folds(field)[0] > 0
    with kernels.disabled():
        assert mark_folds(field)[0] > 0


def test_other_masks_are_refused():
    field = torch.zeros(1, 2, 6, 7)
    with pytest.raises(InputError, match="the grid of one field"):
        kernels.fold_sums(field, torch.ones(7, 6, dtype=torch.bool))
    with pytest.raises(InputError, match=r"dense torch\.uint8"):
        kernels.mark_folds(field, 0.0, torch.zeros(6, 7))
    with pytest.raises(InputError, match="the grid of one field"):
        kernels.mark_folds(torch.zeros(2, 2, 6, 7), 0.0, torch.zeros(6, 7, dtype=torch.uint8))
