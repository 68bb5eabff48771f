"""The commands as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from pirate.io.nifti import read_image, read_labels, write_image

Command = Callable[..., tuple[int, str, str]]
QUICK = ("--set", "iterations=40", "--threads", "1")


def registered(files: Path, command: Command, *options: str) -> Path:
    out = files / "out"
    code, _, err = command(
        "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", out, *QUICK, *options
    )
    assert code == 0, err
    return out


def test_register_writes_what_it_promises(files: Path, pirate_command: Command) -> None:
    code, out, err = pirate_command(
        "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", files / "out", *QUICK,
        "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz",
    )  # fmt: skip
    assert code == 0, err
    assert err.splitlines()[0] == f"moving {files / 'moving.nii.gz'} -> fixed {files / 'fixed.nii.gz'}"
    names = {p.relative_to(files / "out").as_posix() for p in (files / "out").rglob("*") if p.is_file()}
    assert names >= {
        "warped.nii.gz", "moving_to_fixed_warp.nii.gz", "fixed_to_moving_warp.nii.gz", "transform.h5",
        "metrics.json",
        "run.json", "figures/slices.png", "figures/difference.png", "figures/warped_grid.png",
        "figures/determinant.png", "figures/convergence.png",
    }  # fmt: skip
    assert "affine.txt" in names
    assert not any(".part" in name for name in names)
    assert "Dice" in out
    assert "folded voxels 0.0000 %" in out
    run = json.loads((files / "out" / "run.json").read_text())
    assert run["fixed"]["sha256"] == read_image(files / "fixed.nii.gz").sha256
    assert run["metrics"]["dice"] > run["metrics"]["dice_before"]
    warped, fixed = nib.load(files / "out" / "warped.nii.gz"), nib.load(files / "fixed.nii.gz")
    np.testing.assert_allclose(warped.affine, fixed.affine, atol=1e-5)


def test_only_what_was_asked_for_is_written(files: Path, pirate_command: Command) -> None:
    out = registered(files, pirate_command, "--write", "warped", "--quiet")
    assert {p.name for p in out.iterdir()} == {
        "warped.nii.gz", "affine.txt", "metrics.json", "trace.csv", "run.json",
    }  # fmt: skip


def test_apply_brings_images_labels_and_points_through(files: Path, pirate_command: Command) -> None:
    out = registered(files, pirate_command)
    code, said, err = pirate_command("apply", out, files / "moving.nii.gz", "--out", files / "again.nii.gz")
    assert (code, said.strip()) == (0, str(files / "again.nii.gz")), err
    again, warped = read_image(files / "again.nii.gz"), read_image(out / "warped.nii.gz")
    np.testing.assert_allclose(again.data, warped.data, atol=1e-4)
    for option in ((), ("--vote",)):
        code, _, err = pirate_command(
            "apply",
            out,
            files / "moving_labels.nii.gz",
            "--labels",
            *option,
            "--out",
            files / "l.nii.gz",
            "--force",
        )
        assert code == 0, err
        moved = read_labels(files / "l.nii.gz")
        assert set(np.unique(moved.data)) <= set(np.unique(read_labels(files / "moving_labels.nii.gz").data))
    code, _, err = pirate_command(
        "apply", out, files / "fixed.nii.gz", "--inverse", "--out", files / "back.nii.gz"
    )
    assert code == 0, err
    moving = read_image(files / "moving.nii.gz")
    assert np.corrcoef(read_image(files / "back.nii.gz").data.ravel(), moving.data.ravel())[0, 1] > 0.99


def test_points_land_where_the_moved_image_shows_them(files: Path, pirate_command: Command) -> None:
    """The centroid of a warped blob is the warped centroid."""
    out = registered(files, pirate_command)
    moving = read_image(files / "moving.nii.gz")
    spot = np.zeros(moving.data.shape, np.float32)
    spot[17:20, 21:24] = 1
    write_image(files / "spot.nii.gz", spot, moving.grid)
    x, y, z = moving.grid.to_world([18, 22])
    (files / "points.csv").write_text(f"x,y,z,name\n{x},{y},{z},spot\n")
    assert pirate_command("apply", out, files / "spot.nii.gz", "--out", files / "s.nii.gz")[0] == 0
    assert pirate_command("apply", out, files / "points.csv", "--out", files / "p.csv")[0] == 0
    shown = read_image(files / "s.nii.gz")
    weight = shown.data / shown.data.sum()
    centroid = shown.grid.to_world([float((weight * i).sum()) for i in np.indices(weight.shape)])
    moved = (files / "p.csv").read_text().splitlines()[1].split(",")
    np.testing.assert_allclose([float(v) for v in moved[:3]], centroid, atol=0.1)
    assert moved[3] == "spot"
    assert pirate_command("apply", out, files / "p.csv", "--inverse", "--out", files / "q.csv")[0] == 0
    back = (files / "q.csv").read_text().splitlines()[1].split(",")
    np.testing.assert_allclose([float(v) for v in back[:3]], [x, y, z], atol=0.02)


def test_evaluate_measures_labels_points_and_folding(files: Path, pirate_command: Command) -> None:
    out = registered(files, pirate_command)
    fixed = read_image(files / "fixed.nii.gz").grid
    rows = "\n".join(",".join(map(str, fixed.to_world(p))) for p in ([15, 20], [22, 18]))
    (files / "f.csv").write_text(f"x,y,z\n{rows}\n")
    shift = "\n".join(",".join(map(str, fixed.to_world(p))) for p in ([16.5, 19], [23.5, 17]))
    (files / "m.csv").write_text(f"x,y,z\n{shift}\n")
    code, said, err = pirate_command(
        "evaluate", out, "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels",
        files / "moving_labels.nii.gz", "--fixed-points", files / "f.csv", "--moving-points", files / "m.csv",
        "--out", files / "e.json",
    )  # fmt: skip
    assert code == 0, err
    assert "landmark error" in said
    found = json.loads((files / "e.json").read_text())
    run = json.loads((out / "run.json").read_text())
    assert found["folds_percent"] == run["metrics"]["folds_percent"]
    assert found["labels"]["mean"]["dice"] > found["labels"]["mean"]["dice_before"]
    assert found["labels"]["mean"]["hd95_mm"] > 0
    assert found["points_mm"]["after"]["mean"] < 0.5 * found["points_mm"]["before"]["mean"]


def test_convert_there_and_back(tmp_path: Path, pirate_command: Command, pair: Callable[..., object]) -> None:
    fixed, moving = pair((20, 22, 18))  # type: ignore[misc]
    for name, image in (("fixed", fixed), ("moving", moving)):
        write_image(tmp_path / f"{name}.nii.gz", image.data, image.grid)
    out = registered(tmp_path, pirate_command, "--affine", "none")
    grids = ("--fixed", tmp_path / "fixed.nii.gz", "--moving", tmp_path / "moving.nii.gz")
    original = nib.load(out / "moving_to_fixed_warp.nii.gz").get_fdata()
    for form, name in (("fsl", "fsl.nii.gz"), ("l2r", "disp_f_m.nii.gz"), ("h5", "t.h5")):
        assert pirate_command("convert", out, "--to", form, "--out", tmp_path / name, *grids)[0] == 0
        code, _, err = pirate_command(
            "convert", tmp_path / name, "--to", "itk", "--out", tmp_path / f"{form}.nii.gz", "--force", *grids
        )
        assert code == 0, err
        np.testing.assert_allclose(nib.load(tmp_path / f"{form}.nii.gz").get_fdata(), original, atol=1e-4)


BAD = [
    (("register", "{fixed}", "missing.nii.gz", "--out", "{out}"), 3, "missing.nii.gz"),
    (("register", "{fixed}", "{text}", "--out", "{out}"), 3, "expected"),
    (("register", "{fixed}", "{moving}"), 2, "--out"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--preset", "magic"), 2, "the presets are"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--prior", "magic"), 2, "possible are"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--set", "alpha"), 2, "expected NAME=VALUE"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--set", "colour=1"), 2, "there is no setting"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--write", "soup"), 2, "expected all"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--prefer", "pform"), 2, "sform or qform"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--memory-limit", "0.02"), 6, "needs about"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--set", "iterations=3",
      "--require-convergence", "--set", "tolerance=1e-9"), 5, "not converged"),
    (("register", "{fixed}", "{moving}", "--out", "{out}", "--preset", "paper",
      "--require-convergence"), 2, "needs a tolerance"),
    (("apply", "{nowhere}", "{moving}", "--out", "{out}.nii.gz"), 3, "no such file or folder"),
    (("apply", "{full}", "points.csv", "--out", "{out}.nii.gz"), 2, "points stay points"),
    (("register", "{fixed}", "{moving}", "--out", "{text}"), 4, "cannot be written"),
    (("register", "{fixed}", "{moving}", "--out", "{full}"), 4, "--force"),
    (("register", "{fixed}", "{fixed}", "--out", "{out}", "--set", "iterations=2"), 1, "identical already"),
    (("apply", "{full}", "{moving}", "--out", "{out}.nii.gz"), 3, "run.json"),
    (("apply", "{full}", "{moving}", "--out", "{moving}"), 4, "exists already"),
    (("apply", "{full}", "{moving}", "--vote", "--out", "{out}.nii.gz"), 2, "add --labels"),
    (("convert", "{full}", "--to", "spm", "--out", "{out}.nii.gz"), 2, "expected one of itk"),
    (("evaluate", "{full}", "--fixed-labels", "{moving}"), 2, "give both"),
    (("demo", "--out", "{full}"), 4, "--force"),
    (("sing",), 2, "sing"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "sentence"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_a_bad_command_leaves_with_its_code_and_a_sentence(
    files: Path, pirate_command: Command, words: tuple[str, ...], code: int, sentence: str
) -> None:
    (files / "text.nii.gz").write_text("not an image")
    (files / "full").mkdir()
    (files / "full" / "old.txt").write_text("old")
    places = {
        "fixed": files / "fixed.nii.gz", "moving": files / "moving.nii.gz", "text": files / "text.nii.gz",
        "full": files / "full", "out": files / "out", "nowhere": files / "nowhere",
    }  # fmt: skip
    got, _, err = pirate_command(*(word.format(**places) for word in words))
    assert got == code, err
    assert sentence in err
    assert "Traceback" not in err
    assert (files / "full" / "old.txt").read_text() == "old"


def test_debug_shows_the_traceback(files: Path, pirate_command: Command) -> None:
    code, _, err = pirate_command(
        "register", files / "fixed.nii.gz", "none.nii.gz", "--out", files / "o", "--debug"
    )
    assert code == 3
    assert "Traceback" in err


def test_ctrl_c_and_exhausted_memory_have_their_codes(
    files: Path, pirate_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pirate.cli.registering as registering

    for error, expected in (
        (KeyboardInterrupt(), 130), (MemoryError(), 6),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 6),
        (RuntimeError("a surprise"), 1),
    ):  # fmt: skip

        def fail(request: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(registering, "run", fail)
        code, _, err = pirate_command(
            "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", files / "o"
        )
        assert code == expected
        assert err.startswith("pirate: ")


def test_doctor_says_what_there_is(pirate_command: Command) -> None:
    code, said, _ = pirate_command("doctor", "--threads", "1")
    assert code == 0
    for word in (
        "pirate",
        "torch",
        "compiled kernels",
        "threads: 1",
        "memory",
        "the steps of the default preset",
    ):
        assert word in said


def test_help_and_version_import_nothing_heavy() -> None:
    """``pirate --help`` must answer at once: no torch, numpy or matplotlib before a command runs."""
    for option in ("--help", "--version"):
        code = (
            f"import sys; sys.argv = ['pirate', '{option}']\n"
            "from pirate.cli import main\n"
            "try:\n    main()\nexcept SystemExit as stop:\n    code = stop.code\n"
            "heavy = {'torch', 'numpy', 'scipy', 'nibabel', 'matplotlib', 'h5py'} & set(sys.modules)\n"
            "assert not heavy, heavy\nassert not code, code\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "pirate" in done.stdout


def test_points_outside_the_field_are_named(files: Path, pirate_command: Command) -> None:
    out = registered(files, pirate_command)
    (files / "far.csv").write_text("x,y,z\n0,0,0\n5000,0,0\n")
    code, _, err = pirate_command("apply", out, files / "far.csv", "--out", files / "moved.csv")
    assert code == 0
    assert "1 of 2 points lie outside the field" in err


def test_a_wrong_number_of_threads_in_the_environment_is_refused(
    files: Path, pirate_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIRATE_NUM_THREADS", "abc")
    code, _, err = pirate_command(
        "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", files / "out"
    )
    assert code == 2
    assert "PIRATE_NUM_THREADS" in err
