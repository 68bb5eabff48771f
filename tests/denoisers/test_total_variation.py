import math

import numpy as np
import pytest
import torch
from scipy import optimize

from pirate.denoisers import TotalVariation
from pirate.ops.derivative import forward_difference

COUPLINGS = ["channel", "vector"]


def tight(coupling="channel", **more):
    return TotalVariation(coupling, **({"gap": 1e-12, "iterations": 20_000} | more))


def variation(u, coupling):
    """TV by its definition, (B,)."""
    slopes = torch.stack([forward_difference(u, axis) for axis in range(u.ndim - 2)], 1)
    return slopes.square().sum((1, 2) if coupling == "vector" else 1).sqrt().flatten(1).sum(1)


def objective(u, z, weight, coupling):
    return 0.5 * (u - z).square().flatten(1).sum(1) + weight * variation(u, coupling)


def noisy(shape, seed=0, batch=1, channels=None):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, channels or len(shape), *shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("shape", [(10, 1), (1, 10), (10, 4), (10, 1, 1), (3, 10, 2), (2, 2, 10)])
def test_a_step_moves_both_sides_towards_each_other(shape):
    """A step between plateaus of 4 and 6 voxels: each side moves by lambda over its length."""
    axis = shape.index(10)
    z = torch.zeros(1, 1, *shape, dtype=torch.float64)
    z.narrow(axis + 2, 0, 4).fill_(-1.0)
    z.narrow(axis + 2, 4, 6).fill_(2.0)
    u = tight()(z, 0.6)
    expected = z.clone()
    expected.narrow(axis + 2, 0, 4).add_(0.6 / 4)
    expected.narrow(axis + 2, 4, 6).sub_(0.6 / 6)
    torch.testing.assert_close(u, expected, atol=1e-6, rtol=0)


def test_beyond_the_critical_weight_only_the_mean_is_left():
    z = noisy((6, 7), seed=1)
    u = tight()(z, 100.0)
    torch.testing.assert_close(u, z.mean((2, 3), keepdim=True).expand_as(z), atol=1e-6, rtol=0)


def test_coupled_components_of_a_step_share_the_weight():
    """A vector step of (3, 4) has one length 5: each component moves by its share, 3/5 and 4/5 of lambda."""
    z = torch.zeros(1, 2, 8, 1, dtype=torch.float64)
    z[0, 0, 4:] = 3.0
    z[0, 1, 4:] = 4.0
    vector, channel = tight("vector")(z, 1.0), tight("channel")(z, 1.0)
    for c, share in enumerate((0.6, 0.8)):
        assert float(vector[0, c, 0, 0]) == pytest.approx(share / 4, abs=1e-6)
        assert float(channel[0, c, 0, 0]) == pytest.approx(1 / 4, abs=1e-6)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 3)])
