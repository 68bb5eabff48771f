"""Checkpoints: everything comes back bit for bit, and what does not fit is refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tests.training.toy import PLAN, Toy
from torch import nn

from pirate.errors import InputError
from pirate.training.checkpoint import FORMAT, State, load, save
from pirate.training.loop import CHECKPOINT, train
from pirate.training.plan import Plan


class Odd(nn.Module):
    """Parameters of many kinds: tied, frozen, never used, a scalar, half precision, laid out by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = self.twin = nn.Linear(3, 3, bias=False)
        self.frozen = nn.Parameter(torch.rand(2), requires_grad=False)
        self.idle = nn.Parameter(torch.rand(2))
        self.scalar = nn.Parameter(torch.rand(()))
        self.short = nn.Parameter(torch.rand(4).half())
        self.layout = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("nothing", torch.zeros(0, 4))

    def forward(self) -> torch.Tensor:
        return sum(p.float().square().sum() for n, p in self.named_parameters() if n != "idle")


def learnt(network: nn.Module) -> torch.optim.Optimizer:
    optimiser = torch.optim.Adam([p for p in network.parameters() if p.requires_grad])
    for _ in range(3):
        optimiser.zero_grad()
        network().backward()
        optimiser.step()
    return optimiser


def test_every_kind_of_weight_moment_and_number_comes_back_and_goes_on_alike(tmp_path):
    network = Odd()
    optimiser = learnt(network)
    state = State(
        step=3,
        seconds=0.1,
        losses=[0.1, 1 / 3, 2e-300],
        history=[{"step": 0, "validation_loss": 1 / 3}],
        tally={"loss": (0.1, 2)},
        best={name: value + 1 for name, value in network.state_dict().items() if name != "mask"},
        best_step=2,
        best_loss=1 / 7,
    )
    carried = {"buffer": torch.rand(2, 3).double(), "a/b c": torch.arange(3)}
    save(tmp_path / "c", network, optimiser, state, carried, {"steps": 3, "window": (1, 2)})
    other = Odd()
    again = torch.optim.Adam([p for p in other.parameters() if p.requires_grad])
    found, brought = load(tmp_path / "c", other, again, {"steps": 3, "window": (1, 2)})
    assert dataclasses.replace(found, best={}) == dataclasses.replace(state, best={})
    for left, right in (
        (other.state_dict(), network.state_dict()), (found.best, state.best), (brought, carried),
    ):  # fmt: skip
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert value.dtype == right[name].dtype
            assert torch.equal(value, right[name]), name
    assert other.tied.weight is other.twin.weight
    for net, adam in ((network, optimiser), (other, again)):
        adam.zero_grad()
        net().backward()
        adam.step()
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    assert len(again.state) == len(list(other.parameters())) - 2


@pytest.mark.parametrize("spot", [0, 4, 60, 0.3, 0.6, 0.9, -1])
def test_a_flipped_bit_anywhere_is_noticed_and_nothing_is_changed(tmp_path, spot):
    train(Toy(), PLAN, tmp_path, lambda progress: True)
    content = bytearray((tmp_path / CHECKPOINT).read_bytes())
    content[round(spot * len(content)) if isinstance(spot, float) else spot] ^= 0x10
    (tmp_path / CHECKPOINT).write_bytes(content)
    task = Toy(seed=5)
    before = [p.clone() for p in task.network.parameters()]
    with pytest.raises(
        InputError, match=rf"{CHECKPOINT}: .*(damaged|cannot be read|not the checkpoint).*Train into"
    ):
        train(task, PLAN, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(before, task.network.parameters(), strict=True))


