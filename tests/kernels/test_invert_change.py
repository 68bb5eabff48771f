"""Inversion and relative change, compiled, against their torch twins."""

from __future__ import annotations

import pytest
import torch

from pirate import kernels
from pirate.ops.compose import invert
from pirate.ops.smooth import gaussian
from pirate.ops.warp import warp
from pirate.solvers.solution import relative_change

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the compiled extension is not installed")
SHAPES = [(24, 29), (14, 17, 19)]


def smooth_field(shape: tuple[int, ...], largest: float) -> torch.Tensor:
    torch.manual_seed(2)
    field = gaussian(torch.randn(1, len(shape), *shape, dtype=torch.float64), 3.0)
    return (field * largest / field.abs().max()).float()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_compiled_inverse_is_the_twins(shape: tuple[int, ...]) -> None:
    field = smooth_field(shape, 2.0)
    inverse, error = kernels.invert(field, 60, 1e-5)
    expected = invert(field.double(), 60, 1e-7)
    assert float(error.max()) < 1e-5
    assert float((inverse - expected.field).abs().max()) < 1e-4


@pytest.mark.parametrize("largest", [2.0, 14.0])
def test_the_reported_error_is_the_error(largest: float) -> None:
    field = smooth_field((24, 29), largest)
    for iterations in (0, 1, 5, 50):
        inverse, error = kernels.invert(field, iterations, 1e-4)
        left = inverse.double() + warp(field.double(), inverse.double(), padding="border")
        torch.testing.assert_close(error.double(), left.norm(dim=1), rtol=1e-4, atol=2e-5)
        if iterations == 50:
            assert bool((error.max() < 1e-4) if largest < 3 else (error.max() > 1))


def test_it_does_not_depend_on_the_threads() -> None:
    field = smooth_field((14, 17, 19), 3.0)
    before = kernels.threads()
    try:
        results = []
        for n in (1, 2, 3):
            kernels.set_threads(n)
            results.append((*kernels.invert(field, 30, 1e-3), *kernels.change(field, field * 2)))
    finally:
        kernels.set_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("count", [1, 7, 300_001])
def test_change_is_the_twins(count: int) -> None:
    torch.manual_seed(0)
    a = torch.randn(2, 1, 2, count + 1)
    b = a + 1e-3 * torch.randn_like(a)
    with kernels.disabled():
        expected = relative_change(a, b)
    torch.testing.assert_close(relative_change(a, b), expected, rtol=1e-6, atol=0)
