"""One protocol for every method: the same pair, the same measures."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import labels_of

import pirate
from pirate.baselines import answers, protocol
from pirate.baselines.child import Outcome, trace_of
from pirate.baselines.options import changed
from pirate.baselines.parts import Fields
from pirate.baselines.protocol import METHODS, find, register_with, rival_images
from pirate.baselines.symnet import SYMNet
from pirate.baselines.trained import TASK
from pirate.baselines.voxelmorph import VoxelMorph
from pirate.errors import InputError, MemoryExceeded, UsageError
from pirate.image import Image
from pirate.io.weights import Card, save_weights
from pirate.registration.pair import Pair, Sources
from pirate.registration.register import register
from pirate.registration.result import Registration
from pirate.registration.working import working_images
from pirate.reporting.registration import draw
from pirate.settings import PRESETS
from pirate.solvers.solution import Status

Maker = Callable[[tuple[int, ...]], tuple[Image, Image]]
QUICK: dict[str, dict[str, Any]] = {
    "log-demons": {"iterations": 20},
    "nodeo": {"iterations": 3},
    "nodeo:multi-step": {"iterations": 2, "steps": 2},
    "demons-sitk": {"iterations": 20},
    "demons-sitk:diffeomorphic": {"iterations": 20},
}


def labelled(image: Image) -> Image:
    return Image(labels_of(image.data), image.grid, image.name + " labels")


def test_the_methods_are_the_presets_and_the_rivals() -> None:
    rivals = {"log-demons", "nodeo", "syn", "greedy", "demons-sitk", "voxelmorph", "symnet", "gradirn"}
    assert set(METHODS) == {*PRESETS, *rivals}
    assert {n for n, m in METHODS.items() if m.ours} == set(PRESETS)
    assert {n for n, m in METHODS.items() if m.needs_weights} == {"voxelmorph", "symnet", "gradirn"}
    assert {n for n, m in METHODS.items() if m.symmetric} == {"log-demons", "syn", "symnet"}
    assert {n for n, m in METHODS.items() if m.child} == {"syn", "greedy", "demons-sitk"}
    assert all(m.ndims == (2, 3) and m.about for m in METHODS.values())
    assert set(METHODS) == {*PRESETS, *protocol.SOLVERS, *protocol.CHILDREN}


def test_names_and_presets() -> None:
    assert find("syn")[1] == "cc"
    assert find("syn:antspy-default")[1] == "antspy-default"
    assert find("greedy")[1] == "wncc"
    assert find("default")[1] == ""
    with pytest.raises(UsageError, match="there is no method 'elastix'; the methods are fast, default"):
        find("elastix")
    with pytest.raises(UsageError, match="syn has no preset 'x'; expected one of cc, antspy-default"):
        find("syn:x")
    with pytest.raises(UsageError, match="symnet has no preset 'x'; expected none"):
        find("symnet:x")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("shape", [(40, 44), (24, 26, 22)])
def test_a_rival_gives_what_register_gives(
    name: str, shape: tuple[int, ...], pair: Maker, tmp_path: Path
) -> None:
    fixed, moving = pair(shape)
    found = register_with(
        name, fixed, moving, options=QUICK[name], fixed_labels=labelled(fixed), moving_labels=labelled(moving),
        affine="none", threads=1, seconds=300,
    )  # fmt: skip
    assert isinstance(found, Registration)
    known = register(fixed, moving, preset="fast", affine="none", settings={"iterations": 2}, threads=1)
    assert set(known.metrics) - {"estimated_solve_seconds", "estimated_memory_mb"} <= set(found.metrics)
    assert found.metrics["method"].split(":")[0] == name.split(":")[0]
    assert found.metrics["options"]["iterations"] in (20, (20,), 3, 2)
    assert found.metrics["repaired_voxels"] == 0
    assert {"read", "affine", "prepare", "solve", "invert", "resample", "measure"} <= set(found.timings)
    assert found.field.shape == (len(shape), *shape)
    if not name.startswith("nodeo"):
        assert found.metrics["dice"] > found.metrics["dice_before"]
        assert found.metrics["penalty_after"] < found.metrics["penalty_before"]
    found.save(tmp_path / "out", write=("warp", "inverse", "warped"))
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["metrics"]["method"] == record["method"] == found.metrics["method"]


def test_a_preset_of_ours_is_register_itself(pair: Maker) -> None:
    fixed, moving = pair((40, 44))
    options = {"iterations": 5}
    ours = register(fixed, moving, preset="fast", settings=options, threads=1)
    found = pirate.register_with("fast", fixed, moving, options=options, threads=1)
    np.testing.assert_array_equal(found.field, ours.field)
    assert found.rival is None


def test_the_default_start_is_the_affine_one(pair: Maker) -> None:
    fixed, moving = pair((40, 44))
    by_default, found, headers = (
        register_with("log-demons", fixed, moving, affine=start, options={"iterations": 5}, threads=1)
        for start in (None, "affine", "none")
    )
    np.testing.assert_array_equal(by_default.field, found.field)
    assert np.array_equal(by_default.affine.matrix, found.affine.matrix)
    assert not np.allclose(found.affine.matrix, np.eye(4))
    np.testing.assert_array_equal(headers.affine.matrix, np.eye(4))


def test_the_record_says_what_was_run_and_by_what_it_was_measured(pair: Maker, tmp_path: Path) -> None:
    found = register_with(
        "nodeo:multi-step", *pair((30, 33)), options={"iterations": 2, "seed": 7}, threads=1
    )
    found.save(tmp_path / "out", write=("warped",))
    record, metrics = (
        json.loads((tmp_path / "out" / name).read_text()) for name in ("run.json", "metrics.json")
    )
    assert record["method"] == metrics["method"] == "nodeo:multi-step"
    assert record["settings"] == metrics["options"]
    assert (record["settings"]["iterations"], record["settings"]["steps"], record["seeds"]) == (2, 8, [7])
    assert "prior_sha256" not in record
    assert record["measured_by"]["penalty"] == metrics["penalty"] == "local"
    assert "nodeo:multi-step, FINISHED, 2 iterations" in repr(found)
    ours = register(*pair((30, 33)), preset="fast", settings={"iterations": 2}, threads=1)
    ours.save(tmp_path / "ours", write=("warped",))
    known = json.loads((tmp_path / "ours" / "run.json").read_text())
    assert known["method"] == "pirate"
    assert "measured_by" not in known


@pytest.mark.parametrize(("name", "total"), [("log-demons", 6), ("nodeo", 4)])
def test_progress_is_told_after_every_iteration(name: str, total: int, pair: Maker) -> None:
    seen: list[tuple[str, int, int]] = []
    options = {"iterations": 3, "tolerance": 0.0} if name == "log-demons" else {"iterations": 4}
    found = register_with(
        name, *pair((60, 64)), options=options, threads=1,
        progress=lambda stage, done, all_, record: seen.append((stage, done, all_)),
    )  # fmt: skip
    assert seen == [(name, k, total) for k in range(1, total + 1)]
    assert len(found.trace) == total


def test_maps_are_made_of_a_rivals_field_too(pair: Maker) -> None:
    found = register_with("log-demons", *pair((40, 44)), options={"iterations": 3}, threads=1, maps=True)
    assert "log_jacobian" in found.maps
    assert "maps" in found.timings
    assert found.metrics["surprise_score"] > 0


def test_the_memory_limit_is_checked(pair: Maker) -> None:
    fixed, moving = pair((30, 33))
    with pytest.raises(MemoryExceeded, match="needs about"):
        register_with("nodeo", fixed, moving, memory_limit=0.001)
    with pytest.raises(UsageError, match="the memory limit is nan GB"):
        register_with("nodeo", fixed, moving, memory_limit=math.nan)


def test_a_missing_package_is_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"SyN needs the package ants.*pip install 'pirate-reg\[baselines\]'"
    ):
        register_with("syn", "no such file", "nor this")


def test_a_tool_that_takes_its_time_is_heard_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answers, "INTERVAL", 0.02)
    monkeypatch.setattr(logging.getLogger("pirate"), "propagate", True)
    with caplog.at_level(logging.INFO, "pirate"), answers.speaking("syn:cc"):
        time.sleep(0.3)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) >= 2
    assert re.fullmatch(r"syn:cc has been running for \d+ s", said[0])
    caplog.clear()
    with caplog.at_level(logging.INFO, "pirate"):
        time.sleep(0.1)
    assert not caplog.records  # it is silent when the tool has ended


def test_log_demons_brings_its_own_inverse(pair: Maker) -> None:
    found = register_with(
        "log-demons", *pair((40, 44)), affine="none", options={"iterations": [30]}, threads=1
    )
    assert found.metrics["inverse_error_median_voxels"] < 0.02
    assert found.metrics["folds_percent"] == 0
    assert len(found.trace) > 20


def test_folds_are_reported_as_they_are(pair: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, moving = pair((24, 26))
    folded = torch.zeros(1, 2, 24, 26)
    folded[0, 0, 12] = -3.0
    answer = Outcome(folded, None, 1.5, 77_000_000, trace_of([]))
    monkeypatch.setitem(protocol.CHILDREN, "demons-sitk", lambda pair, constants, limits: answer)
    found = register_with("demons-sitk", fixed, moving, affine="none")
    np.testing.assert_array_equal(found.field, folded[0])
    assert found.metrics["folded_voxels"] > 20
    assert found.metrics["folds_percent"] > 1
    assert any("fold" in flag for flag in found.flags)
    assert found.peak_memory == 77_000_000  # the child's, not ours
    assert found.timings["solve"] == 1.5
    assert found.metrics["residual"] is None
    assert found.trace == ()  # it told nothing
    assert found.status is Status.ENDED


def test_a_child_is_given_threads_time_and_memory(pair: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def fake(pair: Pair, constants: Any, limits: Any) -> Outcome:
        seen.extend([constants, limits])
        return Outcome(torch.zeros(1, 2, 24, 26), torch.zeros(1, 2, 24, 26), 1.0, 1, trace_of([1.0]))

    monkeypatch.setitem(protocol.CHILDREN, "syn", fake)
    register_with(
        "syn:antspy-default",
        *pair((24, 26)),
        options={"iterations": [3, 2, 1]},
        threads=2,
        seconds=9,
        memory_limit=4,
    )
    constants, limits = seen
    assert constants.metric == "mattes"
    assert constants.iterations == (3, 2, 1)
    assert (limits.threads, limits.seconds, limits.memory) == (2, 9, 4_000_000_000)


def test_a_rival_starts_from_the_affine(pair: Maker) -> None:
    """A moving image far off is found by the affine; the rival then only adds the rest."""
    fixed, moving = pair((40, 44))
    away = np.eye(4)
    away[0, 3] = 6.0
    shifted = Image(moving.data, type(moving.grid)(moving.grid.shape, away @ moving.grid.affine), "moving")
    found = register_with("log-demons", fixed, shifted, affine="rigid", options={"iterations": 20}, threads=1)
    middle = fixed.data[10:-10, 10:-10]
    assert np.corrcoef(found.warped.data[10:-10, 10:-10].ravel(), middle.ravel())[0, 1] > 0.97
    assert abs(found.affine.matrix[0, 3]) > 3


def test_rival_images_are_the_working_images_without_margins(pair: Maker) -> None:
    fixed, moving = pair((30, 32))
    wide = Image(
        np.pad(moving.data, 6, mode="edge"),
        type(moving.grid)((42, 44), _moved_origin(moving)), "wide",
    )  # fmt: skip
    for source in (moving, wide):
        both = Pair.read(Sources(fixed, source))
        ours, theirs = (
            working_images(both, torch.device("cpu"), robust=True),
            rival_images(both, torch.device("cpu")),
        )
        cut = tuple(slice(a, a + n) for (a, _), n in zip(both.margins, (30, 32), strict=True))
        assert torch.equal(ours.moving[(0, 0, *cut)], theirs.moving[0, 0])
        assert torch.equal(ours.fixed[(0, 0, *cut)], theirs.fixed[0, 0])
        assert theirs.fixed_mask is None


def _moved_origin(image: Image) -> np.ndarray:
    affine = image.grid.affine.copy()
    affine[:3, 3] = image.grid.to_world([-6, -6])
    return affine


def network_file(path: Path, network: torch.nn.Module) -> Path:
    card = Card(TASK, network.architecture(), 2, 0.0, 0.0, 1.0, "none", False, "2026-01-01")
    save_weights(path, network.state_dict(), card)
    return path


@pytest.mark.parametrize(("name", "kind"), [("voxelmorph", VoxelMorph), ("symnet", SYMNet)])
def test_a_network_is_plugged_in_by_its_weights(
    name: str, kind: type[torch.nn.Module], pair: Maker, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    fixed, moving = pair((40, 44))
    network = kind(ndim=2)
    weights = network_file(tmp_path / "w.safetensors", network)
    found = register_with(name, fixed, moving, weights=weights, affine="none", threads=1)
    images = rival_images(Pair.read(Sources(fixed, moving)), torch.device("cpu"))
    with torch.no_grad():
        expected: Fields = network.eval().fields(images.fixed, images.moving)
    np.testing.assert_allclose(found.field, expected.field[0], atol=1e-5)
    assert found.metrics["weights"] == str(weights)
    assert found.metrics["weights_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert found.trace == ()
    found.save(tmp_path / "out", write=("figures",), figures=draw)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["weights_sha256"] == found.metrics["weights_sha256"]
    assert (record["status"]["name"], record["iterations"]) == ("ENDED", 0)
    assert not (tmp_path / "out" / "figures" / "convergence.png").exists()
    with pytest.raises(InputError, match="2-D images"):
        register_with(name, *pair((24, 24, 24)), weights=weights, threads=1)
    with pytest.raises(UsageError, match="takes no settings"):
        register_with(name, fixed, moving, weights=weights, options={"x": 1})


def test_weights_are_asked_for_and_refused_where_there_are_none(pair: Maker) -> None:
    fixed, moving = pair((20, 22))
    with pytest.raises(
        UsageError, match=r"give its weights file \(--weights\), made by `pirate train symnet`"
    ):
        register_with("symnet", fixed, moving)
    with pytest.raises(
        InputError, match=r"none\.safetensors: there is no such file; expected the weights of symnet"
    ):
        register_with("symnet", fixed, moving, weights="none.safetensors")
    with pytest.raises(UsageError, match="log-demons takes no weights file"):
        register_with("log-demons", fixed, moving, weights="w.safetensors")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"iteration": 3},
            "log-demons: there is no setting 'iteration'; the settings are levels, iterations",
        ),
        ({"terms": 2.5}, "log-demons: terms is 2.5; expected a value of type int"),
        ({"iterations": [1, "x"]}, "log-demons: iterations is 'x'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        register_with("log-demons", "no such file", "nor this", options=options)


def test_options_are_checked_by_type() -> None:
    settings = METHODS["demons-sitk"].presets["fast-symmetric"]
    assert changed(settings, {"step": 2}, "x").step == 2.0
    assert changed(settings, {"forces": "diffeomorphic"}, "x").forces == "diffeomorphic"
    with pytest.raises(UsageError, match="forces is 'slow'; expected one of fast-symmetric, diffeomorphic"):
        changed(settings, {"forces": "slow"}, "x")
