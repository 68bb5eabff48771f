"""The compiled data terms equal the torch energies in double precision, for any number of threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pirate import kernels
from pirate.energies import GlobalCorrelation, MutualInformation, SquaredError
from pirate.errors import InputError
from pirate.ops.derivative import central_difference
from pirate.ops.warp import warp

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="the extension is not built"),
    pytest.mark.usefixtures("instruction_set"),
]

SHAPES = [
    (13, 10, 27),
    (8, 16, 24),
    (9, 7, 5),
    (5, 1, 11),
    (1, 6, 9),
    (21, 34),
    (16, 7),
    (1, 12),
    (40, 9, 17),
]
KINDS = ["squared error", "correlation", "mutual information"]


def images(shape: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Fixed and moving with a background of zeros, a field that leaves the grid, two masks; float32."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(4, 2, 1, *shape, generator=generator)
    axes = [torch.linspace(-1, 1, n) if n > 1 else torch.zeros(1) for n in shape]
    head = sum((a**2 for a in torch.meshgrid(*axes, indexing="ij")), torch.zeros(shape)) < 1.2
    fixed = (noise[0] + 0.3) * head
    moving = (0.6 * fixed + 0.4 * noise[1]) * head
    field = torch.randn(2, len(shape), *shape, generator=generator)
    return [fixed, moving, field, (noise[2] > 0.3).float(), noise[3]]


def energy(kind: str, fixed: Tensor, moving: Tensor, mask: Tensor | None, bins: int = 12) -> Any:
    if kind == "mutual information":
        return MutualInformation.between(fixed, moving, mask, bins=bins)
    return (SquaredError if kind == "squared error" else GlobalCorrelation)(fixed, mask)


def run(kind: str, pair: kernels.Pair, bins: int = 12, **how: Any) -> kernels.DataTerm:
    if kind == "squared error":
        return kernels.squared_error(pair, **how)
    if kind == "correlation":
        return kernels.correlation(pair, **how)
    fixed, moving = pair.fixed, pair.moving
    term = MutualInformation.between(fixed, how.pop("whole", moving), bins=bins)
    return kernels.mutual_information(pair, term._bins_of_fixed, bins, term._span, **how)


def same_for_all_threads(call: Any) -> kernels.DataTerm:
    results = []
    for n in (1, 2, 5):
        kernels.set_threads(n)
        results.append(call())
    for other in results[1:]:
        assert torch.equal(results[0].value, other.value)
        assert torch.equal(results[0].gradient, other.gradient)
        assert all(torch.equal(a, b) for a, b in zip(results[0].moments, other.moments, strict=True))
    return results[0]


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    scale = float(expected.abs().max()) or 1.0
    assert float((actual.double() - expected).abs().max()) <= tolerance * scale


def chosen(masks: str, hard: Tensor, soft: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return hard if masks in ("fixed", "both") else None, soft if masks in ("moving", "both") else None


def double(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.double()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masks", ["none", "fixed", "moving", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_by_the_warped_image(kind, masks, shape):
    fixed, warped, _, hard, soft = images(shape)
    own, other = chosen(masks, hard, soft)
    term = same_for_all_threads(lambda: run(kind, kernels.Pair(fixed, warped, None, own, other)))
    twin = energy(kind, fixed.double(), warped.double(), double(own))
    value, gradient = twin.value_and_gradient(warped.double(), double(other))
    close(term.value, value, 1e-6)
    close(term.gradient, gradient)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masks", ["none", "fixed", "moving", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_force_of_a_composed_step(kind, masks, shape):
    fixed, moving, field, hard, soft = images(shape, 1)
    own, other = chosen(masks, hard, soft)
    term = same_for_all_threads(lambda: run(kind, kernels.Pair(fixed, moving, field, own, other)))
    warped = warp(moving.double(), field.double())
    moved = None if other is None else warp(other.double(), field.double())
    value, pull = energy(kind, fixed.double(), moving.double(), double(own)).value_and_gradient(warped, moved)
    force = torch.cat([pull * central_difference(warped, a) for a in range(len(shape))], 1)
    close(term.value, value, 1e-6)
    close(term.gradient, force)


@pytest.mark.parametrize("masks", ["none", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_value_alone_is_the_same(kind, masks):
    fixed, moving, field, hard, soft = images((13, 10, 27))
    own, other = chosen(masks, hard, soft)
    pair = kernels.Pair(fixed, moving, field, own, other)
    whole, alone = run(kind, pair), run(kind, pair, gradient=False)
    assert torch.equal(whole.value, alone.value)
    assert alone.gradient.numel() == 0


@pytest.mark.parametrize("masks", ["none", "fixed", "moving", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_the_images(kind, masks):
    fixed, moving, field, hard, soft = images((13, 10, 27))
    own, other = chosen(masks, hard, soft)
    found = run(kind, kernels.Pair(fixed, moving, field, own, other)).moments
    w = warp(moving.double(), field.double())
    q = torch.ones_like(w) if own is None else own.double()
    q = q if other is None else q * warp(other.double(), field.double())
    f = fixed.double()
    for sum_found, x in zip(found, (q, q * f, q * f * f, q * w, q * w * w), strict=True):
        torch.testing.assert_close(sum_found, x.flatten(1).sum(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("bins", [5, 32, 300])
def test_mutual_information_for_any_number_of_bins(bins):
    fixed, warped, *_ = images((30, 12, 20))
    term = same_for_all_threads(lambda: run("mutual information", kernels.Pair(fixed, warped), bins))
    value, gradient = energy(
        "mutual information", fixed.double(), warped.double(), None, bins
    ).value_and_gradient(warped.double())
    close(term.value, value, 1e-6)
    close(term.gradient, gradient, 1e-5 * max(1, bins / 32))  # the place within a bin has fewer digits


def test_mutual_information_beyond_the_range():
    """Intensities outside count as the ends; the ends themselves have a slope."""
    fixed, warped, *_ = images((14, 20))
    narrow = warped.clamp(0.2, 0.7)
    twin = MutualInformation.between(fixed.double(), narrow.double(), bins=9)
    term = run("mutual information", kernels.Pair(fixed, warped), 9, whole=narrow)
    value, gradient = twin.value_and_gradient(warped.double())
    close(term.value, value, 1e-6)
    close(term.gradient, gradient)
    assert not term.gradient[(warped < 0.2) | (warped > 0.7)].any()
    ends = run("mutual information", kernels.Pair(fixed, narrow), 9)
    close(ends.gradient, twin.value_and_gradient(narrow.double())[1])
    assert ends.gradient[narrow == narrow.max()].all()


@pytest.mark.parametrize("kind", ["squared error", "correlation"])
def test_a_large_mean_does_no_harm(kind):
    fixed, warped, *_ = images((12, 14, 20))
    fixed, warped = 100 * fixed + 1e4, 100 * warped + 1e4
    term = run(kind, kernels.Pair(fixed, warped))
    value, gradient = energy(kind, fixed.double(), warped.double(), None).value_and_gradient(warped.double())
    close(term.value, value, 1e-6)
    close(term.gradient, gradient)


def test_equal_images_have_no_squared_error():
    fixed, _, field, *_ = images((9, 10, 11))
    term = kernels.squared_error(kernels.Pair(fixed, fixed, torch.zeros_like(field)))
    assert not term.value.any()
    assert not term.gradient.any()


@pytest.mark.parametrize("kind", KINDS)
def test_large_results_written_past_the_cache(kind):
    """Rows of whole cache lines, 17 MB: the other way of writing gives the same."""
    fixed, moving, field, *_ = (x[:1] for x in images((23, 192, 320)))
    term = same_for_all_threads(lambda: run(kind, kernels.Pair(fixed, moving, field)))
    warped = kernels.warp(moving, field)
    pull = run(kind, kernels.Pair(fixed, warped), **({"whole": moving} if kind == KINDS[2] else {})).gradient
    close(term.gradient, kernels.gradient_product(warped, pull).double())


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_product(shape):
    _, warped, field, _, coefficient = images(shape)
    out = torch.full_like(field, float("nan"))
    assert kernels.gradient_product(warped, coefficient, out) is out
    differences = [central_difference(warped.double(), a) for a in range(len(shape))]
    close(out, torch.cat([coefficient.double() * x for x in differences], 1), 1e-6)
    for n in (1, 5):
        kernels.set_threads(n)
        assert torch.equal(kernels.gradient_product(warped, coefficient), out)


@pytest.mark.parametrize("shape", [(13, 10, 27), (9, 7, 5), (21, 34)])
@pytest.mark.parametrize(("radius", "squared"), [(1, True), (2, True), (2, False), (4, True)])
def test_weighted_force_of_local_correlation(shape, radius, squared):
    fixed, moving, field, hard, soft = images(shape, 2)
    weight = hard * soft
    weight[..., : shape[-1] // 3] = 0
    calls = []
    for n in (1, 2, 5):
        kernels.set_threads(n)
        calls.append(
            kernels.local_correlation_force(
                fixed, moving, field, radius, squared, 1e-3, "compositional", None, weight
            )
        )
    assert all(torch.equal(a, b) for call in calls[1:] for a, b in zip(calls[0], call, strict=True))
    warped = kernels.warp(moving, field)
    value, pull = kernels.local_correlation(fixed, warped, radius, squared, 1e-3, weight)
    close(calls[0][0], value, 1e-6)
    close(calls[0][1], kernels.gradient_product(warped, pull).double())


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_earlier_calls_does_not_matter(kind):
    fixed, moving, field, _, soft = images((8, 16, 24))
    nan = [torch.full((1, n, 30, 40, 50), float("nan")) for n in (1, 3)]
    pair = kernels.Pair(fixed, moving, field, None, soft)
    clean = run(kind, pair)
    kernels.global_correlation(nan[0], nan[0], nan[1])
    again = run(kind, pair)
    assert torch.isfinite(clean.gradient).all()
    assert torch.equal(again.gradient, clean.gradient)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, u, r: kernels.squared_error(kernels.Pair(x[..., :3], x)),
        lambda x, u, r: kernels.squared_error(kernels.Pair(x, x, u[..., :3])),
        lambda x, u, r: kernels.squared_error(kernels.Pair(x, x, None, x.bool())),
        lambda x, u, r: kernels.correlation(kernels.Pair(x, x, None, None, x[:, :, :2])),
        lambda x, u, r: kernels.correlation(kernels.Pair(x, x), out=x),
        lambda x, u, r: kernels.correlation(kernels.Pair(x, x, u), out=x),
        lambda x, u, r: kernels.mutual_information(kernels.Pair(None, x), r.int(), 8, [[0.0, 1.0]]),
        lambda x, u, r: kernels.mutual_information(kernels.Pair(None, x), r[..., :3], 8, [[0.0, 1.0]]),
        lambda x, u, r: kernels.mutual_information(kernels.Pair(None, x), r[:, :, :2], 8, [[0.0, 1.0]]),
        lambda x, u, r: kernels.gradient_product(u, u),
        lambda x, u, r: kernels.gradient_product(x, x[..., :3]),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(InputError, match="expected"):
        call(
            torch.zeros(1, 1, 4, 5, 6),
            torch.zeros(1, 3, 4, 5, 6),
            torch.zeros(1, 1, 4, 5, 6, dtype=torch.int16),
        )


def test_the_extension_refuses_bins_and_ranges():
    for bins, low, high in ((4, 0.0, 1.0), (40000, 0.0, 1.0), (8, 1.0, 1.0), (8, 0.0, float("nan"))):
        with pytest.raises(ValueError, match="bins or range"):
            kernels._extension.mutual_information([4, 4], [0] * 6, 0, bins, low, high)


def test_rows_beyond_the_bins_stay_in_the_histogram():
    """A wrong bin is a wrong number, not a wrong address."""
    warped = torch.rand(1, 1, 9, 10)
    rows = torch.full((1, 1, 9, 10), -1, dtype=torch.int16)
    last = torch.full((1, 1, 9, 10), 7, dtype=torch.int16)
    a, b = (kernels.mutual_information(kernels.Pair(None, warped), r, 8, [[0.0, 1.0]]) for r in (rows, last))
    assert torch.equal(a.gradient, b.gradient)
