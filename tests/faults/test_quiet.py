"""A run opens no socket and writes nothing outside --out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Command = Callable[..., tuple[int, str, str]]


def everything(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


RUN = """
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        raise AssertionError(f"{event} {arguments}")
sys.addaudithook(refuse)
sys.argv = "pirate register fixed.nii.gz moving.nii.gz --out out --set iterations=5 --prior tv".split()
from pirate.cli import main
main()
"""


def test_no_socket_and_nothing_outside_out(files: Path) -> None:
    """In a process of its own, with an empty home: matplotlib, too, leaves nothing there."""
    home = files / "home"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG", "MPL"))}
    before = everything(files)
    done = subprocess.run(
        [sys.executable, "-B", "-c", RUN], cwd=files, capture_output=True, text=True, check=False,
        env=kept | {"HOME": str(home), "TMPDIR": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    new = everything(files) - before
    assert {"out/run.json", "out/figures/slices.png"} <= new
    assert {name for name in new if name.split("/")[0] != "out"} == set()
    assert {name for name in new if "/." in name} == set()


def test_a_hostile_name_stays_a_name(files: Path, pirate_command: Command) -> None:
    """Quotes, semicolons, shell and terminal codes in a file's name do nothing and forge no line."""
    odd = files / "a;$(touch x)'\"\x1b[2J <script>.nii.gz"
    (files / "moving.nii.gz").rename(odd)
    code, out, err = pirate_command(
        "register", files / "fixed.nii.gz", odd, "--out", files / "o ut", "--set", "iterations=3"
    )
    assert code == 0, err
    assert "\x1b[2J" not in out + err
    assert not (files / "x").exists()
