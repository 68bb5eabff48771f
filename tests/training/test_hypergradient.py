"""Gradients through a fixed point, against finite differences of the loss at fixed points found to rounding."""

from __future__ import annotations

import math

import pytest
import torch
from small_pairs import pair, prior, settings
from torch import Tensor, nn

from pirate.energies import GlobalCorrelation, LocalCorrelation, Similarity, SquaredError
from pirate.errors import UsageError
from pirate.training import hypergradient
from pirate.training.equilibrium import Equilibrium, EquilibriumTask
from pirate.training.hypergradient import Backward, adjoint, data_gradient, gmres, transposed_jacobian
from pirate.training.objective import Objective

SHAPES = [(12, 12), (8, 9, 8)]
OBJECTIVE = Objective(window=5, margin=0.9)


def penalties(fixed: Tensor) -> list[Similarity]:
    return [GlobalCorrelation(fixed), SquaredError(fixed), LocalCorrelation(fixed, window=5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("which", range(3))
def test_the_data_gradient_is_the_penaltys_and_its_derivative_that_of_finite_differences(
    shape: tuple[int, ...], which: int
) -> None:
    fixed, moving = pair(shape)
    penalty = penalties(fixed)[which]
    torch.manual_seed(0)
    field = 0.3 * torch.rand(1, len(shape), *[n // 2 for n in shape], dtype=torch.float64) + 0.05
    way = torch.randn_like(field)
    phi = field.clone().requires_grad_()
    got = data_gradient(penalty, moving, phi)
    torch.testing.assert_close(got.detach(), penalty.on_field(moving, field)[1], rtol=1e-9, atol=1e-12)
    (curved,) = torch.autograd.grad(got, phi, way)  # the Hessian is symmetric
    h = 1e-6
    change = (penalty.on_field(moving, field + h * way)[1] - penalty.on_field(moving, field - h * way)[1]) / (
        2 * h
    )
    torch.testing.assert_close(curved, change, rtol=1e-5, atol=1e-8)


class Problem:
    """A pair, a prior with learned scalars, and the loss at its fixed point as a function of the parameters."""

    def __init__(self, shape: tuple[int, ...], gamma: float = 0.3) -> None:
        self.fixed, self.moving = pair(shape)
        self.settings = settings(len(shape), gamma=gamma)
        self.prior = prior(len(shape), ("alpha", "tau", "sigma"))
        self.parameters = list(self.prior.parameters())

    def gradient(self, backward: Backward) -> Tensor:
        task = EquilibriumTask(
            self.prior,
            [self.fixed[0], self.moving[0]],
            [(self.fixed[0], self.moving[0])],
            self.settings,
            objective=OBJECTIVE,
            backward=backward,
        )
        self.prior.zero_grad()
        loss, log = task.loss(self.prior, {"fixed": self.fixed, "moving": self.moving})
        assert log["residual"] < 1e-12
        loss.backward()
        return nn.utils.parameters_to_vector([p.grad for p in self.parameters if p.grad is not None])

    def loss_at(self, vector: Tensor) -> float:
        before = nn.utils.parameters_to_vector(self.parameters).detach().clone()
        nn.utils.vector_to_parameters(vector, self.parameters)
        field = Equilibrium(self.prior, self.fixed, self.moving, self.settings).solve().field
        value = float(OBJECTIVE.value_and_gradient(self.fixed, self.moving, field)[0])
        nn.utils.vector_to_parameters(before, self.parameters)
        return value


EXACT = Backward("exact", iterations=120, tolerance=1e-11)


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_exact_gradient_is_that_of_finite_differences_of_the_whole_solve(shape: tuple[int, ...]) -> None:
    problem = Problem(shape)
    exact = problem.gradient(EXACT)
    theta = nn.utils.parameters_to_vector(problem.parameters).detach().clone()
    torch.manual_seed(3)
    scalars = [torch.eye(len(theta), dtype=torch.float64)[i] for i in range(3)]  # alpha, tau, sigma
    for way in [*scalars, torch.randn_like(theta), torch.randn_like(theta)]:
        h = 1e-5
        change = (problem.loss_at(theta + h * way) - problem.loss_at(theta - h * way)) / (2 * h)
        assert float(exact @ way) == pytest.approx(change, rel=1e-4, abs=1e-7)


def test_jfb_points_downhill_and_k_steps_tend_to_the_exact_gradient() -> None:
    problem = Problem((12, 12))
    exact = problem.gradient(EXACT)
    assert cosine(problem.gradient(Backward("jfb")), exact) > 0.2
    errors = [
        float((problem.gradient(Backward("k-step", steps=k)) - exact).norm() / exact.norm())
        for k in (2, 8, 32, 200)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6 < errors[0]
    assert cosine(problem.gradient(Backward("k-step", steps=8, curvature=False)), exact) > 0.2


def test_the_exact_gradient_does_not_depend_on_the_step() -> None:
    a, b = (Problem((12, 12), gamma).gradient(EXACT) for gamma in (0.3, 0.15))
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_k_steps_are_the_gradient_of_k_steps_that_were_really_made() -> None:
    problem = Problem((12, 12))
    equilibrium = Equilibrium(problem.prior, problem.fixed, problem.moving, problem.settings)
    field = equilibrium.solve().field
    _, pull, _ = OBJECTIVE.value_and_gradient(problem.fixed, problem.moving, field)
    phi = field.clone().requires_grad_()
    following: Tensor = phi
    for _ in range(3):
        following = following + 0.7 * (equilibrium.step(following) - following)
    expected = torch.autograd.grad(following, problem.parameters, pull)
    got = problem.gradient(Backward("k-step", steps=3, damping=0.7))
    torch.testing.assert_close(got, nn.utils.parameters_to_vector(expected), rtol=1e-8, atol=1e-11)


def test_one_step_is_jfb() -> None:
    problem = Problem((12, 12))
    torch.testing.assert_close(
        problem.gradient(Backward("k-step", steps=1, damping=1.0)), problem.gradient(Backward("jfb"))
    )


def test_damping_makes_the_series_of_an_expansive_map_converge() -> None:
    pull = torch.ones(1, 2, 3, 3, dtype=torch.float64)
    exact = pull / 2.5  # J = -1.5 I
    close = adjoint(lambda x: -1.5 * x, pull, pull, Backward("k-step", steps=40, damping=0.5))
    torch.testing.assert_close(close.w, exact)
    far = adjoint(lambda x: -1.5 * x, pull, pull, Backward("k-step", steps=40, damping=1.0))
    assert float(far.w.abs().max()) > 1e3


def test_the_transposed_jacobian_of_a_matrix_is_its_transpose() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(5, 5, dtype=torch.float64)
    product = transposed_jacobian(lambda x: x @ matrix.T, torch.zeros(2, 5, dtype=torch.float64))
    w = torch.randn(2, 5, dtype=torch.float64)
    torch.testing.assert_close(product(w), w @ matrix)
    torch.testing.assert_close(product(2 * w), 2 * (w @ matrix))  # the graph is kept


def test_gmres_solves_each_system_of_a_batch() -> None:
    torch.manual_seed(0)
    matrices = torch.eye(6, dtype=torch.float64) + 0.3 * torch.randn(3, 6, 6, dtype=torch.float64)
    right = torch.randn(3, 6, dtype=torch.float64)
    right[1] = 0
    found = gmres(lambda x: (matrices @ x[..., None])[..., 0], right, 6, 1e-12)
    torch.testing.assert_close(found.w, torch.linalg.solve(matrices, right), rtol=1e-9, atol=1e-12)
    assert found.products <= 6
    assert found.residual < 1e-9


def test_gmres_stops_early_and_reports_what_is_left() -> None:
    torch.manual_seed(0)
    matrix = torch.eye(30, dtype=torch.float64) + 0.1 * torch.randn(30, 30, dtype=torch.float64)
    right = torch.randn(1, 30, dtype=torch.float64)
    found = gmres(lambda x: x @ matrix.T, right, 4, 0.0)
    assert found.products == 4
    assert found.residual == pytest.approx(
        float((right - found.w @ matrix.T).norm() / right.norm()), rel=1e-9
    )
    assert gmres(lambda x: x, right, 9, 1e-9).products == 1
    nothing = gmres(lambda x: x, torch.zeros(2, 4), 9, 1e-9)
    assert nothing.products == 0
    assert not nothing.w.any()


def test_jfb_does_not_call_the_map() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise RuntimeError("called")

    pull = torch.ones(1, 2, 3, 3)
    found = adjoint(refuse, pull, pull, Backward("jfb"))
    assert found.w is pull
    assert math.isnan(found.residual)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"mode": "neumann"}, "one of jfb, k-step, exact"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"damping": 0.0}, "damping must lie"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"tolerance": 1.0}, "tolerance must lie"),
    ],
)
def test_constants_without_meaning_are_refused(changes: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Backward(**changes)  # type: ignore[arg-type]


def test_a_torch_that_cannot_bend_the_warp_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hypergradient.warps_bend()
    hypergradient.warps_bend.cache_clear()
    monkeypatch.setattr(torch.nn.functional, "grid_sample", _once_differentiable)
    try:
        assert not hypergradient.warps_bend()
        pull = torch.ones(1, 2, 3, 3)
        with pytest.raises(UsageError, match="second derivative of grid_sample"):
            adjoint(lambda x: x, pull, pull, Backward("exact"))
        found = adjoint(
            lambda x: 0.5 * x, pull, pull, Backward("k-step", steps=2, damping=1.0, curvature=False)
        )
        torch.testing.assert_close(found.w, 1.5 * pull)
    finally:
        hypergradient.warps_bend.cache_clear()


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope: Tensor) -> Tensor:
        return slope * 2


def _once_differentiable(image: Tensor, where: Tensor, align_corners: bool) -> Tensor:
    return _Once.apply(where)