def test_a_small_problem_agrees_with_a_general_solver(shape, coupling):
    """scipy minimises the dual as a constrained quadratic programme in p; both end at the same u."""
    z, weight = noisy(shape, seed=5), 0.35
    d = len(shape)

    def adjoint(p):
        x = torch.zeros_like(z)
        for axis in range(d):
            part = p[axis].narrow(axis + 2, 0, shape[axis] - 1)
            x.narrow(axis + 2, 1, shape[axis] - 1).add_(part)
            x.narrow(axis + 2, 0, shape[axis] - 1).sub_(part)
        return x

    def value(flat):
        p = torch.from_numpy(flat).reshape(d, *z.shape)
        u = z - weight * adjoint(p)
        slopes = torch.stack([forward_difference(u, axis) for axis in range(d)])
        return float(0.5 * u.square().sum()), (-weight * slopes).numpy().ravel()

    def slack(flat):
        p = torch.from_numpy(flat).reshape(d, *z.shape)
        return (1 - p.square().sum((0, 2) if coupling == "vector" else 0)).numpy().ravel()

    def slack_slope(flat):
        p = torch.from_numpy(flat).reshape(d, *z.shape).requires_grad_()
        s = (1 - p.square().sum((0, 2) if coupling == "vector" else 0)).flatten()
        return np.stack([torch.autograd.grad(v, p, retain_graph=True)[0].numpy().ravel() for v in s])

    found = optimize.minimize(
        value,
        np.zeros(d * z.numel()),
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": slack, "jac": slack_slope},
        options={"maxiter": 1000, "ftol": 1e-16},
    )
    expected = z - weight * adjoint(torch.from_numpy(found.x).reshape(d, *z.shape))
    torch.testing.assert_close(tight(coupling)(z, weight), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("shape", [(7, 6), (4, 5, 3)])
def test_no_other_field_has_a_smaller_objective(shape, coupling):
    z = noisy(shape, seed=2, batch=2)
    u = tight(coupling)(z, 0.4)
    best = objective(u, z, 0.4, coupling)
    for seed in range(20):
        for size in (1e-4, 1e-2, 1.0):
            other = u + size * noisy(shape, seed=100 + seed, batch=2)
            assert (objective(other, z, 0.4, coupling) >= best - 1e-12 * best).all()


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 3)])
def test_the_prox_is_firmly_non_expansive(shape, coupling):
    for seed in range(4):
        a, b = noisy(shape, seed=seed), 1.5 * noisy(shape, seed=50 + seed)
        u, v = tight(coupling)(a, 0.5), tight(coupling)(b, 0.5)
        assert float((u - v).square().sum()) <= float(((u - v) * (a - b)).sum()) + 1e-8


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("gap", [1e-1, 1e-2, 1e-3, 1e-5])
def test_the_certificate_is_truthful(coupling, gap):
    """1/2 |u - u*|^2 <= gap (P + 1e-6 n lambda^2), and P(u) - P(u*) likewise."""
    z, weight = noisy((8, 9, 7), seed=3), 0.5
    exact = tight(coupling)(z, weight)
    loose = TotalVariation(coupling, gap=gap)
    u = loose(z, weight)
    assert loose.last.gap <= gap
    assert 0 < loose.last.iterations < 300
    P = objective(u, z, weight, coupling)
    allowance = loose.last.gap * (float(P) + 1e-6 * z.numel() * weight**2)
    assert float(0.5 * (u - exact).square().sum()) <= allowance
    assert 0 <= float(P - objective(exact, z, weight, coupling)) <= allowance * (1 + 1e-9)


def test_the_worst_element_of_a_batch_decides():
    z = noisy((8, 8), seed=4, batch=2)
    z[1] *= 30  # needs more iterations than the first
    denoiser = TotalVariation(gap=1e-6, iterations=10_000)
    both = denoiser(z, 1.0)
    exact = tight("vector")(z, 1.0)
    for b in range(2):
        P = float(objective(both[b : b + 1], z[b : b + 1], 1.0, "vector"))
        assert float(0.5 * (both[b] - exact[b]).square().sum()) <= 1e-6 * (P + 1e-6 * z[b].numel())


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_warm_start_saves_iterations_and_does_not_change_the_answer(coupling):
    z = noisy((12, 10, 8), seed=6)
    near = z + 0.01 * noisy((12, 10, 8), seed=7)
    warm, cold = TotalVariation(coupling, gap=1e-5), TotalVariation(coupling, gap=1e-5)
    warm(z, 0.4)
    u, v = warm(near, 0.4), cold(near, 0.4)
    assert warm.last.iterations < cold.last.iterations
    assert max(warm.last.gap, cold.last.gap) <= 1e-5
    allowed = 2 * math.sqrt(2 * 1e-5 * float(objective(u, near, 0.4, coupling)) * 1.01)
    assert float((u - v).norm()) <= allowed
    warm.reset()
    assert torch.equal(warm(near, 0.4), v)
    assert warm.last == cold.last


def test_a_warm_start_from_something_else_does_no_harm():
    denoiser = tight()
    denoiser(50 * noisy((6, 6), seed=8), 3.0)
    z = noisy((6, 6), seed=9)
    torch.testing.assert_close(denoiser(z, 0.2), tight()(z, 0.2), atol=1e-6, rtol=0)
    constant = torch.full_like(z, 7.0)
    loose = TotalVariation(gap=1e-3)
    loose(50 * z, 3.0)
    torch.testing.assert_close(loose(constant, 0.5), constant, atol=1e-3, rtol=0)
    assert loose.last.gap <= 1e-3


