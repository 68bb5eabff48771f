"""The gate of the anatomy-aware prior: what it lets through, and what it does not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs
from tests.registration.test_pyramid import pair, settings
from torch import Tensor

from pirate.denoisers import zoo
from pirate.denoisers.corrector import Corrector
from pirate.denoisers.planes import AS_TRAINED, PlaneCorrector, coronal
from pirate.errors import UsageError
from pirate.grid import Grid
from pirate.image import Image
from pirate.io.weights import Card, save_weights
from pirate.ops.compose import compose
from pirate.ops.jacobian import mark_folds
from pirate.ops.repair import repair
from pirate.ops.smooth import gaussian
from pirate.registration import correction, pyramid
from pirate.registration.correction import Correction, corrector_in, fitted, grid_for
from pirate.registration.register import register

SHAPES = [(44, 48), (34, 36, 32)]


class Made(Corrector):
    """A corrector whose correction is given."""

    def __init__(self, r: Tensor, spacing: float = 0.0) -> None:
        super().__init__(r.shape[1], width=1, depth=1, spacing=spacing)
        self.r = r
        self.calls = 0

    def correction(self, field: Tensor, fixed: Tensor, warped: Tensor) -> Tensor:
        self.calls += 1
        return self.r.expand(field.shape) if self.r.shape != field.shape else self.r


def wave(shape: tuple[int, ...], sigma: float, size: float) -> Tensor:
    noise = torch.randn(1, len(shape), *shape, generator=torch.Generator().manual_seed(5))
    smooth = gaussian(noise, sigma)
    return smooth * (size / smooth.abs().max())


def solved(shape: tuple[int, ...], corrector: Corrector | None = None) -> tuple[list[pyramid.Stage], Tensor]:
    chosen = settings()
    stages = pyramid.stages(pair(shape), chosen)
    return stages, pyramid.solve(stages, chosen, corrector).field


@pytest.mark.parametrize("shape", SHAPES)
def test_a_good_correction_is_kept(shape: tuple[int, ...]) -> None:
    """One that undoes a known error: the data term falls, and the whole of it is composed."""
    stages, field = solved(shape)
    error = wave(shape, 5.0, 0.6)
    wrong = compose(field, error)
    step = Correction.of(Made(error), stages, settings())
    found, (outcome,) = step(wrong, calls=1)
    assert outcome.scale == 1.0
    assert outcome.data[1] < outcome.data[0]
    assert "kept" in outcome.remark
    torch.testing.assert_close(found, compose(wrong, -error), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_one_that_folds_is_dropped(shape: tuple[int, ...]) -> None:
    stages, field = solved(shape)
    bad = Made(wave(shape, 0.5, 2.5))
    found, (outcome,) = Correction.of(bad, stages, settings())(field, calls=2)
    assert outcome.scale == 0.0
    assert outcome.folds[1] > outcome.folds[0]
    assert torch.equal(found, field)
    assert bad.calls == 1  # a call that is dropped is the last
    assert "dropped" in outcome.remark


def test_a_few_folds_may_be_made() -> None:
    """A correction that folds a handful of voxels is kept; a registration mends them when it is finished."""
    shape = (34, 36, 32)
    stages, field = solved(shape)
    spike = torch.zeros_like(field)
    spike[0, 0, 2:4, 3, 3] = 2.4
    found, (outcome,) = Correction.of(Made(spike), stages, settings())(field, calls=1)
    assert outcome.scale == 1.0
    assert outcome.folds[0] < outcome.folds[1] <= 0.002 * 34 * 36 * 32
    assert "(they are mended)" in outcome.remark
    mended = repair(found)
    assert mended.repaired
    assert mended.changed_voxels > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_one_that_worsens_the_data_term_is_dropped(shape: tuple[int, ...]) -> None:
    stages, field = solved(shape)
    found, (outcome,) = Correction.of(Made(wave(shape, 8.0, 6.0)), stages, settings())(field, calls=1)
    assert outcome.scale == 0.0
    assert outcome.data[1] > outcome.data[0]
    assert torch.equal(found, field)


def test_half_of_a_correction_may_be_right() -> None:
    stages, field = solved((44, 48))
    error = wave((44, 48), 5.0, 0.8)
    wrong = compose(field, error)
    found, (outcome,) = Correction.of(Made(3.4 * error), stages, settings())(wrong, calls=1)
    assert outcome.scale == 0.5
    torch.testing.assert_close(found, compose(wrong, -1.7 * error), rtol=0, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e6])
def test_numbers_that_are_none_are_dropped(bad: float) -> None:
    stages, field = solved((44, 48))
    r = torch.full_like(field, bad)
    found, (outcome,) = Correction.of(Made(r), stages, settings())(field, calls=1)
    assert outcome.scale == 0.0
    assert torch.equal(found, field)


def test_images_that_agree_stay_as_they_are() -> None:
    images = pair((44, 48))
    same = type(images)(images.fixed, images.fixed, None, None, images.spacing)
    chosen = settings(intensity=10.0)
    stages = pyramid.stages(same, chosen)
    still = torch.zeros(1, 2, 44, 48)
    found, (outcome,) = Correction.of(Made(wave((44, 48), 4.0, 1.0)), stages, chosen)(still, calls=1)
    assert outcome.scale == 0.0, outcome
    assert torch.equal(found, still)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_solver_calls_it_at_the_end_only(shape: tuple[int, ...]) -> None:
    """As often as `CALLS` says, never every so many steps; an untrained one changes nothing."""
    _, plain = solved(shape)
    zero = Made(torch.zeros_like(plain))
    _, field = solved(shape, zero)
    assert zero.calls == correction.CALLS
    torch.testing.assert_close(field, plain, rtol=0, atol=1e-5)
    assert mark_folds(field)[0] <= mark_folds(plain)[0]


def test_a_coarse_corrector_acts_on_its_own_grid() -> None:
    """At 2 mm, on images of 1 mm, it sees half the voxels; what it says is brought to the fine grid."""
    shape = (44, 48)
    stages, field = solved(shape)
    seen: list[tuple[int, ...]] = []

    class Looks(Corrector):
        def correction(self, field: Tensor, fixed: Tensor, warped: Tensor) -> Tensor:
            seen.extend(tuple(x.shape[2:]) for x in (field, fixed, warped))
            return torch.full_like(field, 0.01)

    found, (outcome,) = Correction.of(Looks(2, width=1, depth=1, spacing=2.0), stages, settings())(field, 1)
    assert seen == [(22, 24)] * 3
    assert outcome.scale == 1.0
    shift = torch.tensor([0.01 * 43 / 21, 0.01 * 47 / 23]).view(1, 2, 1, 1)
    torch.testing.assert_close(
        found, compose(field, (-shift).expand_as(field).contiguous()), rtol=0, atol=1e-5
    )


def test_which_grid() -> None:
    stages = pyramid.stages(pair((44, 48)), settings())
    assert [s.images.shape for s in stages] == [(22, 24), (44, 48)]
    assert grid_for(stages, 0.0)[1].shape == (44, 48)
    assert grid_for(stages, 1.0)[1].shape == (44, 48)
    assert grid_for(stages, 2.0)[1].shape == (22, 24)
    level, images = grid_for(stages, 4.0)
    assert images.shape == (11, 12)
    assert level.shrink == 2


def test_only_a_corrector_is_one() -> None:
    network = Corrector(2, width=1, depth=1)

    class Holder:
        def __init__(self) -> None:
            self.network = network

    assert corrector_in(network) is network
    assert corrector_in(Holder()) is network  # type: ignore[arg-type]
    assert corrector_in(None) is None
    assert corrector_in(lambda field, sigma: field) is None


def test_a_corrector_of_planes_faces_the_grid() -> None:
    """`register` turns it to how the fixed image's array lies in the world; any other denoiser stays as it is."""
    network = PlaneCorrector(3, 4, 2)
    straight = Grid((8, 9, 10), np.diag([1.0, 1.0, 1.0, 1.0]))
    turned = corrector_in(fitted(network, straight))
    assert isinstance(turned, PlaneCorrector)
    assert turned.view == coronal(np.eye(3)) != network.view
    assert turned.within is network.within
    other = Corrector(3, 4, 2)
    assert fitted(other, straight) is other
    assert fitted(None, straight) is None


