"""Colour maps: arrays (N, 3), uint8, the first for the smallest value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pirate.reporting.display import Array


def rgb(colour: str) -> Array:
    """(3,), uint8, of ``#rrggbb``."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.uint8)


def ramp(anchors: Sequence[str], count: int) -> Array:
    """`count` shades that pass through colours at equal distances."""
    given = np.stack([rgb(colour) for colour in anchors]).astype(np.float64)
    at = np.linspace(0, len(anchors) - 1, count)
    parts = [np.interp(at, np.arange(len(anchors)), given[:, c]) for c in range(3)]
    return np.stack(parts, 1).round().astype(np.uint8)


GREY = ramp(("#000000", "#ffffff"), 256)
FIRE = ramp(
    ("#000004", "#0b0724", "#210c4a", "#3d0965", "#57106e", "#71196e", "#8a226a", "#a32c61", "#bc3754",
     "#d24644", "#e45a31", "#f1731d", "#f98e09", "#fcac11", "#f9cb35", "#f2ea69", "#fcffa4"), 64,
)  # fmt: skip
"""Dark to bright through red; few shades, because the file is smaller."""
PURPLE_ORANGE = ramp(
    ("#2d004b", "#532687", "#8073ac", "#b1aad1", "#d8daeb", "#f7f7f6", "#fee0b6", "#fcb761", "#e08214",
     "#b25706", "#7f3b08"), 256,
)  # fmt: skip
"""Light in the middle."""


def coloured(values: Array, shades: Array, limits: tuple[float, float]) -> Array:
    """Colours (..., 3), uint8, of values (...): `shades` (N, 3) spread over `limits`; the first if not a number."""
    low, high = limits
    part = np.nan_to_num((values - low) * (len(shades) / (high - low)), nan=0.0)
    return shades[np.clip(part, 0, len(shades) - 1).astype(np.intp)]
