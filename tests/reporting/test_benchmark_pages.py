"""The page in HTML and in Markdown: all tables and figures, nothing from elsewhere, nothing that breaks out."""

from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.reporting.benchmark_samples import NETWORK, OURS, SMOOTH, SYN, history, measured, rows, track

from pirate.benchmark.tables import Table
from pirate.reporting.benchmark import Figure, write_markdown, write_page
from pirate.reporting.benchmark.content import commands, link, made_so, portable, sections
from pirate.reporting.benchmark.drawing import title_of
from pirate.reporting.benchmark.markdown import cell, plain
from pirate.reporting.benchmark.page import rich
from pirate.reporting.benchmark.verdict import verdict

EVIL = "<script>alert(1)</script> & \"x\" 'y' | [a](http://evil.example) `code`"
VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Tags, their attributes and the text of a page; complains of tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.cells: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if any(t in ("td", "th") for t in self.open):
            self.cells[-1][-1] += data


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def table(name: str, *lines: tuple[str, ...], bold: frozenset[tuple[int, int]] = frozenset()) -> Table:
    return Table(name, f"Title of {name}", f"Note of {name}.", ("method", "DSC", "folds"), tuple(lines), bold)


@pytest.fixture
def made(tmp_path: Path):
    """A benchmark with three tables and three figures, and names that try to break out."""
    figures = []
    for stem in ("results", "ablation", "odd name & <x>"):
        path = tmp_path / "figures" / f"{stem}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(f"png of {stem}".encode())
        figures.append(Figure(path, f"Figure {stem}", f"Caption of {EVIL}."))
    tables = [
        table(
            "main", ("pirate `default`", "0.80", "0"), ("SyN (CC)", "0.70", EVIL), bold=frozenset({(0, 1)})
        ),
        table("ablation", ("P+S", "0.7", "1")),
        table("unheard-of", (EVIL, "1", "2")),
    ]
    found = [
        (OURS, rows(OURS, [0.8, 0.81, 0.8])),
        (SYN, rows(SYN, [0.7, math.nan, 0.7])),
        (SMOOTH, rows(SMOOTH, [0.6])),
    ]
    training = {
        "voxelmorph": history(
            tmp_path / "t", ["step", "seconds", "validation_loss"], [[0, 1, 2], [1500, 600, 1]]
        )
    }
    whole = measured(
        [*found, (NETWORK, rows(NETWORK, [math.nan]))], tables=tables, training=training,
        machine={"processor": EVIL, "cores": "2", "memory": "8 GB"}, of=track(title=f"Phantoms {EVIL}"),
    )  # fmt: skip
    return whole, figures


def test_the_page_has_every_table_and_every_figure_once(made, tmp_path: Path) -> None:
    whole, figures = made
    write_page(whole, figures, tmp_path / "index.html")
    page = read(tmp_path / "index.html")
    images = [(a["alt"], a["src"] or "") for tag, a in page.tags if tag == "img"]
    assert sorted(alt for alt, _ in images) == sorted(f.title for f in figures)
    for (_, source), figure in zip(images, figures, strict=True):
        kind, _, content = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content) == figure.path.read_bytes()
    assert sum(tag == "table" for tag, _ in page.tags) == 3
    for one in whole.tables:
        assert f"Title of {one.name}" in page.words
        for line in one.rows:
            assert [c.replace("`", "") for c in line] in page.cells
    assert [a.get("id") for tag, a in page.tags if tag == "section"] == ["main", "ablation", "more", "made"]
    targets = [a["href"] for tag, a in page.tags if tag == "a" and (a["href"] or "").startswith("#")]
    assert targets == ["#main", "#ablation", "#more", "#made"]


