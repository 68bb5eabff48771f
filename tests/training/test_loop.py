"""The training loop: what it learns, how it stops, and that a kill at any moment changes nothing."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
import safetensors
import torch
from tests.training.toy import PLAN, Carrying, Plain, Toy, weights
from torch import nn

from pirate.errors import NotConverged, OutputError, UsageError
from pirate.training.loop import CHECKPOINT, HISTORY, Ended, Plan, Progress, train
from pirate.training.plan import generator, seed_of

ROOT = Path(__file__).parents[2]


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def finished(task: Toy, out: Path) -> dict[str, torch.Tensor]:
    """What a training in `out` comes to when it is taken up again."""
    return weights(train(task, PLAN, out), task)


def test_adam_s_steps_are_those_of_torch_written_out(tmp_path):
    plan = dataclasses.replace(PLAN, clip=0.3)
    task, twin = Plain(), Plain()
    result = train(task, plan, tmp_path)
    adam = torch.optim.Adam(twin.network.parameters())
    losses = []
    for step in range(plan.steps):
        examples = [twin.example(generator(plan.seed, step, item)) for item in range(plan.batch)]
        loss, _ = twin.loss(
            twin.network, {k: torch.stack([e[k] for e in examples]) for k in ("image", "moved")}
        )
        adam.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.square().sum() for p in twin.network.parameters()]).sum().sqrt()
        for parameter in twin.network.parameters():
            parameter.grad *= min(1.0, 0.3 / (norm.item() + 1e-6))
        rise = 0.02 * (step + 1) / 4
        adam.param_groups[0]["lr"] = (
            rise if step < 4 else 0.01 * (1 + math.cos(math.pi * (step - 4) / (plan.steps - 4)))
        )
        adam.step()
        losses.append(loss.item())
    assert result.losses == pytest.approx(losses, abs=1e-6)
    for name, value in twin.network.state_dict().items():
        torch.testing.assert_close(task.network.state_dict()[name], value, atol=1e-5, rtol=1e-5)


def test_it_learns_and_keeps_the_best_weights(tmp_path):
    task = Toy()
    result = train(task, PLAN, tmp_path)
    assert (result.ended, result.step, len(result.losses), result.first) == (Ended.STEPS, 24, 24, True)
    assert [row["step"] for row in result.history] == [0, 5, 10, 15, 20, 24]
    lowest = min(result.history, key=lambda row: row["validation_loss"])
    assert lowest["validation_loss"] < 0.5 * result.history[0]["validation_loss"]
    assert result.best_step == lowest["step"]
    judge = Toy()
    judge.network.load_state_dict(result.best)
    judge.network.eval()
    assert judge.validate(judge.network)["loss"] == pytest.approx(lowest["validation_loss"], rel=1e-6)


def test_rows_of_the_history_are_means_over_their_steps(tmp_path):
    result = train(Toy(), PLAN, tmp_path)
    third = result.history[2]
    assert third["loss"] == pytest.approx(sum(result.losses[5:10]) / 5)
    assert third["root"] == pytest.approx(sum(loss**0.5 for loss in result.losses[5:10]) / 5, rel=1e-5)
    assert third["learning_rate"] == pytest.approx(sum(map(PLAN.rate, range(5, 10))) / 5)
    with (tmp_path / HISTORY).open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["validation_loss"]) for row in rows] == [r["validation_loss"] for r in result.history]
    assert rows[0]["loss"] == ""
    assert float(rows[2]["loss"]) == third["loss"]


def test_the_same_plan_gives_the_same_weights_and_leaves_the_caller_s_random_numbers_alone(tmp_path):
    first = Toy()
    torch.manual_seed(11)
    one = weights(train(first, PLAN, tmp_path / "a"), first)
    drawn = torch.rand(3)
    torch.manual_seed(11)
    assert torch.equal(drawn, torch.rand(3))
    second = Toy()
    assert same(one, weights(train(second, PLAN, tmp_path / "b"), second))
    third = Toy()
    other = dataclasses.replace(PLAN, seed=4)
    assert not same(one, weights(train(third, other, tmp_path / "c"), third))


def test_a_finished_training_is_not_trained_again(tmp_path):
    task = Toy()
    done = train(task, PLAN, tmp_path)
    written = (tmp_path / CHECKPOINT).stat().st_mtime_ns
    again_task = Toy(seed=9)
    again = train(again_task, PLAN, tmp_path, lambda progress: pytest.fail("a step was made"))
    assert same(weights(done, task), weights(again, again_task))
    assert (again.losses, again.history, again.seconds) == (done.losses, done.history, done.seconds)
    assert (tmp_path / CHECKPOINT).stat().st_mtime_ns == written


MOMENTS = (
    "example:1", "example:50", "loss:12", "validate:1", "validate:4", "update:4", "checkpoint:1", "checkpoint:4",
    "disk:1", "disk:9", "renamed:1", "renamed:8", "time:0", "time:9", "time:23", "time:51",
)  # fmt: skip


@pytest.mark.parametrize("kind", [Toy, Carrying])
def test_killed_at_any_moment_and_resumed_it_ends_with_the_same_weights(tmp_path, kind):
    whole_task = kind()
    whole = train(whole_task, PLAN, tmp_path / "whole")
    moments = MOMENTS if kind is Toy else ("loss:12", "update:14", "checkpoint:4", "time:30")
    command = [sys.executable, "-m", "tests.training.toy", kind.__name__, str(tmp_path), *moments]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    codes = [int(line) for line in done.stdout.splitlines()]
    expected = {-signal.SIGKILL}
    assert len(codes) == len(moments), done.stderr
    for number, (moment, code) in enumerate(zip(moments, codes, strict=True)):
        out = tmp_path / str(number)
        assert code in (expected | {0} if moment.startswith("time") else expected), (moment, done.stderr)
        resumed_task = kind()
        resumed = train(resumed_task, PLAN, out)
        assert same(weights(whole, whole_task), weights(resumed, resumed_task)), moment
        assert resumed.losses == whole.losses, moment
        assert [without_time(row) for row in resumed.history] == [without_time(row) for row in whole.history]
        assert (out / HISTORY).read_text().count("\n") == len(whole.history) + 1
        assert not list(out.glob(".part-*")), moment


def without_time(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name != "seconds"}


def test_asked_to_stop_it_stops_and_goes_on_later_as_if_it_had_not(tmp_path):
    whole_task, task = Toy(), Toy()
    whole = train(whole_task, PLAN, tmp_path / "whole")
    stopped = train(task, PLAN, tmp_path / "out", lambda progress: progress.step == 7)
    assert (stopped.ended, stopped.step) == (Ended.ASKED, 7)
    resumed_task = Toy(seed=8)
    resumed = train(resumed_task, PLAN, tmp_path / "out")
    assert same(weights(whole, whole_task), weights(resumed, resumed_task))


def test_progress_counts_up_and_the_time_left_counts_down(tmp_path):
    seen: list[Progress] = []
    result = train(Toy(), PLAN, tmp_path, lambda progress: bool(seen.append(progress)))
    assert [p.step for p in seen] == list(range(1, 25))
    assert [p.loss for p in seen] == result.losses
    assert {p.steps for p in seen} == {24}
    assert seen[-1].seconds_left == 0
    for p in seen:
        assert p.seconds_left <= p.seconds / p.step * (24 - p.step) + 1e-9
    assert seen[5].validation == result.history[1]["validation_loss"]


def test_the_time_limit_ends_it_with_a_validation_and_can_be_raised(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("pirate.training.run.time.monotonic", lambda: clock[0])

    def tick(progress: Progress) -> bool:
        clock[0] += 10.0
        assert progress.seconds_left <= 70.0 - progress.seconds
        return False

    short = dataclasses.replace(PLAN, minutes=70 / 60)
    result = train(Toy(), short, tmp_path, tick)
    assert (result.ended, result.step, result.history[-1]["step"]) == (Ended.MINUTES, 7, 7)
    assert train(Toy(), short, tmp_path, tick).step == 7
    assert train(Toy(), PLAN, tmp_path).ended is Ended.STEPS


class Scripted(Toy):
    """Validation losses from a list."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__()
        self.script = losses

    def validate(self, network):
        return {"loss": self.script.pop(0)}


