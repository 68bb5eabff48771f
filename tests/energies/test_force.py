"""The derivative by a composed step: its definition, the compiled path against torch, what both refuse."""

from __future__ import annotations

import functools
from typing import Any

import naive_energies as naive
import pytest
import torch
from torch import Tensor

from pirate import kernels
from pirate.energies import GlobalCorrelation, LocalCorrelation, MutualInformation, Similarity, SquaredError
from pirate.energies.composition import Remembered, gradient_product
from pirate.errors import InputError
from pirate.ops.derivative import central_difference
from pirate.ops.smooth import gaussian
from pirate.ops.warp import warp

SHAPES = [(17, 22), (9, 12, 13)]
NAMES = ["squared error", "global", "local squared", "local plain", "mutual information"]
KERNELS = {
    "squared error": "squared_error",
    "global": "correlation",
    "local squared": "local_correlation_force",
    "local plain": "local_correlation_force",
    "mutual information": "mutual_information",
}
compiled = pytest.mark.skipif(not kernels.available(), reason="the compiled extension is not installed")


def images(shape: tuple[int, ...], seed: int = 0, batch: int = 2) -> list[Tensor]:
    """Fixed, moving, a field that leaves the grid in places, a hard and a soft mask; float64."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(4, batch, 1, *shape, generator=generator, dtype=torch.float64)
    fixed, other = (gaussian(x, 1.0).mul(2).sigmoid() for x in noise[:2])
    field = torch.randn(batch, len(shape), *shape, generator=generator, dtype=torch.float64)
    return [fixed, 0.6 * fixed + 0.4 * other, field, (noise[2] > -0.5).double(), noise[3].sigmoid()]


def build(name: str, fixed: Tensor, mask: Tensor | None = None, bins: int = 9) -> Similarity:
    if name == "squared error":
        return SquaredError(fixed, mask)
    if name == "global":
        return GlobalCorrelation(fixed, mask)
    if name == "mutual information":
        spans = (torch.tensor([[0.0, 1.0]] * len(fixed), dtype=torch.float64) for _ in range(2))
        return MutualInformation(fixed, mask, fixed_range=next(spans), moving_range=next(spans), bins=bins)
    return LocalCorrelation(fixed, mask, window=5, squared=name == "local squared")


def definition(name: str) -> Any:
    """The penalty written out, a function of (fixed, warped, weight)."""
    span = torch.tensor([[0.0, 1.0]] * 2)
    mutual = {"fixed_range": span, "moving_range": span, "bins": 9}
    return {
        "squared error": naive.squared_error,
        "global": naive.global_correlation,
        "local squared": functools.partial(naive.local_correlation, window=5, squared=True),
        "local plain": functools.partial(naive.local_correlation, window=5, squared=False),
        "mutual information": functools.partial(naive.mutual_information, **mutual),
    }[name]


def assert_same(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal to `tolerance` of the largest entry."""
    assert actual.shape == expected.shape
    assert float((actual.double() - expected).abs().max()) <= tolerance * float(expected.abs().max())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_force_is_autograd_of_the_definition_times_the_central_difference(name, masked, shape):
    fixed, moving, field, hard, soft = images(shape)
    value, force = build(name, fixed, hard if masked else None).force(moving, field, soft if masked else None)
    warped = warp(moving, field)
    weight = hard * warp(soft, field) if masked else None
    leaf = warped.clone().requires_grad_()
    expected = definition(name)(fixed, leaf, weight)
    (pull,) = torch.autograd.grad(expected.sum(), leaf)
    slopes = torch.stack(torch.gradient(warped[:, 0], dim=list(range(1, len(shape) + 1)), edge_order=1), 1)
    assert value.dtype == torch.float64
    assert_same(value, expected.detach(), 1e-9)
    assert_same(force, pull * slopes, 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_force_is_the_derivative_of_the_value_along_any_step(name, shape):
    """Half the sum of left and right slope of a linear interpolant is its central difference: exact inside."""
    fixed, moving, field, _, _ = images(shape, 1)
    energy = build(name, fixed)
    _, force = energy.force(moving, field)
    warped = warp(moving, field)
    step = torch.zeros_like(field)
    inside = (..., *[slice(1, -1)] * len(shape))
    step[inside] = torch.randn(step[inside].shape, generator=torch.Generator().manual_seed(2)).double()
    t = 1e-7  # left and right of a voxel the second derivatives differ: the error is of order t
    ahead, behind = (energy.value_and_gradient(warp(warped, s * step))[0] for s in (t, -t))
    torch.testing.assert_close(
        (force * step).flatten(1).sum(1), (ahead - behind) / (2 * t), rtol=1e-5, atol=1e-8
    )


@compiled
@pytest.mark.parametrize("shape", [*SHAPES, (7, 1, 13), (1, 15)])
@pytest.mark.parametrize("masks", ["none", "fixed", "moving", "both"])
@pytest.mark.parametrize("name", NAMES)
def test_both_paths_agree(name, masks, shape):
    fixed, moving, field, hard, soft = images(shape, 3)
    own = hard if masks in ("fixed", "both") else None
    other = soft if masks in ("moving", "both") else None
    small = [x.float() for x in (fixed, moving, field)]
    flags = None if own is None else own.bool()
    energy = build(name, small[0], flags)
    out = torch.full_like(small[2], float("nan"))
    mask = None if other is None else other.float()
    value, force = energy.force(small[1], small[2], mask, out)
    assert force is out
    with kernels.disabled():
        expected, slope = build(name, small[0].double(), flags).force(
            small[1].double(), small[2].double(), None if mask is None else mask.double()
        )
        kept = torch.empty_like(field)
        assert build(name, fixed, flags).force(moving, field, other, kept)[1] is kept
    local = "local" in name  # windows of a few voxels have small variances
    assert_same(value, expected, 1e-5 if local else 1e-6)
    assert_same(force, slope, 5e-5 if local else 1e-5)
    torch.testing.assert_close(energy.value(small[1], small[2], mask), value, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_value_alone_in_torch(name):
    fixed, moving, field, hard, soft = images((9, 12))
    energy = build(name, fixed, hard)
    assert torch.equal(energy.value(moving, field, soft), energy.force(moving, field, soft)[0])
    assert torch.equal(energy.value(moving, field), energy.force(moving, field)[0])


@compiled
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["squared error", "mutual information"])
def test_on_field_takes_the_compiled_path_too(name, shape, monkeypatch):
    fixed, moving, field, hard, soft = (x.float() for x in images(shape, 4))
    calls = count_calls(monkeypatch, KERNELS[name])
    value, gradient = build(name, fixed, hard).on_field(moving, field, soft)
    assert len(calls) == 1
    with kernels.disabled():
        expected, slope = build(name, fixed.double(), hard.double()).on_field(
            moving.double(), field.double(), soft.double()
        )
    assert_same(value, expected, 1e-6)
    assert_same(gradient, slope, 1e-5)


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    calls: list[int] = []
    original = getattr(kernels, name)
    monkeypatch.setattr(kernels, name, lambda *a: calls.append(1) or original(*a))
    return calls


@compiled
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_path_is_taken(name, masked, monkeypatch):
    fixed, moving, field, hard, soft = (x.float() for x in images((9, 12, 13)))
    energy = build(name, fixed, hard if masked else None)
    calls = count_calls(monkeypatch, KERNELS[name])
    monkeypatch.setattr(energy.__class__, "value_and_gradient", None)
    energy.force(moving, field, soft if masked else None)
    assert calls == [1]


@compiled
def test_what_is_constant_is_examined_once(monkeypatch):
    fixed, moving, field, hard, soft = images((9, 12, 13))
    energy = build("mutual information", fixed.float(), hard.bool())
    checks = count_calls(monkeypatch, "correlation")
    binned = []
    original = MutualInformation._bin
    monkeypatch.setattr(MutualInformation, "_bin", lambda self, x: binned.append(1) or original(self, x))
    for _ in range(3):
        energy.force(moving.float(), field.float())
    assert len(checks) == 1  # of fixed
    planes = len(binned)
    energy.force(moving.float(), field.float(), soft)
    assert len(binned) == planes
    first = energy.pair(moving.float(), field.float(), soft)
    second = energy.pair(moving.float(), field.float(), soft)
    assert first.fixed_mask is second.fixed_mask
    assert first.moving_mask is second.moving_mask


def test_remembered_notices_another_tensor_and_a_change():
    seen: list[int] = []
    answer = Remembered(lambda x: seen.append(1) or float(x.sum()))
    x = torch.ones(3)
    assert [answer(x), answer(x)] == [3.0, 3.0]
    assert len(seen) == 1
    x += 1
    assert answer(x) == 6.0
    assert answer(torch.ones(3)) == 3.0
    with torch.inference_mode():
        y = torch.ones(2)
        assert [answer(y), answer(y)] == [2.0, 2.0]
    assert len(seen) == 5


def refused(name: str, change: str) -> str:
    """The sentence with which force refuses the images after `change`."""
    fixed, moving, field, _, _ = (x.float() for x in images((9, 12, 20), 5))
    level, still = torch.tensor(0.7), torch.zeros_like(field)
    here = torch.arange(20).expand(fixed.shape)
    low, lower, high = ((here < 11).float(), (here < 9).float(), (here > 12).float())
    own = other = None
    if change == "constant moving":
        moving, field = torch.full_like(moving, 0.7), still
    elif change == "moving is not finite":
        moving[1, 0, 4, 5, 6], field = float("nan"), still
    elif change == "moving pushed off":
        field = torch.full_like(field, 50.0)
    elif change == "constant fixed":
        fixed = torch.full_like(fixed, 0.7)
    elif change == "fixed is not finite":
        fixed[0, 0, 4, 5, 6] = float("inf")
    elif change == "empty masks":
        own, other, field = low, high, still
    elif change == "fixed constant in its mask":
        own, fixed = low, torch.where(low > 0, level, fixed)
    elif change == "fixed constant in the moving mask":
        other, fixed, field = lower, torch.where(low > 0, level, fixed), still
    elif change == "moving constant in the masks":
        own, moving, field = lower, torch.where(low > 0, level, moving), still
    with pytest.raises(InputError) as error:
        build(name, fixed, own).force(moving, field, other)
    return str(error.value)


@compiled
@pytest.mark.parametrize(
    ("change", "start"),
    [
        ("constant moving", "warped moving: the image is constant"),
        ("moving is not finite", "warped moving: the image has values that are not finite"),
        ("moving pushed off", "warped moving: the image is constant"),
        ("constant fixed", "fixed: the image is constant"),
        ("fixed is not finite", "fixed: the image has values that are not finite"),
        ("empty masks", "mask: no voxel is inside both"),
        ("fixed constant in its mask", "fixed: the image is constant"),
        ("fixed constant in the moving mask", "fixed: the image is constant"),
        ("moving constant in the masks", "warped moving: the image is constant"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_both_paths_refuse_with_the_same_sentence(name, change, start):
    said = refused(name, change)
    assert said.startswith(start)
    with kernels.disabled():
        assert refused(name, change) == said


@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_do_not_fit_are_refused(name):
    fixed, moving, field, hard, _ = (x.float() for x in images((9, 12)))
    energy = build(name, fixed)
    for call in (energy.force, energy.value):
        with pytest.raises(
            InputError, match=r"^moving: the shape is \(2, 1, 9, 5\); expected \(2, 1, 9, 12\)"
        ):
            call(moving[..., :5], field)
        with pytest.raises(
            InputError, match=r"^field: the shape is \(2, 2, 5, 6\); expected \(2, 2, 9, 12\)"
        ):
            call(moving, field[..., ::2, ::2])
        with pytest.raises(InputError, match=r"^mask: the shape is"):
            call(moving, field, hard[:1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_a_small_step_against_the_force_lowers_the_value(name, dtype):
    fixed, moving, _, _, _ = images((20, 22), 6)
    fixed, moving = gaussian(fixed, 1.0).to(dtype), gaussian(moving, 1.0).to(dtype)
    field = torch.zeros(2, 2, 20, 22, dtype=dtype)
    energy = build(name, fixed)
    value, force = energy.force(moving, field)
    step = -0.05 * force / force.flatten(1).abs().amax(1).view(-1, 1, 1, 1)
    assert (energy.value(moving, step) < value).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_product_is_the_central_difference_times_the_coefficient(dtype):
    generator = torch.Generator().manual_seed(0)
    warped, coefficient = torch.randn(2, 2, 1, 6, 5, 8, generator=generator).to(dtype)
    out = torch.empty(2, 3, 6, 5, 8, dtype=dtype)
    assert gradient_product(warped, coefficient, out) is out
    for axis in range(3):
        expected = coefficient * central_difference(warped, axis)
        torch.testing.assert_close(out[:, axis : axis + 1], expected)
    torch.testing.assert_close(gradient_product(warped, coefficient), out, rtol=0, atol=0)
