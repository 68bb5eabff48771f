"""``pirate priors``: what ships, and what is known about it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import typer

from pirate.denoisers import zoo
from pirate.denoisers.zoo import Shipped
from pirate.io.weights import Card

CLASSICAL = (
    ("none", "no prior"),
    ("gaussian", "a Gaussian filter; not trained"),
    ("tv", "total variation; not trained"),
)
SHOWN = 12
"""So many figures of a card at most are listed."""


def run(as_json: bool, folder: Path | None = None) -> None:
    """Print the priors that `register --prior` knows by name, trained ones with their cards.

    Args:
        as_json: one JSON document instead of text.
        folder: where shipped weights lie, if not in the package.
    """
    entries = [(entry, zoo.card_of(entry, folder)) for entry in zoo.shipped(folder)]
    if as_json:
        rows = [dataclasses.asdict(entry) | {"card": dataclasses.asdict(card)} for entry, card in entries]
        typer.echo(json.dumps(rows, indent=2, sort_keys=True))
        return
    for name, words in CLASSICAL:
        typer.echo(f"{name}: {words}")
    for entry, card in entries:
        for line in described(entry, card):
            typer.echo(line)
    if not entries:
        typer.echo("no trained prior ships with this copy")
    typer.echo("also: FILE.safetensors from `pirate train`, or package.module:function")


def described(entry: Shipped, card: Card) -> list[str]:
    """Return what to say about a shipped prior: on what it was trained, its figures, whether labels were used."""
    kind = card.architecture.get("kind", "unknown")
    labels = "anatomical labels were used: supervised" if card.labels_used else "no labels were used"
    lines = [
        f"{entry.name}: {card.ndim}-D, {_grid(card.resolution)}, {card.task}, {kind}",
        f"  trained {card.date} on {card.training_data}; {labels}",
    ]
    if card.sigma_min > 0:  # else it was not trained on noise
        lines.append(f"  noise levels {card.sigma_min:g} to {card.sigma_max:g} voxels of that grid")
    figures = [f"{name} {value}" for name, value in sorted(card.metrics.items())][:SHOWN]
    if figures:
        lines.append(f"  {', '.join(figures)}")
    return [*lines, f"  {entry.file}, sha256 {entry.sha256[:16]}, made by: {entry.command}"]


def _grid(resolution: float) -> str:
    return "grid of the image" if resolution == 1 else f"grid {resolution:g} times as coarse as the image"
