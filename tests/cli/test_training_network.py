"""``pirate train voxelmorph``, ``symnet`` and ``gradirn`` on generated slices, from images to weights."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import blobs
from tests.data.layout_samples import candi, empire, learn2reg, neurite

from pirate.baselines.trained import load_network
from pirate.cli import training_network
from pirate.cli.training_network import Request, run, weights_name
from pirate.data.reading import People
from pirate.data.training_sets import Member, TrainingSet, public, training_set
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


def small_copies(root: Path) -> Path:
    """Public data sets, each in a folder of its own name."""
    neurite(root / "neurite-oasis", shape=(16, 16, 16))
    neurite(root / "neurite-oasis-2d", plane=True, shape=(24, 28, 1))
    candi(root / "candi")
    empire(root / "empire10")
    table = learn2reg(root / "learn2reg") / "OASIS_dataset.json"
    free = json.loads(table.read_text())
    del free["training_paired_images"]
    table.write_text(json.dumps(free))
    return root


@pytest.mark.parametrize(
    ("kind", "subjects", "pose"),
    [
        ("neurite-oasis-2d", 3, "none"),
        ("neurite-oasis", 3, "none"),
        ("empire10", 2, "affine"),
        ("learn2reg", 2, "affine"),
    ],
)
def test_a_public_data_set_is_learned_from(
    request_of: Request, kind: str, subjects: int, pose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = People.__getitem__
    monkeypatch.setattr(People, "__getitem__", lambda people, name: asked.append(name) or read(people, name))
    folder = small_copies(tmp_path / "sets") / kind
    run(dataclasses.replace(request_of, data=folder, track=kind, resolution=1))
    card = load_network(request_of.out / "voxelmorph.safetensors", 2 if kind.endswith("2d") else 3).card
    assert card.training_data == f"{subjects} subjects ({kind}, train), pose: {pose}, without labels"
    people = public(kind, folder)
    validating = {e.subject for e in people.entries("validation")}
    assert validating
    assert not validating & {e.subject for e in people.layout.entries if e.name in asked}
    assert len(asked) == len(set(asked))  # each is read once


def test_pairs_that_a_set_names_are_the_ones_learned_from(tmp_path: Path) -> None:
    """Both scans of a pair are of one person; who is held out is in no pair that is learned from."""
    source = training_set("empire10", empire(tmp_path, ("01", "02", "03", "04", "05", "17")))
    fit, held_out = source.divided(0.3)
    learned, checked = source.among(fit), source.among(held_out)
    assert len(learned) + len(checked) == len(source.pairs) == 5
    assert all(a[:2] == b[:2] for a, b in (*learned, *checked))
    assert not {m.person for m in fit} & {m.person for m in held_out}
    assert len(checked) == 2


def test_a_set_with_one_pair_cannot_spare_it(request_of: Request, tmp_path: Path) -> None:
    folder = learn2reg(tmp_path / "l")
    with pytest.raises(
        InputError, match="none of them held out; expected four or more of one source, or two pairs"
    ):
        run(dataclasses.replace(request_of, data=folder, track="learn2reg"))
    members = (Member("a", "a", "s"), Member("b", "b", "s"), Member("c", "c", "s"))
    chain = TrainingSet(members, (("a", "b"), ("b", "c")), read=lambda name: pytest.fail(name))
    assert chain.divided(0.5) == ([], [members[1], members[2]])  # b is in both pairs


def test_voxels_that_lie_unlike_others_are_not_laid_on_them(request_of: Request, tmp_path: Path) -> None:
    folder = small_copies(tmp_path / "sets") / "neurite-oasis"
    for path in folder.glob("OASIS_OAS1_000[24]_MR1/*.nii.gz"):
        image = nib.load(path)
        nib.save(nib.Nifti1Image(np.asanyarray(image.dataobj), np.diag([1.0, 1.0, 1.5, 1.0])), path)
    asked = dataclasses.replace(request_of, data=folder, track="neurite-oasis", resolution=1)
    with pytest.raises(InputError, match=r"of another size or turned .* --affine rigid"):
        run(asked)
    run(dataclasses.replace(asked, affine="rigid"))


def test_the_card_says_why_a_training_ended(request_of: Request) -> None:
    cut = dataclasses.replace(request_of, minutes=1e-6)
    run(cut)
    path = request_of.out / weights_name("voxelmorph")
    assert load_network(path, 2).card.metrics["ended"] == "minutes"
    run(request_of)
    metrics = load_network(path, 2).card.metrics
    assert (metrics["ended"], metrics["steps"]) == ("steps", 2)
