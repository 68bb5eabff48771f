"""A corpus keeps fields, folds nowhere, continues where it stopped, and refuses what does not belong to it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pirate.errors import InputError
from pirate.io.arrays import write_arrays
from pirate.ops.jacobian import mark_folds
from pirate.ops.resample import resize_field
from pirate.training.fields import Corpus, Recipe
from pirate.training.mending import downsampled, restored, rounded, unfolded
from pirate.training.random_fields import random_field

SHAPE = (24, 20)


def recipe(**changes: object) -> Recipe:
    base = Recipe("random", {"amplitude": 3.0}, "none", {"a": "0" * 64}, 0, 2, 2, (2.0, 2.0))
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def smooth(seed: int, shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return random_field(shape, torch.Generator().manual_seed(seed))


def test_a_corpus_gives_back_its_fields_in_voxels_of_their_own_grid(tmp_path: Path) -> None:
    corpus = Corpus.create(tmp_path / "c", recipe())
    given = [smooth(seed) for seed in range(3)]
    for index, field in enumerate(given):
        corpus.append(index, field, ("a", str(index)), 0.5)
    read = Corpus.open(tmp_path / "c")
    assert len(read) == 3
    assert (read.ndim, read.resolution, read.shape) == (2, 2, (12, 10))
    assert read.subjects(2) == ("a", "2")
    assert read.recipe == recipe()
    assert set(read.made) == {"date", "version"}
    for index, field in enumerate(given):
        expected = resize_field(field, (12, 10))[0]
        assert read.field(index).dtype == torch.float32
        torch.testing.assert_close(read.field(index), expected, atol=3e-4, rtol=0)
    shift = torch.full((1, 2, 24, 20), 2.0)
    torch.testing.assert_close(downsampled(shift, 4)[0, 0], torch.full((6, 5), 2.0 * 5 / 23))


def test_a_corpus_continues_only_as_it_was_made(tmp_path: Path) -> None:
    corpus = Corpus.create(tmp_path, recipe())
    for index in (0, 2):
        corpus.append(index, smooth(index), ("a", str(index)), 0.1)
    again = Corpus.create(tmp_path, recipe())
    assert again.pending(4) == [1, 3]
    again.append(1, smooth(1), ("a", "1"), 0.1)
    assert [e.index for e in Corpus.open(tmp_path).entries] == [0, 1, 2]
    with pytest.raises(InputError, match="made with other method, seed"):
        Corpus.create(tmp_path, recipe(method="nodeo", seed=1))
    with pytest.raises(InputError, match="one shape throughout"):
        again.append(3, smooth(3, (24, 24)), (), 0.1)


def folded(peak: float) -> torch.Tensor:
    field = 0.2 * smooth(1)
    field[:, 0, 10, 8] += peak
    return field


def test_a_few_folds_are_mended_and_many_are_dropped(tmp_path: Path) -> None:
    field = folded(3.0)
    assert mark_folds(field)[0] > 0
    clean = unfolded(field)
    assert clean.folds_percent > 0
    assert 0 < clean.mended_voxels < 100
    assert clean.voxels.dtype == torch.int16
    assert mark_folds(clean.field)[0] == 0
    corpus = Corpus.create(tmp_path, recipe(resolution=1))
    wild = 5 * torch.randn(1, 2, *SHAPE, generator=torch.Generator().manual_seed(0))
    entry = corpus.append(0, wild, ("a", "b"), 0.1)
    assert "of its voxels fold" in entry.dropped
    broken = wild.clone()
    broken[0, 0, 0, 0] = torch.nan
    assert "not finite" in corpus.append(1, broken, ("a", "b"), 0.1).dropped
    corpus.append(2, field, ("a", "b"), 0.1)
    read = Corpus.open(tmp_path)
    assert len(read) == 1
    assert len(read.dropped) == 2
    assert read.pending(3) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000002.npz", "corpus.json"]


@pytest.mark.parametrize("length", [1e-3, 0.7, 8.0, 15.9, 400.0])
def test_rounding_costs_less_than_a_thirty_thousandth_of_the_longest(length: float) -> None:
    field = length * (2 * torch.rand(1, 2, 20, 20, generator=torch.Generator().manual_seed(0)) - 1)
    field[0, 0, 0, 0] = -length
    voxels, step = rounded(field)
    assert voxels.dtype == torch.int16
    assert float((restored(voxels, step) - field).abs().max()) <= length / 32767
    again, same = rounded(restored(voxels, step))
    assert same == step
    assert torch.equal(again, voxels)


def test_what_cannot_be_mended_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pirate.training.mending.mark_folds", lambda field: (1, field))
    assert "could not be mended" in unfolded(folded(3.0)).dropped


def test_no_subject_is_on_both_sides_of_a_split(tmp_path: Path) -> None:
    corpus = Corpus.create(tmp_path, recipe())
    names = "abcdef"
    count = 0
    for a in names:
        for b in names:
            if a != b:
                corpus.append(count, 0 * smooth(0), (a, b), 0.0)
                count += 1
    fit, test = corpus.split(held_out=0.5, seed=1)
    assert len(fit) == len(test) == 6
    ours, theirs = ({n for i in side for n in corpus.subjects(i)} for side in (fit, test))
    assert not ours & theirs
    assert corpus.split(0.5, seed=1) == (fit, test)
    assert corpus.split(0.0) == (list(range(30)), [])
    with pytest.raises(InputError, match="held_out"):
        corpus.split(1.5)


def test_fields_without_subjects_are_divided_one_by_one(tmp_path: Path) -> None:
    corpus = Corpus.create(tmp_path, recipe())
    for index in range(5):
        corpus.append(index, smooth(index), (), 0.0)
    fit, test = corpus.split(held_out=0.4)
    assert len(test) == 2
    assert sorted(fit + test) == list(range(5))


def test_what_is_not_a_corpus_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "corpus.json"
    with pytest.raises(InputError, match="cannot be read"):
        Corpus.open(tmp_path)
    table.write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        Corpus.open(tmp_path)
    table.write_text("{}")
    with pytest.raises(InputError, match="does not read as a table"):
        Corpus.open(tmp_path)
    table.unlink()
    Corpus.create(tmp_path, recipe()).append(0, smooth(0), (), 0.0)
    good = json.loads(table.read_text())
    table.write_text(json.dumps(good | {"format": 9}))
    with pytest.raises(InputError, match="format 9"):
        Corpus.open(tmp_path)
    table.write_text(json.dumps(good))
    for array, step, finding in (
        (np.zeros((2, 12, 10), np.float16), np.array([0.5]), "float16 of shape"),
        (np.zeros((3, 12, 10), np.int16), np.array([0.5]), "of shape"),
        (np.zeros((2, 12, 10), np.int16), np.array([np.nan]), r"the step \[nan\]"),
    ):
        write_arrays(tmp_path / "000000.npz", {"field": array, "step": step})
        with pytest.raises(InputError, match=finding):
            Corpus.open(tmp_path).field(0)


@pytest.mark.parametrize(
    ("change", "finding"), [({"ndim": 3}, "3 axes"), ({"resolution": 3}, "resolution"), ({"unit": "mm"}, "in mm")]
)  # fmt: skip
def test_an_impossible_recipe_is_refused(change: dict[str, object], finding: str) -> None:
    with pytest.raises(InputError, match=finding):
        recipe(**change)
