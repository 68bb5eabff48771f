"""One door for all transform files and for the folder of a registration."""

from __future__ import annotations

import numpy as np
import pytest
from transform_samples import sample_affine, sample_field, sample_grid

from pirate.errors import InputError
from pirate.io.fields import write_field
from pirate.io.itk import write_affine
from pirate.io.transforms import DONE, FORWARD_WARP, INVERSE_WARP, read_transform


def test_a_folder_holds_both_directions(tmp_path):
    forward, back, affine = sample_field(seed=1), sample_field(seed=2), sample_affine()
    write_field(tmp_path / FORWARD_WARP, forward)
    write_field(tmp_path / INVERSE_WARP, back)
    with pytest.raises(InputError, match=r"no run\.json"):
        read_transform(tmp_path)
    (tmp_path / DONE).write_text("{}")
    points = sample_grid().to_world(np.random.default_rng(0).uniform(0, 4, size=(20, 3)))
    np.testing.assert_allclose(read_transform(tmp_path).map(points), forward.map(points), atol=1e-5)
    write_affine(tmp_path / "affine.txt", affine)
    there, again = read_transform(tmp_path), read_transform(tmp_path, inverse=True)
    np.testing.assert_allclose(there.map(points), affine.map(forward.map(points)), atol=1e-5)
    np.testing.assert_allclose(again.map(points), back.map(affine.inverse().map(points)), atol=1e-5)
    assert (there.source, there.target, again.source, again.target) == ("fixed", "moving", "moving", "fixed")


def test_a_lone_field_is_not_inverted(tmp_path):
    write_field(tmp_path / "warp.nii.gz", sample_field())
    with pytest.raises(InputError, match="a displacement field is not inverted"):
        read_transform(tmp_path / "warp.nii.gz", inverse=True)


def test_a_name_must_say_what_the_file_is(tmp_path):
    with pytest.raises(InputError, match="does not say what kind"):
        read_transform(tmp_path / "warp.mha")
