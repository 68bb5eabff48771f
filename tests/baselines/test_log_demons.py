"""Symmetric log-domain demons: its algebra, its claims, and that it aligns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy import ndimage
from tests.conftest import blobs

from pirate.baselines.histogram import matched_histogram
from pirate.baselines.log_demons import PRESETS, LogDemonsSettings, bch, bracket, force, log_demons
from pirate.errors import InputError
from pirate.ops.compose import compose, exponential
from pirate.ops.jacobian import mark_folds
from pirate.ops.smooth import gaussian
from pirate.ops.warp import identity, warp
from pirate.registration.working import Images
from pirate.solvers.solution import Status

SHAPES = [(36, 40), (30, 32, 28)]


def velocity(shape: tuple[int, ...], size: float, seed: int = 0, sigma: float = 4.0) -> torch.Tensor:
    """A smooth random velocity that vanishes at the border, its longest vector `size` voxels."""
    noise = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, len(shape), *shape))).float()
    smooth = gaussian(noise, sigma)
    for axis, n in enumerate(shape):
        window = torch.sin(math.pi * torch.arange(n) / (n - 1)).view(-1, *[1] * (len(shape) - 1 - axis))
        smooth = smooth * window
    return smooth * (size / smooth.norm(dim=1).max())


def pair(
    shape: tuple[int, ...], size: float = 3.0, spacing: tuple[float, ...] | None = None
) -> tuple[Images, torch.Tensor]:
    """A moving image and the same one warped by a known field, which is returned."""
    moving = torch.from_numpy(blobs(shape, seed=3))[None, None]
    truth = exponential(velocity(shape, size))
    spacing = spacing or (1.0,) * len(shape)
    return Images(warp(moving, truth), moving, None, None, spacing), truth


def test_the_bracket_is_antisymmetric_and_known_for_linear_fields() -> None:
    """[Ax, Bx] = (AB - BA) x; central differences are exact on linear fields."""
    x = identity(torch.zeros(1, 2, 9, 8, dtype=torch.float64)) - 4
    A, B = torch.tensor([[0.1, 0.3], [-0.2, 0.05]]).double(), torch.tensor([[0.0, -0.4], [0.1, 0.2]]).double()
    v, u = (torch.einsum("ij,bjxy->bixy", m, x) for m in (A, B))
    expected = torch.einsum("ij,bjxy->bixy", A @ B - B @ A, x)
    assert torch.allclose(bracket(v, u), expected, atol=1e-12)
    assert torch.allclose(bracket(v, u), -bracket(u, v), atol=1e-12)


@pytest.mark.parametrize("shape", [(64, 64), (36, 36, 36)])
def test_more_terms_of_the_series_come_closer_to_the_composition(shape: tuple[int, ...]) -> None:
    v, u = velocity(shape, 2.5, 1, 7.0), velocity(shape, 0.4, 2, 7.0)
    target = compose(exponential(v, 7), exponential(u, 7))
    errors = [float((exponential(bch(v, u, k), 7) - target).norm()) for k in (2, 3, 4)]
    assert errors[0] > 3 * errors[1] > 0
    assert errors[1] > errors[2]


@pytest.mark.parametrize("shape", SHAPES)
def test_flow_and_backward_flow_invert_each_other_and_do_not_fold(shape: tuple[int, ...]) -> None:
    images, _ = pair(shape)
    found = log_demons(images, LogDemonsSettings(iterations=(30,)))
    error = compose(found.field, found.inverse).norm(dim=1)
    inner = (0, *[slice(3, -3)] * len(shape))
    assert float(found.field.norm(dim=1).max()) > 1.5
    assert float(error[inner].median()) < 0.02  # voxels; what is left is linear interpolation
    assert float(error[inner].max()) < 0.2
    assert mark_folds(found.field)[0] == 0
    assert mark_folds(found.inverse)[0] == 0


def test_enough_squarings_unfold_a_flow_that_one_euler_step_folds() -> None:
    strong = velocity((40, 40), 6.0, 4, 2.5)
    counts = [mark_folds(exponential(strong, squarings))[0] for squarings in (0, 8)]
    assert counts[0] > 20
    assert counts[1] == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_generated_pair_is_aligned(shape: tuple[int, ...]) -> None:
    images, truth = pair(shape, 6.0 - len(shape))
    found = log_demons(images)
    shown = (images.fixed > 0.2)[:, 0]
    before, after = truth.norm(dim=1)[shown].mean(), (found.field - truth).norm(dim=1)[shown].mean()
    start = float((images.fixed - images.moving).square().mean())
    end = float((images.fixed - warp(images.moving, found.field)).square().mean())
    assert end < 0.1 * start
    assert after < 0.5 * before
    assert found.status in (Status.SETTLED, Status.FINISHED)
    assert found.trace[-1].energy < found.trace[0].energy


@pytest.mark.parametrize("shape", [(64, 64), (36, 36, 36)])
def test_in_the_middle_a_sum_of_velocities_is_closer_to_the_composition(shape: tuple[int, ...]) -> None:
    """exp(v/2) o exp(u) o exp(v/2) is exp(v + u) up to two brackets, exp(v) o exp(u) up to one."""
    v, u = velocity(shape, 2.5, 1, 7.0), velocity(shape, 0.4, 2, 7.0)
    half, small, together = exponential(v / 2, 7), exponential(u, 7), exponential(v + u, 7)
    middle = float((compose(half, compose(small, half)) - together).norm())
    end = float((compose(exponential(v, 7), small) - together).norm())
    assert 0 < middle < 0.2 * end


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_aligns_and_does_not_fold(name: str) -> None:
    images, _ = pair((36, 40), 4.0)
    found = log_demons(images, PRESETS[name])
    start = float((images.fixed - images.moving).square().mean())
    assert float((images.fixed - warp(images.moving, found.field)).square().mean()) < 0.1 * start
    assert mark_folds(found.field)[0] == 0


def test_the_presets_are_what_they_are_called() -> None:
    """`ends` differs from the default in where the force is taken alone; `authors` has their tool's constants."""
    default, ends, authors = (PRESETS[name] for name in ("default", "ends", "authors"))
    assert default.symmetry == "middle"
    assert ends == replace(default, symmetry="ends", terms=3)
    assert (authors.symmetry, authors.terms) == ("ends", 2)
    assert [authors.of_level(k) for k in range(len(authors.levels))] == [15, 10, 5]
    assert (authors.step, authors.fluid_sigma, authors.diffusion_sigma) == (2.0, 0.0, 1.5)