def test_of_large_volumes_the_data_term_is_judged_on_a_coarser_level(monkeypatch: pytest.MonkeyPatch) -> None:
    stages, field = solved((34, 36, 32))
    error = wave((34, 36, 32), 5.0, 0.6)
    assert Correction.of(Made(error), stages, settings()).judged is stages[-1].images
    monkeypatch.setattr(correction, "LARGE", 1000)
    step = Correction.of(Made(error), stages, settings())
    assert step.judged is stages[-2].images
    wrong = compose(field, error)
    found, (outcome,) = step(wrong, calls=1)
    assert outcome.scale == 1.0
    assert outcome.data[1] < outcome.data[0]
    torch.testing.assert_close(found, compose(wrong, -error), rtol=0, atol=1e-6)


def test_a_prior_for_finer_voxels_is_refused() -> None:
    """What it learned in voxels would be too long in mm; planes may lie further apart, though."""
    planes, whole = PlaneCorrector(3, 4, 2), Corrector(3, 4, 2, spacing=1.0)
    thick = Grid((8, 9, 10), np.diag([1.0, 5.0, 1.0, 1.0]))  # RAS: coronal slices of 5 mm
    assert fitted(planes, thick) is not None
    for network, spacing in ((planes, (1.0, 1.0, 5.0)), (planes, (2.0, 2.0, 2.0)), (whole, (1.0, 5.0, 1.0))):
        with pytest.raises(UsageError, match="Leave --prior out"):
            fitted(network, Grid((8, 9, 10), np.diag([*spacing, 1.0])))
    assert fitted(whole, Grid((8, 9, 10), np.diag([0.5, 0.7, 1.4, 1.0]))) is whole


