"""``pirate methods``: what ``pirate register --method`` takes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import typer

from pirate.baselines.child import EXTRA
from pirate.baselines.methods import METHODS, Method, find
from pirate.settings import SMALL
from pirate.settings import preset as preset_for


def run(name: str | None) -> None:
    """Print every method in a line or two; of the one named METHOD or METHOD:PRESET also its settings."""
    if name is None:
        for method in METHODS.values():
            for line in described(method):
                typer.echo(line)
        return
    method, preset = find(name)
    for line in described(method):
        typer.echo(line)
    constants: Any = preset_for(method.name, 3) if method.ours else method.presets.get(preset)
    if constants is None:
        return
    typer.echo(f"  settings{f' of {preset}' if preset else ''}, for --set NAME=VALUE:")
    if method.ours and preset_for(method.name, 3) != preset_for(method.name, 3, SMALL):
        typer.echo(
            f"    (3-D; volumes of up to {SMALL:,} voxels, and slices, have constants of their own: run.json)"
        )
    for key, value in dataclasses.asdict(constants).items():
        typer.echo(f"    {key}={json.dumps(value)}")


def described(method: Method) -> list[str]:
    """What to say about a method: what it is, its presets, what it needs."""
    lines = [f"{method.name}: {method.about}"]
    if method.presets:
        lines.append(
            f"  presets {', '.join(method.presets)}; {method.name} alone is {next(iter(method.presets))}"
        )
    if method.needs_weights:
        lines.append(f"  needs --weights FILE, made by `pirate train {method.name}`")
    if method.packages:
        missing = [name for name, version in method.versions.items() if version == "missing"]
        here = f"missing; {EXTRA}" if missing else "installed"
        lines.append(f"  needs {', '.join(method.packages)} ({here})")
    return lines
