import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from pirate import kernels
from pirate.errors import InputError
from pirate.evaluation import folding as module
from pirate.evaluation.folding import folding
from pirate.ops.derivative import forward_difference
from pirate.ops.jacobian import determinant, folding_ratio, nondiffeomorphic
from pirate.ops.smooth import gaussian

SHAPES = [(14, 17), (13, 15, 16)]


def rough(shape, seed=0, size=2.5):
    noise = torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(seed))
    return gaussian(noise, 1.0) * size


@pytest.mark.parametrize("shape", SHAPES)
def test_the_identity_does_not_fold(shape):
    assert folding(torch.zeros(1, len(shape), *shape)) == {
        "folds_percent": 0.0,
        "folds_forward_percent": 0.0,
        "ndv_percent": 0.0,
        "nondiffeomorphic_cells": 0.0,
        "min_determinant": 1.0,
        "max_determinant": 1.0,
        "sd_log_jacobian": 0.0,
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("slab", [1, 10**6, None])
def test_is_what_the_operators_give_on_the_whole(shape, slab, monkeypatch):
    """In slabs of one plane, in one slab, or in one compiled pass."""
    field = rough(shape)
    with kernels.disabled() if slab else nullcontext():
        monkeypatch.setattr(module, "SLAB_VOXELS", slab)
        found = folding(field)
    values = determinant(field)
    cells, volume = nondiffeomorphic(field)
    assert found["folds_percent"] == pytest.approx(100 * float(folding_ratio(field)), rel=1e-12) != 0
    assert found["folds_forward_percent"] == pytest.approx(
        100 * float(folding_ratio(field, forward_difference))
    )
    assert found["nondiffeomorphic_cells"] == int(cells) > 0
    assert found["ndv_percent"] == pytest.approx(100 * float(volume) / math.prod(shape), rel=1e-6)
    assert found["min_determinant"] == pytest.approx(float(values.min()), rel=1e-6)
    assert found["max_determinant"] == pytest.approx(float(values.max()), rel=1e-6)
    expected = np.log(np.maximum(values.numpy(), np.float32(1e-9)).astype(np.float64)).std()
    assert found["sd_log_jacobian"] == pytest.approx(expected, rel=1e-5)


def test_a_known_stretch():
    """x + 0.2 x along one axis and x - 0.5 x along the other: determinant 1.2 x 0.5 everywhere."""
    i, j = torch.meshgrid(torch.arange(9.0), torch.arange(8.0), indexing="ij")
    found = folding(torch.stack([0.2 * i, -0.5 * j])[None])
    assert found["min_determinant"] == pytest.approx(0.6, rel=1e-5)
    assert found["max_determinant"] == pytest.approx(0.6, rel=1e-5)
    assert found["sd_log_jacobian"] == pytest.approx(0, abs=1e-6)


def test_a_mirrored_axis_folds_all_of_it():
    i = torch.arange(6.0)[:, None].expand(6, 5)
    found = folding(torch.stack([-2 * i, torch.zeros(6, 5)])[None])
    assert found["folds_percent"] == found["folds_forward_percent"] == 100
    assert found["ndv_percent"] == pytest.approx(100 * 20 / 30)
    assert found["nondiffeomorphic_cells"] == 20


def test_central_differences_miss_a_checkerboard_that_the_cells_see():
    i = torch.arange(10)[:, None].expand(10, 10)
    field = torch.stack([0.7 * (-1.0) ** i, torch.zeros(10, 10)])[None]
    inner = torch.zeros(10, 10, dtype=torch.bool)
    inner[1:-1, 1:-1] = True
    found = folding(field, inner)
    assert found["folds_percent"] == 0
    assert found["ndv_percent"] > 10


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("compiled", [False, True])
def test_only_the_mask_counts(shape, compiled, monkeypatch):
    monkeypatch.setattr(module, "SLAB_VOXELS", 60)
    field = rough(shape, seed=4)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.6
    mask[3:5] = False  # slabs without a voxel
    values = determinant(field)[0][mask]
    with nullcontext() if compiled else kernels.disabled():
        found = folding(field, mask)
    assert found["folds_percent"] == pytest.approx(100 * float((values <= 0).double().mean()))
    assert found["min_determinant"] == pytest.approx(float(values.min()), rel=1e-6)
    assert found["sd_log_jacobian"] == pytest.approx(
        float(values.clamp_min(1e-9).log().double().std(correction=0))
    )
    everywhere = torch.ones(shape, dtype=torch.bool)
    assert folding(field, everywhere) == pytest.approx(folding(field))


@pytest.mark.parametrize("shape", [(2, 2, 8, 8), (1, 2, 8, 8, 8), (1, 1, 8)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match="one field"):
        folding(torch.zeros(shape))


@pytest.mark.parametrize("mask", [torch.ones(4, 5, dtype=torch.bool), torch.zeros(6, 5, dtype=torch.bool)])
def test_a_mask_that_does_not_fit_or_is_empty_is_refused(mask):
    with pytest.raises(InputError, match="region of the grid"):
        folding(torch.zeros(1, 2, 6, 5), mask)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_field_that_is_not_finite_is_refused(value, compiled):
    field = torch.zeros(1, 2, 6, 5)
    field[0, 0, 3, 3] = value
    with nullcontext() if compiled else kernels.disabled(), pytest.raises(InputError, match="not finite"):
        folding(field)


@pytest.mark.parametrize("shape", [*SHAPES, (5, 1, 9), (2, 2, 2), (1, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_compiled_pass_says_what_torch_says(shape, masked):
    field = torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(7)) * 0.5
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(8)) > 0.3 if masked else None
    compiled = folding(field, mask)
    with kernels.disabled():
        assert compiled == pytest.approx(folding(field, mask), rel=1e-5)
