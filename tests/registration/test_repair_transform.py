from __future__ import annotations

import numpy as np
import pytest
import torch

from pirate.errors import UsageError
from pirate.evaluation.folding import folding
from pirate.grid import Grid
from pirate.ops.smooth import gaussian
from pirate.registration.repair import repair_transform, similarity
from pirate.transform import Affine, Displacement, Transform


def folded(grid: Grid, seed: int = 0, size: float = 3.0) -> Displacement:
    noise = torch.randn(1, grid.ndim, *grid.shape, generator=torch.Generator().manual_seed(seed))
    return Displacement(grid, size * gaussian(noise, 1.2)[0].numpy())


def shifted(grid: Grid, amount: float) -> Affine:
    matrix = np.eye(4)
    matrix[:3, 3] = amount
    return Affine(matrix)


@pytest.mark.parametrize("shape", [(30, 34), (16, 18, 20)])
@pytest.mark.parametrize("mirrored", [False, True])
def test_every_field_of_a_chain_is_repaired_and_affines_stay(shape, mirrored, oblique):
    grid = oblique(shape)
    if mirrored:
        affine = grid.affine.copy()
        affine[:3, 0] *= -1
        grid = Grid(shape, affine)
    affine = shifted(grid, 0.5)
    given = Transform((folded(grid), affine, folded(grid, 1)), source="fixed", target="moving")
    result = repair_transform(given)
    assert (result.transform.source, result.transform.target) == ("fixed", "moving")
    assert result.transform.parts[1] is affine
    assert (len(result.fields), result.remaining) == (2, 0)
    for part, before, report in zip(
        result.transform.parts[::2], given.parts[::2], result.fields, strict=True
    ):
        assert isinstance(part, Displacement)
        assert isinstance(before, Displacement)
        counted = folding(torch.from_numpy(part.field)[None])
        assert report.before["folds_percent"] > 0
        for name in ("folds_percent", "folds_forward_percent", "ndv_percent", "nondiffeomorphic_cells"):
            assert counted[name] == report.after[name] == 0
        step = np.tensordot(grid.axes, (part.field - before.field).astype(float), axes=1)
        assert report.largest_change_mm == pytest.approx(float(np.linalg.norm(step, axis=0).max()), rel=1e-5)
        assert report.changed_voxels == int((part.field != before.field).any(0).sum())
        assert report.voxels == grid.voxels


def test_what_does_not_fold_is_the_same_object(oblique):
    grid = oblique((12, 14))
    part = folded(grid, size=0.2)
    result = repair_transform(Transform((part,)))
    assert result.transform.parts[0] is part
    (report,) = result.fields
    assert (report.rounds, report.changed_voxels, report.largest_change_mm) == (0, 0, 0.0)
    assert report.before == report.after


def test_what_few_rounds_leave_is_listed(oblique):
    result = repair_transform(Transform((folded(oblique((20, 22)), size=30.0),)), rounds=1)
    assert result.remaining == len(result.fields[0].remaining) > 0
    assert result.fields[0].remaining.shape[1] == 2


def test_an_affine_alone_is_refused(oblique):
    with pytest.raises(UsageError, match="an affine does not fold"):
        repair_transform(Transform((shifted(oblique((8, 8)), 1.0),)))


def test_similarity_is_one_where_the_transform_is_right(pair):
    fixed, _ = pair((30, 34))
    found = similarity(fixed, fixed, Transform())
    assert found["correlation"] == pytest.approx(1, abs=1e-6)
    assert 0.4 < found["local_correlation"] <= 1  # windows of background count 0
    wrong = similarity(fixed, fixed, Transform((shifted(fixed.grid, 4.0),)))
    assert wrong["correlation"] < 0.9
    assert wrong["local_correlation"] < found["local_correlation"]
