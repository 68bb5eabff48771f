"""Other tools in child processes: what they are told, what comes back, and how they fail."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import blobs

from pirate.baselines import child, child_tools, demons_sitk, greedy, syn
from pirate.baselines.child import Limits, Outcome, Tool, plain, read_warp, run_tool, trace_of, why
from pirate.errors import InputError, PirateError, UsageError
from pirate.grid import Grid
from pirate.io.fields import write_field
from pirate.io.nifti import read_image
from pirate.registration.apply import apply
from pirate.registration.finish import with_error
from pirate.registration.pair import Pair, Sources
from pirate.transform import Affine, Displacement

CORONAL = np.array([[0, 0, 1.0, 3], [1.2, 0, 0, -4], [0, 0.8, 0, 5], [0, 0, 0, 1]])
"""Axes permuted, voxels no cubes; in 2-D a plane that ITK cannot place."""

SHORT: dict[str, Callable[[Pair, Limits], Outcome]] = {
    "syn": lambda p, limits: syn.syn(p, syn.SynSettings(iterations=(20, 20, 10, 5)), limits),
    "greedy": lambda p, limits: greedy.greedy(p, greedy.GreedySettings(iterations=(20, 20, 10)), limits),
    "sv": lambda p, limits: greedy.greedy(
        p, greedy.GreedySettings(iterations=(20, 20, 10), stationary=True), limits
    ),
    "fast-symmetric": lambda p, limits: demons_sitk.demons_sitk(
        p, demons_sitk.SitkSettings(iterations=40), limits
    ),
    "diffeomorphic": lambda p, limits: demons_sitk.demons_sitk(
        p, demons_sitk.SitkSettings(iterations=40, forces="diffeomorphic"), limits
    ),
}
NEEDS = {"syn": "ants", "greedy": "picsl_greedy", "sv": "picsl_greedy"}


def made(shape: tuple[int, ...], affine: Affine | str = "none") -> Pair:
    """A pair that differs by a shift of 1.5, -1.0 (, 0.8) voxels."""
    fixed, moving = blobs(shape), blobs(shape, shift=(1.5, -1.0, 0.8)[: len(shape)])
    return Pair.read(Sources((fixed, CORONAL), (moving, CORONAL), affine=affine))


def middle(field: torch.Tensor) -> torch.Tensor:
    """Mean vector of a field in the inner third of the image, (d,), voxels."""
    inner = field[(0, slice(None), *[slice(n // 3, -(n // 3)) for n in field.shape[2:]])]
    return inner.flatten(1).mean(1)


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("shape", [(40, 44), (30, 32, 28)])
def test_a_tool_finds_the_shift_in_our_voxels(name: str, shape: tuple[int, ...]) -> None:
    if importlib.util.find_spec(NEEDS.get(name, "SimpleITK")) is None:
        pytest.skip("the tool is not installed")
    found = SHORT[name](made(shape), Limits(threads=1, seconds=300))
    assert found.field.shape == (1, len(shape), *shape)
    expected = torch.tensor([1.5, -1.0, 0.8][: len(shape)])
    assert float((middle(found.field) - expected).abs().max()) < 0.3
    assert found.seconds > 0
    assert 20e6 < found.peak_memory < 2e9
    assert len(found.trace) > 10
    assert found.trace[-1].energy < found.trace[0].energy
    assert (found.inverse is not None) == (name == "syn")
    if found.inverse is not None:
        assert float(with_error(found.field, found.inverse).error[0, 10:-10, 10:-10].max()) < 0.1


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("shape", [(33, 41), (21, 26, 17)])
def test_what_we_read_is_what_the_tool_wrote(
    name: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SimpleITK reads the tool's own files: its vectors are ours in mm, its resampling with them is our warp.

    The moving image goes on beyond the fixed one, so that its origin is another.
    """
    if importlib.util.find_spec(NEEDS.get(name, "SimpleITK")) is None:
        pytest.skip("the tool is not installed")
    sitk = pytest.importorskip("SimpleITK")
    whole = tuple(n + 8 for n in shape)
    there = CORONAL.copy()
    there[:3, 3] -= CORONAL[:3, : len(shape)] @ np.full(len(shape), 4.0)
    fixed = (0.1 + blobs(whole))[tuple(slice(4, -4) for _ in shape)]
    moving = 0.1 + blobs(whole, shift=(1.5, -1.0, 0.8)[: len(shape)])
    moving[(0,) * len(shape)] = 0  # elsewhere above its smallest value, so that the margin shows something
    pair = Pair.read(Sources((fixed, CORONAL), (moving, there)))
    assert np.all(np.array(pair.margins) > 0)

    def kept(tool: Tool, folder: Path, limits: Limits) -> str:
        said = run_child(tool, folder, limits)
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        return said

    run_child = child._run
    monkeypatch.setattr(child, "_run", kept)
    rough = syn.SynSettings(iterations=(8, 4), shrinks=(2, 1), sigmas=(1.0, 0.0), sampling=2, step=0.5)
    found = syn.syn(pair, rough, Limits(1, 300)) if name == "syn" else SHORT[name](pair, Limits(1, 300))
    warps = {"warp": found.field} | ({} if found.inverse is None else {"inverse": found.inverse})
    for file, ours in warps.items():
        written = sitk.ReadImage(str(tmp_path / f"{file}.nii.gz"), sitk.sitkVectorFloat64)
        vectors = np.moveaxis(sitk.GetArrayFromImage(written), -1, 0)  # (d, z, y, x), mm
        vectors = vectors.transpose(0, *range(len(shape), 0, -1))
        spacing = np.reshape(pair.fixed.grid.spacing, (-1, *[1] * len(shape)))
        np.testing.assert_allclose(ours[0], vectors / spacing, atol=1e-4)
    images = [sitk.ReadImage(str(tmp_path / f"{n}.nii.gz"), sitk.sitkFloat64) for n in ("fixed", "moving")]
    warp_ = sitk.ReadImage(str(tmp_path / "warp.nii.gz"), sitk.sitkVectorFloat64)
    theirs = sitk.Resample(images[1], images[0], sitk.DisplacementFieldTransform(warp_), sitk.sitkLinear)
    forward, _ = pair.transforms(found.field, found.field)
    ours_ = apply(pair.moving, forward, pair.fixed.grid).data
    inner = tuple(slice(3, -3) for _ in shape)
    np.testing.assert_allclose(ours_[inner], sitk.GetArrayFromImage(theirs).T[inner], atol=2e-3)
    assert (
        np.abs(ours_ - fixed)[inner].mean()
        < 0.7 * np.abs(moving[tuple(slice(4, -4) for _ in shape)] - fixed)[inner].mean()
    )


