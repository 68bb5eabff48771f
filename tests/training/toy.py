"""Small tasks for the tests of the loop; ``python -m tests.training.toy`` trains them in processes that are killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from pirate.training.loop import Plan, Trained, train

PLAN = Plan(
    steps=24, batch=4, learning_rate=0.02, warmup=4, clip=1.0, validate_every=5, checkpoint_every=4, seed=3
)


class Toy:
    """Learn to shift an image by a voxel: a convolution, dropout, a norm with running statistics, another one."""

    def __init__(self, width: int = 6, seed: int = 0) -> None:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.network: nn.Module = nn.Sequential(
                nn.Conv2d(1, width, 3, padding=1), nn.Tanh(), nn.Dropout(0.1), nn.BatchNorm2d(width),
                nn.Conv2d(width, 1, 3, padding=1),
            )  # fmt: skip

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        image = torch.rand((1, 6, 7), generator=generator)
        return {"image": image, "moved": image.roll(1, 1)}

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        error = (network(batch["image"]) - batch["moved"]).square().mean()
        return error, {"root": error.item() ** 0.5}

    def validate(self, network: nn.Module) -> dict[str, float]:
        examples = [self.example(torch.Generator().manual_seed(i)) for i in range(3)]
        batch = {name: torch.stack([e[name] for e in examples]) for name in examples[0]}
        error, numbers = self.loss(network, batch)
        return {"loss": error.item(), **numbers}

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        pass


class Carrying(Toy):
    """A task whose examples depend on what earlier steps left: the mean of the last images."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = torch.zeros(1, 6, 7)

    def example(self, generator: torch.Generator) -> dict[str, Tensor]:
        image = 0.7 * torch.rand((1, 6, 7), generator=generator) + 0.3 * self.memory
        return {"image": image, "moved": image.roll(1, 1)}

    def loss(self, network: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        if network.training:
            self.memory = 0.5 * self.memory + 0.5 * batch["image"].mean(0)
        return super().loss(network, batch)

    def state(self) -> dict[str, Tensor]:
        return {"memory": self.memory}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.memory = state["memory"]


class Plain(Toy):
    """Without dropout and batch statistics, which depend on how a batch is shared; its inner gradient is a test."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Slope()


class Slope(nn.Module):
    """The gradient of a learned potential: its loss differentiates twice, as a gradient-step denoiser does."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.first = nn.Conv2d(1, 5, 3, padding=1)
        self.last = nn.Conv2d(5, 1, 1, bias=False)
        for parameter in self.parameters():
            parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)

    def forward(self, image: Tensor) -> Tensor:
        with torch.enable_grad():
            image = image.detach().requires_grad_()
            potential = self.last(torch.tanh(self.first(image)).square()).sum()
            (slope,) = torch.autograd.grad(potential, image, create_graph=self.training)
        return image - slope


def weights(trained: Trained, task: Toy) -> dict[str, Tensor]:
    """The last and the best weights under one set of names."""
    last = {f"last {name}": value for name, value in task.network.state_dict().items()}
    return last | {f"best {name}": value for name, value in trained.best.items()}


def kill_self_at(what: str, number: int) -> None:
    """Have this process killed by SIGKILL in the `number`th call of a function of the loop."""
    import pirate.io.atomic
    import pirate.training.run

    owner, name = {
        "example": (Toy, "example"),
        "loss": (Toy, "loss"),
        "validate": (Toy, "validate"),
        "update": (torch.optim.Adam, "step"),
        "checkpoint": (pirate.training.run.checkpoint, "save"),
        "disk": (pirate.io.atomic, "_sync"),
        "renamed": (pirate.io.atomic, "_sync_folder"),
    }[what]
    original, calls = getattr(owner, name), [0]

    def counted(*arguments):
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    setattr(owner, name, counted)


def killed(task: Toy, out: Path, what: str, number: int) -> int:
    """Train in a forked process that is killed in a call of something, or so many ms after the first checkpoint."""
    process = os.fork()
    if process == 0:
        if what != "time":
            kill_self_at(what, number)
        train(task, PLAN, out)
        os._exit(0)
    while what == "time" and not (out / "checkpoint.safetensors").exists():
        time.sleep(0.001)
    if what == "time":
        time.sleep(number / 1000)
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main() -> None:
    """Train the task NAME into OUT/0, OUT/1, ..., killed at one of MOMENTS (what:number) each; print how each ended."""
    torch.set_num_threads(1)
    name, out, *moments = sys.argv[1:]
    kind = {"Toy": Toy, "Carrying": Carrying}[name]
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()  # loads half of torch, once for all
    for number, moment in enumerate(moments):
        what, count = moment.split(":")
        print(killed(kind(), Path(out) / str(number), what, int(count)), flush=True)


if __name__ == "__main__":
    main()
