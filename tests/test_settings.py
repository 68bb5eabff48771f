from __future__ import annotations

from pathlib import Path

import pytest

from pirate.errors import InputError, UsageError
from pirate.io.config import read_config
from pirate.settings import Settings, parse_assignment, preset


def test_the_paper_preset_holds_the_papers_constants_in_dimensionless_form() -> None:
    s = preset("paper", 3)
    n = 80 * 96 * 112
    assert s.gamma * n == pytest.approx(5e5, rel=1e-3)  # gamma0
    assert s.tau / n == pytest.approx(1e-7, rel=1e-3)  # tau
    assert (s.alpha, s.iterations, s.schedule, s.resolution, s.penalty) == (0.5, 500, "cosine", 2, "global")


def test_the_smoothing_multiplier_is_the_same_in_two_dimensions() -> None:
    assert preset("paper", 2).alpha * 16 / 2 == pytest.approx(preset("paper", 3).alpha * 16 / 3)
    preset("paper", 2).check_stability(2)


def test_a_step_that_would_diverge_is_refused() -> None:
    with pytest.raises(UsageError, match="diverges in 2-D"):
        preset("paper", 3).check_stability(2)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no preset 'magic'"):
        preset("magic", 3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"speed": 1}, "there is no setting 'speed'"),
        ({"alpha": "much"}, "expected a value of type float"),
        ({"iterations": 2.5}, "expected a value of type int"),
        ({"iterations": True}, "expected a value of type int"),
        ({"iterations": 0}, "iterations is 0"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"gamma": 0}, "gamma is 0"),
        ({"gamma": 1e99}, "gamma is 1e"),
        ({"window": 4}, "expected an odd number"),
        ({"penalty": "cosine"}, "expected one of global, local"),
        ({"resolution": 3}, "resolution is 3; expected one of"),
    ],
)
def test_a_bad_setting_is_refused_with_a_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Settings().changed(changes)


def test_the_constructor_checks_too() -> None:
    with pytest.raises(UsageError, match="expected one of global"):
        Settings(penalty="nonsense")  # type: ignore[arg-type]


def test_an_integer_serves_as_a_float() -> None:
    assert Settings().changed({"alpha": 1}).alpha == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha=0", ("alpha", 0)),
        ("prior=tv", ("prior", "tv")),
        ("squared_correlation=false", ("squared_correlation", False)),
    ],
)
def test_an_assignment_is_read_as_toml_or_as_a_word(text: str, expected: tuple[str, object]) -> None:
    assert parse_assignment(text) == expected


def test_an_assignment_needs_an_equals_sign() -> None:
    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        parse_assignment("alpha")


@pytest.mark.parametrize("value", ["[" * 100_000, "1" * 5000], ids=["brackets", "digits"])
def test_an_assignment_that_python_cannot_read_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="too long or nested too deeply"):
        parse_assignment(f"alpha={value}")


@pytest.mark.parametrize("name", ["alpha", "iterations"])
@pytest.mark.parametrize("value", ["1" + "0" * 400, "0x" + "f" * 5000])
def test_an_endless_integer_is_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is an integer beyond 2\^53"):
        Settings().changed(dict([parse_assignment(f"{name}={value}")]))


def test_a_value_too_large_to_show_is_named_by_its_kind() -> None:
    with pytest.raises(UsageError, match="alpha is a very large list; expected a value of type float"):
        Settings().changed(dict([parse_assignment("alpha=[0x" + "f" * 5000 + "]")]))


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"alpha = ", "not valid TOML"),
        (b"alpha = 1\nalpha = 2\n", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"\xef\xbb\xbfalpha = 1\n", "not valid TOML"),
        (b"[" * 100_000, "not valid TOML"),
        (b"alpha = " + b"[" * 100_000, "not valid TOML"),
        (b"alpha = " + b"1" * 5000, "not valid TOML"),
        (b"#" * 1_000_001, "larger than 1,000,000 bytes"),
        (None, "there is no such file"),
    ],
)
def test_a_bad_config_is_refused(tmp_path: Path, raw: bytes | None, sentence: str) -> None:
    path = tmp_path / "run.toml"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(InputError, match=sentence) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "; expected a TOML file of settings. " in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_config_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('alpha = 0.25\nprior = "tv"\n')
    assert Settings().changed(read_config(path)).alpha == 0.25
