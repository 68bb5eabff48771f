"""Skull stripping: what deepbet is given, what is made of its mask, and what is refused.

deepbet itself is an optional package; a small one of the same face takes its place.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pirate.cli.app import app
from pirate.data.stripping import strip
from pirate.errors import InputError, PirateError, UsageError
from pirate.grid import Grid
from pirate.image import Image
from pirate.io import nifti

OBLIQUE = np.array([[0.9, 0.1, 0, 3], [-0.1, 0, 1.1, -4], [0, 1.2, 0.1, 5], [0, 0, 0, 1]])

PACKAGE = """
import nibabel, numpy
class BrainExtraction:
    def __init__(self, no_gpu):
        assert no_gpu
    def run(self, path, mask_path, threshold):
        image = nibabel.load(path)
        mask = (image.get_fdata() > {above} * threshold).astype("uint8")
        affine = image.affine + {shift} * numpy.eye(4)[:, [1, 2, 0, 3]]
        nibabel.save(nibabel.Nifti1Image(mask, affine), mask_path)
"""


@pytest.fixture
def head() -> Image:
    """A bright ball in a dim box."""
    axes = np.meshgrid(*[np.arange(n) - n / 2 for n in (14, 16, 12)], indexing="ij")
    ball = sum(a**2 for a in axes) < 16
    return Image(np.where(ball, 100, 20).astype(np.float32), Grid((14, 16, 12), OBLIQUE), "head")


def pretend(folder: Path, monkeypatch: pytest.MonkeyPatch, above: float = 100, shift: float = 0) -> None:
    """Put a package deepbet on the path of this process and of its children."""
    (folder / "deepbet").mkdir()
    (folder / "deepbet" / "__init__.py").write_text("")
    (folder / "deepbet" / "bet.py").write_text(PACKAGE.format(above=above, shift=shift))
    old = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), old))))
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()


def test_the_rest_of_the_head_becomes_0_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: Image
) -> None:
    pretend(tmp_path, monkeypatch)
    found = strip(head)
    assert np.array_equal(found.mask.data, head.data == 100)
    assert np.array_equal(found.brain.data, np.where(head.data == 100, 100, 0))
    assert found.brain.grid == head.grid == found.mask.grid
    assert strip(head, threshold=0.1).mask.data.all()  # 20 > 100 * 0.1: everything


def test_a_mask_that_lies_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: Image
) -> None:
    pretend(tmp_path, monkeypatch, shift=0.5)
    with pytest.raises(PirateError, match="the mask lies elsewhere"):
        strip(head)


def test_an_image_without_a_brain_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: Image
) -> None:
    pretend(tmp_path, monkeypatch, above=1000)
    with pytest.raises(InputError, match=r"0\.00 % of it are brain; expected at least 1 %"):
        strip(head)


def test_what_cannot_be_stripped_is_refused_before_anything_runs(head: Image) -> None:
    with pytest.raises(UsageError, match="the threshold is 1"):
        strip(head, threshold=1)
    plane = Image(np.ones((8, 8), np.float32), Grid((8, 8), np.eye(4)), "slice")
    with pytest.raises(InputError, match="slice: a plane; expected a volume"):
        strip(plane)


def test_a_missing_package_is_a_sentence_with_the_command(
    head: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"deepbet, which is not here; pip install 'pirate-reg\[bet\]'"):
        strip(head)


def test_the_command_writes_brain_and_mask_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: Image
) -> None:
    pretend(tmp_path, monkeypatch)
    source, out, mask = (tmp_path / f"{name}.nii.gz" for name in ("head", "brain", "mask"))
    nifti.write_image(source, head.data, head.grid)
    words = ["strip", str(source), "--out", str(out), "--mask", str(mask), "--threads", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    volume = float((head.data == 100).sum()) * float(np.prod(head.grid.spacing)) / 1000
    assert done.output.startswith(f"brain {volume:.0f} ml")
    assert np.array_equal(nifti.read_labels(mask).data, head.data == 100)
    assert np.array_equal(nifti.read_image(out).data, np.where(head.data == 100, 100, 0))
    again = CliRunner().invoke(app, words)
    assert "exists already" in str(again.exception)
    same = CliRunner().invoke(app, [*words[:-4], "--mask", str(out), "--force"])
    assert "name the same file" in str(same.exception)
