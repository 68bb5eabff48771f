"""Two processes under torchrun do what one does with the same batch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.training import small_networks
from tests.training.toy import PLAN, Carrying, Plain, Toy

from pirate.baselines.learning import METHODS
from pirate.errors import InputError, UsageError
from pirate.training.loop import HISTORY, train
from pirate.training.processes import Team
from pirate.training.run import Run

ROOT = Path(__file__).parents[2]
SCRIPT = """
import atexit, json, os, sys
from pathlib import Path
def write_threads():  # registered first, so that it runs last
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    (out / f"threads{os.environ['RANK']}.json").write_text(json.dumps(names))
atexit.register(write_threads)
import torch
from pirate.errors import PirateError
from pirate.training.loop import train
from tests.training import small_networks
from tests.training.toy import PLAN, Carrying, Plain
import dataclasses
torch.set_num_threads(1)
out = Path(sys.argv[1])
train(Plain(), PLAN, out / "run", lambda progress: progress.step == 10)
task = Plain()
result = train(task, PLAN, out / "run")
refusals = []
for wrong, plan in ((Carrying(), PLAN), (Plain(), dataclasses.replace(PLAN, batch=3))):
    try:
        train(wrong, plan, out / "refused")
    except PirateError as error:
        refusals.append(str(error))
networks = {}
for method in ("voxelmorph", "symnet", "gradirn"):
    found = train(small_networks.task(method), small_networks.PLAN, out / method)
    networks[method] = [found.losses, [row["validation_loss"] for row in found.history]]
said = {
    "networks": networks,
    "losses": result.losses, "history": result.history, "best_step": result.best_step, "first": result.first,
    "weight": task.network.first.weight.flatten().tolist(),
    "best": result.best["first.weight"].flatten().tolist(), "refusals": refusals, "ended": result.ended.name,
}
(out / f"rank{os.environ['RANK']}.json").write_text(json.dumps(said))
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    """A training by two processes, stopped after ten steps and resumed, as each of them saw it."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "script.py").write_text(SCRIPT)
    launcher = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", *launcher, str(folder / "script.py"), str(folder)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, complaint = process.communicate(timeout=240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the launcher's own processes end with it
    assert process.returncode == 0, complaint
    return folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def test_two_processes_give_the_loss_curve_and_the_weights_of_one(two, tmp_path):
    folder, said = two
    task = Plain()
    one = train(task, PLAN, tmp_path)
    assert one.losses[-1] < 0.5 * one.losses[0]
    for process in said:
        assert process["losses"] == pytest.approx(one.losses, abs=1e-6)
        checks = [row["validation_loss"] for row in process["history"]]
        assert checks == pytest.approx([row["validation_loss"] for row in one.history], abs=1e-6)
        roots = [row["gradient_norm"] for row in process["history"][1:]]
        assert roots == pytest.approx([row["gradient_norm"] for row in one.history[1:]], rel=1e-4)
        weight = torch.tensor(process["weight"])
        torch.testing.assert_close(weight, task.network.first.weight.flatten().detach(), atol=1e-5, rtol=0)
        assert (process["best_step"], process["ended"]) == (one.best_step, "STEPS")
    assert len((folder / "run" / HISTORY).read_text().splitlines()) == 1 + len(one.history)


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_train_a_network_as_one_does(method, two, tmp_path):
    """Each process has one pair of the batch of two; the losses and the validations are those of one process."""
    one = train(small_networks.task(method), small_networks.PLAN, tmp_path)
    checks = [row["validation_loss"] for row in one.history]
    assert abs(checks[-1] / checks[0] - 1) > 0.02
    for process in two[1]:
        losses, validations = process["networks"][method]
        assert losses == pytest.approx(one.losses, rel=1e-4)
        assert validations == pytest.approx(checks, rel=1e-4)


def test_all_processes_end_with_the_same_but_one_is_to_write(two):
    _, (first, second) = two
    assert (first.pop("first"), second.pop("first")) == (True, False)
    assert first == second


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists threads by Linux's /proc")
def test_no_thread_of_the_group_outlives_it(two):
    """One that does aborts the process, now and then, while the interpreter is taken down."""
    folder, _ = two
    for rank in (0, 1):
        names = json.loads((folder / f"threads{rank}.json").read_text())
        assert names
        assert not [name for name in names if "gloo" in name]


def test_what_two_processes_cannot_share_is_refused(two):
    folder, said = two
    for process in said:
        state, batch = process["refusals"]
        assert "several processes cannot share; expected one process" in state
        assert "a batch of 3 cannot be shared by 2 processes; expected a multiple of 2" in batch
    assert not (folder / "refused").exists()


def test_a_process_that_sees_another_checkpoint_refuses(tmp_path):
    train(Plain(), PLAN, tmp_path, lambda progress: progress.step == 3)

    class Elsewhere(Team):
        def told(self, number: int) -> int:
            return number + 1

    with pytest.raises(
        InputError, match="the processes see different checkpoints; expected one folder for all"
    ):
        Run(Plain(), PLAN, tmp_path, Elsewhere(0, 1, torch.device("cpu")), {}).begin()


def test_the_refusals_hold_without_a_launcher_too(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="expected one process"):
        Run(Carrying(), PLAN, tmp_path, Team(0, 2, torch.device("cpu")), {})
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="a batch of 4 cannot be shared by 3 processes"):
        train(Toy(), PLAN, tmp_path)
