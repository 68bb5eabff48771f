"""Mutual information: a double loop as oracle, known answers, invariance."""

import math

import pytest
import torch

from pirate.energies import MutualInformation
from pirate.errors import InputError


def pair(shape=(20, 21), seed=0):
    generator = torch.Generator().manual_seed(seed)
    fixed, noise = torch.rand(2, 1, 1, *shape, generator=generator, dtype=torch.float64)
    return fixed, 0.7 * fixed + 0.3 * noise


def cubic(x):
    x = abs(x)
    return 2 / 3 - x**2 + x**3 / 2 if x < 1 else (max(2 - x, 0.0)) ** 3 / 6


@pytest.mark.parametrize("bins", [5, 16, 32])
def test_value_equals_a_double_loop_over_voxels_and_bins(bins):
    fixed, warped = pair((7, 8))
    energy = MutualInformation.between(fixed, warped, bins=bins)
    joint = [[0.0] * bins for _ in range(bins)]
    low_f, high_f, low_w, high_w = (float(v) for x in (fixed, warped) for v in (x.min(), x.max()))
    for f, w in zip(fixed.flatten().tolist(), warped.flatten().tolist(), strict=True):
        i = min(int((f - low_f) / (high_f - low_f) * bins), bins - 1)
        u = 1 + (w - low_w) / (high_w - low_w) * (bins - 3)
        for j in range(bins):
            joint[i][j] += cubic(j - u) / fixed.numel()
    assert math.isclose(sum(map(sum, joint)), 1, rel_tol=1e-12)
    rows, columns = [sum(r) for r in joint], [sum(c) for c in zip(*joint, strict=True)]
    information = sum(
        joint[i][j] * math.log(joint[i][j] / (rows[i] * columns[j]))
        for i in range(bins)
        for j in range(bins)
        if joint[i][j] > 0
    )
    value, _ = energy.value_and_gradient(warped)
    assert math.isclose(float(value), -information, rel_tol=1e-10)


def test_information_is_never_negative_and_largest_for_the_image_itself():
    fixed, warped = pair()
    shuffled = warped.flatten()[torch.randperm(warped.numel(), generator=torch.Generator().manual_seed(1))]
    own, related, random = (
        float(MutualInformation.between(fixed, x, bins=12).value_and_gradient(x)[0])
        for x in (fixed, warped, shuffled.view_as(warped))
    )
    assert own < related < random <= 0


def test_swapping_intensities_one_to_one_keeps_the_information():
    """Reversed or stretched intensities carry the same information, up to the width of the spline."""
    fixed, warped = pair((64, 64))
    value = float(MutualInformation.between(fixed, warped).value_and_gradient(warped)[0])
    for change, tolerance in ((lambda x: 5 - 3 * x, 1e-9), (lambda x: (1.2 * x).exp(), 0.05)):
        other = change(warped)
        changed = float(MutualInformation.between(fixed, other).value_and_gradient(other)[0])
        assert math.isclose(changed, value, rel_tol=tolerance)


def test_a_spread_of_one_bit():
    """Two far-apart intensities that fixed predicts: log 2 nats."""
    fixed = torch.tensor([0.0, 1.0], dtype=torch.float64).repeat(8).view(1, 1, 4, 4)
    value, _ = MutualInformation.between(fixed, 1 - fixed, bins=32).value_and_gradient(1 - fixed)
    assert math.isclose(float(value), -math.log(2), rel_tol=1e-12)


def test_outside_the_range_the_end_counts_and_the_slope_is_zero():
    fixed, warped = pair()
    span = torch.tensor([[0.2, 0.8]], dtype=torch.float64)
    energy = MutualInformation(fixed, fixed_range=torch.tensor([[0.0, 1.0]]), moving_range=span, bins=16)
    value, gradient = energy.value_and_gradient(warped)
    clamped, _ = energy.value_and_gradient(warped.clamp(0.2, 0.8))
    torch.testing.assert_close(value, clamped, rtol=1e-12, atol=0)
    outside = (warped < 0.2) | (warped > 0.8)
    assert outside.any()
    assert (gradient[outside] == 0).all()
    assert (gradient[~outside] != 0).any()


def test_memory_does_not_grow_with_the_bins():
    """A thousand bins on a small image: the voxels-by-bins array would be 4 GB."""
    fixed, warped = pair((700, 700))
    value, gradient = MutualInformation.between(fixed, warped, bins=1000).value_and_gradient(warped)
    assert float(value) < 0
    assert torch.isfinite(gradient).all()


def test_too_few_bins_are_refused():
    fixed, warped = pair((4, 5))
    with pytest.raises(InputError, match=r"^bins: there are 4 bins; expected 5 or more"):
        MutualInformation.between(fixed, warped, bins=4)


@pytest.mark.parametrize("which", ["fixed", "moving"])
@pytest.mark.parametrize("span", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_a_range_without_extent_is_refused_by_name(which, span):
    fixed, _ = pair((4, 5))
    ranges = {"fixed_range": torch.tensor([[0.0, 1.0]]), "moving_range": torch.tensor([[0.0, 1.0]])}
    ranges[f"{which}_range"] = torch.tensor([span])
    with pytest.raises(InputError, match=f"^{which}: the intensity range is"):
        MutualInformation(fixed, **ranges)
