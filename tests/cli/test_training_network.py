"""``pirate train voxelmorph``, ``symnet`` and ``gradirn`` on generated slices, from images to weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs

from pirate.baselines.trained import load_network
from pirate.cli import training_network
from pirate.cli.training_network import Request, run, weights_name
from pirate.errors import InputError, UsageError


@pytest.fixture
def request_of(tmp_path: Path) -> Request:
    """Two steps on nine slices of 24 x 28."""
    moved = [blobs((24, 28), seed=1, shift=(0.4 * i, -0.3 * i)) for i in range(9)]
    norm = np.stack([255 * image / image.max() for image in moved]).astype(np.uint8)
    labels = (norm > 128).astype(np.uint8)
    ids, split = np.array([f"s{i}" for i in range(9)]), np.array(["train"] * 8 + ["validation"])
    np.savez_compressed(tmp_path / "oasis2d.npz", ids=ids, split=split, norm=norm, seg24=labels, seg4=labels)
    return Request(
        method="voxelmorph", data=tmp_path, track="oasis2d", out=tmp_path / "out", schedule="reduced", similarity="",
        displacement=False, resolution=None, affine=None, steps=2, batch=1, learning_rate=None, held_out=0.3, checks=2,
        validate_every=1, patience=None, precision="single", minutes=0.0, seed=0, tensorboard=False, threads=1,
        quiet=True,
    )  # fmt: skip


@pytest.mark.parametrize("method", ["voxelmorph", "symnet", "gradirn"])
def test_weights_come_out_with_their_card(
    request_of: Request, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(dataclasses.replace(request_of, method=method, affine="rigid", resolution=2))
    said = capsys.readouterr().out
    assert "held-out pairs: loss" in said
    assert "dice" in said
    assert (request_of.out / "curves.png").stat().st_size > 1000
    loaded = load_network(request_of.out / weights_name(method), 2, method)
    card = loaded.card
    assert card.training_data == "6 subjects (oasis2d, train), pose: rigid, without labels"
    assert (card.resolution, card.labels_used, card.metrics["schedule"]) == (2, False, "reduced")
    assert card.metrics["loss_after"] <= card.metrics["loss_before"]
    assert 0 < card.metrics["dice_after"] <= 1
    image = torch.from_numpy(blobs((24, 28)))[None, None]
    assert loaded.field(image, image.flip(2)).shape == (1, 2, 24, 28)


def test_a_repeated_command_goes_on_and_another_one_is_refused(request_of: Request) -> None:
    run(request_of)
    first = (request_of.out / "voxelmorph.safetensors").read_bytes()
    run(request_of)
    assert len(first) == len((request_of.out / "voxelmorph.safetensors").read_bytes())
    with pytest.raises(InputError, match="checkpoint"):
        run(dataclasses.replace(request_of, displacement=True))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"method": "moon"}, "train moon: expected one of voxelmorph"),
        ({"track": "moon"}, "--track moon: expected one of oasis2d"),
        ({"schedule": "x"}, "--schedule x: expected one of authors, reduced"),
        ({"held_out": 1.0}, "share between 0 and 1"),
        ({"resolution": 3}, "--resolution 3: expected one of 1, 2"),
        ({"affine": "bent"}, "--affine bent: expected one of none"),
        ({"method": "symnet", "similarity": "mse"}, "there is no symnet with mse"),
    ],
)
def test_what_makes_no_sense_is_refused(request_of: Request, changes: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        run(dataclasses.replace(request_of, **changes))  # type: ignore[arg-type]


def test_too_few_subjects_are_refused(request_of: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    few = training_network.data.oasis2d(request_of.data, split="train")[:3]
    monkeypatch.setattr(training_network.data, "oasis2d", lambda root, split: few)
    with pytest.raises(InputError, match="3 training subjects, none of them held out"):
        run(request_of)
