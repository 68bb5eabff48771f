"""The README's commands and code are run as they stand, on small images under the names it uses."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import labels_of

from pirate.image import Image
from pirate.io.nifti import write_image

README = (Path(__file__).parents[1] / "README.md").read_text()
Pair = Callable[[tuple[int, ...]], tuple[Image, Image]]
Command = Callable[..., tuple[int, str, str]]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Path:
    fixed, moving = pair((16, 18, 14))
    for name, image in (("fixed", fixed), ("moving", moving)):
        write_image(tmp_path / f"{name}.nii.gz", image.data, image.grid)
        write_image(tmp_path / f"{name}_labels.nii.gz", labels_of(image.data), image.grid)
        write_image(tmp_path / f"{name}_mask.nii.gz", (image.data > 0.1).astype("uint8"), image.grid)
    (tmp_path / "moving_points.csv").write_text("x,y,z\n0,0,0\n1.5,2,-1\n")
    (tmp_path / "pairs.csv").write_text(
        "fixed,moving,fixed_labels,moving_labels\n"
        "fixed.nii.gz,moving.nii.gz,fixed_labels.nii.gz,moving_labels.nii.gz\n"
    )
    (tmp_path / "settings.toml").write_text("alpha = 0.25\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_pirate_command_works(folder: Path, pirate_command: Command) -> None:
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("pirate ")]
    assert len(commands) >= 12
    for words in commands:
        code, _, err = pirate_command(*words)
        assert code == 0, f"pirate {' '.join(words)}: {err}"


def test_the_python_lines_work(folder: Path) -> None:
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - the README's own lines
    assert (folder / "out3" / "run.json").exists()


def test_every_link_leads_somewhere() -> None:
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)]+)\)|`((?:docs|[A-Z]+\.md)[\w./-]*)`", README):
        name = target[0] or target[1]
        if not name.startswith("http"):
            assert (root / name).exists(), name


def test_the_settings_table_tells_the_defaults() -> None:
    from pirate.settings import Settings

    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", README, re.MULTILINE)
    named = {name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)}
    assert {f.name for f in dataclasses.fields(Settings)} <= named


def test_the_make_targets_exist() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("bash")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