def test_another_shape_or_type_starts_afresh():
    denoiser = TotalVariation(gap=1e-4)
    denoiser(noisy((6, 6)), 0.3)
    for z in (noisy((5, 6)), noisy((4, 5, 6)), noisy((6, 6)).float()):
        torch.testing.assert_close(denoiser(z, 0.3), TotalVariation(gap=1e-4)(z, 0.3), atol=0, rtol=0)


def test_a_broken_field_does_not_poison_the_next_call():
    denoiser = TotalVariation(gap=1e-4)
    z = noisy((6, 6))
    bad = z.clone()
    bad[0, 0, 2, 2] = math.nan
    assert torch.isnan(denoiser(bad, 0.3)).any()
    torch.testing.assert_close(denoiser(z, 0.3), TotalVariation(gap=1e-4)(z, 0.3), atol=0, rtol=0)


def test_the_iterations_are_bounded_and_the_result_belongs_to_its_certificate():
    z = noisy((9, 9), seed=10)
    exact = tight("channel")(z, 1.0)
    for most in (1, 4, 5, 7):
        short = TotalVariation("channel", gap=1e-12, iterations=most)
        u = short(z, 1.0)
        assert short.last.iterations == most
        P = float(objective(u, z, 1.0, "channel"))
        assert float(0.5 * (u - exact).square().sum()) <= short.last.gap * (P + 1e-6 * z.numel())


def test_float32_follows_float64():
    z = noisy((10, 9, 8), seed=11)
    single, double = (TotalVariation(gap=1e-30, iterations=52) for _ in range(2))
    u = single(z.float(), 0.4)
    assert u.dtype == torch.float32
    torch.testing.assert_close(u.double(), double(z, 0.4), atol=1e-5, rtol=0)
    assert double.last.gap <= single.last.gap < 1e-6


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_field_is_left_alone_and_translations_are_kept(coupling):
    z = noisy((6, 5, 7), seed=12)
    before = z.clone()
    u = tight(coupling)(z, 0.3)
    assert torch.equal(z, before)
    torch.testing.assert_close(u.mean((2, 3, 4)), z.mean((2, 3, 4)))
    torch.testing.assert_close(tight(coupling)(z + 5, 0.3), u + 5, atol=1e-5, rtol=0)


def test_axes_are_treated_alike():
    z = noisy((5, 6, 7), seed=13)
    turned = tight("vector")(z.permute(0, 1, 4, 2, 3), 0.3).permute(0, 1, 3, 4, 2)
    torch.testing.assert_close(tight("vector")(z, 0.3), turned, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("strength", "sigma"), [(1.0, 0.0), (0.0, 2.0)])
def test_no_weight_means_no_change(strength, sigma):
    z = noisy((5, 5))
    u = TotalVariation(strength=strength)(z, sigma)
    assert torch.equal(u, z)
    assert u is not z


def test_only_the_product_of_strength_and_sigma_counts():
    z = noisy((6, 6), seed=14)
    assert torch.equal(TotalVariation(strength=2.0)(z, 0.25), TotalVariation(strength=0.5)(z, 1.0))


def test_two_runs_give_the_same_bits():
    z = noisy((20, 20, 20), seed=15).float()
    assert torch.equal(TotalVariation()(z, 0.3), TotalVariation()(z, 0.3))


@pytest.mark.parametrize(
    "change",
    [{"strength": -1.0}, {"strength": math.nan}, {"gap": 0.0}, {"iterations": 0}],
)
def test_settings_without_meaning_are_refused(change):
    with pytest.raises(ValueError, match="total variation needs"):
        TotalVariation(**change)


def test_an_unknown_coupling_is_refused():
    with pytest.raises(ValueError, match="'channel' or 'vector'"):
        TotalVariation("pixel")


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_a_sigma_without_meaning_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must be finite"):
        TotalVariation()(noisy((4, 4)), sigma)