def test_planes_further_apart_are_seen_more_often() -> None:
    network = PlaneCorrector(3, 4, 2, every=3)
    thin = pyramid.stages(pair((34, 36, 32)), settings())
    assert Correction.of(network, thin, settings()).corrector.every == 3  # type: ignore[union-attr]
    thick = [
        dataclasses.replace(s, images=dataclasses.replace(s.images, spacing=(1.0, 1.0, 3.0))) for s in thin
    ]
    assert Correction.of(network, thick, settings()).corrector.every == 1  # type: ignore[union-attr]


def test_a_volume_is_corrected_alike_however_its_array_runs(tmp_path: Path) -> None:
    """From a weight file through `register`: the same pair as left-down-front and as right-front-up arrays."""
    file = written(PlaneCorrector(3, 4, 2, every=1), 3, tmp_path / "anatomy.safetensors")
    images = [blobs((30, 34, 28), 0, shift) for shift in ((0.0, 0.0, 0.0), (0.4, -0.5, 0.3))]
    to_ras = (
        slice(None, None, -1),
        slice(None),
        slice(None, None, -1),
    )  # after the axes are in order: L I A -> R A S
    turned = [np.ascontiguousarray(i.transpose(0, 2, 1)[to_ras]) for i in images]
    lia, ras = np.eye(4), np.eye(4)
    lia[:3, :3] = AS_TRAINED
    calm = {"iterations": [2, 2, 2]}

    def field(data: list[np.ndarray], affine: np.ndarray, prior: str) -> np.ndarray:
        found = register(
            (data[0], affine), (data[1], affine), prior=prior, affine="none", settings=calm, threads=1
        )
        return found.field

    plain, one, other = (
        field(images, lia, "none"),
        field(images, lia, file),
        field(turned, ras, file),
    )
    back = other[:, ::-1, :, ::-1].transpose(0, 1, 3, 2)  # R A S -> L I A, then the components likewise
    back = np.stack([-back[0], -back[2], back[1]])
    assert np.abs(one - plain).max() > 0.1  # it has acted
    np.testing.assert_allclose(back, one, rtol=0, atol=2e-3)