@pytest.mark.parametrize("name", PRESETS)
def test_the_series_is_used_at_the_ends_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(v: torch.Tensor, u: torch.Tensor, terms: int) -> torch.Tensor:
        calls.append(terms)
        return bch(v, u, terms)

    monkeypatch.setattr("pirate.baselines.log_demons.bch", counted)
    found = log_demons(pair((36, 40))[0], replace(PRESETS[name], iterations=(3,)))
    assert calls == ([] if name == "default" else [PRESETS[name].terms] * 2 * len(found.trace))


@pytest.mark.parametrize("symmetry", ["middle", "ends"])
def test_exchanging_the_images_gives_the_inverse(symmetry: Literal["middle", "ends"]) -> None:
    """Without matching, which favours the fixed image, the symmetric update is the same up to its sign."""
    images, _ = pair((36, 40))
    settings = LogDemonsSettings(iterations=(20,), matching=False, tolerance=0.0, symmetry=symmetry)
    swapped = Images(images.moving, images.fixed, None, None, images.spacing)
    assert torch.allclose(
        log_demons(images, settings).velocity, -log_demons(swapped, settings).velocity, atol=1e-4
    )
    one_way = LogDemonsSettings(iterations=(20,), matching=False, tolerance=0.0, symmetry="none")
    there, back = log_demons(images, one_way).velocity, log_demons(swapped, one_way).velocity
    assert float((there + back).abs().max()) > 0.05


def test_the_force_is_no_longer_than_the_step_and_points_downhill() -> None:
    images, _ = pair((30, 32))
    update = force(images.fixed, images.moving, (1.0, 1.0), 0.7)
    assert float(update.norm(dim=1).max()) <= 0.7 + 1e-5
    moved = warp(images.moving, 0.3 * update)
    assert (images.fixed - moved).square().sum() < (images.fixed - images.moving).square().sum()


