"""The priors that come with the package: which there are, and where their weights lie.

``weights/index.json`` names every file with its sha256 and the command that makes it again; the rest is on the card
inside the file. The same name can stand for several files: 2-D and 3-D, and grids of different resolution.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from pirate.errors import UsageError, printable, reject
from pirate.io.atomic import replacing, sha256_of, write_json
from pirate.io.weights import Card, load_weights

FOLDER = Path(__file__).parent / "weights"
INDEX = "index.json"

NAMES = ("pirate", "pirate-plus", "anatomy")
"""Names that always mean a prior that ships, whether or not it is there for every dimension."""

LARGEST = 4_000_000
"""Bytes; what ships must stay light."""

AGAIN = "The installation is damaged; install pirate-reg again."


@dataclass(frozen=True)
class Shipped:
    """One file of weights.

    Args:
        name: as the user names it, e.g. "pirate".
        ndim: 2 or 3.
        resolution: grid on which it acts relative to the image: 1 full, 2 half, ...
        file: name in the folder.
        sha256: of the file.
        command: makes it again.
    """

    name: str
    ndim: int
    resolution: float
    file: str
    sha256: str
    command: str


def shipped(folder: Path | None = None) -> list[Shipped]:
    """Return everything that ships, in the order of names, dimensions and resolutions."""
    path = (folder or FOLDER) / INDEX
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        entries = [Shipped(**row) for row in rows]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        finding = f"cannot be read ({printable(str(error))[:200]})"
        raise reject(path, finding, "the list of shipped priors", AGAIN) from None
    return sorted(entries, key=lambda entry: (entry.name, entry.ndim, entry.resolution))


def names(folder: Path | None = None) -> list[str]:
    """Return the names that can be asked for: the three that always exist, then those of single datasets."""
    return [*NAMES, *sorted({entry.name for entry in shipped(folder)} - set(NAMES))]


def find(name: str, ndim: int, resolution: float | None = None, folder: Path | None = None) -> Shipped:
    """Return the shipped prior `name` for fields of `ndim` axes on a grid of `resolution`.

    Args:
        name: one of `names`.
        ndim: 2 or 3.
        resolution: grid on which the prior is to act relative to the image; None takes the finest there is.
        folder: where the weights lie, if not in the package.
    """
    same = [entry for entry in shipped(folder) if entry.name == name]
    there = [entry for entry in same if entry.ndim == ndim]
    if not there:
        kinds = " and ".join(f"{n}-D" for n in sorted({entry.ndim for entry in same}))
        which = f"the prior {printable(name)} ships for {kinds} fields only" if same else "it does not ship"
        raise UsageError(
            f"--prior {printable(name)}: {which}; expected one for {ndim}-D fields. "
            "`pirate priors` lists what there is; give a weight file of your own, or another prior."
        )
    if resolution is None:
        return there[0]
    best = min(there, key=lambda entry: abs(math.log(entry.resolution / resolution)))
    if not fits(best.resolution, resolution):
        grids = " and ".join(f"{entry.resolution:g}" for entry in there)
        raise UsageError(
            f"--prior {printable(name)}: it ships for grids of resolution {grids}; expected {resolution:g}, where this "
            "preset has its field (1 is the image's grid, 2 half of it). Take --preset fast, default or best, or one "
            "of the others that `pirate priors` lists."
        )
    return best


def fits(trained: float, wanted: float) -> bool:
    """Tell whether a prior `trained` at one resolution may act at the `wanted` one: within a factor of sqrt 2."""
    return abs(math.log2(trained / wanted)) <= 0.5


def path_of(entry: Shipped, folder: Path | None = None) -> Path:
    """Return where the weights of `entry` lie."""
    return (folder or FOLDER) / entry.file


def card_of(entry: Shipped, folder: Path | None = None) -> Card:
    """Return the card of a shipped prior; the file must have the sha256 of the index."""
    return load_weights(path_of(entry, folder), entry.sha256)[1]


def ship(source: Path, name: str, command: str, folder: Path | None = None) -> Shipped:
    """Put a weight file among those that ship; one with the same name, dimension and resolution is replaced.

    Args:
        source: a file written by `pirate train`.
        name: as users will name it.
        command: makes it again.
        folder: where shipped weights lie, if not in the package.
    """
    folder = folder or FOLDER
    _, card = load_weights(source)
    size = Path(source).stat().st_size
    if size > LARGEST:
        raise reject(source, f"it has {size:,} bytes", f"at most {LARGEST:,} to ship", "Train a smaller one.")
    file = f"{name}-{card.ndim}d-r{card.resolution:g}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / file) as part:
        shutil.copyfile(source, part)
    entry = Shipped(name, card.ndim, card.resolution, file, sha256_of(folder / file), command)
    others = [e for e in shipped(folder) if e.file != file]
    rows = sorted([*others, entry], key=lambda e: (e.name, e.ndim, e.resolution))
    write_json(folder / INDEX, [asdict(e) for e in rows])
    return entry
