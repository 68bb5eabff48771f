import math

import pytest
import torch

from pirate.denoisers import Gaussian, Identity
from pirate.evaluation.gain import residual_rms
from pirate.evaluation.surprise import surprise


def field_of(ndim=2, size=16):
    return torch.randn(1, ndim, *[size] * ndim, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("ndim", [2, 3])
def test_the_map_is_the_length_of_the_change_and_the_score_its_size(ndim):
    field = field_of(ndim, 8)
    found = surprise(lambda z, sigma: (1 - sigma) * z, field, 0.25, expected=0.5)
    torch.testing.assert_close(found.map, 0.25 * field.square().sum(1, keepdim=True).sqrt())
    assert found.score == pytest.approx(0.25 * float(field.square().mean().sqrt()) / 0.5, rel=1e-5)


def test_nothing_changed_is_no_surprise():
    found = surprise(Identity(), field_of(), 0.5, expected=0.1)
    assert found.score == 0
    assert not found.map.any()


def test_fields_like_those_expected_score_one_and_noisy_ones_more():
    fields = [Gaussian()(field_of(), 2.0)[0] for _ in range(3)]
    expected = residual_rms(Gaussian(), fields, 0.7)
    assert surprise(Gaussian(), fields[0][None], 0.7, expected).score == pytest.approx(1, rel=1e-5)
    assert surprise(Gaussian(), fields[0][None] + 0.3 * field_of(), 0.7, expected).score > 2


def test_only_the_mask_counts():
    field = field_of()
    field[..., 8:] *= 100
    mask = torch.zeros(1, 1, 16, 16)
    mask[..., :8] = 1
    found = surprise(lambda z, sigma: 0 * z, field, 0.5, 1.0, mask=mask)
    assert found.score == pytest.approx(float(field[..., :8].square().mean().sqrt()), rel=1e-5)
    assert found.map[..., 8:].max() > 50  # the map has everything


def test_a_coarser_prior_sees_the_field_in_its_own_voxels():
    ramp = torch.linspace(0, 8, 17).expand(1, 2, 17, 17)
    found = surprise(lambda z, sigma: 0 * z, ramp, 0.5, 1.0, resolution=2)
    expected = surprise(lambda z, sigma: 0 * z, ramp, 0.5, 1.0)
    torch.testing.assert_close(found.map, expected.map, rtol=0.1, atol=0.2)
    assert found.score == pytest.approx(expected.score / 2, rel=0.1)


def test_a_prior_that_wants_images_gets_them():
    def guided(z, sigma, fixed, warped):
        return z - (fixed - warped)

    guided.wants_images = True
    fixed, warped = torch.rand(2, 1, 1, 16, 16)
    found = surprise(guided, field_of(), 0.5, 1.0, images=(fixed, warped))
    torch.testing.assert_close(found.map, math.sqrt(2) * (fixed - warped).abs(), rtol=1e-3, atol=1e-5)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        surprise(Identity(), field_of(), 0.5, 0.0)
    with pytest.raises(ValueError, match="is empty"):
        surprise(Identity(), field_of(), 0.5, 1.0, mask=torch.zeros(1, 1, 16, 16))
