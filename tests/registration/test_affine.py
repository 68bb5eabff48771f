"""The affine start: known motions are found, each kind stays what it is, and nothing gets worse."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

from pirate.data.phantom import brain_pair
from pirate.energies.mutual import MutualInformation
from pirate.energies.similarity import GlobalCorrelation
from pirate.errors import InputError
from pirate.grid import Grid
from pirate.image import Image
from pirate.ops.warp import sample
from pirate.registration.affine import SCALES, align
from pirate.registration.affine_images import Frame, Pose, Working, read, read_with_slope, scattered
from pirate.registration.affine_penalty import Samples, _products
from pirate.registration.affine_steps import Candidate, exponential, refine, skew
from pirate.transform import Affine

Array = NDArray[np.float64]
SHAPE, OTHER = (38, 40, 42), (52, 27, 46)  # 4 mm; and 3 x 6 x 3.6 mm


@cache
def brain(shape: tuple[int, ...], role: str = "fixed") -> Image:
    """One anatomy; noise, bias and intensity scale of the two roles differ. About 4 mm."""
    return getattr(brain_pair(shape, strength=0.0), role)


def motion(turn: list[float], shift: list[float], about: Array, linear: Array | None = None) -> Affine:
    """A rotation vector (degrees) after a linear map, about a point, then a shift (mm)."""
    matrix = np.eye(4)
    matrix[:3, :3] = exponential(skew(np.deg2rad(np.array(turn)))) @ (np.eye(3) if linear is None else linear)
    matrix[:3, 3] = about + shift - matrix[:3, :3] @ about
    return Affine(matrix)


def middle(image: Image) -> Array:
    return image.grid.to_world((np.array(image.grid.shape) - 1) / 2)


def moved(image: Image, by: Affine) -> Image:
    """The same voxels elsewhere: what was at p is at by(p)."""
    return replace(image, grid=Grid(image.grid.shape, by.matrix @ image.grid.affine))


def error_mm(found: Affine, truth: Affine, image: Image) -> float:
    """Mean distance in mm over the brain."""
    points = image.grid.to_world(np.argwhere(image.data > 0))
    return float(np.linalg.norm(found.map(points) - truth.map(points), axis=1).mean())


@pytest.mark.parametrize(
    ("turn", "shift"),
    [
        ([30, 0, 0], [0, 40, 0]),
        ([0, -30, 0], [0, 0, -40]),
        ([0, 0, 30], [-40, 0, 0]),
        ([17.3, 17.3, 17.3], [23, -23, 23]),
        ([-21.2, 21.2, 0], [0, 0, 40]),
    ],
)
def test_30_degrees_and_40_mm_are_found_across_different_grids(turn: list[float], shift: list[float]) -> None:
    fixed = brain(SHAPE)
    truth = motion(turn, shift, middle(fixed))
    for role, limit in (("fixed", 0.2), ("moving", 0.8)):  # different shading alone is worth 0.6 mm
        found = align(fixed, moved(brain(OTHER, role), truth), "rigid")
        assert error_mm(found.affine, truth, fixed) < limit
        assert found.penalty_after < 0.01 < 0.3 < found.penalty_before
        assert found.note is None


def test_all_twelve_parameters_are_found() -> None:
    fixed, moving = brain(SHAPE), brain(OTHER)
    stretch = np.array([[1.1, 0.06, 0.0], [0.0, 0.93, -0.05], [0.03, 0.0, 1.05]])
    truth = motion([10, -20, 15], [20, 10, -30], middle(fixed), stretch)
    found = align(fixed, moved(moving, truth), "affine")
    assert error_mm(found.affine, truth, fixed) < 0.2
    np.testing.assert_allclose(found.affine.matrix[:3, :3], truth.matrix[:3, :3], atol=0.015)


def test_a_motion_about_a_distant_origin_is_found() -> None:
    fixed, moving = brain(SHAPE), brain(OTHER)
    truth = motion([0, 0, 30], [40, 0, 0], middle(fixed) + np.array([300, -200, 100]))
    found = align(fixed, moved(moving, truth), "rigid")
    assert found.penalty_before == 1.0  # no overlap at all
    assert error_mm(found.affine, truth, fixed) < 0.2


def test_two_brains_are_brought_back_to_where_they_were() -> None:
    pair = brain_pair(SHAPE, seed=3)
    truth = motion([12, 20, -18], [-20, 30, 10], middle(pair.fixed))
    near = align(pair.fixed, pair.moving)
    far = align(pair.fixed, moved(pair.moving, truth))
    assert error_mm(far.affine, Affine(truth.matrix @ near.affine.matrix), pair.fixed) < 0.2
    assert far.penalty_after == pytest.approx(near.penalty_after, abs=1e-4)
    assert error_mm(near.affine, Affine(np.eye(4)), pair.fixed) < 2.5  # the field has no affine part


@pytest.mark.parametrize("kind", ["rigid", "affine"])
def test_a_plane_moves_within_its_plane(kind: str) -> None:
    fixed, moving = brain((80, 84)), brain((64, 100), "moving")
    basis = np.linalg.qr(fixed.grid.axes)[0]
    normal = np.cross(*basis.T)
    truth = motion(list(30 * normal), list(basis @ [28.0, -28.0]), middle(fixed))
    found = align(fixed, moved(moving, truth), kind)
    assert error_mm(found.affine, truth, fixed) < 0.5
    np.testing.assert_allclose(found.affine.matrix[:3, :3] @ normal, normal, atol=1e-12)
    points = fixed.grid.to_world(np.argwhere(fixed.data > 0))
    np.testing.assert_allclose((found.affine.map(points) - points) @ normal, 0, atol=1e-9)


def test_rigid_and_similarity_stay_what_they_are() -> None:
    fixed, moving = brain(SHAPE), brain(OTHER)
    truth = motion([20, 5, -10], [10, -30, 20], middle(fixed), 1.12 * np.eye(3))
    rigid, similar = (align(fixed, moved(moving, truth), kind).affine for kind in ("rigid", "similarity"))
    turn = rigid.matrix[:3, :3]
    np.testing.assert_allclose(turn.T @ turn, np.eye(3), atol=1e-9)
    assert np.linalg.det(turn) > 0
    scaled = similar.matrix[:3, :3]
    scale = np.linalg.det(scaled) ** (1 / 3)
    np.testing.assert_allclose(scaled.T @ scaled, scale**2 * np.eye(3), atol=1e-9)
    assert scale == pytest.approx(1.12, abs=0.005)
    assert error_mm(similar, truth, fixed) < 0.2


@pytest.mark.parametrize("shape", [SHAPE, (80, 84)])
def test_mutual_information_aligns_inverted_contrast(shape: tuple[int, ...]) -> None:
    fixed, moving = brain(shape), brain(shape, "moving")
    inverted = replace(moving, data=(1 - (moving.data / moving.data.max()) ** 1.5).astype(np.float32))
    basis = np.linalg.qr(fixed.grid.axes)[0]
    turn = [15, 20, -15] if len(shape) == 3 else list(25 * np.cross(*basis.T))
    truth = motion(turn, list(basis @ np.full(len(shape), 20.0)), middle(fixed))
    found = align(fixed, moved(inverted, truth), "rigid", penalty="mutual")
    assert error_mm(found.affine, truth, fixed) < 1.0
    assert found.penalty_after < found.penalty_before <= 0


def textured(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Smooth noise without background, far from 0."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    return (1000 + 50 * ndimage.gaussian_filter(noise, 3.0) / 0.01).astype(np.float32)


def test_a_part_of_a_textured_image_is_found_in_the_whole() -> None:
    whole = Image(textured((48, 48, 48), 1), Grid((48, 48, 48), np.diag([2.0, 2, 2, 1])))
    part = Image(whole.data[4:44, 6:40, 8:46], Grid((40, 34, 38), np.diag([2.0, 2, 2, 1])))  # header lost
    truth = Affine(np.eye(4) + np.pad([[-8.0], [-12], [-16]], [(0, 1), (3, 0)]))
    for fixed, moving, there in ((whole, part, truth), (part, whole, truth.inverse())):
        found = align(fixed, moving, "affine")
        assert error_mm(found.affine, there, fixed) < 0.3


def test_what_the_masks_leave_out_does_not_count() -> None:
    fixed, moving = brain(SHAPE), brain(OTHER)
    truth = motion([0, 0, 10], [8, 0, 0], middle(fixed))
    spoiled, keep = [], []
    for image, axis in ((fixed, 0), (moving, 2)):
        data, mask = image.data.copy(), np.ones(image.data.shape, np.float32)
        half = tuple(slice(0, 14) if a == axis else slice(None) for a in range(3))
        data[half] = 3 * image.data.max() * np.random.default_rng(axis).random(data[half].shape)
        mask[half] = 0
        spoiled.append(replace(image, data=data))
        keep.append(replace(image, data=mask))
    there = moved(spoiled[1], truth)
    masks = {"fixed_mask": keep[0], "moving_mask": moved(keep[1], truth)}
    assert error_mm(align(spoiled[0], there, "rigid", **masks).affine, truth, fixed) < 0.5
    assert error_mm(align(spoiled[0], there, "rigid").affine, truth, fixed) > 1.0


def test_an_image_onto_itself_is_the_identity() -> None:
    image = brain(SHAPE)
    found = align(image, image)
    np.testing.assert_array_equal(found.affine.matrix, np.eye(4))
    assert found.start == "identity"
    assert found.note is not None
    assert "were kept" in found.note
    assert found.penalty_after == found.penalty_before == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", ["correlation", "mutual"])
def test_never_worse_than_the_identity_even_for_unrelated_images(seed: int, penalty: str) -> None:
    grid = Grid((20, 22), np.diag([1.0, 1.5, 2.0, 1.0]))
    fixed, moving = (Image(textured(grid.shape, s), grid) for s in (seed, seed + 10))
    found = align(fixed, moving, "affine", penalty=penalty)
    assert found.penalty_after <= found.penalty_before
    stretch = np.linalg.svd(found.affine.matrix[:3, :3], compute_uv=False)
    assert SCALES[0] <= stretch.min() <= stretch.max() <= SCALES[1]


def test_a_stretch_beyond_the_limits_is_dropped_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pirate.registration.affine.SCALES", (0.9, 1.1))
    fixed = brain(SHAPE)
    truth = motion([10, 0, 0], [20, 0, 0], middle(fixed), np.diag([1.16, 1.16, 1.16]))
    found = align(fixed, moved(brain(SHAPE, "moving"), truth), "similarity")
    assert found.note is not None
    assert "stretched the image by 1.16 to 1.16, beyond 0.9 to 1.1" in found.note
    assert np.linalg.det(found.affine.matrix) == pytest.approx(1)
    assert found.penalty_after < found.penalty_before


def test_the_same_bytes_every_time_and_progress_is_told() -> None:
    pair = brain_pair((64, 70), seed=2)
    told: list[tuple[str, int, int]] = []
    first, second = (align(pair.fixed, pair.moving, progress=lambda *a: told.append(a)) for _ in range(2))
    assert first.affine.matrix.tobytes() == second.affine.matrix.tobytes()
    assert first.penalty_after == second.penalty_after
    levels = told[0][2]
    assert told == 2 * [("align", n + 1, levels) for n in range(levels)]


def test_images_that_cannot_be_aligned_are_refused() -> None:
    volume, plane = brain(SHAPE), brain((80, 84))
    flat = replace(plane, data=np.ones(plane.grid.shape, np.float32))
    outside = replace(plane, data=(plane.data == 0).astype(np.float32))
    with pytest.raises(InputError, match="the moving image is constant; expected"):
        align(plane, flat)
    with pytest.raises(InputError, match="the fixed image is constant inside its mask"):
        align(plane, plane, fixed_mask=outside)
    with pytest.raises(InputError, match="is 2-D while the fixed image is 3-D"):
        align(volume, plane)
    thin = Image(volume.data[:, :, :3], Grid((38, 40, 3), volume.grid.affine))
    with pytest.raises(InputError, match="38x40x3 voxels; expected at least 4"):
        align(volume, thin)


def doubled(image: Image, mask: bool) -> Working:
    """In float64, so that differences of the penalty can be trusted."""
    x = torch.from_numpy(image.data.astype(np.float64) / float(image.data.max()))
    weight = torch.linspace(0.2, 1.0, x.numel(), dtype=torch.float64).view_as(x)
    return Working(x[None, None], weight[None, None] if mask else None, image.grid, 2.0)


def level(shape: tuple[int, ...], penalty: str, masks: bool) -> tuple[Samples, Pose]:
    fixed, moving = (doubled(brain(shape, role), masks) for role in ("fixed", "moving"))
    frame = Frame.of(fixed.grid, fixed.centre())
    generator = np.random.default_rng(5)
    d = len(shape)
    pose = Pose(np.eye(d) + 0.1 * generator.standard_normal((d, d)), 5 * generator.standard_normal(d))
    return Samples.between(fixed, moving, frame, penalty, 1000), pose


@pytest.mark.parametrize("shape", [SHAPE, (80, 84)])
@pytest.mark.parametrize("penalty", ["correlation", "mutual"])
def test_the_gradient_is_that_of_the_penalty(shape: tuple[int, ...], penalty: str) -> None:
    """Seen through autograd, with the weights (who is seen) held as they are."""
    samples, pose = level(shape, penalty, masks=True)
    entries = torch.from_numpy(np.column_stack([pose.linear, pose.shift])).requires_grad_()
    to_voxel = torch.from_numpy(samples.to_voxel)
    where = to_voxel[:, :-1] @ (entries @ samples.points) + to_voxel[:, -1:]
    w = read(samples.moving.image, where)[None, None]
    weight = samples._weight(where.detach())[None, None]
    fixed = samples.fixed[None, None]
    if penalty == "correlation":
        energy = GlobalCorrelation(fixed)
    else:
        energy = MutualInformation.between(fixed, samples.moving.image, bins=samples.bins)
    expected, force = energy.value_and_gradient(w.detach(), weight)
    (w * force).sum().backward()
    value, gradient, curvature = samples.equations(pose)
    assert value == pytest.approx(float(expected), abs=1e-12)
    assert samples.values([pose])[0] == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(gradient, entries.grad.flatten(), rtol=1e-8, atol=1e-12)
    assert np.linalg.eigvalsh(curvature).min() > 0


def test_the_gradient_is_the_difference_quotient() -> None:
    samples, pose = level((80, 84), "correlation", masks=False)
    samples = replace(samples, points=0.7 * samples.points)  # all seen, so that the weights do not change
    samples.points[-1] = 1
    _, gradient, _ = samples.equations(pose)
    entries = np.column_stack([pose.linear, pose.shift])
    for index, slope in enumerate(gradient):
        step = np.zeros(entries.size)
        step[index] = 1e-7
        there, back = (entries + sign * step.reshape(entries.shape) for sign in (1, -1))
        values = samples.values([Pose(e[:, :-1], e[:, -1]) for e in (there, back)])
        assert (values[0] - values[1]) / 2e-7 == pytest.approx(slope, rel=1e-4, abs=1e-8)


def test_the_curvature_of_the_correlation_is_gauss_newton() -> None:
    samples, pose = level((80, 84), "correlation", masks=True)
    where = samples._positions(pose)
    w, slope = read_with_slope(samples.moving.image, where)
    share = samples._weight(where) / samples._weight(where).sum()
    slope = torch.from_numpy(samples.to_voxel[:, :-1]).T @ slope
    jacobian = (slope[:, None] * samples.points).flatten(0, 1)

    def scaled(w: torch.Tensor) -> torch.Tensor:
        centred = w - (share * w).sum()
        return share.sqrt() * centred / (share * centred**2).sum().sqrt()

    change = torch.autograd.functional.jacobian(scaled, w) @ jacobian.T
    np.testing.assert_allclose(samples.equations(pose)[2], change.T @ change, rtol=1e-8, atol=1e-12)


def test_what_is_hardly_seen_is_unrelated() -> None:
    for penalty, value in (("correlation", 1.0), ("mutual", 0.0)):
        samples, _ = level((80, 84), penalty, masks=False)
        away = Pose(np.eye(2), np.array([130.0, 0.0]))  # of 154 mm
        assert samples.values([away]) == [value]
        assert samples.equations(away)[0] == value
        stuck = refine(samples, Candidate(away, np.inf, "far"), "affine", 5)
        np.testing.assert_array_equal(stuck.pose.shift, away.shift)
        inside = Pose(np.zeros((2, 2)), np.zeros(2))  # all points in one place: no contrast
        assert samples.values([inside]) == [value]


@pytest.mark.parametrize("shape", [(7, 9), (5, 7, 6)])
def test_reading_with_slope_is_the_interpolant_and_its_derivative(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(1, 1, *shape, generator=generator, dtype=torch.float64)
    where = torch.rand(len(shape), 50, generator=generator, dtype=torch.float64)
    where = (where * (torch.tensor(shape)[:, None] - 1)).requires_grad_()
    expected = sample(image, where.view(1, len(shape), 50, *[1] * (len(shape) - 1)))
    (slope,) = torch.autograd.grad(expected.sum(), where)
    value, found = read_with_slope(image, where.detach())
    torch.testing.assert_close(value, expected.detach().flatten())
    torch.testing.assert_close(found, slope)
    corners = torch.tensor([[0, n - 1] for n in shape], dtype=torch.float64)
    torch.testing.assert_close(read_with_slope(image, corners)[0], image.flatten()[[0, -1]])


def test_the_exponential_is_that_of_matrices() -> None:
    generator = np.random.default_rng(0)
    for size, d in ((1e-9, 2), (0.1, 3), (3.0, 3)):
        matrix = size * generator.standard_normal((d, d))
        expected = torch.linalg.matrix_exp(torch.from_numpy(matrix)).numpy()
        np.testing.assert_allclose(exponential(matrix), expected, rtol=1e-12)
    np.testing.assert_array_equal(exponential(np.zeros((3, 3))), np.eye(3))


@pytest.mark.parametrize("d", [2, 3])
def test_scattered_points_fill_the_box_evenly(d: int) -> None:
    points = scattered(4096, d)
    assert points.shape == (d, 4096)
    assert 0 <= points.min() < points.max() < 1
    counts = np.histogramdd(points.T, bins=[4] * d, range=[(0, 1)] * d)[0]
    expected = 4096 / 4**d
    assert np.abs(counts - expected).max() < 0.25 * expected  # random points: up to 3 of sqrt(64) = 0.4


def test_a_thinned_image_lies_where_the_image_lay() -> None:
    image = brain((80, 84))
    whole = Working.of(image, None, torch.device("cpu"))
    assert float(whole.image.min()) == 0
    assert float(whole.image.max()) == 1
    coarse = whole.at(4.0).at(8.0)
    assert coarse.image.shape[2:] == coarse.grid.shape
    np.testing.assert_allclose(coarse.centre(), whole.centre(), atol=0.3)
    direct = whole.at(8.0)
    np.testing.assert_allclose(direct.grid.spacing, coarse.grid.spacing, rtol=0.3)
    assert abs(float(direct.image.mean()) - float(whole.image.mean())) < 0.02


@pytest.mark.parametrize("points", [1, 1024, 20_000])
def test_products_have_the_same_bits_for_any_number_of_threads(points: int) -> None:
    x = torch.randn((15, points), generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(_products(x, x[:2]))
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(one, found[0]) for one in found)
    np.testing.assert_allclose(found[0], (x.double() @ x[:2].double().T).numpy(), rtol=1e-5, atol=1e-3)
