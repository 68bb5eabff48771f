"""``pirate doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import torch
import typer

import pirate
from pirate import kernels
from pirate.registration.estimate import estimate
from pirate.registration.inputs import available_memory, memory_estimate
from pirate.registration.process import using_threads
from pirate.registration.pyramid import stages
from pirate.registration.working import Images
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
    settings = preset("default", 3)
    needed = memory_estimate(BRAIN, BRAIN, settings, labels=False)
    have = "unknown" if memory is None else f"{memory / 1e9:.1f} GB"
    typer.echo(
        f"memory: {have} available, a pair of {'x'.join(map(str, BRAIN))} needs about {needed / 1e9:.1f} GB"
    )
    seconds = estimate(stages(_probe(), settings), settings, needed).seconds * _voxels(BRAIN) / _voxels(PROBE)
    typer.echo(f"speed: the steps of the default preset on such a pair would take about {seconds:.1f} s here")


def _probe() -> Images:
    """A pair of the probe's shape, half of it background as in a brain."""
    generator = torch.Generator().manual_seed(0)
    axes = torch.meshgrid(*[torch.linspace(-1, 1, n) for n in PROBE], indexing="ij")
    inside = sum(axis.square() for axis in axes) < 0.97  # a ball: half of the cube
    fixed, moving = torch.rand(2, 1, 1, *PROBE, generator=generator) * inside
    return Images(fixed, moving, None, None, (1.0, 1.0, 1.0))


def _voxels(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1] * shape[2]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
