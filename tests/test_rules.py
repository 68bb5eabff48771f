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
BANNED_CALLS = {"eval", "exec", "torch.load", "tempfile.mktemp", "os.system", "np.load", "numpy.load"}


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


def dangers(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [
        f"line {line} imports {name}" for name, line in imports(tree) if name.split(".")[0] in BANNED_MODULES
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            found.append(f"line {node.lineno}: bare assert")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in BANNED_CALLS:
                found.append(f"line {node.lineno}: {name}")
            if any(k.arg == "shell" and getattr(k.value, "value", None) for k in node.keywords):
                found.append(f"line {node.lineno}: shell=True")
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
    assert dangers(file.read_text()) == []


def test_the_rules_find_what_they_look_for() -> None:
    assert upward_imports("from pirate.cli import app", "ops")
    assert upward_imports("from pirate import registration", "io")
    assert not upward_imports("from pirate.ops.warp import warp", "energies")
    for line in (
        "import pickle", "from yaml import load", "torch.load(p)", "eval(x)", "assert x",
        "run(c, shell=True)",
        "def f(**kwargs): ...", "def f(a=[]): ...", "try:\n    x\nexcept:\n    y",
    ):  # fmt: skip
        assert dangers(line), line


def test_the_public_names_are_these() -> None:
    assert set(dir(pirate)) == {
        "__version__", "register", "Registration", "Settings", "Image", "Grid", "Transform", "PirateError",
        "read_image", "read_labels",
    }  # fmt: skip
    assert callable(pirate.register)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pirate.nothing


def test_the_version_is_one() -> None:
    import tomllib

    declared = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]["version"]
    assert pirate.__version__ == declared
