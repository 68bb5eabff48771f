"""Laws of the compositional scheme."""

from __future__ import annotations

import logging
import math
import time

import pytest
import torch
from tests.conftest import blobs
from torch import Tensor

from pirate import kernels
from pirate.errors import InputError
from pirate.ops.jacobian import determinant
from pirate.ops.smooth import gaussian
from pirate.ops.warp import warp
from pirate.registration import estimate, pyramid
from pirate.registration.data_term import data_term
from pirate.registration.working import Box, Images, cropped
from pirate.settings import Settings, preset
from pirate.solvers.solution import Record, Status


def pair(shape: tuple[int, ...], spacing: tuple[float, ...] | None = None, size: float = 2.0) -> Images:
    """A smooth random image and the same image moved by a smooth field of up to `size` voxels."""
    noise = torch.randn((1, len(shape), *shape), generator=torch.Generator().manual_seed(1))
    field = gaussian(noise, 5.0)
    field = field * (size / field.abs().max())
    fixed = torch.from_numpy(blobs(shape))[None, None]
    return Images(fixed, warp(fixed, field), None, None, spacing or (1.0,) * len(shape))


def settings(**changes: object) -> Settings:
    base = preset("default", 3).changed(
        {
            "levels": [2, 1],
            "iterations": [20, 10],
            "window": 5,
            "field_sigma": 0.4,
            "tolerance": 0.0,
            "intensity": 0.0,
        }
    )
    return base.changed(changes)


def run(images: Images, chosen: Settings, **more: object) -> pyramid.Solution:
    return pyramid.solve(pyramid.stages(images, chosen), chosen, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(44, 48), (34, 36, 32)])
@pytest.mark.parametrize("penalty", ["local", "squared", "global", "mutual"])
def test_every_data_term_aligns_and_nothing_folds(shape: tuple[int, ...], penalty: str) -> None:
    images = pair(shape)
    chosen = settings(penalty=penalty, iterations=60)
    solution = run(images, chosen)
    term = data_term(images, chosen, chosen.level(1))
    before, after = (
        float(term.value(images.moving, u)) for u in (torch.zeros_like(solution.field), solution.field)
    )
    assert after < before - 0.02 * abs(before)
    assert determinant(solution.field).min() > 0


def test_the_torch_twins_find_the_same_field() -> None:
    images = pair((22, 20, 24))
    fast = run(images, settings())
    with kernels.disabled():
        slow = run(images, settings())
    assert (fast.field - slow.field).abs().max() < 2e-2
    assert (fast.field - slow.field).abs().mean() < 2e-4


def test_a_permutation_of_the_axes_permutes_the_field() -> None:
    images = pair((20, 24, 28), (1.0, 1.5, 2.5))
    turned = Images(
        images.fixed.permute(0, 1, 4, 2, 3).contiguous(), images.moving.permute(0, 1, 4, 2, 3).contiguous(),
        None, None, (2.5, 1.0, 1.5),
    )  # fmt: skip
    a, b = run(images, settings()).field, run(turned, settings()).field
    expected = a[:, [2, 0, 1]].permute(0, 1, 4, 2, 3)
    assert (expected - b).abs().max() < 2e-2


def test_levels_follow_the_spacing_so_that_coarse_voxels_are_cubes() -> None:
    images = pair((64, 64, 24), (1.0, 1.0, 3.0))
    chosen = settings(levels=[4, 2, 1], iterations=1)
    shapes = [stage.images.shape for stage in pyramid.stages(images, chosen)]
    assert shapes == [(16, 16, 24), (32, 32, 24), (64, 64, 24)]
    for stage in pyramid.stages(images, chosen):
        extent = [s * (n - 1) for s, n in zip(stage.images.spacing, stage.images.shape, strict=True)]
        assert extent == pytest.approx([63, 63, 69])


def test_levels_that_leave_too_few_voxels_are_left_out() -> None:
    chosen = settings(levels=[8, 4, 2, 1], iterations=[1, 2, 3, 4])
    stages = pyramid.stages(pair((24, 40, 50)), chosen)
    assert [s.level.shrink for s in stages] == [2, 1]
    assert [s.level.iterations for s in stages] == [3, 4]
    tiny = pyramid.stages(pair((8, 9, 10)), chosen)
    assert [s.level.shrink for s in tiny] == [1]


