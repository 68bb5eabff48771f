"""One door for all transform files and for the folder of a registration."""

from __future__ import annotations

import json

import numpy as np
import pytest
from transform_samples import sample_affine, sample_field, sample_grid

from pirate.errors import InputError
from pirate.io.atomic import sha256_of
from pirate.io.fields import write_field
from pirate.io.itk import write_affine
from pirate.io.transforms import AFFINE, DONE, FORWARD_WARP, INVERSE_WARP, read_transform, recorded_grid

FORWARD, BACK = sample_field(seed=1), sample_field(seed=2)
POINTS = sample_grid().to_world(np.random.default_rng(0).uniform(0, 4, size=(20, 3)))


def list_outputs(folder, *names):
    outputs = {name: sha256_of(folder / name) for name in names}
    (folder / DONE).write_text(json.dumps({"outputs": outputs}))


@pytest.fixture
def folder(tmp_path):
    write_field(tmp_path / FORWARD_WARP, FORWARD)
    write_field(tmp_path / INVERSE_WARP, BACK)
    write_affine(tmp_path / AFFINE, sample_affine())
    list_outputs(tmp_path, FORWARD_WARP, INVERSE_WARP, AFFINE)
    return tmp_path


def test_a_folder_holds_both_directions(folder):
    affine = sample_affine()
    there, again = read_transform(folder), read_transform(folder, inverse=True)
    np.testing.assert_allclose(there.map(POINTS), affine.map(FORWARD.map(POINTS)), atol=1e-5)
    np.testing.assert_allclose(again.map(POINTS), BACK.map(affine.inverse().map(POINTS)), atol=1e-5)
    assert (there.source, there.target, again.source, again.target) == ("fixed", "moving", "moving", "fixed")


def test_an_affine_of_an_earlier_run_is_not_read(folder):
    list_outputs(folder, FORWARD_WARP, INVERSE_WARP)
    np.testing.assert_allclose(read_transform(folder).map(POINTS), FORWARD.map(POINTS), atol=1e-5)
    np.testing.assert_allclose(read_transform(folder, inverse=True).map(POINTS), BACK.map(POINTS), atol=1e-5)


@pytest.mark.parametrize(
    ("inverse", "listed", "option"), [(False, INVERSE_WARP, "warp"), (True, FORWARD_WARP, "inverse")]
)
def test_a_warp_of_an_earlier_run_is_not_read(folder, inverse, listed, option):
    list_outputs(folder, listed)
    with pytest.raises(InputError, match=f"that output was not written.*--write {option}"):
        read_transform(folder, inverse)


@pytest.mark.parametrize("name", [FORWARD_WARP, AFFINE])
def test_a_file_changed_after_the_registration_is_refused(folder, name):
    if name == AFFINE:
        (folder / AFFINE).write_text((folder / AFFINE).read_text() + "\n")
    else:
        write_field(folder / name, sample_field(seed=3))
    with pytest.raises(InputError, match=f"{name}: the file was changed after the registration"):
        read_transform(folder)


@pytest.mark.parametrize("name", [FORWARD_WARP, AFFINE])
def test_a_file_removed_after_the_registration_is_refused(folder, name):
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{name}: there is no such file"):
        read_transform(folder)


RECORDS = [
    (None, "no run.json in it"),
    (b"", "it is not JSON"),
    (b"{", "it is not JSON"),
    (b"\xff\xfe\xfa", "it is not JSON"),
    (b"[" * 100_000, "it is not JSON"),
    (b"1" * 5000, "it is not JSON"),
    (b"[1, 2]", "it is not a table"),
    (b"{}", "does not list the files"),
    (b'{"outputs": ["moving_to_fixed_warp.nii.gz"]}', "does not list the files"),
    (b'{"outputs": {"moving_to_fixed_warp.nii.gz": 7}}', "does not list the files"),
    (b" " * ((1 << 24) + 1), "larger than 16,777,216 bytes"),
]


@pytest.mark.parametrize(("raw", "message"), RECORDS, ids=[f"{m} {i}" for i, (_, m) in enumerate(RECORDS)])
def test_a_folder_without_a_record_is_refused(folder, raw, message):
    (folder / DONE).unlink()
    if raw is not None:
        (folder / DONE).write_bytes(raw)
    with pytest.raises(InputError, match=message):
        read_transform(folder)


def test_the_grid_of_an_image_is_recorded(tmp_path):
    grid = sample_grid()
    record = {"shape": list(grid.shape), "affine": grid.affine.tolist()}
    (tmp_path / DONE).write_text(json.dumps({"moving": {"grid": record}}))
    assert recorded_grid(tmp_path, "moving") == grid
    with pytest.raises(InputError, match="does not record the fixed image's grid"):
        recorded_grid(tmp_path, "fixed")


@pytest.mark.parametrize(
    "moving",
    [
        "7",
        "{}",
        '{"grid": 7}',
        '{"grid": {"shape": [4, 4], "affine": 1}}',
        '{"grid": {"shape": [Infinity, 4], "affine": [[1]]}}',
        '{"grid": {"shape": 4, "affine": [[1]]}}',
    ],
)
def test_a_damaged_record_of_a_grid_is_refused(tmp_path, moving):
    (tmp_path / DONE).write_text(f'{{"moving": {moving}}}')
    with pytest.raises(InputError, match="does not record the moving image's grid"):
        recorded_grid(tmp_path, "moving")


def test_a_lone_field_is_not_inverted(tmp_path):
    write_field(tmp_path / "warp.nii.gz", sample_field())
    with pytest.raises(InputError, match="a displacement field is not inverted"):
        read_transform(tmp_path / "warp.nii.gz", inverse=True)


def test_a_name_must_say_what_the_file_is(tmp_path):
    (tmp_path / "warp.mha").touch()
    with pytest.raises(InputError, match="does not say what kind"):
        read_transform(tmp_path / "warp.mha")
