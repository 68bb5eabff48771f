"""Random fields are diffeomorphisms, repeatable, and as strong and as smooth as asked."""

from __future__ import annotations

import pytest
import torch

from pirate.errors import InputError
from pirate.ops.compose import compose, invert
from pirate.ops.jacobian import mark_folds
from pirate.training.random_fields import RandomFields, random_field, random_velocity


def draw(seed: int, shape: tuple[int, ...], settings: RandomFields | None = None) -> torch.Tensor:
    return random_field(shape, torch.Generator().manual_seed(seed), settings)


@pytest.mark.parametrize("shape", [(40, 56), (20, 24, 16)])
def test_no_random_field_folds_and_each_has_an_inverse(shape: tuple[int, ...]) -> None:
    for seed in range(6):
        field = draw(seed, shape, RandomFields(amplitude=6.0))
        assert field.shape == (1, len(shape), *shape)
        assert mark_folds(field)[0] == 0
        inverse = invert(field)
        inner = (0, 0, *[slice(8, -8) if n > 30 else slice(6, -6) for n in shape])
        assert float(compose(field, inverse.field)[inner].abs().max()) < 0.02
        assert float(field.square().sum(1).mean().sqrt()) > 0.2


def test_a_seed_decides_the_field() -> None:
    torch.testing.assert_close(draw(1, (20, 22)), draw(1, (20, 22)), rtol=0, atol=0)
    assert not torch.equal(draw(1, (20, 22)), draw(2, (20, 22)))


def test_the_velocity_keeps_its_amplitude_and_slope() -> None:
    calm = RandomFields(scales=(0.3,), amplitude=1.0, steepest=2.0)
    lengths = [
        float(random_velocity((64, 64), torch.Generator().manual_seed(s), calm).square().sum(1).mean().sqrt())
        for s in range(20)
    ]
    assert 0.2 <= min(lengths) < 0.45
    assert 0.75 < max(lengths) <= 1.0001
    steep = RandomFields(scales=(0.05,), amplitude=50.0, steepest=0.3)
    velocity = random_velocity((64, 64), torch.Generator().manual_seed(0), steep)
    slope = max(float(velocity.diff(dim=axis).abs().max()) for axis in (2, 3))
    assert 0.25 < slope < 0.33


def test_a_single_scale_sets_the_correlation_length() -> None:
    """A Gaussian of sigma s gives noise whose correlation over a distance r is exp(-r^2 / (4 s^2))."""
    settings = RandomFields(scales=(0.0625,), amplitude=0.5, steepest=2.0)
    found = []
    for seed in range(8):
        v = random_velocity((128, 128), torch.Generator().manual_seed(seed), settings)[0, 0]
        found.append(float((v[:-8] * v[8:]).mean() / v.square().mean()))
    assert sum(found) / 8 == pytest.approx(torch.tensor(-0.25).exp().item(), abs=0.06)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InputError, match="scales"):
        RandomFields(scales=())
    with pytest.raises(InputError, match="steepest 3"):
        RandomFields(steepest=3)
    with pytest.raises(InputError, match="shape"):
        draw(0, (3, 8))