def test_a_level_ends_when_the_data_term_no_longer_falls() -> None:
    images = pair((24, 24, 24))
    solution = run(images, settings(iterations=[200, 200], tolerance=0.005))
    assert solution.status is Status.SETTLED
    assert 2 * pyramid.SLOPE < len(solution.trace) < 300


def test_identical_images_stay_where_they_are() -> None:
    fixed = torch.from_numpy(blobs((24, 24, 24)))[None, None]
    solution = run(Images(fixed, fixed.clone(), None, None, (1.0, 1.0, 1.0)), settings(penalty="squared"))
    assert solution.field.abs().max() == 0
    assert solution.status is Status.SETTLED


def test_time_that_is_up_ends_the_steps_with_the_field_so_far() -> None:
    images = pair((24, 24, 24))
    solution = run(images, settings(), deadline=time.monotonic() - 1)
    assert solution.status is Status.OVERTIME
    assert len(solution.trace) == 1
    assert solution.field.shape == (1, 3, 24, 24, 24)
    assert 0 < solution.field.abs().max() <= 4  # a voxel of the coarsest level


def test_an_observer_may_stop_it() -> None:
    seen: list[Record] = []

    def stop(record: Record) -> bool:
        seen.append(record)
        return len(seen) == 5

    solution = run(pair((24, 24, 24)), settings(), observe=stop)
    assert solution.status is Status.STOPPED
    assert len(solution.trace) == 5
    assert solution.field.shape == (1, 3, 24, 24, 24)
    assert bool(torch.isfinite(solution.field).all())


def test_the_prior_acts_every_so_many_steps_and_sees_the_level() -> None:
    calls: list[tuple[tuple[int, ...], float]] = []

    def denoiser(field: Tensor, sigma: float) -> Tensor:
        calls.append((tuple(field.shape[2:]), sigma))
        return field * 0.0

    chosen = settings(iterations=[6, 4], every=2, sigma=[0.7, 0.3], tau=[1.0, 0.5])
    images = pair((24, 24, 24))
    solution = run(images, chosen, denoiser=denoiser)
    assert calls == [((12, 12, 12), 0.7)] * 3 + [((24, 24, 24), 0.3)] * 2
    plain = run(images, chosen)
    assert solution.field.abs().mean() < 0.5 * plain.field.abs().mean()


def test_a_prior_may_ask_for_the_images() -> None:
    class Anatomy:
        wants_images = True

        def __call__(self, field: Tensor, sigma: float, fixed: Tensor, warped: Tensor) -> Tensor:
            assert fixed.shape == warped.shape == (1, 1, *field.shape[2:])
            return field

    images = pair((24, 24, 24))
    with_prior = run(images, settings(every=3), denoiser=Anatomy())
    assert torch.equal(with_prior.field, run(images, settings()).field)


def test_what_a_mask_hides_does_not_pull() -> None:
    """The right half of the moving image is another one; masked, it moves nothing and disturbs nothing."""
    images = pair((34, 36, 32))
    broken = images.moving.clone()
    broken[..., 16:] = torch.from_numpy(blobs((34, 36, 32), seed=5))[..., 16:]
    mask = torch.zeros_like(images.fixed)
    mask[..., :13] = 1
    chosen = settings(levels=[1], iterations=40, penalty="squared")
    field = run(Images(images.fixed, broken, mask, None, images.spacing), chosen).field
    assert field[..., 24:].abs().max() < 0.1
    left = (..., slice(0, 10))
    before = (images.moving - images.fixed)[left].square().mean()
    assert (warp(images.moving, field) - images.fixed)[left].square().mean() < 0.4 * before


def test_cropping_keeps_what_is_not_background_and_fill_restores_the_grid() -> None:
    image = torch.zeros(1, 1, 40, 30, 20)
    image[..., 10:20, 12:15, 2:18] = 1
    images = Images(image, image.clone(), None, None, (1.0, 1.0, 1.0))
    part, box = cropped(images)
    assert box == Box((6, 8, 0), (24, 19, 20), (40, 30, 20))
    assert part.fixed.sum() == image.sum()
    field = torch.randn(1, 3, *part.shape)
    full = box.fill(field)
    assert full.shape == (1, 3, 40, 30, 20)
    assert torch.equal(box.cut(full), field)
    assert torch.equal(full[:, :, 0, 10, 5], field[:, :, 0, 2, 5])


