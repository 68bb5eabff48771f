import math

import pytest
import torch

from pirate.solvers import Status, constant, cosine, iterate
from pirate.solvers.solution import relative_change


def towards(goal):
    """T(x) = x - gamma (x - goal), the descent of E = |x - goal|^2 / 2."""
    return lambda x, gamma: (x - gamma * (x - goal), float((x - goal).square().sum() / 2))


GOAL = torch.arange(1.0, 9.0, dtype=torch.float64).reshape(1, 2, 2, 2)


def test_a_contraction_converges_to_its_fixed_point():
    solution = iterate(towards(GOAL), torch.zeros_like(GOAL), constant(0.5, 100), 1e-10)
    assert solution.status is Status.CONVERGED
    torch.testing.assert_close(solution.field, GOAL, atol=1e-8, rtol=0)
    assert solution.evaluations == len(solution.trace) < 60


def test_the_trace_holds_the_closed_form():
    solution = iterate(towards(GOAL), torch.zeros_like(GOAL), constant(0.5, 3), 0.0)
    assert solution.status is Status.EXHAUSTED
    energy = float(GOAL.square().sum() / 2)
    for t, record in enumerate(solution.trace):
        assert record.t == t
        assert record.energy == pytest.approx(energy * 0.25**t)  # at the field the operator was given
        assert record.residual == pytest.approx(0.5 ** (t + 1) / (1 - 0.5 ** (t + 1)))
        assert record.residual_per_step == pytest.approx(record.residual / 0.5)


def test_a_vanishing_step_is_not_convergence():
    """A map that always wants to move at the same speed: |T(x) - x| shrinks only because gamma does."""

    def drift(x, gamma):
        return x + gamma, 0.0

    steps = cosine(1.0, 2000)
    solution = iterate(drift, torch.full_like(GOAL, 1.0), steps, 1e-6)
    assert solution.trace[-1].residual < 1e-6  # the naive test would have passed
    assert solution.status is Status.EXHAUSTED
    assert solution.evaluations == 2000


def test_a_cosine_schedule_still_converges_where_the_field_rests():
    solution = iterate(towards(GOAL), torch.zeros_like(GOAL), cosine(0.9, 400), 1e-9)
    assert solution.status is Status.CONVERGED
    torch.testing.assert_close(solution.field, GOAL, atol=1e-6, rtol=0)


def test_divergence_returns_the_last_finite_field():
    seen = []

    def burst(x, gamma):
        seen.append(x.clone())
        return x * 1e30, 1.0

    solution = iterate(burst, torch.ones(1, 2, 3, 3), constant(1.0, 50), 1e-9)
    assert solution.status is Status.DIVERGED
    assert torch.isfinite(solution.field).all()
    torch.testing.assert_close(solution.field, seen[-1])
    assert solution.evaluations == len(seen) == 2


def test_an_energy_that_is_not_finite_is_divergence():
    solution = iterate(lambda x, g: (x + 1, math.nan), torch.ones(1, 2, 3, 3), constant(1.0, 5), 1e-9)
    assert solution.status is Status.DIVERGED
    assert torch.equal(solution.field, torch.ones(1, 2, 3, 3))


def test_the_observer_sees_every_record_and_can_stop():
    seen = []

    def observe(record):
        seen.append(record)
        return record.t == 3

    solution = iterate(towards(GOAL), torch.zeros_like(GOAL), constant(0.1, 50), 0.0, observe)
    assert solution.status is Status.STOPPED
    assert tuple(seen) == solution.trace
    assert solution.evaluations == 4
    torch.testing.assert_close(solution.field, GOAL * (1 - 0.9**4))


def test_an_observer_that_returns_nothing_does_not_stop():
    solution = iterate(towards(GOAL), torch.zeros_like(GOAL), constant(0.1, 7), 0.0, lambda record: None)
    assert solution.evaluations == 7


def test_resting_at_zero_is_convergence():
    solution = iterate(lambda x, g: (x * 0.5, 0.0), torch.zeros(1, 2, 3, 3), constant(1.0, 5), 0.0)
    assert solution.status is Status.CONVERGED
    assert solution.evaluations == 1


def test_a_batch_converges_only_when_its_slowest_element_does():
    rates = torch.tensor([0.1, 0.9]).reshape(2, 1, 1, 1).double()
    goal = torch.ones(2, 1, 2, 2, dtype=torch.float64)
    solution = iterate(lambda x, g: (goal + rates * (x - goal), 0.0), 2 * goal, constant(1.0, 1000), 1e-6)
    slow = iterate(lambda x, g: (1 + 0.9 * (x - 1), 0.0), 2 * goal[1:], constant(1.0, 1000), 1e-6)
    assert solution.evaluations == slow.evaluations
    torch.testing.assert_close(solution.field[1:], slow.field)


def test_the_start_is_left_alone_and_no_graph_is_kept():
    start = torch.zeros(1, 2, 3, 3, requires_grad=True)
    solution = iterate(lambda x, g: (x + g, 0.0), start, constant(1.0, 3), 0.0)
    assert not solution.field.requires_grad
    assert torch.equal(start, torch.zeros(1, 2, 3, 3))


def test_no_steps_return_the_start():
    solution = iterate(towards(GOAL), GOAL, (), 1e-3)
    assert solution.status is Status.EXHAUSTED
    assert solution.evaluations == 0


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf])
def test_a_step_without_meaning_is_refused(gamma):
    with pytest.raises(ValueError, match="step 1 must be finite and above 0"):
        iterate(towards(GOAL), torch.zeros_like(GOAL), (0.5, gamma), 0.0)


def test_a_start_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite field"):
        iterate(towards(GOAL), GOAL / 0, constant(0.5, 3), 0.0)


def test_the_residual_is_summed_in_float64():
    x = torch.full((1, 1, 4000, 4000), 1e-3)
    y = x.clone()
    y[..., 0, 0] = 2e-3
    expected = float((y - x).double().norm() / y.double().norm())
    assert float(relative_change(x, y)) == pytest.approx(expected, rel=1e-12)


def test_the_residual_where_the_next_field_is_zero():
    one, zero = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)
    assert float(relative_change(one, zero)) == 1.0
    assert float(relative_change(zero, zero)) == 0.0
    assert float(relative_change(zero, one)) == 1.0


def test_every_status_is_a_sentence():
    assert all(len(status.value.split()) > 5 for status in Status)
