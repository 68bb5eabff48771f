"""NODEO: its flow converges, its losses have the published values, it aligns pairs of any size."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pirate.baselines import nodeo as module
from pirate.baselines.nodeo import (
    Loss,
    NodeoSettings,
    Velocity,
    features,
    integrate,
    nodeo,
    smoothness,
    unit_positions,
)
from pirate.energies import Folding, LocalCorrelation
from pirate.errors import InputError, NotConverged
from pirate.ops.jacobian import determinant
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity, warp
from pirate.solvers.solution import Record

QUICK = NodeoSettings(iterations=60, window=9, box=7, channels=8)


def blob_pair(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """A textured ball and the same one, moved and stretched smoothly by up to about 2.5 voxels."""
    d = len(shape)
    noise = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0))
    middle = torch.tensor([(n - 1) / 2 for n in shape]).view(1, d, *[1] * d)
    distance = (identity(torch.empty(1, d, *shape)) - middle) / (0.38 * middle * 2)
    ball = torch.sigmoid((1 - distance.square().sum(1, keepdim=True).sqrt()) * 8)
    fixed = ball * (0.4 + gaussian(noise, 1.5) / 2)
    bend = torch.stack([2.5 * torch.cos(1.7 * distance[0, (a + 1) % d]) for a in range(d)])[None]
    return fixed, warp(fixed, bend)


def strong_velocity(shape: tuple[int, ...]) -> Velocity:
    torch.manual_seed(0)
    network = Velocity(shape, NodeoSettings(box=5, channels=8))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.0)
    return network


def test_more_euler_steps_converge_to_the_flow_of_a_linear_velocity() -> None:
    """The flow of v(x) = A x is x -> exp(A) x; the error of Euler's steps halves as they double."""
    matrix = torch.tensor([[0.1, -0.6], [0.5, -0.2]], dtype=torch.float64)
    start, _ = unit_positions((9, 7), torch.empty(0, dtype=torch.float64))

    def velocity(x: Tensor) -> Tensor:
        return torch.einsum("ab,nbij->naij", matrix, x)

    exact = torch.einsum("ab,nbij->naij", torch.linalg.matrix_exp(matrix), start)
    errors = [float((integrate(velocity, start, k)[0] - exact).abs().max()) for k in (4, 8, 16, 32, 64)]
    for coarse, fine in pairwise(errors):
        assert fine / coarse == pytest.approx(0.5, abs=0.05)
    half = integrate(lambda x: velocity(x) / 2, start, 2000)[0]
    twice = integrate(lambda x: velocity(x) / 2, half, 2000)[0]
    torch.testing.assert_close(twice, exact, atol=5e-4, rtol=0)  # a one-parameter group


@pytest.mark.parametrize("shape", [(20, 26), (12, 10, 14)])
def test_more_euler_steps_converge_for_the_network_too(shape: tuple[int, ...]) -> None:
    network = strong_velocity(shape).double()
    start, _ = unit_positions(shape, torch.empty(0, dtype=torch.float64))
    with torch.no_grad():
        limit = integrate(network, start, 512)[0]
        moved = float((limit - start).abs().max())
        errors = [float((integrate(network, start, k)[0] - limit).abs().max()) for k in (4, 8, 16, 32)]
    assert errors[0] > 1e-3 * moved  # the velocity does change along the way
    for coarse, fine in pairwise(errors):
        assert fine / coarse == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("shape", [(13, 18), (8, 9, 10)])
def test_every_axis_has_its_own_scale(shape: tuple[int, ...]) -> None:
    """Half of the normalised range along axis a is (n_a - 1) / 2 voxels along axis a, and nowhere else."""
    start, voxels = unit_positions(shape, torch.empty(0))
    torch.testing.assert_close((start + 1) * voxels, identity(torch.empty(1, len(shape), *shape)))
    assert float(start.amin()) == -1
    assert float(start.amax()) == pytest.approx(1)