def test_nothing_comes_from_elsewhere_and_nothing_runs(made, tmp_path: Path) -> None:
    whole, figures = made
    write_page(whole, figures, tmp_path / "index.html")
    page = read(tmp_path / "index.html")
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    addresses = [
        v or "" for _, a in page.tags for k, v in a.items() if k in ("href", "src", "srcset", "action")
    ]
    assert addresses
    assert not [v for v in addresses if re.match(r"[a-z]+:|//", v) and not v.startswith("data:image/png;")]
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    assert not [k for _, a in page.tags for k in a if k.startswith("on")]
    style = re.search(r"<style>(.*?)</style>", (tmp_path / "index.html").read_text(), re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "prefers-color-scheme: dark" in style[1]
    assert "sticky" in style[1]


def test_names_and_errors_stay_text(made, tmp_path: Path) -> None:
    whole, figures = made
    write_page(whole, figures, tmp_path / "index.html")
    page = read(tmp_path / "index.html")
    text = "".join(page.words)
    assert text.count("<script>alert(1)</script>") >= 4  # as text: title, machine, cell, captions
    assert "the process <b>died</b>" in text  # the error of a method, in the first paragraph
    assert rich(EVIL).startswith("&lt;script&gt;")
    assert rich("`a<b`") == "<code>a&lt;b</code>"


def test_the_best_is_bold_and_ours_is_marked(made, tmp_path: Path) -> None:
    whole, figures = made
    write_page(whole, figures, tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text()
    assert "<td><b>0.80</b></td>" in text
    assert text.count('<tr class="ours">') == 1
    assert re.search(r'<tr class="ours"><th scope="row">pirate <code>default</code>', text)


def test_the_first_paragraph_is_the_verdict(made, tmp_path: Path) -> None:
    whole, figures = made
    write_page(whole, figures, tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text()
    assert f'<p class="lead">{rich(verdict(whole))}</p>' in text
    assert "our preset default is first in Dice" in verdict(whole)
    write_markdown(whole, figures, tmp_path / "phantoms.md")
    paragraphs = (tmp_path / "phantoms.md").read_text().split("\n\n")
    assert paragraphs[0].startswith("# Benchmark: Phantoms")
    assert paragraphs[1] == plain(verdict(whole))


def test_the_markdown_links_exist_and_hold_every_figure(made, tmp_path: Path) -> None:
    whole, figures = made
    path = tmp_path / "deep" / "phantoms.md"
    path.parent.mkdir()
    write_markdown(whole, figures, path)
    text = path.read_text()
    found = [unquote(target) for target in re.findall(r"!\[[^\]]*\]\(<([^>]+)>\)", text)]
    assert sorted((path.parent / name).resolve() for name in found) == sorted(f.path for f in figures)
    assert all((path.parent / name).is_file() for name in found)
    outside = re.findall(r"(?<!\\)\]\(<?([a-z]+:[^)]*)", text)
    assert outside == []
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_the_markdown_has_every_table_whole(made, tmp_path: Path) -> None:
    whole, figures = made
    write_markdown(whole, figures, tmp_path / "p.md")
    lines = (tmp_path / "p.md").read_text().splitlines()
    assert "| pirate `default` | **0.80** | 0 |" in lines
    for one in whole.tables:
        heading = lines.index(f"### Title of {one.name}")
        body = lines[heading + 2 : heading + 4 + len(one.rows)]
        assert all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in body), body
    assert cell("a|b") == r"a\|b"


def test_how_it_was_made_is_told(made, tmp_path: Path) -> None:
    whole, figures = made
    write_page(whole, figures, tmp_path / "index.html")
    write_markdown(whole, figures, tmp_path / "p.md")
    assert commands(whole) == [
        "pirate benchmark phantoms --data DATA --out OUT",
        "pirate train voxelmorph --data DATA --track oasis2d --out OUT/voxelmorph --steps 16000",
    ]
    notes = made_so(whole)
    assert "Main table: 6 pairs. Ablation, step size and denoisers: the first 2 pairs, to save time." in notes
    assert (
        "VoxelMorph was trained for 1,500 steps in 10 minutes on this machine; validation loss lowest at step 1,500, "
        "100.0 % of its descent in the last 20 % of the steps: more steps would help." in notes
    )
    text = "".join(read(tmp_path / "index.html").words)
    for line in [*commands(whole), *notes]:
        assert line.replace("`", "") in text
        assert line in (tmp_path / "p.md").read_text()


@pytest.mark.parametrize(
    ("steps", "losses", "told"),
    [
        (range(6), [2, 1.5, 1.2, 1.1, 1.0, 1.1], "lowest at step 4."),
        (
            range(6),
            [2, 1.5, 1.2, 1.1, 1.05, 1],
            "5, 5.0 % of its descent in the last 20 % of the steps: more steps would help.",
        ),
        (range(6), [2, 1.5, 1.2, 1.1, 1.01, 1], "5, 1.0 % of its descent in the last 20 % of the steps."),
        (range(6), [2, 3, 4, 5, 6, 7], "lowest at step 0."),
        ([9, 10], [2, 1], "lowest at step 10."),  # what is left of a history that was cut
        ([15], [1], "lowest at step 15."),
    ],
)
def test_how_much_of_a_training_came_last_is_told(tmp_path: Path, steps, losses, told: str) -> None:
    lines = [[step, step, loss] for step, loss in zip(steps, losses, strict=True)]
    folder = history(tmp_path / "t", ["step", "seconds", "validation_loss"], lines)
    notes = made_so(measured([(NETWORK, [])], training={"voxelmorph": folder}))
    assert any(note.endswith(told) for note in notes), notes


def test_a_benchmark_with_nothing_still_has_a_page(tmp_path: Path) -> None:
    empty = measured([(OURS, [])], of=track(pairs="a"))
    write_page(empty, [], tmp_path / "index.html")
    page = read(tmp_path / "index.html")
    assert "No method that uses no labels has a result." in "".join(page.words)
    assert "One pair." in "".join(page.words)
    write_markdown(empty, [], tmp_path / "p.md")
    assert "No method that uses no labels has a result." in (tmp_path / "p.md").read_text()


def test_tables_and_figures_find_their_sections(tmp_path: Path) -> None:
    names = ("results", "landmarks", "convergence", "ablation-grids", "new")
    figures = [Figure(tmp_path / f"{n}.png", n, n) for n in names]
    found = sections([table("lung"), table("corner")], figures)
    assert [(s.name, [t.name for t in s.tables], [f.title for f in s.figures]) for s in found] == [
        ("main", ["lung"], ["results", "landmarks"]), ("ablation", [], ["ablation-grids"]), ("corner", ["corner"], []),
        ("convergence", [], ["convergence"]), ("more", [], ["new"]),
    ]  # fmt: skip


def test_addresses_are_relative_and_quoted(tmp_path: Path) -> None:
    assert link(tmp_path / "figures" / "a b&c.png", tmp_path / "index.html") == "figures/a%20b%26c.png"
    assert link(tmp_path / "figures" / "x.png", tmp_path / "docs" / "t.md") == "../figures/x.png"


def test_commands_name_no_folder_of_this_machine() -> None:
    typed = "pirate benchmark oasis2d --data '/some where/data' --out=/tmp/x --methods a,b -o /y"
    assert portable(typed) == "pirate benchmark oasis2d --data DATA --out=OUT --methods a,b -o OUT"
    assert portable("pirate 'unfinished") == "pirate 'unfinished"
    assert portable("") == ""


def test_a_training_is_called_as_in_the_tables() -> None:
    whole = measured([(NETWORK, []), (OURS, [])])
    assert [title_of(whole, name) for name in ("voxelmorph", "default", "denoiser")] == [
        "VoxelMorph", "pirate default", "denoiser",
    ]  # fmt: skip
