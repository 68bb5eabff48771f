"""A table in its three forms."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from pirate.benchmark.tables import Table, escaped, write_table

TABLE = Table(
    "t", "A title", "A note: 5 % of it.", ("method", "neg. JD %"), (("`a`_b & c|d", "0.1"), ("x, \"y\"", "0.2")),
    frozenset({(1, 1)}),
)  # fmt: skip


def test_csv_comes_back_cell_by_cell() -> None:
    lines = [tuple(line) for line in csv.reader(io.StringIO(TABLE.csv()))]
    assert lines == [TABLE.columns, *TABLE.rows]


def test_markdown_keeps_its_columns() -> None:
    lines = TABLE.markdown().splitlines()
    assert lines[0] == "| method | neg. JD % |"
    assert lines[1] == "|---|---|"
    assert lines[2] == r"| `a`_b & c\|d | 0.1 |"
    assert lines[3] == '| x, "y" | **0.2** |'
    assert TABLE.note in lines


def test_latex_is_escaped() -> None:
    lines = TABLE.latex().splitlines()
    assert lines[:2] == ["% A title", "% A note: 5 % of it."]
    assert r"\begin{tabular}{lr}" in lines
    assert r"method & neg. JD \% \\" in lines
    assert r"a\_b \& c\textbar{}d & 0.1 \\" in lines
    assert r'x, "y" & \textbf{0.2} \\' in lines
    assert escaped(r"\a{b}^~#$<>") == (
        r"\textbackslash{}a\{b\}\textasciicircum{}\textasciitilde{}\#\$\textless{}\textgreater{}"
    )


def test_a_row_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="other lengths"):
        Table("t", "", "", ("a", "b"), (("1",),))


def test_all_forms_are_written(tmp_path: Path) -> None:
    write_table(tmp_path / "tables", TABLE)
    assert sorted(p.name for p in (tmp_path / "tables").iterdir()) == ["t.csv", "t.md", "t.tex"]
    assert (tmp_path / "tables" / "t.md").read_text().startswith("### A title\n\n| method")
