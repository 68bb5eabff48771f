"""``pirate priors``: what ships, and what is known about it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import typer

from pirate.denoisers import zoo
from pirate.denoisers.zoo import Shipped
from pirate.io.weights import Card, Scalar

CLASSICAL = (
    ("none", "no prior"),
    ("gaussian", "a Gaussian filter; not trained"),
    ("tv", "total variation; not trained"),
)


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
    lines += [f"  {words}" for words in figures(card)]
    return [*lines, f"  {entry.file}, sha256 {entry.sha256[:16]}, made by: {entry.command}"]


def figures(card: Card) -> list[str]:
    """Return what the figures of a card mean, a sentence each; `pirate priors --json` has all of them."""
    m, found = card.metrics, []
    if "coloured_db" in m and "white_db" in m:
        kinds = [
            f"{kind} noise {_number(m[f'{kind}_db'])} dB (the best Gaussian filter "
            f"{_number(m[f'{kind}_best_gaussian_db'])} dB)"
            for kind in ("coloured", "white")
        ]
        found.append(
            f"noise taken off held-out fields, {_number(m['sigma'])} voxels of it: {', '.join(kinds)}"
        )
    if "largest_singular_value" in m:
        found.append(
            f"can enlarge a change of the field {_number(m['largest_singular_value'])} times (its largest singular "
            "value; a filter that never enlarges one has 1 at most)"
        )
    if "folds_percent_before" in m:
        found.append(
            f"held-out pairs, before and after this training: loss {_number(m['loss_before'])} and "
            f"{_number(m['loss_after'])}, folds {_number(m['folds_percent_before'])} and "
            f"{_number(m['folds_percent_after'])} %"
        )
    if "dice_before" in m:
        who = "training pairs (nobody was held out)" if m.get("held_out") == 0 else "held-out pairs"
        found.append(f"Dice of {who} {m['dice_before']:.4f} without it, {m['dice']:.4f} with it")
    return found


def _number(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def _grid(resolution: float) -> str:
    return "grid of the image" if resolution == 1 else f"grid {resolution:g} times as coarse as the image"
