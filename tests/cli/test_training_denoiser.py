import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pirate.cli import listing, training_denoiser, training_score
from pirate.cli.training import app
from pirate.data.subjects import Subject
from pirate.denoisers import load, zoo
from pirate.errors import InputError, UsageError
from pirate.io.weights import Card, load_weights, save_weights
from pirate.training.fields import Corpus, Recipe

SMALL = ["--steps", "6", "--batch", "2", "--patch", "16", "--held-out", "0.4", "--threads", "1", "-q"]


def corpus(path, ndim=2, resolution=1, people=5, first=0):
    shape = (24, 20, 16)[:ndim]
    grid = torch.meshgrid(*[torch.linspace(0, math.pi, n) for n in shape], indexing="ij")
    made = Corpus.create(path, Recipe("waves", {}, "none", {}, 0, ndim, resolution, (1.0,) * ndim))
    names = [(a, b) for a in range(people) for b in range(people) if a != b]
    for k, (a, b) in enumerate(names):
        field = torch.stack([(g + 0.3 * k).sin() for g in grid])[None]
        made.store(k, field, (f"s{first + a}", f"s{first + b}"), 0.1)
    return path


def call(*words):
    return CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=True)


@pytest.mark.parametrize(("ndim", "preset"), [(2, "small"), (3, "small"), (2, "gradient-step")])
def test_training_writes_weights_that_register_can_use(tmp_path, ndim, preset):
    fields = corpus(tmp_path / "c", ndim, resolution=2)
    out = tmp_path / "out"
    found = call("denoiser", fields, "--out", out, "--preset", preset, *SMALL)
    assert found.exit_code == 0, found.output
    assert "the best Gaussian" in found.output
    names = {p.name for p in out.iterdir()}
    assert {"denoiser.safetensors", "history.csv", "curves.png", "checkpoint.safetensors"} <= names
    learned = load(str(out / "denoiser.safetensors"), ndim, resolution=2)
    card = learned.card
    assert (card.ndim, card.resolution, card.labels_used) == (ndim, 2, False)
    assert "6 fields by waves between 3 subjects" in card.training_data  # 2 of 5 subjects are held out
    assert {"white_db", "coloured_db", "asymmetry", "largest_singular_value", "residual_rms"} <= set(
        card.metrics
    )
    assert card.metrics["steps"] == 6


def test_a_repeated_command_goes_on_and_another_one_is_refused(tmp_path):
    fields = corpus(tmp_path / "c")
    assert call("denoiser", fields, "-o", tmp_path / "o", *SMALL).exit_code == 0
    first = (tmp_path / "o" / "denoiser.safetensors").read_bytes()
    assert call("denoiser", fields, "-o", tmp_path / "o", *SMALL).exit_code == 0
    again = (tmp_path / "o" / "denoiser.safetensors").read_bytes()
    assert load_weights(tmp_path / "o" / "denoiser.safetensors")[1].metrics["steps"] == 6
    assert len(first) == len(again)
    found = call("denoiser", fields, "-o", tmp_path / "o", *SMALL, "--width", "1")
    assert isinstance(found.exception, InputError)
    assert "width_max" in str(found.exception)


def test_weights_to_start_from(tmp_path):
    fields = corpus(tmp_path / "c")
    assert call("denoiser", fields, "-o", tmp_path / "a", *SMALL).exit_code == 0
    start = tmp_path / "a" / "denoiser.safetensors"
    words = ["denoiser", fields, "-o", tmp_path / "b", *SMALL, "--start", start, "--learning-rate", "1e-12"]
    assert call(*words).exit_code == 0
    before, after = load_weights(start)[0], load_weights(tmp_path / "b" / "denoiser.safetensors")[0]
    for name, value in before.items():
        torch.testing.assert_close(after[name], value)
    words = ["denoiser", fields, "-o", tmp_path / "c", *SMALL, "--start", start, "--preset", "gradient-step"]
    found = call(*words)
    assert isinstance(found.exception, InputError)
    assert "the network of the preset" in str(found.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "huge"], "--preset huge: expected one of paper, released, small, gradient-step"),
        (["--sigma", "1", "--sigma", "2"], "several --sigma: give --data"),
        (["--sigma", "-1"], "--sigma, --width or --calm: the noise needs"),
    ],
)
def test_wrong_options(tmp_path, words, message):
    found = call("denoiser", tmp_path, "-o", tmp_path / "o", *SMALL, *words)
    assert isinstance(found.exception, UsageError)
    assert message in str(found.exception)


def test_corpora_that_do_not_go_together_or_are_too_small(tmp_path):
    a, b = corpus(tmp_path / "a"), corpus(tmp_path / "b", resolution=2)
    found = call("denoiser", a, b, "-o", tmp_path / "o", *SMALL)
    assert isinstance(found.exception, InputError)
    assert "2-D fields of resolution 2; expected 2-D of resolution 1" in str(found.exception)
    found = call("denoiser", corpus(tmp_path / "d", people=2), "-o", tmp_path / "o", *SMALL)
    assert isinstance(found.exception, InputError)
    assert "some of both" in str(found.exception)


def test_the_figures_can_be_of_a_corpus_of_other_subjects(tmp_path):
    fields, others = corpus(tmp_path / "c"), corpus(tmp_path / "d", first=5)
    found = call("denoiser", fields, "-o", tmp_path / "o", *SMALL, "--measure", others)
    assert found.exit_code == 0, found.output
    found = call(
        "denoiser", fields, "-o", tmp_path / "p", *SMALL, "--measure", corpus(tmp_path / "e", first=2)
    )
    assert isinstance(found.exception, InputError)
    assert "subjects with the training" in str(found.exception)


