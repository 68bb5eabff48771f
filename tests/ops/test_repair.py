"""Whatever is given, nothing folds afterwards; what is fine stays as it is; what is far from a fold stays."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pirate import kernels
from pirate.errors import InputError
from pirate.evaluation.folding import folding
from pirate.ops.compose import compose
from pirate.ops.jacobian import mark_folds
from pirate.ops.repair import Repair, repair
from pirate.ops.smooth import gaussian

COUNTS = ("folds_percent", "folds_forward_percent", "ndv_percent", "nondiffeomorphic_cells")


def rough(shape: tuple[int, ...], seed: int, sigma: float, size: float) -> Tensor:
    noise = torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(seed))
    return size * (gaussian(noise, sigma) if sigma else noise)


def counts(field: Tensor) -> list[float]:
    """Of the compiled pass, and of torch in double precision: of very steep fields single precision knows little."""
    found = folding(field)
    with kernels.disabled():
        twin = folding(field.double())
    return [report[name] for report in (found, twin) for name in COUNTS]


def check(field: Tensor) -> Repair:
    """The law: zero by all three, nothing remains, again changes nothing, the numbers say what happened."""
    before = field.clone()
    result = repair(field)
    assert torch.equal(field, before)
    assert counts(result.field) == [0.0] * 8
    assert result.repaired
    assert result.remaining.shape == (0, field.shape[1])
    assert repair(result.field).field is result.field
    change = (result.field - field).double().norm(dim=1)
    assert result.changed_voxels == int((change > 0).sum())
    assert result.largest_change == pytest.approx(float(change.max()), rel=1e-5)
    return result


@pytest.mark.parametrize("shape", [(9, 11), (6, 7, 8)])
def test_a_field_without_folds_is_returned_as_it_is(shape):
    field = rough(shape, 0, 2.0, 0.5)
    result = repair(field)
    assert result.field is field
    assert (result.repaired, result.rounds, result.changed_voxels, result.largest_change) == (True, 0, 0, 0.0)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.one_of(
        st.tuples(st.integers(1, 12), st.integers(2, 12)),
        st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(2, 9)),
    ),
    seed=st.integers(0, 10**6),
    sigma=st.sampled_from([0.0, 0.6, 1.5]),
    size=st.sampled_from([0.1, 0.5, 1.0, 4.0, 30.0, 1e4]),
)
@example(shape=(5, 7, 2), seed=2, sigma=1.5, size=1e4)  # so steep that rounding folds it again
@example(shape=(5, 2, 5), seed=695128, sigma=0.6, size=1e4)
@example(shape=(3, 7, 2), seed=830901, sigma=0.0, size=1e4)
def test_any_rough_field_is_unfolded(shape, seed, sigma, size):
    check(rough(shape, seed, sigma, size))


@pytest.mark.parametrize("shape", [(2, 5, 7), (7, 2, 5), (2, 2, 2), (2, 2), (2, 40), (3, 3, 30), (5, 1, 11)])
@pytest.mark.parametrize("size", [0.7, 3.0])
def test_thin_grids(shape, size):
    check(rough(shape, 5, 0.0, size))


@pytest.mark.parametrize("compiled", [False, True])
def test_the_torch_twin_keeps_the_law_too(compiled):
    field = rough((12, 13, 14), 6, 1.0, 2.0)
    with nullcontext() if compiled else kernels.disabled():
        result = repair(field)
    assert counts(result.field) == [0.0] * 8


def test_double_precision_stays():
    result = repair(rough((12, 13), 6, 1.0, 2.0).double())
    assert result.field.dtype == torch.float64
    assert result.repaired
    assert mark_folds(result.field)[0] == 0


def test_a_composed_field_with_few_folds_hardly_changes():
    """Compositions of small rough steps: a diffeomorphism that sampling made fold here and there."""
    shape = (40, 44, 48)
    field = torch.zeros(1, 3, *shape)
    for seed in range(14):
        field = compose(field, rough(shape, seed, 1.5, 3.0))
    marked, marks = mark_folds(field)
    assert 10 < marked < 0.01 * marks.numel()
    result = check(field)
    assert result.rounds <= 3
    assert result.largest_change < 0.5
    assert result.changed_voxels < 60 * marked
    difference = (result.field - field).double().square().mean().sqrt()
    assert float(difference) < 0.01 * float(field.double().square().mean().sqrt())


@pytest.mark.parametrize("shape", [(60, 64), (24, 26, 28)])
def test_a_heavily_folded_field_keeps_its_coarse_motion(shape):
    coarse = rough(shape, 1, 6.0, 1.0)
    coarse = coarse * (3 / float(coarse.abs().max()))
    field = coarse + rough(shape, 2, 1.0, 2.2 if len(shape) == 2 else 3.5)
    share = mark_folds(field)[0] / field[0, 0].numel()
    assert 0.03 < share < 0.6
    result = check(field)
    smooth = [gaussian(x, 4.0) for x in (field, result.field)]
    assert float((smooth[0] - smooth[1]).abs().max()) < 1.0


@pytest.mark.parametrize("shape", [(20, 22), (16, 17, 18)])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_a_lone_fold_is_cured_where_it_is(shape, where):
    """In a corner, in the middle, in the opposite corner."""
    field = torch.zeros(1, len(shape), *shape)
    at = tuple(round(where * (n - 1)) for n in shape)
    for axis in range(len(shape)):
        field[(0, axis, *at)] = 1.4 if where < 0.5 else -1.4
    assert mark_folds(field)[0] > 0
    result = check(field)
    assert result.largest_change < 2.0
    box = tuple(slice(max(a - 5, 0), a + 6) for a in at)
    changed = (result.field != field).any(1)[0]
    assert bool(changed[box].any())
    changed[box] = False
    assert not bool(changed.any())


def test_a_mirrored_axis_is_no_deformation_but_ends_without_folds():
    i = torch.arange(12.0)[:, None].expand(12, 10)
    check(torch.stack([-2 * i, torch.zeros(12, 10)])[None])


@pytest.mark.parametrize("size", [1e8, 1e20, 3e38])
def test_numbers_of_any_size_end_without_folds(size):
    field = rough((6, 7, 8), 3, 0.0, 1.0).clamp(-1, 1) * size
    result = repair(field)
    assert result.repaired
    assert counts(result.field) == [0.0] * 8


def test_what_few_rounds_leave_is_listed():
    field = rough((20, 22), 3, 0.8, 6.0)
    result = repair(field, rounds=1)
    assert (result.repaired, result.rounds) == (False, 1)
    assert result.remaining.tolist() == mark_folds(result.field)[1].nonzero().tolist() != []


def test_repaired_determinants_keep_their_distance_from_zero():
    for epsilon in (0.003, 0.05):
        result = repair(rough((14, 15, 16), 9, 1.0, 2.0), epsilon=epsilon)
        assert mark_folds(result.field, 0.1 * epsilon)[0] == 0


@pytest.mark.parametrize("shape", [(2, 2, 8, 8), (1, 2, 8, 8, 8), (1, 1, 8)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="one field"):
        repair(torch.zeros(shape))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_field_that_is_not_finite_is_refused(value):
    field = torch.zeros(1, 2, 8, 8)
    field[0, 0, 4, 4] = value
    with pytest.raises(InputError, match="not finite"):
        repair(field)


def test_other_numbers_are_refused():
    field = torch.zeros(1, 2, 8, 8)
    with pytest.raises(InputError, match="epsilon"):
        repair(field, epsilon=0.0)
    with pytest.raises(InputError, match="rounds"):
        repair(field, rounds=0)
