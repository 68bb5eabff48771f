"""A table and its three forms: CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pirate.io.atomic import write_text

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns.

    Args:
        name: of its files.
        title: above it.
        note: below it: what the columns mean, and what was left out.
        columns: headings.
        rows: as many cells as there are columns.
        bold: (row, column) of the cells that stand out.
    """

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"the table {self.name} has rows of other lengths than its heading")

    def csv(self) -> str:
        """Comma-separated, the headings first, nothing bold."""
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([self.columns, *self.rows])
        return stream.getvalue()

    def markdown(self) -> str:
        """A table of GitHub's Markdown, the note below it."""
        lines = [self._line(self.columns), "|" + "---|" * len(self.columns)]
        for i, row in enumerate(self.rows):
            cells = [_cell(c) for c in row]
            lines.append(self._line([f"**{c}**" if (i, j) in self.bold else c for j, c in enumerate(cells)]))
        return "\n".join([*lines, "", self.note, ""]) if self.note else "\n".join([*lines, ""])

    def latex(self) -> str:
        """A ``tabular`` that needs no package; the title and the note are comments above it."""
        comments = [f"% {line}" for line in f"{self.title}\n{self.note}".splitlines() if line]
        lines = [*comments, rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\hline"]
        lines += [" & ".join(map(escaped, self.columns)) + r" \\", r"\hline"]
        for i, row in enumerate(self.rows):
            cells = [escaped(c) for c in row]
            shown = [rf"\textbf{{{c}}}" if (i, j) in self.bold else c for j, c in enumerate(cells)]
            lines.append(" & ".join(shown) + r" \\")
        return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])

    @staticmethod
    def _line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """`text` as LaTeX prints it; backticks go, other characters that LaTeX acts on are escaped."""
    return "".join(_LATEX.get(c, c) for c in " ".join(text.replace("`", "").split()))


def _cell(text: str) -> str:
    """`text` so that it cannot break a Markdown table."""
    return " ".join(text.split()).replace("|", r"\|")


def write_table(folder: Path, table: Table) -> None:
    """Write NAME.csv, NAME.md and NAME.tex."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{table.name}.csv", table.csv())
    write_text(folder / f"{table.name}.md", f"### {table.title}\n\n{table.markdown()}")
    write_text(folder / f"{table.name}.tex", table.latex())