def written(network: torch.nn.Module, ndim: int, file: Path) -> str:
    """A weight file of a corrector that moves by 0.4 voxels along the first axis, and a little at random."""
    torch.manual_seed(4)
    inner = network.within if isinstance(network, PlaneCorrector) else network
    torch.nn.init.normal_(inner.outlet.weight, std=0.02)  # type: ignore[union-attr, arg-type]
    torch.nn.init.constant_(inner.outlet.bias[:4], 0.4)  # type: ignore[union-attr, index]
    card = Card("made", network.architecture(), ndim, 0.0, 1.0, 1, "nothing", True, "2026-11-18", {}, "0")  # type: ignore[operator]
    save_weights(file, network.state_dict(), card)
    return str(file)


def slices(axes: np.ndarray, turn: Callable[[np.ndarray], np.ndarray]) -> list[Image]:
    """A pair of slices of volumes whose planes lie along `axes`, (3, 3), RAS mm, as `turn` puts them into the array."""
    affine = np.eye(4)
    affine[:3, :3] = axes
    images = [turn(blobs((40, 36), 0, shift)) for shift in ((0.0, 0.0), (0.4, -0.5))]
    return [Image(np.ascontiguousarray(i), Grid(i.shape, affine, slice_axis=2), "slice") for i in images]


def test_a_slice_is_corrected_alike_however_its_array_runs(tmp_path: Path) -> None:
    """The same coronal slice as left-down and as up-right array; one that is not coronal is refused."""
    file = written(Corrector(2, 4, 2, spacing=1.0), 2, tmp_path / "anatomy.safetensors")
    up_right = np.stack([-AS_TRAINED[:, 1], -AS_TRAINED[:, 0], AS_TRAINED[:, 2]], 1)

    def field(pair: list[Image], prior: str) -> np.ndarray:
        calm = {"iterations": [2, 2, 2]}
        return register(*pair, prior=prior, affine="none", settings=calm, threads=1).field

    as_trained = slices(AS_TRAINED, lambda x: x)
    turned = slices(up_right, lambda x: x[::-1, ::-1].T)
    one, other = field(as_trained, file), field(turned, file)
    back = -other[::-1].transpose(0, 2, 1)[:, ::-1, ::-1]
    assert np.abs(one - field(as_trained, "none")).max() > 0.1  # it has acted
    np.testing.assert_allclose(back, one, rtol=0, atol=2e-3)
    axial = slices(np.array([[-1.0, 0, 0], [0, 1, 0], [0, 0, 1]]), lambda x: x)
    with pytest.raises(UsageError, match="has learned coronal ones"):
        field(axial, file)


def test_what_the_prior_did_is_told(tmp_path: Path) -> None:
    file = written(Corrector(2, 4, 2, spacing=1.0), 2, tmp_path / "anatomy.safetensors")
    pair_ = slices(AS_TRAINED, lambda x: x)
    result = register(*pair_, prior=file, affine="none", threads=1)
    assert any(note.startswith("the anatomy-aware prior's correction is") for note in result.notes)
    late = register(*pair_, prior=file, affine="none", budget=1e-6, threads=1)
    assert any("was not called" in note for note in late.notes)
    with pytest.raises(UsageError, match="tau: no effect with the anatomy-aware prior"):
        register(*pair_, prior=file, affine="none", settings={"tau": 0.5}, threads=1)


def test_the_record_has_the_weights_that_ship(tmp_path: Path) -> None:
    pair_ = slices(AS_TRAINED, lambda x: x)
    for name, preset in (("anatomy", "default"), ("pirate", "paper")):
        result = register(
            *pair_, prior=name, preset=preset, affine="none", threads=1, settings={"iterations": 2}
        )
        result.save(tmp_path / name)
        told = json.loads((tmp_path / name / "run.json").read_text())["prior_sha256"]
        assert told == zoo.find(name, 2, 2 if preset == "paper" else None).sha256
