"""Corpora of displacement fields: a folder that grows field by field, knows how it was made, and can be resumed.

``corpus.json`` tells how the fields were made and from what; every field is one compressed file of two bytes a number.
Both are written whole, the table after the field, so that a corpus is sound at any moment.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pirate.errors import reject
from pirate.io.arrays import read_arrays, write_arrays
from pirate.io.atomic import write_json
from pirate.training.mending import downsampled, restored, unfolded

TABLE = "corpus.json"
FORMAT = 2
RESOLUTIONS = (1, 2, 4, 8)

AGAIN = "The corpus is damaged; make it again with pirate fields."


Stored = tuple[Tensor, float]
"""int16 (d, *shape), and its unit in voxels."""


@dataclass(frozen=True)
class Recipe:
    """How the fields of a corpus are made; a corpus is only continued with the same.

    Args:
        method: "pirate", "nodeo", "random", ...
        settings: the method's constants, as JSON takes them.
        data: which images, in words.
        sources: name of each image and the sha256 of its file.
        seed: of the pairs, and of random fields.
        ndim: 2 or 3.
        resolution: the grid has every so-manieth voxel of the images.
        spacing: mm of a voxel of the stored fields along each array axis.
        unit: of the fields: voxels of their own grid.
    """

    method: str
    settings: Mapping[str, Any]
    data: str
    sources: Mapping[str, str]
    seed: int
    ndim: int
    resolution: int
    spacing: tuple[float, ...]
    unit: str = "voxel"

    def __post_init__(self) -> None:
        if self.ndim not in (2, 3) or len(self.spacing) != self.ndim:
            raise reject(
                "corpus", f"{self.ndim} axes with spacing {self.spacing}", "2 or 3, one each", "Correct it."
            )
        if self.resolution not in RESOLUTIONS:
            raise reject(
                "resolution", str(self.resolution), f"one of {RESOLUTIONS}", "Choose the prior's own."
            )
        if self.unit != "voxel":
            raise reject("corpus", f"fields in {self.unit}", "voxel", AGAIN)


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Args:
        index: which of the pairs, or random fields, it is.
        subjects: fixed and moving, or none.
        file: its name; empty where the field was dropped.
        folds_percent: of its voxels before mending, by central differences.
        mended_voxels: how many were changed.
        seconds: it took to make.
        dropped: why it is not there; empty if it is.
    """

    index: int
    subjects: tuple[str, ...]
    file: str
    folds_percent: float
    mended_voxels: int
    seconds: float
    dropped: str = ""


