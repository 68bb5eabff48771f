"""The same page in Markdown, for a repository's documents."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from pirate.benchmark.measured import Measured
from pirate.benchmark.tables import Table
from pirate.io.atomic import write_text
from pirate.reporting.benchmark import content
from pirate.reporting.benchmark.style import Figure
from pirate.reporting.benchmark.verdict import verdict


def write_markdown(measured: Measured, figures: Sequence[Figure], path: Path) -> None:
    """Write the page; the figures stay where they are and are addressed from it."""
    lines = [f"# {plain(content.title(measured))}", "", plain(verdict(measured)), ""]
    machine = content.machine(measured)
    lines += [f"Machine: {plain(machine)}.", ""] if machine else []
    for part in content.sections(measured.tables, figures):
        lines += [f"## {plain(part.title)}", ""]
        for table in part.tables:
            lines += [f"### {plain(table.title)}", ""] if table.title != part.title else []
            lines += [*_table(table), ""]
        for figure in part.figures:
            lines += [f"![{_named(figure.title)}](<{content.link(figure.path, path)}>)", ""]
            lines += [f"**{plain(figure.title)}.** {plain(figure.caption)}", ""]
    lines += ["## How it was made", "", "```", *content.commands(measured), "```", ""]
    lines += [f"- {plain(line)}" for line in content.made_so(measured)]
    if measured.machine:
        lines += ["", "| machine | |", "|---|---|"]
        lines += [f"| {cell(name)} | {cell(value)} |" for name, value in measured.machine.items()]
    write_text(path, "\n".join([*lines, ""]))


def plain(text: str) -> str:
    """Text that stays text in Markdown: no HTML, no link; backticks still set code."""
    return html.escape(" ".join(text.split()), quote=False).replace("](", r"]\(").replace("![", r"\![")


def cell(text: str) -> str:
    """Text of one cell of a table."""
    return plain(text).replace("|", r"\|")


def _named(text: str) -> str:
    return re.sub(r"[\[\]]", "", plain(text))


def _table(table: Table) -> list[str]:
    lines = [f"| {' | '.join(map(cell, table.columns))} |"]
    lines.append(f"|---|{'---:|' * (len(table.columns) - 1)}")
    for i, row in enumerate(table.rows):
        cells = [f"**{cell(c)}**" if (i, j) in table.bold and c else cell(c) for j, c in enumerate(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", plain(table.note)] if table.note else lines
