"""``pirate repair`` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pirate.evaluation.folding import folding
from pirate.grid import Grid
from pirate.io.composite import read_composite, write_composite
from pirate.io.fields import read_field, write_field
from pirate.io.itk import write_affine
from pirate.io.nifti import read_image
from pirate.ops.smooth import gaussian
from pirate.transform import Affine, Displacement, Transform

Command = Callable[..., tuple[int, str, str]]
COUNTS = ("folds_percent", "folds_forward_percent", "ndv_percent", "nondiffeomorphic_cells")


def folded(grid: Grid, size: float = 3.0) -> Displacement:
    noise = torch.randn(1, grid.ndim, *grid.shape, generator=torch.Generator().manual_seed(2))
    return Displacement(grid, size * gaussian(noise, 1.2)[0].numpy())


def counts(field: np.ndarray) -> list[float]:
    found = folding(torch.from_numpy(np.ascontiguousarray(field))[None])
    return [found[name] for name in COUNTS]


@pytest.fixture
def warp(files: Path) -> Path:
    """A folded warp on the fixed grid, beside the images."""
    write_field(files / "warp.nii.gz", folded(read_image(files / "fixed.nii.gz").grid))
    return files / "warp.nii.gz"


def test_a_warp_is_unfolded_and_what_changed_is_said(
    files: Path, warp: Path, pirate_command: Command
) -> None:
    out, report = files / "mended.nii.gz", files / "report.json"
    code, said, err = pirate_command(
        "repair", warp, "--out", out, "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz",
        "--report", report,
    )  # fmt: skip
    assert code == 0, err
    assert "-> 0.0000 % (central)" in said
    assert "-> 0.0000 % (forward), NDV" in said
    assert "mm at most" in said
    assert "local correlation (window 5)" in said
    assert said.splitlines()[-1] == str(out)
    assert err.splitlines() == [f"reading {warp}", "repairing", "comparing the images", "writing"]
    before, after = read_field(warp), read_field(out)
    assert counts(after.field) == [0.0] * 4
    assert min(counts(before.field)) > 0
    record = json.loads(report.read_text())
    (field,) = record["fields"]
    assert [field["after"][name] for name in COUNTS] == [0.0] * 4
    assert field["before"]["nondiffeomorphic_cells"] == counts(before.field)[3]
    assert field["remaining"] == []
    assert 0 < field["largest_change_mm"] < 20
    for side in ("before", "after"):
        assert -1 <= record["similarity"][side]["local_correlation"] <= 1
    assert not list(files.glob(".part*"))


def test_itk_reads_a_volume_without_folds(
    tmp_path: Path, oblique: Callable[[tuple[int, ...]], Grid], pirate_command: Command
) -> None:
    """What SimpleITK reads, in LPS mm, brought to voxels by its own direction and spacing."""
    sitk = pytest.importorskip("SimpleITK")
    write_field(tmp_path / "warp.nii.gz", folded(oblique((14, 16, 18))))
    out = tmp_path / "mended.nii.gz"
    code, _, err = pirate_command("repair", tmp_path / "warp.nii.gz", "--out", out, "--quiet")
    assert (code, err) == (0, "")
    image = sitk.ReadImage(str(out))
    axes = np.array(image.GetDirection()).reshape(3, 3) * np.array(image.GetSpacing())
    millimetres = np.moveaxis(sitk.GetArrayFromImage(image), -1, 0).transpose(0, 3, 2, 1)
    field = np.tensordot(np.linalg.inv(axes), millimetres, axes=1).astype(np.float32)
    assert counts(field) == [0.0] * 4


def test_a_composite_stays_one(files: Path, pirate_command: Command) -> None:
    grid = read_image(files / "fixed.nii.gz").grid
    matrix = np.eye(4)
    matrix[:2, 3] = 0.5, -0.25
    write_composite(files / "chain.h5", Transform((folded(grid), Affine(matrix))))
    code, _, err = pirate_command("repair", files / "chain.h5", "--out", files / "mended.h5")
    assert code == 0, err
    parts = read_composite(files / "mended.h5").parts
    assert isinstance(parts[0], Displacement)
    assert counts(parts[0].field) == [0.0] * 4
    assert isinstance(parts[1], Affine)
    np.testing.assert_allclose(parts[1].matrix, matrix, atol=1e-9)
    code, _, err = pirate_command("repair", files / "chain.h5", "--out", files / "one.nii.gz")
    assert code == 2
    assert "ends in .h5" in err


def test_a_warp_without_folds_is_written_as_it_was(files: Path, pirate_command: Command) -> None:
    grid = read_image(files / "fixed.nii.gz").grid
    write_field(files / "calm.nii.gz", folded(grid, 0.2))
    code, said, err = pirate_command("repair", files / "calm.nii.gz", "--out", files / "same.nii.gz")
    assert code == 0, err
    assert "nothing was changed" in said
    np.testing.assert_allclose(
        read_field(files / "same.nii.gz").field, read_field(files / "calm.nii.gz").field, atol=1e-6
    )


def test_the_affine_belongs_to_the_comparison(files: Path, warp: Path, pirate_command: Command) -> None:
    matrix = np.eye(4)
    matrix[0, 3] = 8.0
    write_affine(files / "far.txt", Affine(matrix))
    found = []
    for options in ((), ("--affine", files / "far.txt")):
        code, _, err = pirate_command(
            "repair", warp, "--out", files / "m.nii.gz", "--force", "--report", files / "r.json",
            "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz", *options,
        )  # fmt: skip
        assert code == 0, err
        found.append(json.loads((files / "r.json").read_text())["similarity"]["after"]["correlation"])
    assert found[1] < found[0] - 0.1


def test_what_remains_is_a_failed_gate(files: Path, pirate_command: Command) -> None:
    grid = read_image(files / "fixed.nii.gz").grid
    write_field(files / "wild.nii.gz", folded(grid, 40.0))
    out = files / "m.nii.gz"
    code, said, err = pirate_command("repair", files / "wild.nii.gz", "--out", out, "--rounds", "1")
    assert code == 1
    assert "voxels still fold, the first at (" in err
    assert said.splitlines()[-1] == str(out)
    assert counts(read_field(out).field)[3] > 0


def test_what_makes_no_sense_is_refused_before_anything_is_written(
    files: Path, warp: Path, pirate_command: Command
) -> None:
    fixed = files / "fixed.nii.gz"
    for code, sentence, options in (
        (4, "exists already", ("--out", warp)),
        (4, "exists already", ("--out", files / "m.nii.gz", "--report", fixed)),
        (2, "expected .nii, .nii.gz, .h5", ("--out", files / "m.txt")),
        (2, "both --fixed and --moving", ("--out", files / "m.nii.gz", "--fixed", fixed)),
        (2, "add --fixed and --moving", ("--out", files / "m.nii.gz", "--affine", fixed)),
    ):
        found, _, err = pirate_command("repair", warp, *options)
        assert (found, sentence in err) == (code, True), err
    found, _, err = pirate_command("repair", fixed, "--out", files / "m.nii.gz")
    assert (found, "displacement field" in err) == (3, True)
    assert not (files / "m.nii.gz").exists()