class Corpus:
    """Displacement fields of one shape in a folder; index 0 to len - 1."""

    def __init__(self, path: Path, recipe: Recipe, entries: Sequence[Entry], made: Mapping[str, str]) -> None:
        self.path = path
        self.recipe = recipe
        self.made = dict(made)
        self._entries = list(entries)
        self._kept: dict[int, Stored] = {}

    @classmethod
    def open(cls, path: Path) -> Corpus:
        """Read the table of a corpus; the fields are read when they are asked for."""
        path = Path(path)
        try:
            table = json.loads((path / TABLE).read_text(encoding="utf-8"))
        except OSError as error:
            raise reject(
                path / TABLE, f"cannot be read ({error.strerror})", "a corpus of fields",
                "Give a folder that pirate fields wrote.",
            ) from None  # fmt: skip
        except (ValueError, RecursionError):
            raise reject(path / TABLE, "is not JSON", "the table of a corpus", AGAIN) from None
        try:
            if table["format"] != FORMAT:
                raise ValueError(f"format {table['format']!r}")
            recipe = Recipe(**(table["recipe"] | {"spacing": tuple(table["recipe"]["spacing"])}))
            entries = [Entry(**(row | {"subjects": tuple(row["subjects"])})) for row in table["fields"]]
            return cls(path, recipe, entries, table["made"])
        except (KeyError, TypeError, ValueError) as error:
            raise reject(
                path / TABLE, f"does not read as a table of fields ({error})", "one", AGAIN
            ) from None

    @classmethod
    def create(cls, path: Path, recipe: Recipe) -> Corpus:
        """Start a corpus, or continue the one that is there if it was made in the same way."""
        path = Path(path)
        if (path / TABLE).exists():
            found = cls.open(path)
            odd = sorted(k for k, v in _plain(recipe).items() if _plain(found.recipe)[k] != v)
            if odd:
                raise reject(
                    path, f"its fields were made with other {', '.join(odd)}", "the same, to continue",
                    "Choose another folder.",
                )  # fmt: skip
            return found
        from pirate import __version__

        path.mkdir(parents=True, exist_ok=True)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        corpus = cls(path, recipe, [], {"date": today, "version": __version__})
        corpus._write()
        return corpus

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def ndim(self) -> int:
        """2 or 3."""
        return self.recipe.ndim

    @property
    def resolution(self) -> int:
        """The fields live on every so-manieth voxel of the images."""
        return self.recipe.resolution

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels of a field along each axis."""
        return tuple(self.field(0).shape[1:])

    @property
    def dropped(self) -> list[Entry]:
        """Fields that folded too much to be kept."""
        return [e for e in self._entries if e.dropped]

    @property
    def entries(self) -> list[Entry]:
        """The lines of the fields that are there."""
        return self._stored

    @property
    def _stored(self) -> list[Entry]:
        return [e for e in self._entries if not e.dropped]

    def subjects(self, i: int) -> tuple[str, ...]:
        """Names of the fixed and the moving subject of field `i`; none for a random field."""
        return self._stored[i].subjects

    def field(self, i: int) -> Tensor:
        """Field `i`, (d, *shape), float32, voxels of its own grid."""
        entry = self._stored[i]
        if entry.index not in self._kept:
            self._kept[entry.index] = self._read(self.path / entry.file)
        return restored(*self._kept[entry.index])

    def split(self, held_out: float = 0.2, seed: int = 0) -> tuple[list[int], list[int]]:
        """Indices of fields to fit and of fields to test with, no subject on both sides.

        Fields between a subject of one side and one of the other belong to neither. Random fields, which have no
        subjects, are divided one by one.

        Args:
            held_out: share of the subjects that is kept for testing, between 0 and 1.
            seed: which.
        """
        if not 0 <= held_out <= 1:
            raise reject("held_out", str(held_out), "a share from 0 to 1", "Use for example 0.2.")
        owners = [self.subjects(i) or (f"#{i}",) for i in range(len(self))]
        names = sorted({name for owner in owners for name in owner})
        order = np.random.default_rng(seed).permutation(len(names))
        kept = {names[k] for k in order[: round(held_out * len(names))]}
        inside = [sum(name in kept for name in owner) for owner in owners]
        fit = [i for i, n in enumerate(inside) if n == 0]
        return fit, [i for i, n in enumerate(inside) if n == len(owners[i])]

    def pending(self, count: int) -> list[int]:
        """Those of 0 to `count` - 1 that were neither stored nor dropped yet."""
        done = {e.index for e in self._entries}
        return [i for i in range(count) if i not in done]

    def append(self, index: int, field: Tensor, subjects: tuple[str, ...], seconds: float) -> Entry:
        """Bring a field to the corpus's resolution, mend or drop it if it folds, write it, note it.

        Args:
            index: which of the pairs it is.
            field: (1, d, *shape), voxels, at the resolution of the images.
            subjects: fixed and moving.
            seconds: it took to make.
        """
        return self.store(index, downsampled(field, self.resolution), subjects, seconds)

    def store(self, index: int, coarse: Tensor, subjects: tuple[str, ...], seconds: float) -> Entry:
        """`append` for a field (1, d, *shape) that is in voxels of the corpus's own grid already."""
        if coarse.shape[1] != self.ndim or (len(self) and tuple(coarse.shape[2:]) != self.shape):
            raise reject(
                self.path, f"a field of shape {tuple(coarse.shape)}", "one shape throughout",
                "Give images of one size.",
            )  # fmt: skip
        clean = unfolded(coarse)
        name = "" if clean.dropped else f"{index:06d}.npz"
        if not clean.dropped:
            write_arrays(self.path / name, {"field": clean.voxels[0].numpy(), "step": np.array([clean.step])})
        entry = Entry(index, subjects, name, clean.folds_percent, clean.mended_voxels, seconds, clean.dropped)
        self._entries = sorted([*self._entries, entry], key=lambda e: e.index)
        self._write()
        return entry

    def _write(self) -> None:
        rows = [asdict(e) for e in self._entries]
        table = {"format": FORMAT, "recipe": _plain(self.recipe), "made": self.made, "fields": rows}
        write_json(self.path / TABLE, table)

    def _read(self, path: Path) -> Stored:
        arrays = read_arrays(path, ["field", "step"])
        voxels, step = arrays["field"], arrays["step"]
        if voxels.dtype != np.int16 or voxels.ndim != self.ndim + 1 or voxels.shape[0] != self.ndim:
            raise reject(path, f"{voxels.dtype} of shape {voxels.shape}", "an int16 field", AGAIN)
        if step.shape != (1,) or step.dtype != np.float64 or not 0 < float(step[0]) <= 1:
            raise reject(path, f"the step {step.tolist()}", "a number of voxels from 0 to 1", AGAIN)
        return torch.from_numpy(voxels), float(step[0])


def _plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as it comes back from JSON."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(recipe)))
    return values
