"""Every kernel equals its torch twin, in two and three dimensions, for any number of threads."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
import twins

from pirate import kernels
from pirate.errors import InputError
from pirate.kernels import memory
from pirate.ops import compose, derivative, jacobian, resample, smooth, warp

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="the extension is not built"),
    pytest.mark.usefixtures("instruction_set"),
]

SHAPES = [(13, 10, 27), (8, 16, 24), (9, 7, 5), (5, 1, 11), (1, 6, 9), (21, 34), (16, 7), (1, 12)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def image(shape: tuple[int, ...], seed: int, channels: int = 1, batch: int = 2) -> Tensor:
    return torch.rand(batch, channels, *shape, generator=generator(seed))


def displacement(shape: tuple[int, ...], seed: int, size: float = 2.0) -> Tensor:
    """Random field with a few positions far outside."""
    field = size * torch.randn(2, len(shape), *shape, generator=generator(seed))
    far = torch.rand(field.shape, generator=generator(seed + 1)) < 0.02
    return torch.where(far, 1e4 * field, field)


def brain(shape: tuple[int, ...], seed: int) -> Tensor:
    """An image with background that is exactly 0, in two separate parts."""
    x = image(shape, seed) + 0.5
    axes = [torch.linspace(-1, 1, n) if n > 1 else torch.zeros(1) for n in shape]
    distance = sum(a**2 for a in torch.meshgrid(*axes, indexing="ij"))
    return x * ((distance < 0.8) & (distance > 0.02))


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    scale = float(expected.abs().max()) or 1.0
    assert float((actual.double() - expected.double()).abs().max()) <= tolerance * scale


def same_for_all_threads(call: Callable[[], Any]) -> Any:
    results = []
    for n in (1, 2, 5):
        kernels.set_threads(n)
        results.append(call())
    for other in results[1:]:
        for a, b in zip(_flat(results[0]), _flat(other), strict=True):
            assert torch.equal(a, b)
    return results[0]


def _flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_warp(shape, padding):
    x, field = image(shape, 1, channels=3), displacement(shape, 2)
    actual = same_for_all_threads(lambda: kernels.warp(x, field, padding))
    close(actual, warp.warp(x.double(), field.double(), padding=padding))


@pytest.mark.parametrize("shape", SHAPES)
def test_warp_with_gradient_is_what_autograd_gives(shape):
    x, field = image(shape, 3), displacement(shape, 4)
    warped, gradient = same_for_all_threads(lambda: kernels.warp_with_gradient(x, field))
    expected, expected_gradient = twins.warp_with_gradient(x.double(), field.double())
    close(warped, expected)
    close(gradient, expected_gradient)


@pytest.mark.parametrize("values", [float("nan"), float("inf"), -1e30])
def test_a_field_that_is_not_finite_reads_nothing(values):
    x = image((6, 7, 9), 5)
    field = torch.full((2, 3, 6, 7, 9), values)
    assert torch.equal(kernels.warp(x, field), torch.zeros_like(x))


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((13, 10, 27), (7, 5, 14)),
        ((13, 10, 27), (13, 10, 27)),
        ((13, 10, 27), (2, 3, 4)),
        ((20, 18, 33), (10, 9, 17)),
        ((9, 10, 11), (8, 9, 10)),
        ((9, 10, 11), (12, 5, 30)),
        ((5, 1, 11), (3, 1, 5)),
        ((16, 16, 40), (5, 16, 20)),
        ((1, 8, 24), (1, 4, 8)),
        ((21, 34), (11, 17)),
        ((21, 34), (21, 34)),
        ((16, 7), (3, 3)),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_global_correlation(shape, grid, weighted):
    fixed, moving = image(shape, 6), brain(shape, 7)
    field = 0.7 * torch.randn(2, len(grid), *grid, generator=generator(8))
    weight = image(shape, 9) if weighted else None
    value, gradient = same_for_all_threads(lambda: kernels.global_correlation(fixed, moving, field, weight))
    q = None if weight is None else weight.double()
    expected, expected_gradient = twins.global_correlation(fixed.double(), moving.double(), field.double(), q)
    close(value, expected, 1e-6)
    close(gradient, expected_gradient)


def test_global_correlation_survives_a_large_mean():
    shape, grid = (12, 14, 20), (6, 7, 10)
    fixed, moving = 1000 + image(shape, 10), 3000 + image(shape, 11)
    field = 0.02 * torch.rand(2, 3, *grid, generator=generator(12)) + 0.3
    field[:, :, -1], field[:, :, :, -1], field[..., -1] = -0.4, -0.4, -0.4  # inside
    value, gradient = kernels.global_correlation(fixed, moving, field)
    expected, expected_gradient = twins.global_correlation(fixed.double(), moving.double(), field.double())
    close(value, expected, 1e-5)
    close(gradient, expected_gradient)


def test_global_correlation_of_a_constant_image_has_no_slope():
    fixed = torch.full((1, 1, 8, 8, 8), 0.3)
    value, gradient = kernels.global_correlation(
        fixed, image((8, 8, 8), 1, batch=1), torch.zeros(1, 3, 4, 4, 4)
    )
    assert value.tolist() == [1.0]
    assert not gradient.any()


@pytest.mark.parametrize("shape", [(13, 10, 27), (9, 7, 5), (5, 1, 11), (21, 34)])
@pytest.mark.parametrize("radius", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_local_correlation(shape, radius, squared, weighted):
    fixed, warped = image(shape, 13), brain(shape, 14)
    weight = (image(shape, 15) - 0.3).clamp_min(0) if weighted else None
    if weight is not None:
        weight[..., : shape[-1] // 2] = 0
    value, gradient = same_for_all_threads(
        lambda: kernels.local_correlation(fixed, warped, radius, squared, 1e-5, weight)
    )
    q = None if weight is None else weight.double()
    expected, expected_gradient = twins.local_correlation(
        fixed.double(), warped.double(), radius, squared, 1e-5, q
    )
    close(value, expected, 1e-6)
    close(gradient, expected_gradient, 3e-5 if radius == 1 else 1e-5)  # few voxels: small variances


@pytest.mark.parametrize(
    "shape", [(13, 10, 27), (30, 26, 37), (9, 7, 5), (5, 1, 11), (1, 12, 15), (21, 34), (1, 12)]
)
@pytest.mark.parametrize("scheme", ["additive", "compositional"])
@pytest.mark.parametrize(("radius", "squared"), [(1, True), (2, True), (2, False), (3, True), (5, True)])
def test_local_correlation_force(shape, scheme, radius, squared):
    fixed, moving = brain(shape, 16), brain(shape, 17)
    field = torch.randn(2, len(shape), *shape, generator=generator(18))
    value, force = same_for_all_threads(
        lambda: kernels.local_correlation_force(fixed, moving, field, radius, squared, 1e-3, scheme)
    )
    expected, expected_force = twins.local_correlation_force(
        fixed.double(), moving.double(), field.double(), radius, squared, 1e-3, scheme
    )
    close(value, expected, 1e-6)
    close(force, expected_force, 3e-5 if radius == 1 else 1e-5)  # few voxels: small variances


@pytest.mark.parametrize("radius", [1, 2, 3, 5])
@pytest.mark.parametrize("scheme", ["additive", "compositional"])
def test_what_earlier_calls_left_in_memory_does_not_matter(radius, scheme):
    """The working memory of all threads is filled with NaN by other calls first."""
    shape, nan = (8, 16, 24), float("nan")
    fixed, moving = brain(shape, 16), brain(shape, 17)
    field = torch.randn(2, 3, *shape, generator=generator(18))
    other, vectors = torch.full((1, 1, 30, 40, 50), nan), torch.full((1, 3, 30, 40, 50), nan)
    kernels.set_threads(5)
    for call in (
        lambda: kernels.local_correlation_force(fixed, moving, field, radius, True, 1e-3, scheme)[1],
        lambda: kernels.local_correlation(fixed, moving, radius)[1],
        lambda: kernels.global_correlation(fixed, moving, field)[1],
        lambda: kernels.global_correlation(fixed, moving, field[..., ::2, ::2, ::2])[1],
        lambda: kernels.gaussian(field, 0.4 * radius),
    ):
        clean = call()
        for _ in range(3):
            kernels.local_correlation(other, other, 7)
            kernels.gaussian(vectors, 1.2)
            kernels.global_correlation(other, other, vectors[..., ::2, ::2, ::2])
            assert torch.isfinite(clean).all()
            assert torch.equal(call(), clean)


def test_background_of_the_fixed_image_costs_nothing_and_changes_nothing():
    fixed, moving = torch.zeros(1, 1, 40, 20, 24), image((40, 20, 24), 19, batch=1)
    fixed[:, :, 17:22, 8:11, 9:13] = image((5, 3, 4), 20, batch=1)
    field = 0.5 * torch.randn(1, 3, 40, 20, 24, generator=generator(21))
    out = torch.full_like(field, float("nan"))
    value, force = same_for_all_threads(
        lambda: kernels.local_correlation_force(fixed, moving, field, 2, True, 1e-5, "additive", out.clone())
    )
    expected, expected_force = twins.local_correlation_force(
        fixed.double(), moving.double(), field.double(), 2, True, 1e-5, "additive"
    )
    close(value, expected, 1e-6)
    close(force, expected_force)
    assert not force[:, :, :13].any()
    assert not force[..., 17:].any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("sigma", "truncate"), [(1.2, 3.0), (0.4, 3.0), (0.8, 2.5), (4.0, 3.0)])
def test_gaussian(shape, sigma, truncate):
    x = image(shape, 22, channels=3)
    actual = same_for_all_threads(lambda: kernels.gaussian(x, sigma, truncate))
    close(actual, smooth.gaussian(x.double(), sigma, truncate))


@pytest.mark.parametrize(
    "sigma", [(0, 1.0, 0), (1.5, 0, 0), (0, 0, 0.7), (0, 0, 0), (1.0, 0, 2.0), (2.0, 1.0, 0)]
)
def test_gaussian_of_one_axis(sigma):
    x = image((11, 70, 19), 23)
    close(same_for_all_threads(lambda: kernels.gaussian(x, sigma)), smooth.gaussian(x.double(), sigma))


@pytest.mark.parametrize("sigma", [0.4, 1.2, 3.0])
def test_gaussian_skips_zeros_exactly(sigma):
    """Zero rows, planes and ends of rows: the result is that of the twin, and 0 out of reach."""
    x = torch.zeros(1, 3, 40, 45, 80)
    x[:, 0, 17:22, 20:23, 37:43] = torch.randn(5, 3, 6, generator=generator(1))
    x[:, 1, :2, -1, :3] = 1.0
    x[:, 2, -1, 0, -2:] = -1.0
    actual = same_for_all_threads(lambda: kernels.gaussian(x, sigma, out=torch.full_like(x, float("nan"))))
    close(actual, smooth.gaussian(x.double(), sigma))
    assert not actual[:, 0, :8].any()
    assert not actual[:, 2, ..., :60].any()


def test_large_results_written_past_the_cache():
    """Rows of whole cache lines, 17 MB: the other way of writing gives the same."""
    field = torch.randn(1, 3, 23, 192, 320, generator=generator(1))
    update = 0.3 * torch.randn(1, 3, 23, 192, 320, generator=generator(2))
    composed = same_for_all_threads(lambda: kernels.compose_small(field, update))
    close(composed, compose.compose_small(field.double(), update.double()))
    smoothed = same_for_all_threads(lambda: kernels.gaussian(composed, 0.4))
    close(smoothed, smooth.gaussian(composed.double(), 0.4))


@pytest.mark.parametrize("sigma", [0.3, 0.4, 1.2, 5.0])
def test_taps_are_those_of_the_operator(sigma):
    half = memory.half_taps(sigma, 3.0)
    assert half[:0:-1] + half == pytest.approx(smooth.gaussian_taps(sigma, 3.0), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_compose(shape):
    outer, inner = displacement(shape, 24, 1.0), displacement(shape, 25)
    actual = same_for_all_threads(lambda: kernels.compose(outer, inner))
    close(actual, compose.compose(outer.double(), inner.double()))


def derivatives(outer: Tensor, inner: Tensor, cotangent: Tensor) -> list[Tensor]:
    """By autograd in float64."""
    both = [x.double().requires_grad_() for x in (outer, inner)]
    return list(torch.autograd.grad(compose.compose(*both), both, cotangent.double()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.3, 2.0])
def test_compose_adjoint(shape, size):
    outer, inner, cotangent = (displacement(shape, seed, size) for seed in (3, 4, 5))
    actual = same_for_all_threads(lambda: kernels.compose_adjoint(outer, inner, cotangent))
    wanted = derivatives(outer, inner, cotangent)
    for found, twin in zip(actual, wanted, strict=True):
        close(found, twin)
    by_outer, nothing = kernels.compose_adjoint(outer, inner, cotangent, (True, False))
    assert nothing is None
    assert torch.equal(by_outer, actual[0])
    assert torch.equal(kernels.compose_adjoint(outer, inner, cotangent, (False, True))[1], actual[1])


@pytest.mark.parametrize("shape", [(5, 9, 17), (3, 3, 3), (9, 17), (5, 33)])
@pytest.mark.parametrize("step", [0.0, 1.0, -1.0, 0.5])
def test_compose_adjoint_on_voxels_and_borders(shape, step):
    """Where a training starts: positions on voxels, and on the border, beyond which there is no slope."""
    outer, cotangent = displacement(shape, 3), displacement(shape, 5)
    inner = torch.full_like(outer, step)
    for found, twin in zip(
        kernels.compose_adjoint(outer, inner, cotangent), derivatives(outer, inner, cotangent), strict=True
    ):
        close(found, twin)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_derivative_by_the_outer_field_is_the_adjoint_of_composing(shape):
    outer, inner, cotangent = (displacement(shape, seed).clamp(-9, 9) for seed in (3, 4, 5))
    by_outer, _ = kernels.compose_adjoint(outer, inner, cotangent)
    composed = kernels.compose(outer, inner).double() - inner  # linear in outer
    torch.testing.assert_close(
        (composed * cotangent).sum(), (outer.double() * by_outer).sum(), rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_go_through_compiled_compositions(shape):
    outer, inner, cotangent = (displacement(shape, seed, 0.7) for seed in (6, 7, 8))
    found = []
    for dtype in (torch.float32, torch.float64):
        a, b = (x.detach().to(dtype, copy=True).requires_grad_() for x in (outer, inner))
        composed = compose.compose(a, b)
        found.append([composed.detach(), *torch.autograd.grad(composed, (a, b), cotangent.to(dtype))])
        for one, other in ((a, a), (a, b.detach()), (b.detach(), a)):  # squaring, and one of two
            found[-1] += torch.autograd.grad(compose.compose(one, other), [a], cotangent.to(dtype))
        found[-1] += torch.autograd.grad(compose.compose(a, a).sum(), [a])  # a cotangent of one number
    for compiled, twin in zip(*found, strict=True):
        close(compiled, twin)
    with kernels.disabled():
        twin = compose.compose(outer.requires_grad_(), inner)
    assert "Composition" not in type(twin.grad_fn).__name__
    assert "Composition" in type(compose.compose(outer, inner).grad_fn).__name__


def test_the_derivative_of_a_compiled_composition_can_be_differentiated():
    outer, inner = (0.7 * torch.randn(2, 3, 5, 6, 9, generator=generator(seed)) for seed in (6, 7))
    found = []
    for dtype in (torch.float32, torch.float64):
        a, b = (x.detach().to(dtype, copy=True).requires_grad_() for x in (outer, inner))
        for one, other in ((a, b), (a, a), (a, b.detach())):
            loss = compose.compose(one, other).square().sum() + one.pow(4).sum()
            (slope,) = torch.autograd.grad(loss, [a], create_graph=True)
            found += torch.autograd.grad(slope.square().sum(), [a])
        found.append(torch.func.grad(lambda x: compose.compose(x, x).square().sum())(outer.to(dtype)))
    half = len(found) // 2
    for compiled, twin in zip(found[:half], found[half:], strict=True):
        close(compiled, twin)


@pytest.mark.parametrize("shape", SHAPES)
def test_compose_small(shape):
    field, update = displacement(shape, 26), 0.5 * torch.randn(2, len(shape), *shape, generator=generator(27))
    actual = same_for_all_threads(lambda: kernels.compose_small(field, update))
    close(actual, compose.compose_small(field.double(), update.double()))


def test_compose_small_is_first_order_exact():
    """On a linear field the star and the interpolation agree, inside the image."""
    shape = (9, 10, 12)
    matrix = 0.1 * torch.randn(3, 3, generator=generator(28))
    field = torch.einsum("ab,b...->a...", matrix, warp.identity(torch.zeros(1, 3, *shape))[0])[None]
    update = torch.rand(1, 3, *shape, generator=generator(29)) - 0.5
    inside = (slice(None), slice(None), *[slice(1, -1)] * 3)
    close(kernels.compose_small(field, update)[inside], kernels.compose(field, update)[inside])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("scheme", "difference"),
    [("central", derivative.central_difference), ("forward", derivative.forward_difference)],
)
def test_determinant(shape, scheme, difference):
    field = displacement(shape, 30, 0.4).clamp(-3, 3)
    actual = same_for_all_threads(lambda: kernels.determinant(field, scheme))
    close(actual, jacobian.determinant(field.double(), difference))


@pytest.mark.parametrize("shape", SHAPES)
def test_folds(shape):
    field = displacement(shape, 31, 0.7).clamp(-3, 3)
    central = kernels.determinant(field)
    forward = kernels.determinant(field, "forward")[(slice(None), *[slice(0, max(n - 1, 1)) for n in shape])]
    for n in (1, 2):
        kernels.set_threads(n)
        for b, folds in enumerate(kernels.folds(field)):
            assert folds.central == int((central[b] <= 0).sum())
            assert folds.forward == int((forward[b] <= 0).sum())
            assert folds.least == pytest.approx(float(central[b].min()), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((7, 5, 14), (13, 10, 27)),
        ((13, 10, 27), (7, 5, 14)),
        ((9, 8, 10), (9, 8, 10)),
        ((4, 1, 6), (9, 1, 9)),
        ((5, 6, 7), (1, 6, 20)),
        ((1, 6, 7), (5, 3, 2)),
        ((11, 17), (21, 34)),
        ((21, 34), (8, 5)),
    ],
)
def test_resize_field_and_its_adjoint(source, target):
    field, force = displacement(source, 32), displacement(target, 33)
    actual = same_for_all_threads(lambda: kernels.resize_field(field, target))
    close(actual, resample.resize_field(field.double(), target))
    actual = same_for_all_threads(lambda: kernels.resize_field_adjoint(force, source))
    close(actual, resample.resize_field_adjoint(force.double(), source))


@pytest.mark.parametrize("shape", SHAPES)
def test_smoothness_gradient(shape):
    field = displacement(shape, 34)
    value, gradient = same_for_all_threads(lambda: kernels.smoothness_gradient(field))
    expected, expected_gradient = twins.smoothness_gradient(field.double())
    close(value, expected, 1e-6)
    close(gradient, expected_gradient)


def test_out_is_written_and_returned():
    field = displacement((6, 7, 9), 35)
    out = torch.full_like(field, float("nan"))
    assert kernels.gaussian(field, 1.0, out=out) is out
    assert torch.equal(out, kernels.gaussian(field, 1.0))


def test_strided_tensors_are_taken():
    x, field = image((9, 8, 12), 36).transpose(2, 4), displacement((12, 8, 9), 37)
    assert torch.equal(kernels.warp(x, field), kernels.warp(x.contiguous(), field))


def test_usable_says_what_the_kernels_take():
    x = torch.zeros(1, 1, 4, 4, 4)
    assert kernels.usable(x)
    assert not kernels.usable(x, x.double())
    assert not kernels.usable(x.to("meta"))
    assert not kernels.usable(x[..., :1])
    assert not kernels.usable(x[0, 0, 0])
    wanted = x.clone().requires_grad_()
    assert not kernels.usable(wanted)
    with torch.no_grad():
        assert kernels.usable(wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, u: kernels.warp(x.double(), u),
        lambda x, u: kernels.warp(x[0, 0], u),
        lambda x, u: kernels.warp(x[..., :1], u[..., :1]),
        lambda x, u: kernels.warp(x, u[:, :2]),
        lambda x, u: kernels.warp(x, u[..., :3]),
        lambda x, u: kernels.warp(x, u[:0]),
        lambda x, u: kernels.warp(x, torch.cat([u, u])),
        lambda x, u: kernels.warp_with_gradient(u, u),
        lambda x, u: kernels.local_correlation(x, x[..., :3], 2),
        lambda x, u: kernels.local_correlation(x, x, 0),
        lambda x, u: kernels.local_correlation(x, x, 65),
        lambda x, u: kernels.local_correlation(x, x, 2, epsilon=0.0),
        lambda x, u: kernels.gaussian(u, 1.0, out=u),
        lambda x, u: kernels.gaussian(u, 1.0, out=x),
        lambda x, u: kernels.gaussian(u, 1.0, out=u.double()),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(InputError, match="expected"):
        call(torch.zeros(1, 1, 4, 5, 6), torch.zeros(1, 3, 4, 5, 6))


def test_the_extension_refuses_what_python_let_through():
    with pytest.raises(ValueError, match="shape"):
        kernels._extension.folds([4, 4, 1], 0)
    with pytest.raises(ValueError, match="shape"):
        kernels._extension.folds([4, 0, 4], 0)
    with pytest.raises(ValueError, match="radius"):
        kernels._extension.local_correlation([4, 4, 4], 0, 0, 0, 65, True, 1.0, 0.0, 0)
    with pytest.raises(ValueError, match="radius"):
        kernels._extension.local_correlation_force([4, 4, 4], 0, 0, 0, 0, True, 1.0, 0.0, True, 0, 0)
    with pytest.raises(ValueError, match="taps"):
        kernels._extension.correlate([4, 4, 4], 1, 0, [[], []], 0)
    with pytest.raises(ValueError, match="kernels called"):
        kernels._extension.select("mmx")


def test_a_missing_extension_is_one_warning(monkeypatch, caplog):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with caplog.at_level(logging.WARNING, logger="pirate"):
        assert kernels._load() is None
    assert len(caplog.records) == 1
    monkeypatch.setattr(kernels, "_extension", None)
    assert not kernels.available()
    assert not kernels.usable(torch.zeros(1, 1, 4, 4, 4))
