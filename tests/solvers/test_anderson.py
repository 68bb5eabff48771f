import math

import pytest
import torch
from torchdeq.solver.anderson import anderson_solver

from pirate.solvers import Status, accelerate, constant, iterate
from pirate.solvers.anderson import _inner, _weights


def linear(n, radius, seed=0, batch=1):
    """T(x) = M x + c with spectral radius `radius`, and its fixed point; x is (batch, n, 1, 1), float64."""
    generator = torch.Generator().manual_seed(seed)
    M = torch.randn(batch, n, n, dtype=torch.float64, generator=generator)
    M = M * (radius / torch.linalg.eigvals(M).abs().amax(1)[:, None, None])
    c = torch.randn(batch, n, 1, dtype=torch.float64, generator=generator)
    goal = torch.linalg.solve(torch.eye(n, dtype=torch.float64) - M, c)[..., None]
    return lambda x, gamma: ((M @ x.flatten(2) + c)[..., None], 0.0), goal


def recording(operator):
    points = []

    def wrapped(x, gamma):
        points.append(x.clone())
        return operator(x, gamma)

    return wrapped, points


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_n_plus_one_evaluations_solve_a_linear_map_of_size_n(n):
    operator, goal = linear(n, 0.9, seed=n)
    operator, points = recording(operator)
    start = torch.zeros_like(goal)
    accelerate(
        operator, start, 1.0, iterations=n + 2, tolerance=0.0, memory=n + 1, ridge=0.0, growth=math.inf
    )
    formed = points[n + 1]  # from the values at points 0 to n
    torch.testing.assert_close(formed, goal, atol=1e-8 * float(goal.norm()), rtol=0)


def test_the_default_settings_beat_the_plain_iteration():
    operator, goal = linear(30, 0.98, seed=3)
    start = torch.zeros_like(goal)
    plain = iterate(operator, start, constant(1.0, 5000), 1e-9)
    fast = accelerate(operator, start, 1.0, iterations=5000, tolerance=1e-9)
    assert fast.status is plain.status is Status.CONVERGED
    assert fast.evaluations < plain.evaluations / 4
    assert float((fast.field - goal).norm() / goal.norm()) < 1e-7


