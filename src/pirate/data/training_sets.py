"""What networks learn from: parts of the project's data folder and public data sets, read one image at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pirate.data import subjects
from pirate.data.layouts import READERS, read_layout
from pirate.data.reading import People, files_of
from pirate.data.subjects import Subject

SEED = 0
"""Of the division of a public data set into training and validation, in every command: whoever validates a benchmark
was never seen in a training."""


@dataclass(frozen=True)
class Usual:
    """How networks are trained on a set: axes, resolution (1 full, 2 half, ...), pose that the subjects take first."""

    ndim: int
    resolution: int
    affine: str


USUAL: dict[str, Usual] = {
    "oasis2d": Usual(2, 1, "none"), "hippocampus": Usual(3, 1, "affine"), "brain3d": Usual(3, 2, "none"),
    "neurite-oasis": Usual(3, 2, "none"), "neurite-oasis-2d": Usual(2, 1, "none"), "candi": Usual(3, 2, "affine"),
    "empire10": Usual(3, 4, "affine"), "learn2reg": Usual(3, 2, "affine"),
}  # fmt: skip
"""By the name of a part of the data folder or the kind of a public data set. Chests have 8 times a brain's voxels."""


@dataclass(frozen=True)
class Member:
    """An image to learn from: its name, whose it is, and the source within which pairs are drawn."""

    name: str
    person: str
    source: str


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The images of the training subjects; those for validation are not among them.

    Args:
        members: who they are.
        pairs: names (fixed, moving) that the set itself pairs; empty if any two of one source are a pair.
        read: one of them by its name.
    """

    members: tuple[Member, ...]
    pairs: tuple[tuple[str, str], ...]
    read: Callable[[str], Subject]

    def divided(self, share: float) -> tuple[list[Member], list[Member]]:
        """Who is learned from, and who is held out to tell when to stop: a share of the persons of each source.

        Of a source with fewer than four persons nobody is held out; of pairs that the set names, the last ones are,
        at least one if there are two.
        """
        out = set[str]()
        if self.pairs:
            person = {member.name: member.person for member in self.members}
            count = max(1, round(share * len(self.pairs))) if len(self.pairs) > 1 else 0
            out = {person[name] for pair in self.pairs[len(self.pairs) - count :] for name in pair}
        else:
            for source in dict.fromkeys(member.source for member in self.members):
                own = list(dict.fromkeys(member.person for member in self.members if member.source == source))
                count = max(2, round(share * len(own))) if len(own) >= 4 else 0
                out |= set(own[len(own) - count :])
        fit = [member for member in self.members if member.person not in out]
        held_out = [member for member in self.members if member.person in out]
        return self._paired(fit), self._paired(held_out)

    def among(self, members: Sequence[Member]) -> list[tuple[str, str]]:
        """The pairs that the set names, of which both are among these."""
        names = {member.name for member in members}
        return [pair for pair in self.pairs if names.issuperset(pair)]

    def _paired(self, members: list[Member]) -> list[Member]:
        """Those that are in a pair with another one of them, where the set names pairs."""
        names = {name for pair in self.among(members) for name in pair}
        return [member for member in members if member.name in names] if self.pairs else members


def training_set(name: str, root: Path) -> TrainingSet:
    """The training subjects of a part of the data folder or of a public data set, a name in `USUAL`."""
    if name in READERS:
        people = public(name, root)
        named = {entry.image: entry.name for entry in people.entries("train")}
        pairs = [(named[pair.fixed], named[pair.moving]) for pair in people.pairs("train")]
        return TrainingSet(
            tuple(Member(e.name, e.subject, e.source) for e in people.entries("train")),
            tuple(pairs),
            people.__getitem__,
        )
    readers: dict[str, Callable[..., list[Subject]]] = {
        "oasis2d": subjects.oasis2d, "hippocampus": subjects.hippocampus, "brain3d": subjects.brain3d,
    }  # fmt: skip
    found = {person.name: person for person in readers[name](root, split="train")}
    members = tuple(Member(person.name, person.name, person.source) for person in found.values())
    return TrainingSet(members, (), found.__getitem__)


def training_files(name: str, root: Path) -> list[Path]:
    """The files that a training on a set reads, those of labels apart; each must be there."""
    if name in READERS:
        return [file for entry in public(name, root).entries("train") for file in files_of(entry.image)]
    if name == "oasis2d":
        return [root if root.suffix == ".npz" else root / "oasis2d.npz"]
    return subjects.listed_files(root, name, "train")


def public(kind: str, root: Path) -> People:
    """The people of a public data set, divided as every command divides them."""
    return People(read_layout(root, kind), SEED)