DIRECT = """
import sys, ants
folder = sys.argv[1]
fixed, moving = (ants.image_read(f"{folder}/{name}.nii.gz", dimension=2) for name in ("fixed", "moving"))
ants.registration(fixed, moving, "SyNOnly", initial_transform="Identity", outprefix=f"{folder}/direct_")
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ants") is None, reason="ANTs is not installed")
def test_syn_is_what_antspy_runs(tmp_path: Path) -> None:
    """Our words for antspy-default give the very warp of ``ants.registration(..., "SyNOnly")``."""
    pair = made((40, 44))
    ours = syn.syn(pair, syn.PRESETS["antspy-default"], Limits(1, 300)).field
    child._write_copies(tmp_path, pair)
    threads = dict.fromkeys(child.THREADS, "1")
    subprocess.run([sys.executable, "-c", DIRECT, str(tmp_path)], check=True, env=os.environ | threads)
    (warp,) = (p for p in tmp_path.glob("direct_*Warp.nii.gz") if "Inverse" not in p.name)
    assert float(ours.abs().max()) > 1
    assert torch.allclose(ours, read_warp(warp, plain(pair.fixed.grid)), atol=1e-4)


def test_the_moving_image_reaches_the_tool_through_the_affine_with_its_margin() -> None:
    shift = np.eye(4)
    shift[1, 3] = 2.4  # two voxels of axis 0
    there = made((40, 44), Affine(shift))
    found = SHORT["fast-symmetric"](there, Limits(1, 300))
    assert float((middle(found.field) - torch.tensor([-0.5, -1.0])).abs().max()) < 0.3


def test_a_moving_image_on_the_lattice_is_handed_over_as_it_is() -> None:
    fixed = blobs((24, 26, 22))
    affine = CORONAL.copy()
    affine[:3, 3] += CORONAL[:3, :3] @ [5, -3, 0]
    small = blobs((15, 30, 22))
    assert child.first_voxel(Pair.read(Sources((fixed, CORONAL), (small, affine)))) == (5, -3, 0)
    assert (
        child.first_voxel(Pair.read(Sources((fixed, CORONAL), (small, affine), affine=Affine(np.eye(4)))))
        is None
    )
    off = affine.copy()
    off[0, 3] += 0.01
    assert child.first_voxel(Pair.read(Sources((fixed, CORONAL), (small, off)))) is None
    stretched = affine.copy()
    stretched[:3, 0] *= 1.01
    assert child.first_voxel(Pair.read(Sources((fixed, CORONAL), (small, stretched)))) is None


@pytest.mark.parametrize("affine", ["none", Affine(np.eye(4))])
def test_a_tool_gets_the_moving_images_own_voxels_or_those_on_the_lattice(
    affine: Affine | str, tmp_path: Path
) -> None:
    """Off the lattice, or after a start, the voxels are resampled and what is not there is background."""
    fixed, moving = blobs((24, 26)), 0.1 + blobs((15, 20))
    there = CORONAL.copy()
    there[:3, 3] += CORONAL[:3, :2] @ [5, 4]
    child._write_copies(tmp_path, Pair.read(Sources((fixed, CORONAL), (moving, there), affine=affine)))
    found = read_image(tmp_path / "moving.nii.gz").data
    if affine == "none":
        np.testing.assert_array_equal(found, moving)
    else:
        assert found.shape == (24, 26)
        np.testing.assert_allclose(found[5:20, 4:24], moving, atol=1e-5)
        assert found[0, 0] == pytest.approx(moving.min())


def test_the_plain_frame_keeps_the_spacing_and_lies_along_itk() -> None:
    grid = plain(Grid((5, 6, 7), CORONAL))
    assert grid.spacing == pytest.approx((1.2, 0.8, 1.0))
    np.testing.assert_allclose(grid.affine, np.diag([-1.2, -0.8, 1.0, 1.0]))
    assert plain(Grid((5, 6), CORONAL)).ndim == 2


def test_a_warp_is_read_in_voxels_and_only_where_it_belongs(tmp_path: Path) -> None:
    grid = plain(Grid((6, 7, 8), CORONAL))
    field = np.random.default_rng(0).normal(size=(3, 6, 7, 8)).astype(np.float32)
    write_field(tmp_path / "warp.nii.gz", Displacement(grid, field))
    np.testing.assert_allclose(read_warp(tmp_path / "warp.nii.gz", grid)[0], field, atol=1e-5)
    with pytest.raises(PirateError, match="another place than the fixed image"):
        read_warp(tmp_path / "warp.nii.gz", plain(Grid((6, 7, 9), CORONAL)))


@pytest.mark.parametrize(
    ("call", "module"),
    [(syn.syn, "ants"), (greedy.greedy, "picsl_greedy"), (demons_sitk.demons_sitk, "SimpleITK")],
)
def test_a_missing_package_is_one_sentence_with_the_extra(
    call: Callable[[Pair], Outcome], module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=module) as refused:
        call(made((20, 22)))
    assert "pip install 'pirate-reg[baselines]'" in str(refused.value)
    assert str(refused.value).count(".") == 1


def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Tool:
    """A tool that is this script."""
    path = tmp_path / "tool.py"
    path.write_text(text)
    monkeypatch.setattr(child, "SCRIPT", path)
    return Tool("x", "the tool", ("json",))


def test_a_tool_that_fails_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = script(tmp_path, monkeypatch, "print('begun'); raise SystemExit('no such metric')")
    with pytest.raises(PirateError, match="the tool gave no result: exit code 1, last words: no such metric"):
        run_tool(tool, made((20, 22)), {}, Limits())
    silent = script(tmp_path, monkeypatch, "")
    with pytest.raises(PirateError, match=r"exit code 0, last words: no output\."):
        run_tool(silent, made((20, 22)), {}, Limits())
    assert why(-9, "one\ntwo\n") == "killed by signal 9, last words: two."


def test_a_tool_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "pid"
    text = (
        f"import os, time, pathlib; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    tool = script(tmp_path, monkeypatch, text)
    with pytest.raises(PirateError, match="the tool took longer than the 5 s allowed"):
        run_tool(tool, made((20, 22)), {}, Limits(seconds=5))
    if told.exists():  # on a very busy machine it may not even have begun
        with pytest.raises(ProcessLookupError):
            os.kill(int(told.read_text()), 0)


def test_a_child_gets_few_variables_its_threads_and_our_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "1")
    out = tmp_path / "seen.json"
    text = (
        "import json, os, sys, pathlib\njob = json.loads(pathlib.Path(sys.argv[1]).read_text())\n"
        f"pathlib.Path({str(out)!r}).write_text(json.dumps([dict(os.environ), job, sys.path]))\n"
    )
    with pytest.raises(PirateError):
        run_tool(script(tmp_path, monkeypatch, text), made((20, 22)), {"a": 1}, Limits(threads=3))
    variables, job, path = json.loads(out.read_text())
    assert "SECRET_TOKEN" not in variables
    assert variables["OMP_NUM_THREADS"] == variables["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] == "3"
    assert (job["threads"], job["parameters"], job["ndim"]) == (3, {"a": 1}, 2)
    assert str(child.SCRIPT.parent) not in path
    assert not Path(job["fixed"]).exists()  # the copies are gone


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory limits are Linux's")
def test_a_tool_that_needs_more_memory_than_allowed_is_told() -> None:
    with pytest.raises(PirateError, match="demons-sitk gave no result"):
        SHORT["fast-symmetric"](made((30, 32, 28)), Limits(1, 300, memory=5_000_000))


def test_a_trace_without_numbers_has_one_record() -> None:
    (record,) = trace_of([])
    assert math.isnan(record.energy)
    assert [r.energy for r in trace_of([3.0, 2.0])] == [3.0, 2.0]


def test_what_the_tools_are_told() -> None:
    text = " ".join(syn.words(syn.PRESETS["cc"], 3))
    for part in (
        "--metric CC[{fixed},{moving},1,4]", "--transform SyN[0.1,3,0]", "[100x70x50x20,1e-06,10]",
        "--shrink-factors 8x4x2x1", "--smoothing-sigmas 3x2x1x0vox", "--winsorize-image-intensities [0.005,0.995]",
        "--float 0", "--dimensionality 3",
    ):  # fmt: skip
        assert part in text
    assert (
        greedy.options(greedy.PRESETS["wncc"], (35, 50, 16))
        == "-d 3 -m WNCC 2x2x2 -n 100x100x40 -s 1.5mm 0.5mm"
    )
    assert (
        greedy.options(greedy.PRESETS["ncc"], (60, 40))
        == "-d 2 -m NCC 2x2 -n 100x50x10 -s 1.732vox 0.7071vox"
    )
    assert greedy.options(greedy.GreedySettings(metric="SSD", stationary=True), (60, 60, 60)).endswith(
        "0.5mm -sv"
    )
    for size, steps in ((15, "100x40"), (8, "100x40"), (7, "40"), (4, "40")):
        assert f"-n {steps} " in greedy.options(greedy.PRESETS["wncc"], (60, size))


@pytest.mark.parametrize(
    "make",
    [
        lambda: syn.SynSettings(iterations=(1, 2)),
        lambda: syn.SynSettings(metric="x"),  # type: ignore[arg-type]
        lambda: greedy.GreedySettings(metric="x"),  # type: ignore[arg-type]
        lambda: greedy.GreedySettings(metric_sigma="1.5"),
        lambda: greedy.GreedySettings(warp_sigma="1 -o x mm"),
        lambda: greedy.GreedySettings(iterations=()),
        lambda: demons_sitk.SitkSettings(forces="x"),  # type: ignore[arg-type]
        lambda: demons_sitk.SitkSettings(iterations=0),
    ],
)
def test_senseless_settings_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()


def test_the_child_says_when_ants_itself_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def fails(words: list[str]) -> int:
        seen.append(words)
        return 3

    library = types.SimpleNamespace(get_lib_fn=lambda name: fails)
    monkeypatch.setattr(importlib, "import_module", lambda name: library)
    job = {"fixed": "F", "moving": "M", "parameters": {"words": ["--metric", "CC[{fixed},{moving},1,4]"]}}
    with pytest.raises(SystemExit, match="antsRegistration ended with code 3"):
        child_tools.ants(job, tmp_path)
    assert seen[0][:2] == ["--metric", "CC[F,M,1,4]"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux ends the children of the dead")
def test_a_child_ends_with_its_parent() -> None:
    own = f"import sys; sys.path.insert(0, {str(Path(child_tools.__file__).parent)!r}); import child_tools, os, time"
    inner = (
        f"{own}; child_tools.die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(600)"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the child outlived its parent")


def test_a_child_of_nobody_does_not_start() -> None:
    own = f"import sys; sys.path.insert(0, {str(Path(child_tools.__file__).parent)!r}); import child_tools"
    done = subprocess.run(
        [sys.executable, "-c", f"{own}; child_tools.die_with_parent(-1)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the process that started this one has ended" in done.stderr
