"""The loss of eq. (12)."""

from __future__ import annotations

import pytest
import torch
from small_pairs import pair

from pirate.energies import Folding, LocalCorrelation, Smoothness
from pirate.errors import UsageError
from pirate.ops.resample import resize_field
from pirate.training.objective import OBJECTIVES, Objective, Variation, growth, objective

SHAPES = [(12, 13), (8, 9, 8)]


def wavy(shape: tuple[int, ...]) -> torch.Tensor:
    torch.manual_seed(5)
    return 0.6 * torch.randn(1, len(shape), *[(n + 1) // 2 for n in shape], dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["paper", "released"])
def test_the_gradient_is_that_of_finite_differences(shape: tuple[int, ...], name: str) -> None:
    fixed, moving = pair(shape)
    loss, field = objective(name), wavy(shape)
    value, gradient, _ = loss.value_and_gradient(fixed, moving, field)
    way, h = torch.randn_like(field), 1e-7
    ahead, behind = (float(loss.value_and_gradient(fixed, moving, field + s * h * way)[0]) for s in (1, -1))
    assert float((gradient * way).sum()) == pytest.approx((ahead - behind) / (2 * h), rel=1e-4)
    assert value.shape == (1,)


def test_the_paper_and_its_code_weigh_three_terms_on_the_full_grid() -> None:
    fixed, moving = pair((12, 13))
    field = wavy((12, 13))
    full = resize_field(field, (12, 13))
    plain = LocalCorrelation(fixed, window=9, squared=False).on_field(moving, full)[0]
    rough = Smoothness().value_and_gradient(full)[0]
    folds = Folding(0.0, "forward").value_and_gradient(full)[0]
    value, _, terms = OBJECTIVES["paper"].value_and_gradient(fixed, moving, field)
    torch.testing.assert_close(value, plain + 5 * rough + folds)
    assert terms == {"similarity": float(plain), "smoothness": float(rough), "folding": float(folds)}
    squared = LocalCorrelation(fixed, window=21, squared=True).on_field(moving, full)[0]
    steep = sum(full.diff(dim=a).abs().sum() for a in (2, 3)) / (2 * full.numel())
    margin = Folding(0.5, "forward").value_and_gradient(full)[0]
    value, _, _ = OBJECTIVES["released"].value_and_gradient(fixed, moving, field)
    torch.testing.assert_close(value, squared + steep + 5 * margin)


def test_the_variation_of_a_ramp_is_its_slope_over_the_axes() -> None:
    field = torch.zeros(1, 2, 5, 4, dtype=torch.float64)
    field[0, 0] = 3 * torch.arange(5.0)[:, None]
    value, gradient = Variation().value_and_gradient(field)
    assert float(value) == pytest.approx(
        3 * 4 * 4 / (2 * 2 * 20)
    )  # 16 steps of 3, mean of 40 numbers, 2 axes
    assert float(gradient.sum()) == pytest.approx(0, abs=1e-12)


def test_each_element_of_a_batch_has_its_own_loss() -> None:
    fixed, moving = pair((12, 13))
    field = wavy((12, 13))
    both = torch.cat([field, 0 * field])
    value, gradient, _ = Objective().value_and_gradient(
        fixed.expand(2, -1, -1, -1), moving.expand(2, -1, -1, -1), both
    )
    one, alone, _ = Objective().value_and_gradient(fixed, moving, field)
    torch.testing.assert_close(value[:1], one)
    torch.testing.assert_close(gradient[:1], alone)


def test_losses_without_meaning_are_refused() -> None:
    with pytest.raises(UsageError, match="smoothness is -1"):
        Objective(smoothness=-1.0)
    with pytest.raises(UsageError, match="expected l1 or l2"):
        Objective(smoothness_norm="l3")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there are paper and released"):
        objective("other")


def test_growth_is_the_largest_eigenvalue_and_its_derivative_reaches_the_weights() -> None:
    scale = torch.tensor([3.0, 0.5], requires_grad=True)
    field = torch.randn(2, 2, 6, 7, generator=torch.Generator().manual_seed(1))
    found = growth(lambda z: z * scale.view(1, 2, 1, 1), field, products=8)
    assert found.tolist() == pytest.approx([3, 3], rel=1e-3)
    (slope,) = torch.autograd.grad(found.sum(), scale)
    assert slope.tolist() == pytest.approx([2, 0], abs=1e-2)


def test_few_products_estimate_growth_from_below() -> None:
    scale = torch.linspace(0, 1.2, 42).view(1, 1, 6, 7)
    field = torch.randn(1, 2, 6, 7, generator=torch.Generator().manual_seed(1))
    few, many = (float(growth(lambda z: z * scale, field, products=n)) for n in (5, 200))
    assert 0.9 < few < 1.19
    assert many == pytest.approx(1.2, rel=1e-2)


def test_a_constant_map_does_not_grow() -> None:
    assert float(growth(torch.zeros_like, torch.ones(1, 2, 6, 7))) < 1e-6