def test_patience_counts_validations_since_the_lowest_also_over_a_resume(tmp_path):
    plan = Plan(steps=30, batch=1, validate_every=2, patience=3)
    script = [5.0, 4.0, 4.5, 4.2, 3.9, 3.9, 4.0, 3.95, 1.0]
    result = train(Scripted(list(script)), plan, tmp_path / "a")
    assert (result.ended, result.step, result.best_step) == (Ended.PATIENCE, 14, 8)
    train(Scripted(list(script)), plan, tmp_path / "b", lambda progress: progress.step == 11)
    resumed = train(Scripted(script[6:]), plan, tmp_path / "b")
    assert (resumed.ended, resumed.step, resumed.best_step) == (Ended.PATIENCE, 14, 8)
    assert train(Scripted([]), plan, tmp_path / "b").ended is Ended.PATIENCE


class Spoilt(Toy):
    """Something stops being a number at the tenth step."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.calls = what, 0

    def loss(self, network, batch):
        loss, numbers = super().loss(network, batch)
        if not network.training:
            return loss, numbers
        self.calls += 1
        if self.calls == 10 and self.what == "the loss":
            return loss * math.nan, numbers
        if self.calls == 10 and self.what == "the norm of the gradient":
            return loss + (0.0 * network[0].bias.sum()).sqrt(), numbers
        return loss, numbers

    def validate(self, network):
        late = self.calls >= 10 and self.what == "the validation loss"
        return {"loss": math.inf} if late else super().validate(network)


@pytest.mark.parametrize("what", ["the loss", "the norm of the gradient", "the validation loss"])
def test_a_number_that_is_not_finite_stops_it_and_the_last_good_checkpoint_stays(tmp_path, what):
    step = 10 if what == "the validation loss" else 9
    with pytest.raises(
        NotConverged, match=rf"{what} is (nan|inf) at step {step}; .* of step 8, is .*{CHECKPOINT}"
    ):
        train(Spoilt(what), PLAN, tmp_path)
    healthy, twin = Toy(), Toy()
    assert same(finished(healthy, tmp_path), weights(train(twin, PLAN, tmp_path / "twin"), twin))


class Runaway(Toy):
    """Weights overflow although every loss is finite."""

    def __init__(self) -> None:
        self.network = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.network.weight, -3e38)

    def loss(self, network, batch):
        return 1e-6 * network.weight.sum(), {}

    def validate(self, network):
        return {"loss": 1.0}


def test_weights_that_are_not_finite_are_never_written(tmp_path):
    plan = Plan(steps=9, batch=1, learning_rate=3e37, schedule="constant", checkpoint_every=1)
    with pytest.raises(NotConverged, match=r"a weight \(weight\) is nan at step 2; .* of step 1, is"):
        train(Runaway(), plan, tmp_path)
    with safetensors.safe_open(tmp_path / CHECKPOINT, "pt") as file:
        assert file.get_tensor("weights/weight").isfinite().all()
        assert len(file.get_tensor("losses")) == 1


def test_a_network_that_is_spoilt_from_the_start_is_refused_before_any_file(tmp_path):
    with pytest.raises(NotConverged, match=r"validation loss is nan at step 0; .* No step was made"):
        train(Scripted([math.nan]), PLAN, tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        train(Toy(), PLAN, tmp_path / "file" / "out")


def test_tensorboard_is_a_sentence_if_it_is_missing_and_gets_every_number_if_not(tmp_path, monkeypatch):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(UsageError, match="pip install tensorboard"):
            train(Toy(), PLAN, tmp_path, tensorboard=True)
    written: list[tuple[str, float, int]] = []
    opened: list[object] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            opened.extend([folder, purge_step])

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            opened.append("closed")

    fake = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    result = train(Toy(), PLAN, tmp_path, tensorboard=True)
    assert opened == [str(tmp_path / "tensorboard"), 1, "closed"]
    assert [(v, s) for n, v, s in written if n == "loss"] == list(
        zip(result.losses, range(1, 25), strict=True)
    )
    checks = [(v, s) for n, v, s in written if n == "validation_loss"]
    assert checks == [(row["validation_loss"], row["step"]) for row in result.history[1:]]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"clip": -1.0}, "clip is -1.0"),
        ({"warmup": 24}, "warmup is 24; expected fewer than the 24 steps"),
        ({"schedule": "linear"}, "schedule is 'linear'; expected constant or cosine"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(change, finding):
    with pytest.raises(UsageError, match=finding):
        dataclasses.replace(PLAN, **change)


def test_the_learning_rate_rises_then_stays_or_falls_to_nothing():
    plan = Plan(steps=110, learning_rate=2.0, warmup=10)
    assert [plan.rate(k) for k in range(10)] == pytest.approx([0.2 * (k + 1) for k in range(10)])
    assert (plan.rate(10), plan.rate(60)) == pytest.approx((2.0, 1.0))
    assert 0 < plan.rate(109) < 0.001
    assert all(plan.rate(k) > plan.rate(k + 1) for k in range(10, 109))
    assert dataclasses.replace(plan, schedule="constant").rate(109) == 2.0


def test_seeds_depend_on_every_number_and_their_order():
    seeds = {seed_of(a, b, c) for a in range(8) for b in range(8) for c in range(8)}
    assert len(seeds) == 512
    assert max(seeds) < 2**32
    assert torch.equal(
        torch.rand(2, generator=generator(1, 2, 3)), torch.rand(2, generator=generator(1, 2, 3))
    )


def test_half_precision_learns_and_leaves_single_weights(tmp_path):
    task = Toy()
    half = train(task, dataclasses.replace(PLAN, precision="bfloat16"), tmp_path / "half")
    single = train(Toy(), PLAN, tmp_path / "single")
    assert half.losses != single.losses
    assert half.history[-1]["validation_loss"] == pytest.approx(
        single.history[-1]["validation_loss"], rel=0.3
    )
    assert {value.dtype for value in half.best.values()} <= {torch.float32, torch.int64}
    with pytest.raises(UsageError, match="precision"):
        dataclasses.replace(PLAN, precision="double")
