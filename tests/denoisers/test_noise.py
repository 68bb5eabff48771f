import math

import pytest
import torch

from pirate.denoisers.noise import Noise, coloured


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("width", [0.0, 0.5, 1.5])
def test_the_standard_deviation_is_one_everywhere(ndim, width):
    shape = (90, 80) if ndim == 2 else (40, 36, 30)
    noise = torch.stack([coloured(ndim, shape, width, generator(s)) for s in range(12)])
    assert noise.shape[1:] == (ndim, *shape)
    assert abs(float(noise.mean())) < 0.05
    assert float(noise.std()) == pytest.approx(1, abs=0.04)
    assert float(noise[:, :, 0].std()) == pytest.approx(1, abs=0.1)  # the border is like the middle
    assert float(noise[..., -1].std()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("width", [0.8, 2.0])
def test_neighbours_correlate_as_a_gaussian_of_sqrt_two_widths(width):
    noise = coloured(2, (400, 400), width, generator())
    for lag in (1, 2):
        found = float((noise[:, lag:] * noise[:, :-lag]).mean() / noise.square().mean())
        assert found == pytest.approx(math.exp(-(lag**2) / (4 * width**2)), abs=0.06)


def test_narrow_noise_is_white_and_components_are_independent():
    noise = coloured(2, (300, 300), 0.2, generator())
    assert torch.equal(noise, torch.randn(2, 300, 300, generator=generator()))
    wide = coloured(2, (300, 300), 1.0, generator())
    assert abs(float((wide[0] * wide[1]).mean())) < 0.05


def test_levels_fill_the_range_and_repeat_with_the_seed():
    noise = Noise(0.2, 0.6, 0.5, 2.0)
    levels = [noise.level(generator(s)) for s in range(300)]
    assert 0.2 <= min(levels) < 0.22
    assert 0.58 < max(levels) <= 0.6
    assert torch.equal(noise.unit(2, (8, 8), generator(1)), noise.unit(2, (8, 8), generator(1)))
    assert noise.at(0.3) == Noise(0.3, 0.3, 0.5, 2.0)


@pytest.mark.parametrize(
    "numbers", [(0, 1), (2, 1), (1, math.inf), (1, 1, -1, 0), (1, 1, 2, 1), (math.nan, 1)]
)
def test_impossible_noise_is_refused(numbers):
    with pytest.raises(ValueError, match="the noise needs"):
        Noise(*numbers)