def test_the_level_that_registers_best_is_kept(tmp_path, monkeypatch):
    fields = corpus(tmp_path / "c")
    monkeypatch.setattr(training_score, "dice_of", lambda *a: lambda network, sigma: 1 - abs(sigma - 2))
    words = [w for s in (1, 2, 3) for w in ("--sigma", s)]
    out = tmp_path / "o"
    found = call("denoiser", fields, "-o", out, *SMALL, *words, "--data", tmp_path)
    assert found.exit_code == 0, found.output
    assert "sigma 2: Dice 1.0000 (kept)" in found.output
    tensors, card = load_weights(out / "denoiser.safetensors")
    assert card.sigma_min == card.sigma_max == 2
    assert card.metrics["dice_sigma_3"] == 0
    chosen = load_weights(out / "sigma-2" / "denoiser.safetensors")[0]
    assert all(torch.equal(tensors[name], chosen[name]) for name in chosen)


def test_the_score_is_the_dice_of_the_paper_iteration(monkeypatch):
    square = np.zeros((24, 24), np.float32)
    square[6:16, 8:18] = 1
    blurred = torch.nn.functional.avg_pool2d(torch.from_numpy(square)[None, None], 3, 1, 1)[0]
    moved = torch.roll(blurred, 2, 1)

    def subject(name, image):
        labels = (image[0] > 0.5).to(torch.int16)
        return Subject(name, "validation", "x", image, labels, (1.0, 1.0))

    people = [subject("a", blurred), subject("b", moved)]
    monkeypatch.setattr(training_score.readers, "oasis2d", lambda *a, **k: people)
    score = training_score.dice_of(None, "oasis2d", 2, 1)
    aligned = score(lambda field, sigma: field, 1.0)
    held = score(lambda field, sigma: field * 0, 1.0)
    assert aligned > 0.8
    assert held < aligned
    for name in ("hippocampus", "brain3d"):
        monkeypatch.setattr(training_score.readers, name, lambda *a, **k: people)
        assert training_score.dice_of(None, name, 1, 1)
    with pytest.raises(UsageError, match="--track lung: expected one of oasis2d"):
        training_score.dice_of(None, "lung", 1, 1)


def test_the_figures_are_of_fields_of_other_subjects(tmp_path):
    fields = corpus(tmp_path / "c")
    request = training_denoiser.Request(
        (fields,), tmp_path, "small", None, None, None, None, (), None, None, None, 0.4, None, None, "oasis2d", 1, 0.0,
        0, False, None, True,
    )  # fmt: skip
    material = training_denoiser._material(request)
    whole = Corpus.open(fields)
    fit, test = whole.split(0.4)
    assert not {n for i in fit for n in whole.subjects(i)} & {n for i in test for n in whole.subjects(i)}
    assert torch.equal(material.training[0], whole.field(fit[0]))
    assert len(material.held_out) == len(test)


def ship(folder, tmp_path, labels=False):
    from pirate.denoisers import Conditional

    network = Conditional(2, width=4, scales=1)
    card = Card(
        task="field denoising", architecture=network.architecture(), ndim=2, sigma_min=0.05, sigma_max=1.0,
        resolution=2, training_data="40 fields by waves", labels_used=labels, date="2026-01-31",
        metrics={
            "sigma": 0.5, "white_db": 9.5, "white_best_gaussian_db": 8.25, "coloured_db": 4.0,
            "coloured_best_gaussian_db": 2.0, "largest_singular_value": 2.4, "loss_before": 0.5, "loss_after": 0.4,
            "folds_percent_before": 0.2, "folds_percent_after": 0.1, "dice_before": 0.7, "dice": 0.8,
        },
    )  # fmt: skip
    path = tmp_path / "w.safetensors"
    save_weights(path, network.state_dict(), card)
    zoo.ship(path, "anatomy" if labels else "pirate", "pirate train denoiser waves", folder)


def test_the_list_says_what_ships(tmp_path, capsys):
    folder = tmp_path / "weights"
    listing.run(False, folder)
    assert "no trained prior ships" in capsys.readouterr().out
    ship(folder, tmp_path)
    ship(folder, tmp_path, labels=True)
    listing.run(False, folder)
    text = capsys.readouterr().out
    for part in (
        "none: no prior", "pirate: 2-D, grid 2 times as coarse as the image, field denoising, conditional",
        "40 fields by waves; no labels were used", "anatomical labels were used: supervised",
        "held-out fields, 0.5 voxels of it: coloured noise 4 dB (the best Gaussian filter 2 dB), white noise 9.5 dB",
        "can enlarge a change of the field 2.4 times",
        "loss 0.5 and 0.4, folds 0.2 and 0.1 %", "0.7000 without it, 0.8000 with it",
        "noise levels 0.05 to 1 voxels", "made by: pirate train denoiser waves", "FILE.safetensors",
    ):  # fmt: skip
        assert part in text
    listing.run(True, folder)
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["anatomy", "pirate"]
    assert rows[1]["card"]["metrics"]["white_db"] == 9.5


def test_the_watch_speaks_at_the_end_and_is_quiet_if_asked(capsys):
    from pirate.cli.watching import Watch
    from pirate.training.loop import Progress

    last = Progress(step=5, steps=5, seconds=2.0, seconds_left=0.0, loss=0.5, validation=0.25)
    assert Watch(quiet=False)(last) is False
    assert "step 5 of 5" in capsys.readouterr().err
    Watch(quiet=True)(last)
    Watch(quiet=False)(Progress(1, 5, 0.1, 1.0, 1.0, 1.0))
    assert capsys.readouterr().err == ""
