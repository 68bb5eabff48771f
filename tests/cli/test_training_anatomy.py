"""`pirate train anatomy`: from a data folder to weights that `register` takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.conftest import blobs, labels_of

import pirate
from pirate.cli import training_anatomy
from pirate.cli.listing import figures
from pirate.cli.training_anatomy import TRACKS, WEIGHTS, Request, Track, run
from pirate.data.subjects import Subject
from pirate.denoisers.learned import load_denoiser
from pirate.denoisers.planes import AS_TRAINED, PlaneCorrector
from pirate.errors import InputError, UsageError
from pirate.registration.correction import corrector_in
from pirate.training.solver_states import Solver, State

SMALL = Request(Path(), "oasis2d", Path(), 2, 0.0, 3, 2, 4, 2, 1e-3, 0, False, 1, True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six generated slices, four to learn from and two of the validation split."""
    images = np.stack([blobs((40, 36), 0, (0.4 * k, 0.3 * k)) for k in range(6)])
    np.savez(
        tmp_path / "oasis2d.npz",
        ids=np.array([f"s{k}" for k in range(6)]),
        split=np.array(["train"] * 4 + ["validation"] * 2),
        norm=(images / images.max() * 255).astype(np.uint8),
        seg24=np.stack([labels_of(i) for i in images]).astype(np.uint8),
    )
    small = dataclasses.replace(TRACKS["oasis2d"], checks=2, depth=2)
    monkeypatch.setitem(training_anatomy.TRACKS, "oasis2d", small)
    return tmp_path


def request(folder: Path, **changes: object) -> Request:
    return dataclasses.replace(SMALL, **{"data": folder, "out": folder / "out"} | changes)  # type: ignore[arg-type]