def test_steps_that_lead_nowhere_are_taken_back() -> None:
    """Correlated by 1, the images leave nothing but rounding to follow, by steps of a voxel."""
    fixed = pair((24, 24, 24)).fixed
    images = Images(fixed, 0.3 * fixed, None, None, (1.0, 1.0, 1.0))
    solution = run(images, settings(iterations=[5, 5], penalty="global"))
    assert solution.field.abs().max() == 0


@pytest.mark.parametrize("shape", [(40, 30), (40, 30, 20)])
def test_an_image_that_is_nothing_but_background_is_not_cropped(shape: tuple[int, ...]) -> None:
    image = torch.zeros(1, 1, *shape)
    _, box = cropped(Images(image, image, None, None, (1.0,) * len(shape)))
    assert box.high == shape


def test_an_image_without_a_number_is_refused() -> None:
    images = pair((24, 24, 24))
    images.moving[0, 0, 12, 12, 12] = float("nan")
    with pytest.raises(InputError, match="not finite"):
        run(images, settings(penalty="local"))


def test_the_probe_takes_a_slab_of_a_large_level_and_all_of_a_small_one() -> None:
    small = pair((20, 24, 16))
    assert estimate._slab(small) is small
    high = estimate.LARGEST_PROBE // (8 * 8) + 101
    large = Images(*(torch.rand(1, 1, high, 8, 8) for _ in range(2)), None, None, (1.0, 1.0, 1.0))
    slab = estimate._slab(large)
    assert math.prod(slab.shape) <= estimate.LARGEST_PROBE < math.prod(slab.shape) + 2 * 64
    assert torch.equal(slab.moving, large.moving[:, :, : slab.shape[0]])  # all tissue: any slab is as good


def test_the_slab_has_as_much_background_as_the_whole() -> None:
    planes = estimate.LARGEST_PROBE // 64
    large = torch.zeros(1, 1, 2 * planes, 8, 8)
    large[:, :, planes // 2 : -planes // 2] = 1  # half of the image, in its middle
    slab = estimate._slab(Images(large, large, None, None, (1.0, 1.0, 1.0)))
    assert float((slab.fixed != 0).double().mean()) == pytest.approx(0.5, abs=1e-3)


def test_the_estimate_counts_the_steps_of_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_seconds_per_step", lambda stage, chosen: 1.0)
    images = pair((40, 40, 40))
    for tolerance, steps in ((0.0, 400), (1e-4, estimate.SETTLES + estimate.SETTLES_LAST)):
        chosen = settings(iterations=200, tolerance=tolerance)
        found = estimate.estimate(pyramid.stages(images, chosen), chosen, memory=7)
        assert found == estimate.Estimate(float(steps + estimate.AROUND), 7 + estimate.INTERPRETER)


@pytest.mark.parametrize("intensity", [0.0, 10.0])
@pytest.mark.parametrize("every", [3, 5])
def test_a_wild_prior_is_undone_said_and_not_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, intensity: float, every: int
) -> None:
    monkeypatch.setattr(logging.getLogger("pirate"), "propagate", True)
    images, calls = pair((24, 24, 24)), []

    def wild(field: Tensor, sigma: float) -> Tensor:
        calls.append(sigma)
        return field + 1000

    chosen = settings(
        every=every, iterations=5, intensity=intensity
    )  # every=5: after a level's last step, too
    solution = run(images, chosen, denoiser=wild)
    assert len(calls) == len(pyramid.stages(images, chosen))
    assert torch.equal(solution.field, run(images, settings(iterations=5, intensity=intensity)).field)
    assert "is undone" in caplog.text


def test_a_prior_that_changes_nothing_is_not_blamed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("pirate"), "propagate", True)
    there = pair((24, 24, 24))
    same = Images(
        there.fixed, there.fixed.clone(), None, None, there.spacing
    )  # any step makes these less alike
    run(same, settings(every=1), denoiser=lambda field, sigma: field.clone())
    assert "is undone" not in caplog.text
