"""What can go wrong, as types that carry an exit code and a sentence for the user.

Exit codes of the command line: 0 ok, 1 ran but a quality gate or some cases failed, 2 usage,
3 bad input, 4 cannot write, 5 not converged when required, 6 memory, 130 interrupted.
"""

from __future__ import annotations

import os


class PirateError(Exception):
    """Anything the user can act on; the message is a whole sentence."""

    exit_code = 1


class QualityError(PirateError):
    """The run finished, but a quality gate failed."""

    exit_code = 1


class UsageError(PirateError):
    """An option or argument does not make sense."""

    exit_code = 2


class InputError(PirateError):
    """An image, transform, weight or settings file cannot be used."""

    exit_code = 3


class OutputError(PirateError):
    """A result cannot be written."""

    exit_code = 4


class NotConverged(PirateError):  # noqa: N818 - reads as a status
    """The iteration did not come to rest although that was required."""

    exit_code = 5


class MemoryExceeded(PirateError):  # noqa: N818
    """The job needs more memory than there is, or than was allowed."""

    exit_code = 6


def reject(where: str | os.PathLike[str], finding: str, expected: str, remedy: str) -> InputError:
    """Build the one form of refusal: ``where: finding; expected ...; remedy``."""
    return InputError(f"{printable(where)}: {finding}; expected {expected}. {remedy}")


def printable(text: str | os.PathLike[str]) -> str:
    """Return `text` with control characters escaped, so that a file name cannot forge a log line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in os.fspath(text))