@pytest.mark.parametrize(("shape", "number"), [((160, 144, 192), 27), ((160, 192, 224), 36), ((5, 7), 1)])
def test_the_linear_layer_fits_the_image(shape: tuple[int, ...], number: int) -> None:
    """27 places of 32 channels are the 864 features of the published code; 36 are 1152."""
    assert features(shape) == number


@pytest.mark.parametrize("shape", [(24, 21), (16, 13, 12)])
def test_the_output_is_upsampled_twice_and_box_filtered(shape: tuple[int, ...]) -> None:
    network = Velocity(shape, NodeoSettings(box=5, channels=4))
    kept: list[Tensor] = []
    network.widen.register_forward_hook(lambda *args: kept.append(args[2]))
    with torch.no_grad():
        found = network(unit_positions(shape, torch.empty(0))[0])
        d, mode = len(shape), "bilinear" if len(shape) == 2 else "trilinear"
        x = kept[0].view(1, d, *[-(-n // 4) for n in shape])
        x = torch.nn.functional.interpolate(x, scale_factor=2, mode=mode)
        x = torch.nn.functional.interpolate(x, size=shape, mode=mode)
        pool = torch.nn.functional.avg_pool2d if d == 2 else torch.nn.functional.avg_pool3d
        expected = pool(x, 5, stride=1, padding=2)
    torch.testing.assert_close(found, expected)


def test_the_smoothness_and_the_folding_have_the_published_values() -> None:
    """On u = (a i, b j): the mean of squared differences is a^2 / 2 and b^2 / 2, J = (1 + a)(1 + b)."""
    where = identity(torch.empty(1, 2, 10, 12))
    field = where * torch.tensor([-0.6, 0.1]).view(1, 2, 1, 1)
    value, _ = smoothness(field)
    assert float(value) == pytest.approx((0.36 + 0.01) / 2, rel=1e-5)
    h, _ = Folding(0.5, "forward").value_and_gradient(field)
    assert float(h) == pytest.approx((0.5 - 0.4 * 1.1) ** 2, rel=1e-4)
    image = torch.rand(1, 1, 10, 12, generator=torch.Generator().manual_seed(0))
    settings = NodeoSettings(window=5)
    g, folds, total, _ = Loss(LocalCorrelation(image, window=5), image, settings)(field)
    assert folds == pytest.approx(2.5 * 0.06**2, rel=1e-3)
    assert total == pytest.approx(g + folds + 0.05 * 0.185, rel=1e-5)
    still = Loss(LocalCorrelation(image, window=5), image, settings)(torch.zeros(1, 2, 10, 12))
    assert still[0] == pytest.approx(0, abs=2e-3)  # an image agrees with itself; epsilon is left


def test_the_gradient_of_the_loss_is_that_of_autograd() -> None:
    generator = torch.Generator().manual_seed(1)
    field = (2 * torch.rand(1, 2, 9, 8, generator=generator) - 1).double().requires_grad_()
    jacobian = determinant(field, lambda x, a: torch.diff(x, dim=a + 2, append=x.narrow(a + 2, -1, 1)))
    short = (0.5 - jacobian[:, :-1, :-1]).clamp_min(0).square().mean()
    rough = sum(field.diff(dim=axis).square().mean() for axis in (2, 3))
    (expected,) = torch.autograd.grad(2.5 * short + 0.05 * rough, field)
    with torch.no_grad():
        value, smoothing = smoothness(field)
        h, unfolding = Folding(0.5, "forward").value_and_gradient(field)
    torch.testing.assert_close(2.5 * unfolding + 0.05 * smoothing, expected)
    torch.testing.assert_close(value, torch.as_tensor(rough).detach())
    torch.testing.assert_close(h[0], short.detach())


@pytest.mark.parametrize(("shape", "steps"), [((40, 46), 1), ((40, 46), 3), ((20, 18, 22), 1)])
def test_it_aligns_a_pair(shape: tuple[int, ...], steps: int) -> None:
    fixed, moving = blob_pair(shape)
    settings = NodeoSettings(
        iterations=150 if len(shape) == 2 else 60, window=9, box=7, channels=8, steps=steps
    )
    penalty = LocalCorrelation(fixed, window=9)
    field = nodeo(fixed, moving, settings)
    assert field.shape == (1, len(shape), *shape)
    assert not field.requires_grad
    before = float(penalty.value(moving, torch.zeros_like(field)))
    assert float(penalty.value(moving, field)) < 0.45 * before
    assert float((determinant(field) <= 0).float().mean()) < 0.01


def test_the_same_seed_gives_the_same_field_and_leaves_the_generator_alone() -> None:
    fixed, moving = blob_pair((24, 20))
    settings = NodeoSettings(iterations=3, window=5, box=3, channels=4)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = nodeo(fixed, moving, settings)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(nodeo(fixed, moving, settings), one, rtol=0, atol=0)
    other = NodeoSettings(iterations=3, window=5, box=3, channels=4, seed=1)
    assert not torch.equal(nodeo(fixed, moving, other), one)


def test_the_best_of_the_last_iterations_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product g h is 0.01, 1, 4, 1, 9 with g 0.1, 1, 2, 0.5, 3: of the last four iterations the fourth wins."""
    fixed, moving = blob_pair((24, 20))
    seen: list[Tensor] = []
    values = [(0.1, 0.1), (1.0, 1.0), (2.0, 2.0), (0.5, 2.0), (3.0, 3.0)]

    def told(self: Loss, field: Tensor) -> tuple[float, float, float, Tensor]:
        seen.append(field)
        g, h = values[len(seen) - 1]
        return g, h, g + h, torch.ones_like(field)

    monkeypatch.setattr(module.Loss, "__call__", told)
    settings = NodeoSettings(iterations=5, judged=4, window=5, box=3, channels=4)
    assert torch.equal(nodeo(fixed, moving, settings), seen[3])


def test_an_observer_sees_the_loss_fall_and_may_stop() -> None:
    fixed, moving = blob_pair((32, 28))
    seen: list[Record] = []

    def observe(record: Record) -> bool:
        seen.append(record)
        return len(seen) == 20

    nodeo(fixed, moving, QUICK, observe)
    assert len(seen) == 20
    assert seen[-1].energy < seen[0].energy


@pytest.mark.parametrize("shape", [(40, 33), (24, 28, 20)])
def test_half_resolution_aligns_the_full_images_by_a_field_of_the_full_grid(shape: tuple[int, ...]) -> None:
    """The field at half resolution has half as many voxels; brought to the full grid it must still align the pair."""
    fixed, moving = blob_pair(shape)
    field = nodeo(fixed, moving, replace(QUICK, resolution=2))
    assert field.shape == (1, len(shape), *shape)
    before, after = (fixed - moving).square().mean(), (fixed - warp(moving, field)).square().mean()
    assert after < 0.35 * before


def test_a_diverging_fit_and_odd_inputs_are_refused() -> None:
    fixed, moving = blob_pair((24, 20))
    with pytest.raises(NotConverged, match="diverged in iteration"):
        nodeo(fixed, moving, NodeoSettings(iterations=9, learning_rate=1e30, window=5))
    with pytest.raises(InputError, match="moving: shape"):
        nodeo(fixed, moving[..., :-1])
    with pytest.raises(InputError, match="fixed: shape"):
        nodeo(fixed[0], moving[0])
    with pytest.raises(InputError, match="at least 4 voxels"):
        nodeo(fixed[..., :3], moving[..., :3])
    with pytest.raises(InputError, match="at least 8 voxels"):
        nodeo(fixed[..., :7], moving[..., :7], NodeoSettings(resolution=2))
    for change, finding in (
        ({"iterations": 0}, "iterations: 0"), ({"velocity": -1.0}, "velocity: -1"), ({"box": 4}, "box: 4"),
        ({"resolution": 3}, "resolution: 3"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=finding):
            NodeoSettings(**change)  # type: ignore[arg-type]