def test_coarse_axes_move_by_their_millimetres() -> None:
    """A shift by the same mm along axes of different spacing is drawn by the same mm."""
    line = torch.linspace(0, 1, 25)
    along0 = line[:, None].expand(25, 25)[None, None].contiguous()
    still = force(along0 + 0.01, along0, (1.0, 1.0), 1e6)[0, 0, 5:-5, 5:-5]
    coarse = force(along0[:, :, ::2] + 0.01, along0[:, :, ::2], (2.0, 1.0), 1e6)[0, 0, 3:-3, 5:-5]
    assert torch.allclose(still.mean(), 2 * coarse.mean(), rtol=1e-3)  # voxels of axis 0 are twice as long


def test_voxels_that_are_no_cubes_are_aligned() -> None:
    images, _ = pair((30, 34, 16), 2.0, (1.0, 1.0, 2.4))
    found = log_demons(images, LogDemonsSettings(iterations=(40,)))
    start = float((images.fixed - images.moving).square().mean())
    assert float((images.fixed - warp(images.moving, found.field)).square().mean()) < 0.1 * start
    assert mark_folds(found.field)[0] == 0


def test_matching_takes_over_every_quantile_exactly() -> None:
    rng = np.random.default_rng(0)
    fixed = np.clip(ndimage.gaussian_filter(rng.normal(size=(40, 40)), 1), -0.2, None).astype(np.float32)
    moving = (np.exp(ndimage.gaussian_filter(rng.normal(size=(36, 44)), 1)) * 7).astype(np.float32)
    matched = matched_histogram(moving, fixed, 7)
    at = np.arange(1, 8) / 8
    bright = [image[own > own.mean(dtype=np.float64)] for image, own in ((matched, moving), (fixed, fixed))]
    ours, theirs = (np.quantile(x, at, method="inverted_cdf") for x in bright)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert matched.max() == fixed.max()
    assert matched.min() == fixed.min()
    order = np.argsort(moving.ravel())
    assert (np.diff(matched.ravel()[order]) >= 0).all()


def test_matching_an_image_to_itself_changes_nothing_even_if_values_repeat() -> None:
    image = np.repeat(np.array([0, 0, 1, 1, 1, 4], dtype=np.float32), 9)
    np.testing.assert_allclose(matched_histogram(image, image), image, atol=1e-6)
    flat = np.ones(5, np.float32)
    np.testing.assert_array_equal(matched_histogram(flat, image), np.zeros(5))


def test_matching_undoes_another_scanner() -> None:
    images, truth = pair((36, 40))
    other = Images(images.fixed, 0.5 * images.moving.sqrt(), None, None, images.spacing)
    shown = (images.fixed > 0.2)[:, 0]
    errors = [
        float((log_demons(other, LogDemonsSettings(matching=on)).field - truth).norm(dim=1)[shown].mean())
        for on in (True, False)
    ]
    assert errors[0] < 0.65 * float(truth.norm(dim=1)[shown].mean())
    assert errors[0] < 0.8 * errors[1]


def test_observing_ends_it_and_divergence_is_told() -> None:
    images, _ = pair((30, 32))
    stopped = log_demons(images, observe=lambda record: record.t == 2)
    assert stopped.status is Status.STOPPED
    assert len(stopped.trace) == 3
    broken = Images(images.fixed * math.nan, images.moving, None, None, images.spacing)
    assert log_demons(broken, LogDemonsSettings(matching=False)).status is Status.DIVERGED


def test_too_small_levels_are_left_out() -> None:
    images, _ = pair((20, 22), 1.0)
    coarse = log_demons(images, LogDemonsSettings(levels=(8, 4, 1), iterations=(5,), tolerance=0.0))
    assert len(coarse.trace) == 5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"levels": ()}, "one for each level"),
        ({"levels": (2, 1), "iterations": (1, 2, 3)}, "3 numbers for 2 levels"),
        ({"levels": (0,), "iterations": (1,)}, "1 or more"),
        ({"terms": 5}, "2, 3 or 4"),
        ({"symmetry": "both"}, "middle, ends or none"),
        ({"diffusion_sigma": -1.0}, "a number from 0"),
        ({"step": math.inf}, "a number from 0"),
    ],
)
def test_senseless_settings_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        LogDemonsSettings(**changes)  # type: ignore[arg-type]
