"""Weight files: safetensors with a card in the header. Nothing in such a file is ever executed.

A file is refused unless it is a whole, regular safetensors file of modest size whose numbers are finite
float32 or float16 and whose card can be read. Names and shapes are compared with the network that the card
describes where the network is built (`pirate.denoisers.plug.load_denoiser`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from pirate.errors import printable, reject
from pirate.io.atomic import write_bytes

Scalar = str | int | float | bool

LARGEST_FILE = 1 << 30  # bytes
LARGEST_HEADER = 1 << 20  # bytes
AGAIN = "Fetch the file again or export it with `pirate train`."


@dataclass(frozen=True)
class Card:
    """What a weight file says about itself.

    Args:
        task: what the network does, e.g. "field denoising".
        architecture: its "kind" and constructor arguments.
        ndim: 2 or 3.
        sigma_min: smallest noise standard deviation of the training, voxels of the training grid.
        sigma_max: largest one.
        resolution: grid of the training relative to the image: 1 full, 2 half, ...
        training_data: what it was trained on.
        labels_used: whether anatomical labels took part in the training.
        date: of the training, ISO 8601.
        metrics: numbers measured at the end of the training.
        pirate_version: of the program that wrote the file.
        unit: of the field; only "voxel" is known.
    """

    task: str
    architecture: Mapping[str, Scalar]
    ndim: int
    sigma_min: float
    sigma_max: float
    resolution: float
    training_data: str
    labels_used: bool
    date: str
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    pirate_version: str = ""
    unit: str = "voxel"

    def __post_init__(self) -> None:
        if not (0 <= self.sigma_min <= self.sigma_max < math.inf and 0 < self.resolution < math.inf):
            raise ValueError("a card needs 0 <= sigma_min <= sigma_max and a resolution above 0, all finite")

    def header(self) -> dict[str, str]:
        """Return the card as safetensors metadata: every value is JSON text."""
        return {
            f.name: json.dumps(_plain(getattr(self, f.name)), sort_keys=True, allow_nan=False)
            for f in dataclasses.fields(self)
        }


def save_weights(path: Path, tensors: Mapping[str, Tensor], card: Card) -> None:
    """Write `tensors` (any shapes, float32 or float16, no unit) and `card` to `path`, whole or not at all."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    _check_numbers(path, stored)
    write_bytes(Path(path), _sorted(safetensors.torch.save(stored, card.header())))


def load_weights(path: Path, sha256: str | None = None) -> tuple[dict[str, Tensor], Card]:
    """Read a weight file, refusing everything that is not exactly one.

    Args:
        path: the file.
        sha256: its expected digest, hexadecimal; None does not check.

    Returns:
        The tensors by name, float32 on the CPU, without unit; and the card.
    """
    content = _read(Path(path))
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256.lower():
        raise reject(path, "the content has another sha256", sha256, "The file was changed; fetch it again.")
    header = _header(path, content)
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        finding = printable(str(error))[:200]
        raise reject(path, f"the tensors cannot be read ({finding})", "an intact file", AGAIN) from None
    _check_numbers(path, tensors)
    return {name: tensor.float() for name, tensor in tensors.items()}, _card(path, header)


def _sorted(content: bytes) -> bytes:
    """Return a safetensors file with its header's keys in order: equal weights are then equal bytes."""
    length = int.from_bytes(content[:8], "little")
    text = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors stay aligned
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _read(path: Path) -> bytes:
    """Return the bytes of a regular file of possible size; a pipe or device is never waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is not valid"
        raise reject(path, f"cannot be opened ({reason})", "a weight file", "Check the path.") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise reject(path, "is not a regular file", "a weight file", "Give the file itself.")
        if not 8 < found.st_size <= LARGEST_FILE:
            raise reject(path, f"the file has {found.st_size:,} bytes", f"9 to {LARGEST_FILE:,}", AGAIN)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(LARGEST_FILE)
    finally:
        os.close(descriptor)


def _header(path: Path, content: bytes) -> dict[str, Any]:
    """Return the header: eight bytes of length, then that much JSON."""
    length = int.from_bytes(content[:8], "little")
    if length > LARGEST_HEADER:
        finding = f"it is not a safetensors file, or its header claims {length:,} bytes"
        raise reject(path, finding, f"at most {LARGEST_HEADER:,}", AGAIN)
    if length > len(content) - 8:
        finding = f"the header claims {length:,} bytes"
        raise reject(path, finding, f"at most the {len(content) - 8:,} there are", AGAIN)
    try:
        header = json.loads(content[8 : 8 + length].decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise reject(path, "the header is not JSON with unique keys", "safetensors", AGAIN) from None
    if not isinstance(header, dict):
        raise reject(path, "the header is not a table", "safetensors", AGAIN)
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dictionary, refusing a key that occurs twice."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice")
    return table


def _check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse types other than float32 and float16, and values that are not finite."""
    for name, tensor in tensors.items():
        shown = printable(name)[:80]
        if tensor.dtype not in (torch.float32, torch.float16):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise reject(path, f"tensor {shown} is {kind}", "float32 or float16", "Convert the weights.")
        if not bool(torch.isfinite(tensor).all()):
            finding = f"tensor {shown} holds values that are not finite"
            raise reject(path, finding, "finite weights", "The training diverged; train again.")


def _card(path: Path, header: Mapping[str, Any]) -> Card:
    """Read the card, every field of it and no other."""
    texts = header.get("__metadata__")
    names = {f.name for f in dataclasses.fields(Card)}
    if not isinstance(texts, dict) or set(texts) != names:
        given = set(texts) if isinstance(texts, dict) else set()
        odd = ", ".join(printable(str(n))[:40] for n in sorted(names ^ given)[:20])
        raise reject(path, f"the card misses or adds: {odd}", "a card as pirate writes it", AGAIN)
    try:
        values = {name: json.loads(text) for name, text in texts.items()}
        _check_types(values)
        return Card(**values)
    except (ValueError, TypeError, RecursionError) as error:
        finding = f"the card cannot be read ({printable(str(error))[:200]})"
        raise reject(path, finding, "a card as pirate writes it", AGAIN) from None


def _check_types(values: Mapping[str, Any]) -> None:
    """Raise TypeError where a value of a card is not of the kind its field declares."""
    numbers, tables = ("sigma_min", "sigma_max", "resolution"), ("architecture", "metrics")
    for name, value in values.items():
        if name in numbers:
            good = isinstance(value, int | float) and not isinstance(value, bool)
        elif name in tables:
            good = isinstance(value, dict) and all(isinstance(v, Scalar) for v in value.values())
        else:
            kind = {"ndim": int, "labels_used": bool}.get(name, str)
            good = type(value) is kind
        if not good:
            raise TypeError(f"{name} is of the wrong kind")


def _plain(value: Any) -> Any:
    """Return a mapping as the dictionary JSON wants; anything else as it is."""
    return dict(value) if isinstance(value, Mapping) else value
