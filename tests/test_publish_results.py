"""A benchmark's page keeps its text and pictures when it becomes part of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.publish_results import publish


def finished(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    for name in ("results.png", "kept-aside.png"):
        (out / "figures" / name).write_bytes(name.encode())
    (out / "rows.csv").write_bytes(b"entry,pair,dice\r\nsyn,a,0.5\nsymnet,a,0.6\nsymnet,a,0.7\n")
    (out / "lung.md").write_text("# Title\n\nWho wins.\n\nMore.\n\n![Results](<figures/results.png>)\n")
    return out


def test_page_and_pictures_go_together(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "lung").mkdir(parents=True)
    (docs / "lung" / "of-an-earlier-page.png").write_bytes(b"old")
    page = publish(finished(tmp_path), "lung", docs, ["Networks were trained beside."])
    assert page.read_text() == (
        "# Title\n\nWho wins.\n\nNetworks were trained beside.\n\nMore.\n\n![Results](<lung/results.png>)\n"
    )
    assert {p.name: p.read_bytes() for p in (docs / "lung").iterdir()} == {
        "results.png": b"results.png",
        "rows.csv": b"entry,pair,dice\nsyn,a,0.5\nsymnet,a,0.7\n",
    }


def test_a_page_without_its_pictures_is_refused(tmp_path: Path) -> None:
    out = finished(tmp_path)
    (out / "figures" / "results.png").unlink()
    with pytest.raises(SystemExit, match=r"results\.png, which are not there"):
        publish(out, "lung", tmp_path / "docs")
    assert not (tmp_path / "docs").exists()
