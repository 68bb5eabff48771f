"""``pirate register --method`` and ``pirate methods``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.baselines.pairs import saved, stirred

import pirate
from pirate.baselines import protocol
from pirate.baselines.child import Outcome, trace_of
from pirate.baselines.protocol import METHODS
from pirate.baselines.voxelmorph import VoxelMorph
from pirate.io.transforms import read_transform

Command = Callable[..., tuple[int, str, str]]


def words(files: Path, *options: str | Path) -> tuple[str | Path, ...]:
    return (
        "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", files / "out", "--threads", "1", *options
    )  # fmt: skip


def test_a_rival_leaves_what_register_leaves_and_says_whose_it_is(
    files: Path, pirate_command: Command
) -> None:
    labels = (
        "--fixed-labels",
        files / "fixed_labels.nii.gz",
        "--moving-labels",
        files / "moving_labels.nii.gz",
    )
    code, said, err = pirate_command(
        *words(files, "--method", "log-demons", "--set", "iterations=20", *labels)
    )
    assert code == 0, err
    names = {p.relative_to(files / "out").as_posix() for p in (files / "out").rglob("*") if p.is_file()}
    assert names >= {
        "warped.nii.gz", "moving_to_fixed_warp.nii.gz", "fixed_to_moving_warp.nii.gz", "transform.h5", "affine.txt",
        "metrics.json", "run.json", "trace.csv", "figures/slices.png", "figures/convergence.png", "figures/labels.png",
    }  # fmt: skip
    assert said.splitlines()[0] == "method log-demons:default"
    assert "(log-demons:default " in said
    assert "preset" not in said
    record = json.loads((files / "out" / "run.json").read_text())
    assert record["method"] == record["metrics"]["method"] == "log-demons:default"
    assert record["settings"]["iterations"] == [20]
    assert record["settings"]["levels"] == [2, 1]
    assert "scheme" not in record["settings"]  # no constant of ours
    code, said, err = pirate_command("evaluate", files / "out", *labels, "--out", files / "e.json")
    assert code == 0, err
    found = json.loads((files / "e.json").read_text())
    assert found["folds_percent"] == record["metrics"]["folds_percent"]
    assert found["labels"]["mean"]["dice"] == pytest.approx(record["metrics"]["dice"], abs=2e-3)


def test_python_and_the_command_do_the_same(files: Path, pirate_command: Command) -> None:
    code, _, err = pirate_command(*words(files, "--method", "log-demons", "--set", "iterations=3", "-q"))
    assert code == 0, err
    result = pirate.register_with(
        "log-demons",
        files / "fixed.nii.gz",
        files / "moving.nii.gz",
        options={"iterations": 3},
        threads=1,
    )
    points = result.fixed.grid.to_world(np.random.default_rng(0).uniform(5, 30, (20, 2)))
    np.testing.assert_allclose(
        read_transform(files / "out", False).map(points), result.forward.map(points), atol=1e-3
    )
    assert "register_with" in dir(pirate)


def test_another_tools_run_is_told_as_its_own(
    files: Path, pirate_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(METHODS["syn"].tool), "check_installed", lambda self: None)
    seen: list[Any] = []

    def fake(pair: Any, constants: Any, limits: Any) -> Outcome:
        seen.append((constants.iterations, limits.threads))
        return Outcome(torch.full((1, 2, 40, 44), 0.1), None, 12.5, 77_000_000, trace_of([3.0, 2.0]))

    monkeypatch.setitem(protocol.CHILDREN, "syn", fake)
    code, said, err = pirate_command(
        *words(files, "--method", "syn:antspy-default", "--set", "iterations=[3,2,1]", "--affine", "none")
    )
    assert seen == [((3, 2, 1), 1)]
    assert "2 iterations; the method ended by its own rule" in said
    assert "(syn:antspy-default 12.5 s), memory 77 MB of its process" in said
    assert "syn:antspy-default runs in a process of its own (antspyx " in err
    assert code in (0, 1)
    record = json.loads((files / "out" / "run.json").read_text())
    assert record["status"]["name"] == "ENDED"
    assert "antspyx" in record["versions"]
    assert record["settings"]["metric"] == "mattes"


def test_a_network_is_given_by_its_weights(files: Path, pirate_command: Command) -> None:
    torch.manual_seed(0)
    weights = saved(files / "w.safetensors", stirred(VoxelMorph(2, "4,4", "4,4,4"), 0.01), 2)
    code, said, err = pirate_command(*words(files, "--method", "voxelmorph", "--weights", weights))
    assert code in (0, 1), err  # untrained, it need not help
    assert "iterations" not in said
    assert "the method ended by its own rule" in said
    record = json.loads((files / "out" / "run.json").read_text())
    assert record["weights"] == str(weights)
    assert len(record["weights_sha256"]) == 64
    assert not (files / "out" / "figures" / "convergence.png").exists()


@pytest.mark.parametrize("options", [("--method", "fast"), ("--method", "fast", "--preset", "fast")])
def test_a_preset_is_a_method_too(options: tuple[str, ...], files: Path, pirate_command: Command) -> None:
    quick = ("--set", "iterations=3", "--smoothness", "0.7", "-q")
    code, said, err = pirate_command(*words(files, *options, *quick))
    assert code == 0, err
    assert not said.startswith("method")
    known = pirate.register(
        files / "fixed.nii.gz", files / "moving.nii.gz", preset="fast", smoothness=0.7, settings={"iterations": 3},
        threads=1,
    )  # fmt: skip
    record = json.loads((files / "out" / "run.json").read_text())
    assert record["method"] == "pirate"
    assert record["metrics"]["penalty_after"] == known.metrics["penalty_after"]


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--method", "syn", "--preset", "default"), 2, "--method syn and --preset default say different things"),
        (("--preset", "syn"), 2, "there is no preset 'syn'; the presets are fast, default"),
        (("--method", "elastix"), 2, "there is no method 'elastix'; the methods are fast, default"),
        (("--method", "syn:fine"), 2, "syn has no preset 'fine'; expected one of cc, antspy-default"),
        (("--method", "default:x"), 2, "default has no preset 'x'; expected none"),
        (("--method", "nodeo", "--smoothness", "0.5"), 2, "--smoothness: no meaning for nodeo"),
        (("--method", "syn", "--prior", "tv", "--budget", "5"), 2, "--prior, --budget: no meaning for syn"),
        (("--method", "greedy", "--fixed-mask", "m.nii.gz"), 2, "--fixed-mask: no meaning for greedy"),
        (("--method", "symnet", "--moving-mask", "m.nii.gz"), 2, "--moving-mask: no meaning for symnet"),
        (("--method", "nodeo", "--require-convergence"), 2, "nodeo has no tolerance that could be met"),
        (("--method", "log-demons", "--set", "tolerance=0", "--require-convergence"), 2, "has no tolerance"),
        (("--method", "symnet"), 2, "symnet is a trained network; give its weights file"),
        (("--method", "symnet", "--weights", "no.safetensors"), 3, "there is no such file"),
        (("--method", "nodeo", "--weights", "w.safetensors"), 2, "nodeo takes no weights file"),
        (("--weights", "w.safetensors"), 2, "--weights: no meaning for default; a prior is given by --prior"),
        (("--method", "nodeo", "--set", "alpha=1"), 2, "nodeo: there is no setting 'alpha'"),
        (("--method", "nodeo", "--set", "iterations=2.5"), 2, "iterations is 2.5; expected a value of type int"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_sentence(
    options: tuple[str, ...], code: int, sentence: str, files: Path, pirate_command: Command
) -> None:
    found, said, err = pirate_command(*words(files, *options))
    assert (found, said) == (code, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (files / "out").exists()


def test_a_convergence_that_was_asked_for_is_checked(files: Path, pirate_command: Command) -> None:
    never = ("--set", "iterations=2", "--set", "tolerance=1e-9")
    code, _, err = pirate_command(*words(files, "--method", "log-demons", "--require-convergence", *never))
    assert code == 5
    assert "not converged: the steps were spent before" in err
    assert (files / "out" / "run.json").exists()
    code, said, err = pirate_command(
        *words(files, "--method", "log-demons", "--require-convergence", "--force")
    )
    assert code == 0, err
    assert "settled: on every level the data term stopped improving" in said


def test_a_missing_package_is_a_sentence_with_the_command(
    files: Path, pirate_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = pirate_command(*words(files, "--method", "syn"))
    assert code == 2
    assert "SyN needs the package ants, which is not here; pip install 'pirate-reg[baselines]'" in err


def test_the_methods_are_listed_with_what_they_need(
    pirate_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said, _ = pirate_command("methods")
    assert code == 0
    for method in METHODS.values():
        assert f"{method.name}: {method.about}" in said
    assert "presets cc, antspy-default; syn alone is cc" in said
    assert "needs --weights FILE, made by `pirate train gradirn`" in said
    monkeypatch.setattr(
        type(METHODS["syn"]), "versions", property(lambda self: dict.fromkeys(self.packages, "missing"))
    )
    assert (
        "needs antspyx (missing; pip install 'pirate-reg[baselines]')" in pirate_command("methods", "syn")[1]
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("greedy:sv", "    stationary=true"), ("greedy", "    stationary=false"), ("default", "    levels=[4, 2, 1]"),
        ("nodeo:multi-step", "    steps=8"), ("log-demons:authors", "    iterations=[15, 10, 5]"),
        ("log-demons", "  presets default, ends, authors; log-demons alone is default"),
        ("log-demons", '    symmetry="middle"'),
    ],
)  # fmt: skip
def test_the_settings_of_a_method_are_listed(name: str, line: str, pirate_command: Command) -> None:
    code, said, _ = pirate_command("methods", name)
    assert code == 0
    assert line in said.splitlines()
    if name == "log-demons":
        assert "the default takes the force in the middle of the flow, ends and authors at both ends" in said
    assert "settings" not in pirate_command("methods", "symnet")[1]


def test_the_help_names_every_method(pirate_command: Command) -> None:
    _, said, _ = pirate_command("register", "--help")
    joined = " ".join(said.split())
    for name in METHODS:
        assert name in joined
    logging.getLogger("pirate").handlers.clear()
