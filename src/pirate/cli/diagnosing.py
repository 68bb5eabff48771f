"""``pirate doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time

import torch
import typer

import pirate
from pirate import kernels
from pirate.energies.similarity import GlobalCorrelation
from pirate.ops.resample import half_shape
from pirate.registration.inputs import available_memory, memory_estimate
from pirate.registration.operator import Pirate
from pirate.registration.register import using_threads
from pirate.settings import preset

PROBE = (96, 96, 96)
BRAIN = (160, 192, 224)
PACKAGES = ("torch", "numpy", "scipy", "nibabel", "safetensors", "h5py", "isal", "matplotlib")
OPTIONAL = ("antspyx", "SimpleITK", "picsl-greedy")


def run(threads: int | None) -> None:
    """Print versions, threads, devices, memory, and how long a 1 mm brain would take."""
    with using_threads(threads):
        _report()


def _report() -> None:
    typer.echo(f"pirate {pirate.__version__}, Python {platform.python_version()}, {platform.platform()}")
    typer.echo("packages: " + ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    typer.echo("optional: " + ", ".join(f"{name} {_version(name)}" for name in OPTIONAL))
    typer.echo(f"compiled kernels: {kernels.variant()}")
    typer.echo(f"threads: {torch.get_num_threads()} of {os.cpu_count()} processors")
    typer.echo(
        f"GPU: {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none that torch can use'}"
    )
    memory = available_memory()
    needed = memory_estimate(BRAIN, BRAIN, preset("paper", 3), labels=False)
    have = "unknown" if memory is None else f"{memory / 1e9:.1f} GB"
    typer.echo(
        f"memory: {have} available, a pair of {'x'.join(map(str, BRAIN))} needs about {needed / 1e9:.1f} GB"
    )
    seconds = seconds_per_iteration() * 500 * _voxels(BRAIN) / _voxels(PROBE)
    typer.echo(
        f"speed: the paper preset's 500 iterations on such a pair would take about {seconds:.0f} s here"
    )


def seconds_per_iteration() -> float:
    """Median time of one iteration of eq. (6) on a pair of the probe's shape, half of it background as in a brain."""
    torch.manual_seed(0)
    axes = torch.meshgrid(*[torch.linspace(-1, 1, n) for n in PROBE], indexing="ij")
    inside = sum(axis.square() for axis in axes) < 0.97  # a ball: half of the cube
    fixed, moving = torch.rand(2, 1, 1, *PROBE) * inside
    settings = preset("paper", 3)
    operator = Pirate(
        GlobalCorrelation(fixed), moving, None, None, settings.alpha, settings.tau, settings.sigma
    )
    field = torch.zeros(1, 3, *half_shape(PROBE))
    times = []
    with torch.no_grad():
        for _ in range(7):
            start = time.perf_counter()
            field, _energy = operator(field, settings.gamma)
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def _voxels(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1] * shape[2]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
