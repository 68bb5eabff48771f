import itertools
import math

import pytest

from pirate.solvers.schedule import constant, cosine


def test_constant_repeats_its_step():
    assert constant(0.3, 4) == (0.3, 0.3, 0.3, 0.3)


def test_cosine_starts_at_gamma0_halves_in_the_middle_and_never_reaches_zero():
    steps = cosine(5e5, 500)
    assert len(steps) == 500
    assert steps[0] == 5e5
    assert steps[250] == pytest.approx(2.5e5)
    assert steps[1] == pytest.approx(2.5e5 * (1 + math.cos(math.pi / 500)))
    assert all(a > b > 0 for a, b in itertools.pairwise(steps))


def test_the_cosine_steps_sum_to_half_the_constant_ones_plus_half_a_step():
    assert sum(cosine(2.0, 500)) == pytest.approx(2.0 * 250.5)


@pytest.mark.parametrize("make", [constant, cosine])
@pytest.mark.parametrize(
    ("gamma", "iterations"), [(0.0, 5), (-1.0, 5), (math.nan, 5), (math.inf, 5), (1.0, 0)]
)
def test_a_schedule_that_cannot_move_is_refused(make, gamma, iterations):
    with pytest.raises(ValueError, match="gamma > 0 and iterations >= 1"):
        make(gamma, iterations)