def test_weights_with_a_card(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(request(folder))
    found = load_denoiser(folder / "out" / WEIGHTS, 2)
    assert corrector_in(found) is found.network
    assert found.card.labels_used
    assert "supervised" in found.card.task
    assert "2 training subjects" in found.card.training_data
    assert found.card.metrics["steps"] == 2
    assert any("Dice of held-out pairs" in line for line in figures(found.card))
    assert found.card.resolution == 1
    assert (folder / "out" / "curves.png").is_file()
    assert "supervised" in capsys.readouterr().out


def test_a_second_call_goes_on(folder: Path) -> None:
    """A finished training that is repeated changes nothing; under other constants it is refused."""
    run(request(folder))
    whole = (folder / "out" / "checkpoint.safetensors").read_bytes()
    run(request(folder))
    assert (folder / "out" / "checkpoint.safetensors").read_bytes() == whole
    with pytest.raises(InputError, match="pairs"):
        run(request(folder, pairs=4))


def test_refusals(folder: Path) -> None:
    with pytest.raises(UsageError, match="expected one of oasis2d"):
        run(request(folder, track="knees"))
    with pytest.raises(InputError, match="Change --held-out"):
        run(request(folder, held_out=3))
    with pytest.raises(InputError, match="Change --held-out"):
        run(request(folder, held_out=1))


def test_no_subject_need_be_held_out(folder: Path) -> None:
    run(request(folder, held_out=0))
    assert "4 training subjects" in load_denoiser(folder / "out" / WEIGHTS, 2).card.training_data


def write_volumes(root: Path, axes: np.ndarray) -> None:
    """Four small labelled volumes for training beside the slices, their arrays along the columns of `axes`."""
    lines = ["id,split,labels"]
    for k in range(4):
        image = blobs((40, 36, 34), 0, (0.4 * k, 0.3 * k, -0.2 * k))
        affine = np.eye(4)
        affine[:3, :3] = axes
        folder = root / "brain3d" / f"oasis_{k}"
        folder.mkdir(parents=True)
        for name, data in (("norm", image / image.max() * 255), ("seg35", labels_of(image))):
            nib.save(nib.Nifti1Image(data.astype(np.uint8), affine), folder / f"{name}.nii.gz")
        lines.append(f"oasis_{k},train,seg35")
    (root / "brain3d" / "subjects.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def brains(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_volumes(folder, AS_TRAINED)
    small = dataclasses.replace(TRACKS["brain3d"], checks=2, depth=2, slices=3)
    monkeypatch.setitem(training_anatomy.TRACKS, "brain3d", small)
    monkeypatch.setattr(training_anatomy, "LABELLED", 100)
    return folder


def test_brains_learn_from_planes_and_slices(brains: Path) -> None:
    """From the slices' weights to a prior for volumes, which `register` takes."""
    run(request(brains))
    start = brains / "out" / WEIGHTS
    run(request(brains, track="brain3d", out=brains / "whole", start=start))
    found = load_denoiser(brains / "whole" / WEIGHTS, 3)
    assert isinstance(corrector_in(found), PlaneCorrector)
    assert found.card.labels_used
    assert found.card.resolution == 1
    words = found.card.training_data
    assert "3 pairs of 2 training subjects" in words
    assert "coronal planes, and 3 pairs of slices" in words
    assert "it started from weights trained on oasis2d: 3 pairs" in words
    pair = [(blobs((30, 32, 28), 0, shift), np.eye(4)) for shift in ((0, 0, 0), (1, 1, 0))]
    result = pirate.register(*pair, prior=str(brains / "whole" / WEIGHTS), affine="none")
    assert result.metrics["folds_percent"] == 0


def test_a_start_is_taken_over(brains: Path) -> None:
    run(request(brains))
    start = brains / "out" / WEIGHTS
    still = request(brains, track="brain3d", out=brains / "still", start=start, learning_rate=1e-12)
    run(still)
    given = corrector_in(load_denoiser(start, 2))
    found = corrector_in(load_denoiser(brains / "still" / WEIGHTS, 3))
    assert isinstance(found, PlaneCorrector)
    assert given is not None
    for name, weight in found.within.state_dict().items():
        torch.testing.assert_close(weight, given.state_dict()[name], rtol=0, atol=1e-6)
    with pytest.raises(InputError, match="start"):
        run(dataclasses.replace(still, start=None))


def test_another_training_set_is_another_training(brains: Path) -> None:
    run(request(brains, track="brain3d"))
    (brains / "oasis2d.npz").unlink()
    with pytest.raises(InputError, match="slice_states"):
        run(request(brains, track="brain3d"))


def test_a_held_out_subjects_slice_is_not_learned_from(brains: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices bear their subjects' numbers, volumes end with them."""
    spared: list[set[str]] = []
    people: list[str] = []
    slices, states = training_anatomy._slices, Solver.states

    def watched(request: Request, track: Track, numbers: set[str]) -> list[State]:
        spared.append(set(numbers))
        return slices(request, track, {f"s{n}" for n in numbers})  # the slices are called s0, s1, ... here

    def listed(self: Solver, subjects: list[Subject], *rest: Any) -> Iterator[State]:
        people[:] = [s.name for s in subjects]
        return states(self, subjects, *rest)

    monkeypatch.setattr(training_anatomy, "_slices", watched)
    monkeypatch.setattr(Solver, "states", listed)
    run(request(brains, track="brain3d"))
    assert len(spared[0]) == 2
    assert people == [f"s{k}" for k in range(4) if str(k) not in spared[0]]
    run(request(brains, track="brain3d", held_out=0, out=brains / "all"))
    assert spared[1] == set()
    assert people == ["s0", "s1", "s2", "s3"]


def test_volumes_without_a_plane_to_learn_from(brains: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_anatomy, "LABELLED", 10**6)
    with pytest.raises(InputError, match="no coronal plane has"):
        run(request(brains, track="brain3d"))


def test_volumes_without_slices(brains: Path) -> None:
    (brains / "oasis2d.npz").unlink()
    run(request(brains, track="brain3d", held_out=0))
    card = load_denoiser(brains / "out" / WEIGHTS, 3).card
    assert "slices" not in card.training_data
    assert any("Dice of training pairs (nobody was held out)" in line for line in figures(card))


def test_brains_that_lie_otherwise_are_refused(folder: Path) -> None:
    write_volumes(folder, np.eye(3))
    with pytest.raises(InputError, match="Turn the volume"):
        run(request(folder, track="brain3d"))


def test_a_start_of_another_size_is_refused(folder: Path) -> None:
    run(request(folder))
    with pytest.raises(InputError, match="leave --start out"):
        run(request(folder, out=folder / "other", width=6, start=folder / "out" / WEIGHTS))
