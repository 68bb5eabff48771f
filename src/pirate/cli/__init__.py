"""The command line. Nothing heavy is imported before a command runs, so that ``pirate --help`` is quick."""

from __future__ import annotations

import os
import sys
import traceback

from pirate.errors import MemoryExceeded, PirateError

INTERRUPTED = 130
"""Exit code after Ctrl-C; typer leaves with it."""


def main() -> None:
    """Run ``pirate``; every failure becomes a sentence on stderr and an exit code."""
    # torch's idle threads would otherwise spin on the cores that the compiled kernels want
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from pirate.cli.app import app

    try:
        app(prog_name="pirate")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            _leave("interrupted; nothing incomplete was left behind.", INTERRUPTED)
        raise
    except PirateError as error:
        _leave(str(error), error.exit_code)
    except MemoryError:
        _leave(
            "the memory ran out; crop or downsample the images, or close other programs.",
            MemoryExceeded.exit_code,
        )
    except Exception as error:
        if "can't allocate memory" in str(error):
            _leave("the memory ran out; crop or downsample the images.", MemoryExceeded.exit_code)
        _leave(
            f"unexpected {type(error).__name__}: {error}. Please report it, with the output of --debug.", 1
        )


def _leave(sentence: str, code: int) -> None:
    if "--debug" in sys.argv:
        traceback.print_exc()
    sys.stderr.write(f"pirate: {sentence}\n")
    raise SystemExit(code)
