import hashlib
import json

import pytest
import torch

from pirate.denoisers import Conditional, load, zoo
from pirate.errors import InputError, UsageError
from pirate.io.weights import Card, save_weights


def weights(tmp_path, ndim=2, resolution=1.0, width=4):
    torch.manual_seed(ndim)
    network = Conditional(ndim, width=width, scales=1)
    card = Card(
        task="field denoising", architecture=network.architecture(), ndim=ndim, sigma_min=0.05, sigma_max=1.0,
        resolution=resolution, training_data="waves", labels_used=False, date="2026-01-31",
    )  # fmt: skip
    path = tmp_path / f"trained-{ndim}-{resolution}.safetensors"
    save_weights(path, network.state_dict(), card)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of shipped weights in place of the package's own."""
    place = tmp_path / "weights"
    monkeypatch.setattr(zoo, "FOLDER", place)
    return place


def test_without_weights_the_names_exist_and_are_refused_with_a_sentence(folder):
    assert zoo.shipped() == []
    assert zoo.names() == ["pirate", "pirate-plus", "anatomy"]
    with pytest.raises(UsageError, match="--prior pirate: it does not ship; expected one for 2-D fields"):
        load("pirate", 2)


def test_what_is_shipped_is_found_by_name_and_dimension(folder, tmp_path):
    entry = zoo.ship(weights(tmp_path), "pirate", "pirate train denoiser waves --out here")
    zoo.ship(weights(tmp_path, 3), "pirate-waves", "another")
    assert zoo.names() == ["pirate", "pirate-plus", "anatomy", "pirate-waves"]
    assert entry.sha256 == hashlib.sha256((folder / entry.file).read_bytes()).hexdigest()
    assert zoo.card_of(entry).training_data == "waves"
    learned = load("pirate", 2)
    assert learned.card.ndim == 2
    with pytest.raises(UsageError, match="pirate ships for 2-D fields only; expected one for 3-D fields"):
        load("pirate", 3)
    assert load("pirate-waves", 3).card.ndim == 3


def test_the_resolution_chooses_among_files(folder, tmp_path):
    zoo.ship(weights(tmp_path, resolution=1.0), "pirate", "one")
    zoo.ship(weights(tmp_path, resolution=2.0), "pirate", "two")
    assert load("pirate", 2).card.resolution == 1
    assert load("pirate", 2, resolution=2).card.resolution == 2
    assert load("pirate", 2, resolution=1.2).card.resolution == 1
    with pytest.raises(UsageError, match="for grids of resolution 1 and 2; expected 4"):
        load("pirate", 2, resolution=4)


def test_shipping_again_replaces(folder, tmp_path):
    first = zoo.ship(weights(tmp_path), "pirate", "one")
    second = zoo.ship(weights(tmp_path, width=6), "pirate", "two")
    assert zoo.shipped() == [second]
    assert first.sha256 != second.sha256
    assert sorted(p.name for p in folder.iterdir()) == ["index.json", "pirate-2d-r1.safetensors"]


def test_a_changed_file_is_refused(folder, tmp_path):
    entry = zoo.ship(weights(tmp_path), "pirate", "one")
    (folder / entry.file).write_bytes(weights(tmp_path, width=6).read_bytes())
    with pytest.raises(InputError, match="another sha256"):
        load("pirate", 2)


@pytest.mark.parametrize("text", ["{", "[1]", '[{"name": "pirate"}]', "7"])
def test_a_damaged_list_is_refused(folder, text):
    folder.mkdir()
    (folder / "index.json").write_text(text)
    with pytest.raises(
        InputError, match=r"index.json: cannot be read .*; expected the list of shipped priors"
    ):
        zoo.shipped()


def test_what_is_too_large_does_not_ship(folder, tmp_path, monkeypatch):
    path = weights(tmp_path)
    monkeypatch.setattr(zoo, "LARGEST", path.stat().st_size - 1)
    with pytest.raises(InputError, match=r"bytes; expected at most .* to ship"):
        zoo.ship(path, "pirate", "one")
    assert zoo.shipped() == []


@pytest.mark.parametrize(
    ("trained", "wanted", "answer"), [(1, 1, True), (2, 1.5, True), (2, 1, False), (1, 2, False)]
)
def test_a_resolution_fits_within_root_two(trained, wanted, answer):
    assert zoo.fits(trained, wanted) is answer


def test_what_ships_with_this_package_is_whole_and_light():
    listed = zoo.shipped()
    for entry in listed:
        card = zoo.card_of(entry)
        assert (card.ndim, card.resolution) == (entry.ndim, entry.resolution)
        assert zoo.path_of(entry).stat().st_size <= zoo.LARGEST
        assert entry.command
    files = {p.name for p in zoo.FOLDER.glob("*.safetensors")}
    assert files == {entry.file for entry in listed}
    if listed:
        assert json.loads((zoo.FOLDER / "index.json").read_text())
