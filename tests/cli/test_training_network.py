"""``pirate train voxelmorph``, ``symnet`` and ``gradirn`` on generated slices, from images to weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import blobs

from pirate.baselines.trained import load_network
from pirate.cli import training_network
from pirate.cli.training_network import Request, run, weights_name
from pirate.errors import InputError, UsageError
from pirate.training.loop import CHECKPOINT, HISTORY, Observer


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


def watched(monkeypatch: pytest.MonkeyPatch, last: int | None = None) -> list[int]:
    """The steps that trainings make from now on; they are asked to stop after step `last`."""
    seen: list[int] = []

    def watch(quiet: bool, name: str) -> Observer:
        return lambda progress: seen.append(progress.step) or progress.step == last  # type: ignore[func-returns-value]

    monkeypatch.setattr(training_network, "Watch", watch)
    return seen


def test_a_training_that_was_cut_ends_with_the_bytes_of_one_that_was_not(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights that it writes, and all that its checkpoint holds: last and best weights, moments, losses."""
    whole = dataclasses.replace(request_of, steps=4, learning_rate=1e-3)
    cut = dataclasses.replace(whole, out=whole.out.with_name("cut"))
    made = watched(monkeypatch)
    run(whole)
    assert made == [1, 2, 3, 4]
    made = watched(monkeypatch, 1)
    run(cut)
    early = load_file(cut.out / CHECKPOINT)
    assert made == [1]
    with pytest.raises(InputError, match="seed"):
        run(dataclasses.replace(cut, seed=1))
    made = watched(monkeypatch)
    run(cut)
    assert made == [2, 3, 4]
    for name in (CHECKPOINT, weights_name("voxelmorph")):
        first, second = (load_file(folder / name) for folder in (whole.out, cut.out))
        assert list(first) == list(second)
        assert [k for k in first if first[k].numpy().tobytes() != second[k].numpy().tobytes()] == []
    late = load_file(cut.out / CHECKPOINT)
    assert all(not torch.equal(early[k], late[k]) for k in late if k.startswith("weights/"))


def test_a_training_that_is_over_is_not_repeated_and_another_one_is_refused(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request_of)
    made = watched(monkeypatch)
    run(request_of)
    assert made == []
    with pytest.raises(InputError, match="checkpoint"):
        run(dataclasses.replace(request_of, displacement=True))


def test_patience_ends_a_training_that_learns_nothing(
    request_of: Request, pirate_command: Callable[..., tuple[int, str, str]]
) -> None:
    """With so small a rate no weight changes: no validation is better than the one before the first step."""
    for patience, steps in ((3, 6), (0, 10)):
        out = request_of.out.with_name(f"patience{patience}")
        code, _, heard = pirate_command(
            "train", "voxelmorph", "--data", request_of.data, "--track", "oasis2d", "--out", out, "--held-out", "0.3",
            "--checks", "1", "--learning-rate", "1e-30", "--steps", "10", "--validate-every", "2", "--batch", "1",
            "--threads", "1", "--patience", str(patience),
        )  # fmt: skip
        assert code == 0, heard
        assert ("the validation loss came to no new low for too long" in heard) == (patience > 0)
        rows = (out / HISTORY).read_text().splitlines()[1:]
        assert [int(row.split(",")[0]) for row in rows] == list(range(0, steps + 1, 2))
        metrics = load_network(out / weights_name("voxelmorph"), 2, "voxelmorph").card.metrics
        assert (metrics["steps"], metrics["best_step"]) == (steps, 0)


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
