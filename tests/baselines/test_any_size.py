"""Every rival takes images of odd sizes and voxels that are no cubes, in 2-D and 3-D, through the one protocol."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.baselines.pairs import saved, stirred
from tests.conftest import blobs
from torch import nn

from pirate.baselines.gradirn import GraDIRN
from pirate.baselines.protocol import METHODS, register_with
from pirate.baselines.symnet import SYMNet
from pirate.baselines.voxelmorph import VoxelMorph
from pirate.registration.pair import Pair, Sources

ODD = [((37, 29), (1.1, 0.7)), ((23, 29, 11), (0.9, 1.1, 2.7))]
QUICK: dict[str, dict[str, Any]] = {
    "log-demons": {"iterations": 20},
    "nodeo": {"iterations": 10, "window": 9, "box": 7, "channels": 4},
    "nodeo:multi-step": {"iterations": 3, "steps": 2, "window": 9, "channels": 4},
    "syn": {"iterations": [10, 10, 10, 10], "step": 0.25},
    "greedy": {"iterations": [20, 20, 20]},
    "greedy:sv": {"iterations": [20, 20, 20]},
    "demons-sitk": {"iterations": 20},
    "demons-sitk:diffeomorphic": {"iterations": 20},
}
ALIGN = set(QUICK) - {"nodeo", "nodeo:multi-step"}
"""Those that get somewhere in so few iterations."""


def grid(spacing: tuple[float, ...]) -> np.ndarray:
    """Axes turned by a permutation and a flip in 3-D, so that the array is not along the world."""
    affine = np.eye(4)
    affine[: len(spacing), : len(spacing)] = np.diag(spacing)
    if len(spacing) == 3:
        affine = np.array([[0, 0, -1, 5], [1, 0, 0, -3], [0, 1, 0, 2], [0, 0, 0, 1.0]]) @ affine
    return affine


@pytest.mark.parametrize(("shape", "spacing"), ODD)
@pytest.mark.parametrize("name", QUICK)
def test_iterative_methods(name: str, shape: tuple[int, ...], spacing: tuple[float, ...]) -> None:
    """The shift of 1.5 and -1 voxels is found, whatever the axes are; the moving image goes on beyond the fixed one."""
    tool = METHODS[name.split(":")[0]].tool
    if tool is not None and any(importlib.util.find_spec(module) is None for module in tool.modules):
        pytest.skip("the tool is not installed")
    d, whole = len(shape), tuple(n * 3 // 2 for n in shape)
    cut = [(m - n) // 2 for m, n in zip(whole, shape, strict=True)]
    fixed = blobs(whole)[tuple(slice(c, c + n) for c, n in zip(cut, shape, strict=True))]
    moving, there = blobs(whole, shift=(1.5, -1.0, 0.5)[:d]), grid(spacing)
    there[:3, 3] -= there[:3, :d] @ cut
    assert np.any(Pair.read(Sources((fixed, grid(spacing)), (moving, there))).margins)
    found = register_with(
        name,
        (fixed, grid(spacing)),
        (moving, there),
        options=QUICK[name],
        affine="none",
        threads=1,
        seconds=300,
    )
    assert found.field.shape == (d, *shape)
    assert np.isfinite(found.field).all()
    assert found.warped.grid.shape == shape
    assert found.inverse is not None
    assert found.metrics["inverse_error_median_voxels"] < 0.1
    assert found.metrics["penalty_after"] < found.metrics["penalty_before"]
    if name in ALIGN:
        inner = found.field[(slice(None), *[slice(n // 3, -(n // 3)) for n in shape])].reshape(d, -1).mean(1)
        np.testing.assert_allclose(inner[:2], (1.5, -1.0), atol=0.5)


@pytest.mark.parametrize(("shape", "spacing"), ODD)
@pytest.mark.parametrize("name", ["voxelmorph", "symnet", "gradirn"])
def test_networks(name: str, shape: tuple[int, ...], spacing: tuple[float, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    d = len(shape)
    made: dict[str, nn.Module] = {
        "voxelmorph": VoxelMorph(d, "4,4,4", "4,4,4,4"), "symnet": SYMNet(d, width=2),
        "gradirn": GraDIRN(d, width=4, depth=2),
    }  # fmt: skip
    weights = saved(tmp_path / "w.safetensors", stirred(made[name], 0.02), d)
    fixed, moving = blobs(shape), blobs(shape, shift=(1.5, -1.0, 0.5)[:d])
    found = register_with(
        name, (fixed, grid(spacing)), (moving, grid(spacing)), weights=weights, affine="none", threads=1
    )
    assert found.field.shape == (d, *shape)
    assert np.isfinite(found.field).all()
    assert np.abs(found.field).max() > 1e-4
    assert found.trace == ()
    if name == "gradirn":  # its steps descend even if nothing was learned
        assert found.metrics["penalty_after"] < found.metrics["penalty_before"]
