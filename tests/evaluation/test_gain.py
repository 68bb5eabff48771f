import math

import pytest
import torch

from pirate.denoisers import Gaussian, Identity, TotalVariation
from pirate.denoisers.noise import Noise
from pirate.evaluation.gain import decibel, gain, residual_rms


def smooth_fields(count=3, ndim=2):
    axes = torch.meshgrid(*[torch.linspace(0, math.pi, 48)] * ndim, indexing="ij")
    wave = torch.stack([a.sin() for a in axes])
    return [3 * wave * (k + 1) for k in range(count)]


def test_known_gains():
    fields = smooth_fields()
    assert gain(Identity(), fields, 0.5).denoiser == pytest.approx(0, abs=1e-4)
    pairs = [(z[None], torch.randn(1, *z.shape, generator=torch.Generator().manual_seed(1))) for z in fields]
    clean = torch.cat([z for z, _ in pairs])
    answers = iter(clean[:, None])
    assert decibel(lambda field, sigma: field * 0 + next(answers), pairs, 1.0) > 200  # everything taken off
    answers = iter([z + 0.1 * n for z, n in pairs])
    assert decibel(lambda field, sigma: next(answers), pairs, 1.0) == pytest.approx(20, abs=1e-3)


def test_the_best_gaussian_is_the_best_and_beats_nothing_by_nothing_if_it_is_the_denoiser():
    fields = smooth_fields()
    found = gain(Identity(), fields, 0.5)
    same = gain(lambda field, sigma: Gaussian()(field, found.gaussian_width), fields, 0.5)
    assert same.over_gaussian == pytest.approx(0, abs=1e-6)
    for width in (0.5, 1.0, 2.0, 4.0):
        other = gain(lambda field, sigma, width=width: Gaussian()(field, width), fields, 0.5)
        assert other.over_gaussian <= 1e-6 or abs(math.log(width / found.gaussian_width)) < 0.12


def test_white_noise_on_a_constant_field_falls_with_the_width():
    # white noise through a Gaussian of w voxels keeps 1 / (4 pi w^2) of its power in 2-D
    found = gain(lambda field, sigma: Gaussian()(field, 2.0), [torch.zeros(2, 300, 300)], 0.5)
    assert found.denoiser == pytest.approx(10 * math.log10(4 * math.pi * 4), abs=0.4)


def test_coloured_noise_is_harder_for_a_gaussian():
    fields = smooth_fields()
    white = gain(Identity(), fields, 0.5).gaussian
    coloured = gain(Identity(), fields, 0.5, Noise(1, 1, 2.0, 2.0)).gaussian
    assert coloured < white - 5


def test_total_variation_is_measured_if_asked_for():
    fields = [torch.cat([torch.zeros(2, 20, 10), torch.ones(2, 20, 10)], 2)]
    found = gain(TotalVariation(strength=0.3), fields, 0.2, with_total_variation=True)
    assert math.isnan(gain(Identity(), fields, 0.2).total_variation)
    assert found.total_variation >= found.denoiser - 0.5
    assert found.total_variation > found.gaussian  # a step is what total variation keeps


def test_the_residual_of_clean_fields():
    fields = [torch.ones(2, 6, 6), 3 * torch.ones(2, 6, 6)]
    found = residual_rms(lambda field, sigma: field * (1 - sigma), fields, 0.5)
    assert found == pytest.approx(0.5 * math.sqrt(5))


def test_no_fields_are_refused():
    with pytest.raises(ValueError, match="needs fields"):
        gain(Identity(), [], 0.5)
