"""The compiled path of `on_field` is taken, and gives the numbers of the torch path."""

from __future__ import annotations

import pytest
import torch

from pirate import kernels
from pirate.energies.local import LocalCorrelation
from pirate.energies.regularity import Smoothness
from pirate.energies.similarity import GlobalCorrelation, Similarity
from pirate.errors import InputError

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the compiled extension is not installed")
SHAPES = [(17, 22), (12, 13, 18)]


def build(kind: str, fixed: torch.Tensor, mask: torch.Tensor | None) -> Similarity:
    if kind == "global":
        return GlobalCorrelation(fixed, mask)
    return LocalCorrelation(fixed, mask, window=5, squared=kind == "local squared")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masked", ["none", "fixed", "both"])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["global", "local squared", "local plain"])
def test_both_paths_agree(shape: tuple[int, ...], masked: str, half: bool, kind: str) -> None:
    torch.manual_seed(0)
    fixed, moving = torch.rand(2, 1, 1, *shape)
    own = [(n + 1) // 2 for n in shape] if half else shape
    field = torch.randn(1, len(shape), *own)
    fixed_mask = (torch.rand(1, 1, *shape) > 0.2).float() if masked != "none" else None
    moving_mask = (torch.rand(1, 1, *shape) > 0.2).float() if masked == "both" else None
    value, gradient = build(kind, fixed, fixed_mask).on_field(moving, field, moving_mask)
    with kernels.disabled():
        assert not kernels.usable(fixed)
        double = [None if m is None else m.double() for m in (fixed_mask, moving_mask)]
        expected, slope = build(kind, fixed.double(), double[0]).on_field(
            moving.double(), field.double(), double[1]
        )
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    assert float((gradient - slope).abs().max()) <= 1e-5 * float(slope.abs().max())


@pytest.mark.parametrize("kind", ["global", "local squared"])
def test_the_compiled_path_is_taken(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fixed, moving, field = torch.rand(1, 1, 12, 14), torch.rand(1, 1, 12, 14), torch.zeros(1, 2, 12, 14)
    penalty = build(kind, fixed, None)
    name = "global_correlation" if kind == "global" else "local_correlation_force"
    calls = []
    original = getattr(kernels, name)
    monkeypatch.setattr(kernels, name, lambda *a: calls.append(1) or original(*a))
    penalty.on_field(moving, field)
    assert calls == [1]


@pytest.mark.parametrize("kind", ["global", "local squared"])
def test_the_compiled_path_refuses_what_the_other_refuses(kind: str) -> None:
    fixed, field = torch.rand(1, 1, 12, 14), torch.zeros(1, 2, 12, 14)
    for moving in (torch.ones(1, 1, 12, 14), torch.full((1, 1, 12, 14), float("nan"))):
        with pytest.raises(InputError, match="warped moving"):
            build(kind, fixed, None).on_field(moving, field)
    with pytest.raises(InputError, match="moving: the shape is"):
        build(kind, fixed, None).on_field(torch.rand(1, 1, 9, 9), field)


@pytest.mark.parametrize("shape", SHAPES)
def test_smoothness_agrees(shape: tuple[int, ...]) -> None:
    field = torch.randn(2, len(shape), *shape)
    value, gradient = Smoothness().value_and_gradient(field)
    expected, slope = Smoothness().value_and_gradient(field.double())
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-5, atol=1e-9)
