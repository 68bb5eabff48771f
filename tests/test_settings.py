from __future__ import annotations

from pathlib import Path

import pytest

from pirate.errors import InputError, UsageError
from pirate.io.config import read_config
from pirate.settings import SMALL, Settings, parse_assignment, preset


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


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("name", ["fast", "default", "best"])
def test_the_compositional_presets_have_a_value_for_every_level(name: str, ndim: int) -> None:
    s = preset(name, ndim)
    assert s.scheme == "compositional"
    assert s.levels[-1] == 1
    levels = [s.level(i) for i in range(len(s.levels))]
    assert [level.shrink for level in levels] == list(s.levels)
    assert all(level.field_sigma > 0 for level in levels)


def test_one_value_serves_all_levels_and_a_list_each_of_them() -> None:
    s = preset("default", 3).changed({"levels": [2, 1], "iterations": [7, 3], "window": 5, "field_sigma": 1})
    a, b = s.level(0), s.level(1)
    assert (a.shrink, a.iterations, a.window, a.field_sigma) == (2, 7, 5, 1.0)
    assert (b.shrink, b.iterations, b.window, b.field_sigma) == (1, 3, 5, 1.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"levels": [1, 2]}, "expected falling factors"),
        ({"levels": [3, 1]}, "expected falling factors"),
        ({"levels": 4}, "expected a list"),
        ({"levels": []}, "expected a list"),
        (
            {"levels": [4, 2, 1], "iterations": [1, 2]},
            "iterations has 2 values; expected one, or one for each",
        ),
        ({"window": [5, 5, 4]}, "window is 4; expected an odd number"),
        ({"iterations": [5, 5, "x"]}, "expected a value of type int"),
        ({"step": 0}, "step is 0"),
        ({"step": 1.5}, "step is 1.5"),
    ],
)
def test_a_bad_level_is_refused_with_a_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        preset("default", 3).changed(changes)


def test_levels_do_not_belong_to_the_additive_scheme() -> None:
    with pytest.raises(UsageError, match="levels belong to the compositional scheme"):
        preset("paper", 3).changed({"levels": [2, 1]})


def test_the_knob_moves_the_smoothing_and_nothing_else() -> None:
    s = preset("default", 3)
    assert s.smoothed(0.5) is s
    for more, less in ((0.9, 0.6), (0.4, 0.1), (1.0, 0.0)):
        for i in range(len(s.levels)):
            assert s.smoothed(more).level(i).field_sigma > s.smoothed(less).level(i).field_sigma
    assert s.smoothed(0.8).changed({"field_sigma": s.field_sigma}) == s


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_the_knob_has_ends(value: float) -> None:
    with pytest.raises(UsageError, match="expected a number from 0 to 1"):
        preset("default", 3).smoothed(value)


def test_the_paper_preset_has_no_knob() -> None:
    with pytest.raises(UsageError, match="set alpha instead"):
        preset("paper", 3).smoothed(0.7)


@pytest.mark.parametrize("name", ["fast", "default", "best"])
def test_a_small_volume_takes_more_steps(name: str) -> None:
    large, small = preset(name, 3), preset(name, 3, SMALL)
    steps = [sum(p.level(i).iterations for i in range(3)) for p in (small, large)]
    assert steps[0] > 1.5 * steps[1]
    assert preset(name, 3, SMALL + 1) == large
    assert preset(name, 2, 100) == preset(name, 2)
    assert preset("paper", 3, 100) == preset("paper", 3)


@pytest.mark.parametrize("ndim", [2, 3])
def test_paper_plus_is_the_paper_with_the_tuned_denoiser_and_anderson(ndim: int) -> None:
    paper, plus = preset("paper", ndim), preset("paper-plus", ndim)
    changed = {name for name, value in vars(plus).items() if value != getattr(paper, name)}
    assert changed == {"prior", "solver", "schedule", "gamma", "tolerance"}
    assert (plus.prior, plus.solver, plus.schedule) == ("pirate-plus", "anderson", "constant")
    assert plus.gamma == paper.gamma / 2  # the mean of the cosine
