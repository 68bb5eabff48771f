"""Rules that a machine can check: imports go down the rooms, dangerous calls stay out of the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pirate

PACKAGE = Path(__file__).parents[1] / "src" / "pirate"
ROOMS = (
    "errors", "grid", "image", "settings", "transform", "kernels", "io", "ops", "energies", "denoisers",
    "solvers", "evaluation",
    "registration", "training", "baselines", "data", "benchmark", "reporting", "cohort", "cli",
)  # fmt: skip
FILES = sorted(p for p in PACKAGE.rglob("*.py"))
BANNED_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "yaml", "torchvision"}
BANNED_NAMES = {
    "eval", "exec", "torch.load", "tempfile.mktemp", "os.system", "os.popen", "numpy.load",
}  # fmt: skip


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def upward_imports(source: str, own: str) -> list[str]:
    found = []
    for name, line in imports(ast.parse(source)):
        parts = name.split(".")
        if (
            parts[0] == "pirate"
            and len(parts) > 1
            and parts[1] in ROOMS
            and ROOMS.index(parts[1]) > ROOMS.index(own)
        ):
            found.append(f"line {line} reaches up into pirate.{parts[1]}")
    return found


def aliases(tree: ast.AST) -> dict[str, str]:
    """What an imported name stands for: ``import torch as t`` gives t: torch."""
    known = {"np": "numpy"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                known[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def full_name(node: ast.AST, known: dict[str, str]) -> str:
    """The dotted name of an expression, imports resolved; empty if it has none."""
    if isinstance(node, ast.Attribute):
        root = full_name(node.value, known)
        name = root and f"{root}.{node.attr}"
    else:
        name = known.get(node.id, node.id) if isinstance(node, ast.Name) else ""
    return name.removeprefix("builtins.").removeprefix("__builtins__.")


def dangers(source: str, may_print: bool = False) -> list[str]:
    tree = ast.parse(source)
    known = aliases(tree)
    banned = BANNED_NAMES if may_print else BANNED_NAMES | {"print"}
    found = []
    for name, line in imports(tree):
        if name.split(".")[0] in BANNED_MODULES or name in BANNED_NAMES or name.endswith(".*"):
            found.append(f"line {line} imports {name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found.append(f"line {node.lineno}: bare assert")
        elif isinstance(node, ast.Name | ast.Attribute) and full_name(node, known) in banned:
            found.append(f"line {node.lineno}: {full_name(node, known)}")
        elif isinstance(node, ast.Call):
            if any(k.arg == "shell" and getattr(k.value, "value", None) is not False for k in node.keywords):
                found.append(f"line {node.lineno}: shell= is not the literal False")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.args.kwarg is not None:
                found.append(f"line {node.lineno}: {node.name} swallows **{node.args.kwarg.arg}")
            defaults = [*node.args.defaults, *node.args.kw_defaults]
            if any(isinstance(default, ast.List | ast.Dict | ast.Set) for default in defaults):
                found.append(f"line {node.lineno}: {node.name} has a mutable default")
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"line {node.lineno}: bare except")
    return found


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("file", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_the_rooms_only(file: Path) -> None:
    own = room_of(file)
    if own in ("__init__", "__main__"):
        return
    assert own in ROOMS, f"{file} stands in no room"
    assert upward_imports(file.read_text(), own) == []


@pytest.mark.parametrize("file", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_dangerous_calls_stay_out(file: Path) -> None:
    assert dangers(file.read_text(), may_print=room_of(file) == "cli") == []


def test_the_rules_find_what_they_look_for() -> None:
    assert upward_imports("from pirate.cli import app", "ops")
    assert upward_imports("from pirate import registration", "io")
    assert not upward_imports("from pirate.ops.warp import warp", "energies")
    for line in (
        "import pickle", "from yaml import load", "torch.load(p)", "eval(x)", "assert x",
        "run(c, shell=True)", "run(c, shell=flag)", "run(c, shell=1)", "run(c, shell=not x)",
        "from torch import load\nload(p)", "from torch import load as l\nl(p)", "import torch as t\nt.load(p)",
        "import torch\nread = torch.load", "import numpy as n\nn.load(p)", "np.load(p)",
        "from os import system", "import os as o\no.system(c)", "import os.path\nos.system(c)",
        "from tempfile import mktemp as m\nm()", "from os import *", "from .os import *",
        "builtins.eval(x)", "import builtins as b\nb.exec(x)", "from builtins import eval as e\ne(x)",
        "__builtins__.eval(x)", "map(eval, x)", "print(x)", "import builtins\nbuiltins.print(x)",
        "def f(**kwargs): ...", "def f(a=[]): ...", "try:\n    x\nexcept:\n    y",
    ):  # fmt: skip
        assert dangers(line), line
    for line in (
        "model.eval()", "self.load(p)", "run(c, shell=False)", "import json as t\nt.load(p)",
        "import torch as t\nt.save(x, p)", "from safetensors.torch import load\nload(b)", "typer.echo(x)",
    ):  # fmt: skip
        assert not dangers(line), line
    assert not dangers("print(x)", may_print=True)


def test_the_public_names_are_these() -> None:
    assert set(dir(pirate)) == {
        "__version__", "register", "register_with", "Registration", "Settings", "Image", "Grid", "Transform",
        "PirateError", "read_image", "read_labels",
    }  # fmt: skip
    assert callable(pirate.register)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pirate.nothing


def test_the_version_is_one() -> None:
    import tomllib

    declared = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]["version"]
    assert pirate.__version__ == declared
