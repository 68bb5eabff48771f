"""Matplotlib without traces: it would leave a font list in the user's home the first time it is imported."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def load_matplotlib(folder: Path) -> None:
    """Import matplotlib; a font list that it has to make goes into a hidden folder inside `folder`, then away.

    Args:
        folder: an existing folder that one may write to, usually the one for the figures.
    """
    if "matplotlib" in sys.modules or "MPLCONFIGDIR" in os.environ or _has_font_list():
        import matplotlib.font_manager

        return
    with tempfile.TemporaryDirectory(prefix=".matplotlib-", dir=folder) as private:
        os.environ["MPLCONFIGDIR"] = private
        try:
            import matplotlib.font_manager  # noqa: F401 - makes the list
        finally:
            del os.environ["MPLCONFIGDIR"]


def _has_font_list() -> bool:
    """Whether an earlier use of matplotlib left its list where it looks for it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    places = (cache / "matplotlib", Path("~/.matplotlib").expanduser())
    return any(next(place.glob("fontlist-*.json"), None) is not None for place in places)
