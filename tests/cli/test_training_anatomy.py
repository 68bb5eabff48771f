"""`pirate train anatomy`: from a data folder to weights that `register` takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import blobs, labels_of

from pirate.cli import training_anatomy
from pirate.cli.training_anatomy import TRACKS, WEIGHTS, Request, run
from pirate.denoisers.learned import load_denoiser
from pirate.errors import InputError, UsageError
from pirate.registration.correction import corrector_in

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
    return dataclasses.replace(SMALL, data=folder, out=folder / "out", **changes)  # type: ignore[arg-type]


def test_weights_with_a_card(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(request(folder))
    found = load_denoiser(folder / "out" / WEIGHTS, 2)
    assert corrector_in(found) is found.network
    assert found.card.labels_used
    assert "supervised" in found.card.task
    assert "2 training subjects" in found.card.training_data
    assert found.card.metrics["steps"] == 2
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