@pytest.mark.parametrize("memory", [2, 4, 6])
def test_the_iterates_are_those_of_torchdeq(memory):
    operator, goal = linear(20, 0.9, seed=7, batch=2)
    ours, points = recording(operator)
    settings = {"iterations": 12, "tolerance": 0.0, "memory": memory, "ridge": 0.0, "growth": math.inf}
    accelerate(ours, torch.zeros_like(goal), 1.0, **settings)
    theirs = []

    def func(x):
        theirs.append(x.clone())
        return operator(x, 1.0)[0]

    anderson_solver(func, torch.zeros_like(goal), max_iter=12, tol=0.0, m=memory, lam=1e-15)
    for a, b in zip(points, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("mixing", [1.0, 0.6])
def test_the_solution_is_that_of_torchdeq(mixing):
    operator, goal = linear(20, 0.9, seed=8, batch=2)
    start = torch.zeros_like(goal)
    ours = accelerate(operator, start, 1.0, iterations=400, tolerance=1e-12, mixing=mixing)
    theirs, _, _ = anderson_solver(
        lambda x: operator(x, 1.0)[0], start, max_iter=400, tol=1e-11, m=5, lam=1e-15, tau=mixing
    )
    torch.testing.assert_close(ours.field, theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("ridge", [1e-8, 1e-3, 1.0])
def test_the_second_mixture_is_that_of_torchdeq_with_the_ridge_mapped(ridge):
    """At the first mixture the mean diagonal is known, so the relative ridge has an absolute equal."""
    operator, goal = linear(20, 0.9, seed=8)
    x0 = torch.zeros_like(goal)
    x1 = operator(x0, 1.0)[0]
    x2 = operator(x1, 1.0)[0]
    mean = float(((x1 - x0).square().sum() + (x2 - x1).square().sum()) / 2)
    ours, points = recording(operator)
    accelerate(ours, x0, 1.0, iterations=3, tolerance=0.0, ridge=ridge)
    theirs = []

    def func(x):
        theirs.append(x.clone())
        return operator(x, 1.0)[0]

    anderson_solver(func, x0, max_iter=3, tol=0.0, m=5, lam=ridge * mean)
    torch.testing.assert_close(points[2], theirs[2], atol=1e-12, rtol=1e-12)


def test_memory_one_is_the_damped_iteration():
    operator, goal = linear(4, 0.8)
    recorded, points = recording(operator)
    accelerate(
        recorded,
        torch.zeros_like(goal),
        1.0,
        iterations=5,
        tolerance=0.0,
        memory=1,
        mixing=0.5,
        growth=math.inf,
    )
    x = torch.zeros_like(goal)
    for point in points:
        torch.testing.assert_close(point, x)
        x = x + 0.5 * (operator(x, 1.0)[0] - x)


def test_each_element_of_a_batch_is_solved_as_if_it_were_alone():
    operator, goal = linear(12, 0.95, seed=2, batch=3)
    both, points = recording(operator)
    accelerate(both, torch.zeros_like(goal), 1.0, iterations=15, tolerance=0.0, growth=1.5)
    for b in range(3):

        def alone(x, gamma, b=b):
            whole = torch.zeros_like(goal)
            whole[b] = x[0]
            return operator(whole, gamma)[0][b : b + 1], 0.0

        single, own = recording(alone)
        accelerate(single, torch.zeros_like(goal[b : b + 1]), 1.0, iterations=15, tolerance=0.0, growth=1.5)
        for a, c in zip(points, own, strict=True):
            torch.testing.assert_close(a[b : b + 1], c)


def column(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1, 1)


def walled(step):
    """Descent of sum_c w_c sqrt(1 + y^2) with y = x - goal, and a steep wall at |y| > 40.

    Far from the goal the gradient is nearly constant, so that extrapolation leaps over the wall.
    """
    weight, goal = column(1, 0.7, 0.4, 0.2), column(5, -3, 2, 1)

    def operator(x, gamma):
        y = x - goal
        gradient = weight * y / (1 + y * y).sqrt() + 3 * y.sign() * (y.abs() - 40).relu() ** 2
        return x - step * gradient, 0.0

    return operator, goal


def test_the_safeguard_rescues_starts_that_the_bare_method_loses():
    operator, goal = walled(0.5)
    lost = 0
    for distance in range(16, 41):  # which of them are lost hangs on the processor's rounding
        start = goal + distance * column(1, -0.9, 0.8, 0.7)
        plain = iterate(operator, start, constant(1.0, 600), 1e-9)
        bare = accelerate(operator, start, 1.0, iterations=600, tolerance=1e-9, growth=math.inf)
        safe = accelerate(operator, start, 1.0, iterations=600, tolerance=1e-9)
        lost += bare.status is Status.EXHAUSTED
        assert safe.status is plain.status is Status.CONVERGED
        assert safe.evaluations < plain.evaluations
        torch.testing.assert_close(safe.field, goal, atol=1e-6, rtol=0)
    assert lost


@pytest.mark.parametrize("distance", [4, 8, 12, 30])
def test_the_safeguard_is_never_slower_than_the_plain_iteration_here(distance):
    operator, goal = walled(0.5)
    start = goal + distance * column(1, -0.9, 0.8, 0.7)
    plain = iterate(operator, start, constant(1.0, 600), 1e-9)
    safe = accelerate(operator, start, 1.0, iterations=600, tolerance=1e-9)
    assert safe.status is Status.CONVERGED
    assert safe.evaluations < plain.evaluations / 2


def test_a_point_without_a_value_is_left_by_a_plain_step_from_the_best_one():
    operator, goal = linear(6, 0.9, seed=5)
    calls = []

    def faulty(x, gamma):
        calls.append(x.clone())
        if len(calls) == 4:
            return x / 0, math.nan
        return operator(x, gamma)

    solution = accelerate(faulty, torch.zeros_like(goal), 1.0, iterations=100, tolerance=1e-10)
    assert solution.status is Status.CONVERGED
    assert math.isnan(solution.trace[3].energy)  # the rejected evaluation is in the trace
    lengths = [r.residual for r in solution.trace[:3]]
    best = calls[lengths.index(min(lengths))]
    torch.testing.assert_close(calls[4], operator(best, 1.0)[0])
    torch.testing.assert_close(solution.field, goal, atol=1e-7, rtol=0)


def test_growth_beyond_the_limit_is_rejected_and_the_history_cleared():
    operator, goal = linear(6, 0.9, seed=5)
    calls = []

    def faulty(x, gamma):
        calls.append(x.clone())
        following, energy = operator(x, gamma)
        return (x + 100 * (following - x), energy) if len(calls) == 4 else (following, energy)

    solution = accelerate(faulty, torch.zeros_like(goal), 1.0, iterations=100, tolerance=1e-10)
    assert solution.status is Status.CONVERGED
    torch.testing.assert_close(calls[5], operator(calls[4], 1.0)[0])  # only one point left: a plain step
    torch.testing.assert_close(solution.field, goal, atol=1e-7, rtol=0)


def test_a_map_without_values_diverges_and_returns_the_start():
    start = torch.ones(1, 2, 3, 3)
    solution = accelerate(lambda x, g: (x / 0, 1.0), start, 1.0, iterations=5, tolerance=1e-6)
    assert solution.status is Status.DIVERGED
    assert torch.equal(solution.field, start)
    assert solution.evaluations == 1


def test_one_element_without_values_does_not_cost_the_others_their_best_point():
    start = torch.ones(2, 1, 2, 2)

    def half(x, g):
        following = 0.5 * x
        following[1] = math.nan
        return following, 0.0

    solution = accelerate(half, start, 1.0, iterations=5, tolerance=1e-6)
    assert solution.status is Status.DIVERGED
    assert torch.equal(solution.field[0], torch.full((1, 2, 2), 0.5))
    assert torch.equal(solution.field[1], start[1])


def test_an_element_that_rests_exactly_stays_where_it_is():
    goal = torch.tensor([3.0, 5.0], dtype=torch.float64).reshape(2, 1, 1, 1)
    rate = torch.tensor([0.0, 0.9], dtype=torch.float64).reshape(2, 1, 1, 1)
    wiggle = lambda x, g: (goal + rate * torch.sin(x - goal), 0.0)  # noqa: E731
    solution = accelerate(
        wiggle, goal + torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1), 1.0, iterations=60, tolerance=1e-10
    )
    assert solution.status is Status.CONVERGED
    torch.testing.assert_close(solution.field, goal, atol=1e-8, rtol=0)


def test_the_end_of_the_iterations_returns_a_plain_step_from_the_best_point():
    operator, goal = linear(10, 0.95, seed=11)
    recorded, points = recording(operator)
    solution = accelerate(recorded, torch.zeros_like(goal), 1.0, iterations=6, tolerance=0.0)
    assert solution.status is Status.EXHAUSTED
    assert solution.evaluations == 6 == len(points)
    steps = [operator(x, 1.0)[0] for x in points[-5:]]
    lengths = [float((s - x).norm()) for s, x in zip(steps, points[-5:], strict=True)]
    torch.testing.assert_close(solution.field, steps[lengths.index(min(lengths))])


def test_the_trace_is_honest():
    operator, goal = linear(10, 0.9, seed=1)
    recorded, points = recording(lambda x, g: (operator(x, g)[0], float(x.sum())))
    seen = []
    solution = accelerate(
        recorded,
        torch.zeros_like(goal),
        0.25,
        iterations=50,
        tolerance=1e-8,
        observe=lambda r: seen.append(r),
    )
    assert tuple(seen) == solution.trace
    assert [r.t for r in solution.trace] == list(range(solution.evaluations))
    for record, x in zip(solution.trace, points, strict=True):
        following = operator(x, 0.25)[0]
        assert record.gamma == 0.25
        assert record.energy == pytest.approx(float(x.sum()))
        assert record.residual == pytest.approx(float((following - x).norm() / following.norm()))
        assert record.residual_per_step == pytest.approx(record.residual / 0.25)
    assert solution.trace[-1].residual < 1e-8 <= solution.trace[-2].residual
    torch.testing.assert_close(solution.field, operator(points[-1], 0.25)[0])


def test_the_observer_can_stop():
    operator, goal = linear(10, 0.95)
    solution = accelerate(
        operator, torch.zeros_like(goal), 1.0, iterations=50, tolerance=0.0, observe=lambda r: r.t == 2
    )
    assert solution.status is Status.STOPPED
    assert solution.evaluations == 3


def test_two_runs_give_the_same_bits():
    operator, goal = linear(40, 0.97, seed=9)
    runs = [accelerate(operator, torch.zeros_like(goal), 1.0, iterations=25, tolerance=0.0) for _ in range(2)]
    assert torch.equal(runs[0].field, runs[1].field)
    assert runs[0].trace == runs[1].trace


def test_a_float32_field_is_weighted_in_float64():
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(600_000, generator=generator) + 100
    rows = torch.stack([r, r + 1e-3])
    expected = (rows.double() * r.double()).sum(1)
    torch.testing.assert_close(_inner(rows, r), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_the_ridge_is_relative(scale):
    gram = torch.tensor([[2.0, 1.9], [1.9, 2.1]], dtype=torch.float64)
    assert _weights(gram * scale, 1e-3, 1) == pytest.approx(_weights(gram, 1e-3, 1), rel=1e-12)


def test_the_weights_minimise_and_sum_to_one():
    generator = torch.Generator().manual_seed(4)
    R = torch.randn(5, 9, dtype=torch.float64, generator=generator)
    a = torch.tensor(_weights(R @ R.T, 0.0, 4), dtype=torch.float64)
    assert float(a.sum()) == pytest.approx(1)
    best = float((a @ R).norm())
    for _ in range(200):
        other = a + (d := torch.randn(5, dtype=torch.float64, generator=generator)) - d.mean()
        assert float((other @ R).norm()) >= best


@pytest.mark.parametrize("gram", [torch.zeros(3, 3).double(), torch.ones(3, 3).double()])
def test_a_singular_history_falls_back_to_the_newest_point(gram):
    assert _weights(gram, 0.0, 1) == [0.0, 1.0, 0.0]


def test_no_unit_of_energy_or_length_matters():
    operator, goal = linear(15, 0.9, seed=6)
    tiny = lambda x, g: (operator(x * 1e12, g)[0] * 1e-12, 0.0)  # noqa: E731
    plain = accelerate(operator, torch.zeros_like(goal), 1.0, iterations=100, tolerance=1e-8)
    small = accelerate(tiny, torch.zeros_like(goal), 1.0, iterations=100, tolerance=1e-8)
    assert plain.evaluations == small.evaluations
    torch.testing.assert_close(small.field * 1e12, plain.field, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gamma": 0.0}, "gamma must be finite"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"tolerance": -1.0}, "tolerance must not be negative"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"mixing": 0.0}, "mixing must lie"),
        ({"ridge": -1.0}, "ridge must be finite"),
        ({"growth": 0.5}, "growth must be at least 1"),
        ({"field": torch.full((1, 2, 2, 2), math.inf)}, "the start must be finite"),
    ],
)
def test_settings_without_meaning_are_refused(change, sentence):
    settings = {"field": torch.zeros(1, 2, 2, 2), "gamma": 1.0, "iterations": 3, "tolerance": 0.0} | change
    with pytest.raises(ValueError, match=sentence):
        accelerate(lambda x, g: (x, 0.0), **settings)
