"""A TOML file of settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pirate.errors import printable, reject
from pirate.io.files import read_limited

LARGEST_FILE = 1_000_000  # bytes; a settings file takes a few hundred
_EXPECTED = "a TOML file of settings"
_REMEDY = "Write lines such as: alpha = 0.25."


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings; anything but a small, valid table is refused with a sentence."""
    raw = read_limited(path, LARGEST_FILE, _EXPECTED, _REMEDY)
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:  # not TOML, not UTF-8, or a number of more digits than Python reads
        finding = f"it is not valid TOML ({printable(str(error))[:200]})"
        raise reject(path, finding, _EXPECTED, _REMEDY) from error
    except RecursionError as error:
        finding = "it is not valid TOML (its brackets are nested too deeply)"
        raise reject(path, finding, _EXPECTED, _REMEDY) from error