@pytest.mark.parametrize("length", [0, 5, 200, -7])
def test_a_file_cut_short_is_refused(tmp_path, length):
    train(Toy(), PLAN, tmp_path, lambda progress: True)
    content = (tmp_path / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(content[:length])
    with pytest.raises(InputError, match="cannot be read"):
        train(Toy(), PLAN, tmp_path)


def test_other_files_are_not_taken_for_checkpoints(tmp_path):
    path = tmp_path / CHECKPOINT
    path.write_bytes(safetensors.torch.save({"w": torch.ones(2)}))
    with pytest.raises(InputError, match=f"not the checkpoint of a training; expected the format '{FORMAT}'"):
        train(Toy(), PLAN, tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        train(Toy(), PLAN, tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"learning_rate": 0.01},
            r"trained with learning_rate 0.02; expected learning_rate 0.01, as asked for now",
        ),
        ({"steps": 25}, r"trained with steps 24; expected steps 25"),
        ({"seed": 0}, r"trained with seed 3; expected seed 0"),
        ({"schedule": "constant"}, r"trained with schedule cosine; expected schedule constant"),
    ],
)
def test_another_plan_is_refused(tmp_path, change, sentence):
    train(Toy(), PLAN, tmp_path, lambda progress: True)
    with pytest.raises(InputError, match=sentence):
        train(Toy(), dataclasses.replace(PLAN, **change), tmp_path)


def test_a_checkpoint_from_before_there_was_a_choice_is_gone_on_with(tmp_path, monkeypatch):
    record = Plan.record
    monkeypatch.setattr(
        Plan, "record", lambda plan: {k: v for k, v in record(plan).items() if k != "precision"}
    )
    train(Toy(), PLAN, tmp_path, lambda progress: progress.step == 2)
    monkeypatch.setattr(Plan, "record", record)
    with pytest.raises(InputError, match="trained with precision single; expected precision bfloat16"):
        train(Toy(), dataclasses.replace(PLAN, precision="bfloat16"), tmp_path)
    assert train(Toy(), PLAN, tmp_path).step == PLAN.steps


def test_other_settings_of_the_task_are_refused(tmp_path):
    settings = {"sigma": 0.5, "levels": (1, 2)}
    train(Toy(), PLAN, tmp_path, lambda progress: progress.step == 2, settings=settings)
    with pytest.raises(InputError, match=r"trained with task sigma 0.5; expected task sigma 0.7"):
        train(Toy(), PLAN, tmp_path, settings=settings | {"sigma": 0.7})
    with pytest.raises(InputError, match=r"trained with task levels \[1, 2\]; expected task levels unset"):
        train(Toy(), PLAN, tmp_path)
    assert train(Toy(), PLAN, tmp_path, settings=dict(reversed(settings.items()))).step == PLAN.steps


def test_another_network_is_refused(tmp_path):
    train(Toy(), PLAN, tmp_path, lambda progress: True)
    with pytest.raises(
        InputError, match=r"0.bias is float32 \(6,\); expected float32 \(7,\), as the network has"
    ):
        train(Toy(width=7), PLAN, tmp_path)
    longer = Toy()
    longer.network.append(nn.Linear(7, 7))
    with pytest.raises(InputError, match=r"only the network has weights named 5.bias"):
        train(longer, PLAN, tmp_path)
    shorter = Toy()
    del shorter.network[4]
    with pytest.raises(InputError, match=r"only the checkpoint has weights named 4.bias"):
        train(shorter, PLAN, tmp_path)
    double = Toy()
    double.network.double()
    with pytest.raises(InputError, match=r"is float32 \(6,\); expected float64 \(6,\)"):
        train(double, PLAN, tmp_path)


def test_the_file_is_safetensors_with_a_readable_record(tmp_path):
    result = train(Toy(), PLAN, tmp_path)
    with safetensors.safe_open(tmp_path / CHECKPOINT, "pt") as file:
        record = json.loads(file.metadata()["record"])
        names = {name.split("/")[0] for name in file.keys()}  # noqa: SIM118
        assert torch.equal(file.get_tensor("best/0.bias"), result.best["0.bias"])
    assert names == {"weights", "best", "adam", "losses"}
    assert record["plan"] == PLAN.record()
    assert (record["step"], record["history"]) == (24, result.history)


def test_frozen_weights_stay_and_have_no_moments(tmp_path: Path):
    task = Toy()
    task.network[0].requires_grad_(False)
    before = task.network[0].weight.clone()
    train(task, PLAN, tmp_path)
    assert torch.equal(before, task.network[0].weight)
    with safetensors.safe_open(tmp_path / CHECKPOINT, "pt") as file:
        assert not [name for name in file.keys() if name.startswith("adam") and "/0." in name]  # noqa: SIM118
