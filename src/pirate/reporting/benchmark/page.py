"""One HTML page of a benchmark, its pictures inside: no script, nothing from the network, light and dark."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from pathlib import Path

import pirate
from pirate.benchmark.measured import Measured
from pirate.benchmark.tables import Table
from pirate.io.atomic import write_text
from pirate.reporting.benchmark import content
from pirate.reporting.benchmark.style import Figure
from pirate.reporting.benchmark.verdict import verdict

MARKED = ("main", "lung", "memory_time", "corner")
"""Tables in which our rows are told from rivals'."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load for the page: nothing but what is in it."""

CSS = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1f2328; --faint: #59636e; --line: #d8dee4;
  --soft: #f5f7f9; --ours: #b23c0a; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e6e9ec; --faint: #9aa4af; --line: #30363d;
  --soft: #1d2127; --ours: #ff9a66; --link: #6cb2ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.35rem; margin: 2.8rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
a { color: var(--link); }
.machine, .note, figcaption { color: var(--faint); font-size: .92rem; }
.lead { font-size: 1.1rem; max-width: 68rem; }
nav { margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .95rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: .86rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .36rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { background: var(--soft); color: var(--faint); font-weight: 600; white-space: normal;
  vertical-align: bottom; }
tbody tr:last-child > * { border-bottom: 0; }
th:first-child { position: sticky; left: 0; z-index: 1; text-align: left; background: var(--ground);
  font-weight: 500; border-right: 1px solid var(--line); white-space: normal; min-width: 11rem; max-width: 22rem; }
thead th:first-child { background: var(--soft); }
tr.ours th { color: var(--ours); font-weight: 650; }
figure { margin: 1.4rem 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; background: #fff; border-radius: 6px;
  border: 1px solid var(--line); }
figcaption { margin-top: .45rem; }
figcaption b { color: var(--ink); }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .88rem; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .92em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; font-size: .92rem; }
dt { color: var(--faint); } dd { margin: 0; }
@media print { nav { display: none; } figure { break-inside: avoid; } }
"""


def write_page(measured: Measured, figures: Sequence[Figure], path: Path) -> None:
    """Write the page with the figures in it, so that it can be handed on as one file."""
    parts = content.sections(measured.tables, figures)
    ours = {e.title for e in measured.entries if e.ours}
    body = [
        f"<h1>{rich(content.title(measured))}</h1>",
        f'<p class="machine">{rich(content.machine(measured))}</p>',
        f'<p class="lead">{rich(verdict(measured))}</p>',
        _contents(parts),
    ]
    for part in parts:
        body.append(f'<section id="{_anchor(part.name)}"><h2>{rich(part.title)}</h2>')
        for table in part.tables:
            body += [f"<h3>{rich(table.title)}</h3>"] if table.title != part.title else []
            body.append(_table(table, ours if table.name in MARKED else set(), path))
        body += [_figure(figure) for figure in part.figures]
        body.append("</section>")
    body += _made(measured)
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    text = (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<title>{html.escape(content.title(measured))}</title>'
        f"<style>{CSS}</style></head>\n<body><main>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )
    write_text(path, text)


def rich(text: str) -> str:
    """Text for HTML: everything escaped, then what stands between backticks set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", name.lower())


def _contents(parts: Sequence[content.Section]) -> str:
    links = [f'<a href="#{_anchor(part.name)}">{rich(part.title)}</a>' for part in parts]
    return f"<nav>{''.join([*links, _LAST])}</nav>"


_LAST = '<a href="#made">How it was made</a>'


def _table(table: Table, ours: set[str], page: Path) -> str:
    """A table whose first column stays when it is scrolled sideways; the best of a column is bold."""
    lines = ["<tr>" + "".join(f'<th scope="col">{rich(c)}</th>' for c in table.columns) + "</tr>"]
    for i, row in enumerate(table.rows):
        cells = [f"<b>{rich(c)}</b>" if (i, j) in table.bold else rich(c) for j, c in enumerate(row)]
        first = f'<th scope="row">{cells[0]}</th>' if cells else ""
        mine = any(row[0] == name or row[0].startswith(f"{name} (") for name in ours) if row else False
        rest = "".join(f"<td>{cell}</td>" for cell in cells[1:])
        lines.append(f'<tr class="{"ours" if mine else "rival"}">{first}{rest}</tr>')
    files = " · ".join(
        f'<a href="{content.link(page.parent / "tables" / f"{table.name}.{kind}", page)}">{kind}</a>'
        for kind in ("csv", "md", "tex")
        if (page.parent / "tables" / f"{table.name}.{kind}").is_file()
    )
    note = " ".join(filter(None, [rich(table.note), files]))
    return (
        f'<div class="scroll"><table><thead>{lines[0]}</thead>\n<tbody>'
        + "\n".join(lines[1:]) + f'</tbody></table></div>\n<p class="note">{note}</p>'
    )  # fmt: skip


def _figure(figure: Figure) -> str:
    picture = base64.b64encode(figure.path.read_bytes()).decode("ascii")
    return (
        f'<figure><img src="data:image/png;base64,{picture}" alt="{html.escape(figure.title)}">'
        f"<figcaption><b>{rich(figure.title)}.</b> {rich(figure.caption)}</figcaption></figure>"
    )


def _made(measured: Measured) -> list[str]:
    """Commands, reductions, machine."""
    facts = [f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in measured.machine.items()]
    return [
        '<section id="made"><h2>How it was made</h2>',
        f"<pre><code>{html.escape(chr(10).join(content.commands(measured)))}</code></pre>",
        "<ul>" + "".join(f"<li>{rich(line)}</li>" for line in content.made_so(measured)) + "</ul>",
        f"<h3>Machine</h3><dl>{''.join(facts)}</dl>" if facts else "",
        f'<p class="note">pirate {html.escape(pirate.__version__)}</p></section>',
    ]
