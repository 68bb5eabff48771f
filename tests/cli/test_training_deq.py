"""``pirate train deq`` on generated slices, from weights to weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs

from pirate.cli import training_deq
from pirate.cli.training_deq import WEIGHTS, Request, run
from pirate.denoisers.dncnn import DnCNN
from pirate.denoisers.learned import load_denoiser
from pirate.errors import InputError, UsageError
from pirate.io.weights import Card, save_weights


@pytest.fixture
def request_of(tmp_path: Path) -> Request:
    """A few steps from random weights on eight slices of 24 x 28."""
    moved = [blobs((24, 28), seed=1, shift=(0.3 * i, -0.2 * i)) for i in range(8)]
    norm = np.stack([255 * image / image.max() for image in moved]).astype(np.uint8)
    labels = (norm > 128).astype(np.uint8)
    ids, split = np.array([f"s{i}" for i in range(8)]), np.array(["train"] * 7 + ["validation"])
    np.savez_compressed(tmp_path / "oasis2d.npz", ids=ids, split=split, norm=norm, seg24=labels, seg4=labels)
    torch.manual_seed(0)
    network = DnCNN(2, depth=2, width=4)
    card = Card(
        "field denoising", network.architecture(), 2, 0.1, 0.4, 2, "random fields", False, "2026-01-01"
    )
    save_weights(tmp_path / "awgn.safetensors", network.state_dict(), card)
    return Request(
        weights=tmp_path / "awgn.safetensors", data=tmp_path, track="oasis2d", out=tmp_path / "out",
        preset="released", mode="jfb", k=5, steps=4, batch=2, learning_rate=1e-3, changes=("iterations=8",),
        loss=("window=5", "folding=2"), learn=("tau",), held_out=0.3, checks=2, validate_every=2, patience=0,
        minutes=0.0, seed=0, tensorboard=False, threads=1, quiet=True,
    )  # fmt: skip


def test_weights_come_out_with_their_card(request_of: Request, capsys: pytest.CaptureFixture[str]) -> None:
    run(request_of)
    said = capsys.readouterr().out
    assert "held-out pairs: loss" in said
    assert "folded voxels" in said
    assert (request_of.out / "curves.png").stat().st_size > 1000
    learned = load_denoiser(request_of.out / WEIGHTS, 2, resolution=2)
    card = learned.card
    assert card.metrics["loss_after"] <= card.metrics["loss_before"]
    assert card.metrics["sigma"] == pytest.approx(0.4)  # 0.5 lies beyond what the weights were trained for
    assert card.metrics["mode"] == "jfb"
    assert card.training_data == "random fields; then 5 subjects (oasis2d, train), without labels"
    assert not card.labels_used
    history = (request_of.out / "history.csv").read_text().splitlines()
    assert {"nfe", "gradient_norm", "residual", "validation_folds_percent", "tau"} <= set(
        history[0].split(",")
    )
    before = load_denoiser(request_of.weights, 2).network.state_dict()
    after = learned.network.state_dict()
    moved = any(not torch.equal(before[name], after[name]) for name in before)
    assert moved == (card.metrics["best_step"] > 0)


def test_a_repeated_command_goes_on_and_another_one_is_refused(request_of: Request) -> None:
    run(request_of)
    first = (request_of.out / WEIGHTS).read_bytes()
    run(request_of)
    assert load_denoiser(request_of.out / WEIGHTS, 2).card.metrics["steps"] == 4
    assert len(first) == len((request_of.out / WEIGHTS).read_bytes())
    with pytest.raises(InputError, match="checkpoint"):
        run(dataclasses.replace(request_of, mode="exact"))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"track": "moon"}, "--track moon: expected one of oasis2d"),
        ({"preset": "x"}, "--preset x: expected one of paper, released"),
        ({"mode": "x"}, "--mode x: expected one of jfb"),
        ({"held_out": 0.0}, "share between 0 and 1"),
        ({"loss": ("nothing=1",)}, "--loss nothing: there is no such constant"),
        ({"loss": ("window=true",)}, "--loss window: expected a value like 21"),
        ({"changes": ("nothing=1",)}, "there is no setting 'nothing'"),
    ],
)
def test_what_makes_no_sense_is_refused(request_of: Request, changes: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        run(dataclasses.replace(request_of, **changes))  # type: ignore[arg-type]


def test_weights_and_subjects_that_do_not_fit_are_refused(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="grids of resolution 2"):
        run(dataclasses.replace(request_of, changes=("resolution=4",)))
    with pytest.raises(InputError, match="none of them held out"):
        run(dataclasses.replace(request_of, held_out=0.1))
    with pytest.raises(InputError, match="denoises 2-D fields"):
        run(dataclasses.replace(request_of, track="hippocampus"))
    monkeypatch.setattr(training_deq.Learned, "wants_images", True)
    with pytest.raises(InputError, match="also looks at the images"):
        run(request_of)
