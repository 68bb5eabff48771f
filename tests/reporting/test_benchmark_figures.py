"""The pictures of a benchmark: what must be seen in them, and what must not be drawn at all."""

from __future__ import annotations

import ast
import dataclasses
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture
from tests.reporting.benchmark_samples import (
    ANATOMY,
    NETWORK,
    NOTHING,
    OURS,
    PIRATE,
    PLUS,
    SMOOTH,
    STEADY,
    SYN,
    TV,
    folded,
    history,
    kept,
    measured,
    phantom,
    rows,
    track,
)

from pirate.benchmark.kept import Exhibit
from pirate.benchmark.timing import Size, Timing
from pirate.grid import Grid
from pirate.reporting.benchmark import draw, style
from pirate.reporting.benchmark import exhibits as shows
from pirate.reporting.benchmark.axes import FoldAxis, log_marks, thousands
from pirate.reporting.benchmark.convergence import chosen, difference, frames
from pirate.reporting.benchmark.grids import lattice_lines
from pirate.reporting.benchmark.images import told as below
from pirate.reporting.benchmark.jacobian import determinants, jacobians, told
from pirate.reporting.benchmark.landmarks import errors_mm, of_each
from pirate.reporting.benchmark.names import places, spread
from pirate.reporting.benchmark.scaling import series, slope
from pirate.reporting.benchmark.scatter import aside, floored
from pirate.reporting.benchmark.scores import before, having, on_pairs, scores
from pirate.reporting.benchmark.stage import oriented, set_up
from pirate.reporting.benchmark.tiles import Tiles, outlines
from pirate.reporting.benchmark.training import losses, read_history


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller pictures are drawn sooner."""
    monkeypatch.setattr(style, "DPI", 90)


@lru_cache(maxsize=20)
def pixels(path: Path) -> np.ndarray:
    return np.asarray(Picture.open(path).convert("RGB"))


def count(path: Path, colour: str) -> int:
    target = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((pixels(path) == target).all(-1).sum())


def exhibit(shape: tuple[int, ...], fields: list, role: str = "typical", points: int = 0) -> Exhibit:
    """A phantom pair on which each entry has a field made from the true one."""
    case, truth = phantom(shape, points)
    own = [
        kept(entry, case, make(truth), rows(entry, [0.7], folds)[0], entry.key in ("pirate", "pirate-plus", "p+s"))
        for entry, make, folds in fields
    ]  # fmt: skip
    return Exhibit(case, role, tuple(own))


FIELDS = [
    (NOTHING, np.zeros_like, 0.0), (SYN, lambda f: 0.5 * f, 0.0), (OURS, lambda f: f, 0.0), (NETWORK, folded, 0.1),
    (PIRATE, lambda f: 0.8 * f, 0.0), (PLUS, lambda f: 0.7 * f, 0.0), (SMOOTH, lambda f: 0.9 * f, 0.0),
    (STEADY, lambda f: 0.6 * f, 0.0), (TV, lambda f: 0.5 * f, 0.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[list, Path]:
    """All figures of a small 2-D benchmark in which everything is there."""
    folder = tmp_path_factory.mktemp("all")
    coarse = pytest.MonkeyPatch()
    coarse.setattr(style, "DPI", 90)
    shown = exhibit((48, 56), FIELDS)
    found = [
        (NOTHING, rows(NOTHING, [0.5] * 4)), (SYN, rows(SYN, [0.7, 0.71, 0.72, 0.73], 0.0, 9)),
        (NETWORK, rows(NETWORK, [0.65, 0.66, math.nan, 0.67], 0.4, 0.1)), (OURS, rows(OURS, [0.75] * 4)),
        (ANATOMY, rows(ANATOMY, [0.8] * 4)), (PIRATE, rows(PIRATE, [0.72] * 4, 0.01)),
        (PLUS, rows(PLUS, [0.73] * 4)), (SMOOTH, rows(SMOOTH, [0.7] * 3, 0.2)), (TV, rows(TV, [0.6] * 3, 0.1)),
        (STEADY, rows(STEADY, [0.71] * 3)),
    ]  # fmt: skip
    deq = history(folder / "deq", ["step", "loss", "nfe", "validation_loss", "validation_nfe", "validation_residual"],
                  [[0, "", "", 0.9, 30, 0.02], [50, 0.8, 28, 0.7, 25, 0.01]])  # fmt: skip
    network = history(
        folder / "vm", ["step", "loss", "validation_loss"], [[0, "", 2], [100, 1.5, 1], [200, 1, 1.2]]
    )
    sizes = [
        Size(key, n, (n,), 1e-5 * n, 100 + 1e-3 * n) for key in ("default", "pirate") for n in (1000, 8000)
    ]
    corner = dataclasses.replace(shown, role="smallest gain")
    training = {"pirate-plus": deq, "voxelmorph": network}
    timings = [Timing(key, (0.5,), 100, 2) for key in ("default", "syn-cc")]
    whole = measured(found, timings, [shown, corner], (), training, sizes)
    figures = draw(whole, folder / "figures")
    coarse.undo()
    return figures, folder / "figures"


def test_every_exhibit_is_drawn_and_nothing_else_is_there(everything) -> None:
    figures, folder = everything
    stems = [f.path.stem for f in figures]
    assert stems == [
        "results", "dice-time", "dice-folds", "warped", "grids", "jacobian", "convergence", "corner", "ablation",
        "ablation-grids", "ablation-jacobian", "step", "tv", "scalability", "nfe", "training",
    ]  # fmt: skip
    assert sorted(folder.iterdir()) == sorted(f.path for f in figures)
    for figure in figures:
        assert pixels(figure.path).std() > 5, figure.path.name
        assert count(figure.path, style.INK) > 100, figure.path.name  # the title, exactly in its colour
        assert pixels(figure.path)[0, 0].tolist() == [255, 255, 255]
        assert figure.title
        assert figure.caption.endswith(".")
        assert figure.path.stat().st_size < 1_000_000


def test_seconds_of_registrations_that_had_the_machine_to_themselves_count() -> None:
    """Where some methods were timed alone, the others have a time only if they ran one at a time on all cores."""
    found = [(SYN, rows(SYN, [0.7, 0.7], 0.0, 9)), (OURS, rows(OURS, [0.8, 0.8], 0.0, 2))]
    timed = [Timing(SYN.key, (5.0,), 100, 2)]
    for all_cores, wanted in ((False, math.nan), (True, 2.0)):
        whole = measured(found, timed, of=dataclasses.replace(track(), all_cores=all_cores))
        seconds = {s.entry.key: s.seconds for s in scores(whole)}
        assert seconds[SYN.key] == 5
        assert seconds[OURS.key] == pytest.approx(wanted, nan_ok=True)


def test_the_ablation_is_drawn_on_the_pairs_of_its_table(everything) -> None:
    """The variants have a third row, of a pair that is shown in pictures."""
    figures, _ = everything
    caption = next(f.caption for f in figures if f.path.stem == "ablation")
    assert "on 2 pairs" in caption


def test_the_step_and_the_denoiser_are_shown_beside_the_whole_methods(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variant first; PIRATE+ has no part in the picture of the denoisers."""
    drawn: dict[str, tuple[str, list[str]]] = {}

    def remember(path: Path, stage: object, kept: list, title: str) -> Path:
        drawn[path.name] = title, [k.entry.key for k in kept]
        return path

    for name in ("warped", "grids", "jacobians"):
        monkeypatch.setattr(shows, name, remember)
    found = list(shows.of_variants(measured([], exhibits=[exhibit((48, 56), FIELDS)]), tmp_path))
    assert drawn["step.png"] == ("Fixed and dynamic step size", ["pirate-fixed", "pirate", "pirate-plus"])
    assert drawn["tv.png"] == ("TV and DnCNN denoiser", ["tv", "pirate"])
    assert [f.path.stem for f in found] == ["ablation-grids", "ablation-jacobian", "step", "tv"]
    assert all("the pair of median gain" in f.caption for f in found)


def test_ours_and_rivals_have_their_colours(everything) -> None:
    _, folder = everything
    for name in ("results", "dice-time", "dice-folds", "warped", "ablation"):
        assert count(folder / f"{name}.png", style.OURS) > 30, name
        assert count(folder / f"{name}.png", style.RIVAL) > 30, name


def test_red_is_in_the_map_of_determinants_only(everything) -> None:
    figures, folder = everything
    assert count(folder / "jacobian.png", style.FOLD) > 20
    assert [f.path.stem for f in figures if count(f.path, style.FOLD)] == ["jacobian"]


def test_without_rows_nothing_is_drawn(tmp_path: Path) -> None:
    assert draw(measured([(OURS, []), (SYN, [])]), tmp_path / "figures") == []
    assert list((tmp_path / "figures").iterdir()) == []


def test_a_method_that_failed_everywhere_is_in_no_picture(tmp_path: Path) -> None:
    both = draw(measured([(OURS, rows(OURS, [0.7])), (SYN, rows(SYN, [math.nan]))]), tmp_path / "both")
    assert [f.path.stem for f in both] == ["results", "dice-time", "dice-folds"]
    assert all(count(f.path, style.RIVAL) == 0 and count(f.path, style.OURS) > 0 for f in both)


def test_without_labels_there_is_no_picture_of_overlap_but_one_of_landmarks(tmp_path: Path) -> None:
    shown = exhibit((48, 56), [(NOTHING, np.zeros_like, 0.0), (OURS, lambda f: f, 0.0)], "first", points=12)
    case = dataclasses.replace(shown.case, fixed_labels=None, moving_labels=None)
    own = tuple(dataclasses.replace(k, warped_labels=None) for k in shown.kept)
    bare = [
        (e, [dataclasses.replace(r, dice=math.nan, dice_before=math.nan) for r in rows(e, [0.7], tre=1.0)])
        for e in (NOTHING, OURS)
    ]
    of = track(pairs="a")
    figures = draw(measured(bare, exhibits=[Exhibit(case, "first", own)], of=of), tmp_path)
    assert [f.path.stem for f in figures] == ["landmarks", "warped", "grids", "jacobian"]


@pytest.mark.parametrize("shape", [(48, 56), (32, 36, 32)], ids=["2d", "3d"])
def test_a_single_folded_voxel_is_seen_and_none_is_not(tmp_path: Path, shape: tuple[int, ...]) -> None:
    shown = exhibit(shape, [(OURS, np.zeros_like, 0.0), (SYN, folded, 0.01)])
    stage = set_up(shown)
    smooth, bent = shown.kept
    if len(shape) == 3:  # the peak must lie in the plane that is shown
        index = stage.view.index or 0
        axis = 3 - stage.view.horizontal - stage.view.vertical
        at = stage.display.grid.shape[stage.display.source[axis]]
        voxel = [n // 2 for n in shape]
        voxel[stage.display.source[axis]] = at - 1 - index if stage.display.flipped[axis] else index
        field = np.zeros_like(bent.field)
        field[(stage.display.source[stage.view.horizontal], *voxel)] = 6.0
        bent = dataclasses.replace(bent, field=field)
    assert (determinants(stage, smooth.field) > 0).all()
    number = int((determinants(stage, bent.field) <= 0).sum())
    assert 0 < number <= 2
    jacobians(tmp_path / "none.png", stage, [smooth], "t")
    jacobians(tmp_path / "some.png", stage, [bent], "t")
    assert count(tmp_path / "none.png", style.FOLD) == 0
    assert count(tmp_path / "some.png", style.FOLD) >= 9 * number


def test_how_folds_are_told() -> None:
    assert told(0, 0.0, False) == "no folds"
    assert told(1200, 3.21, False) == "1,200 folded, 3.2 %"
    assert told(0, 0.01, True) == "0 folded here, 0.010 %"


def test_the_enlarged_square_is_where_labels_are_wrong() -> None:
    case, truth = phantom((48, 56))
    row = rows(OURS, [0.7])[0]
    one = kept(OURS, case, truth, row)
    labels = case.fixed_labels.data.copy()
    labels[30:36, 12:18] += 1  # wrong in this corner alone
    stage = set_up(Exhibit(case, "first", (dataclasses.replace(one, warped_labels=labels),)))
    wrong = stage.plane(labels) != stage.labels
    up, across = np.nonzero(wrong)
    left, right, bottom, top = stage.region
    inside = ((across + 0.5) * stage.spacing[0] > left) & ((across + 0.5) * stage.spacing[0] < right)
    inside &= ((up + 0.5) * stage.spacing[1] > bottom) & ((up + 0.5) * stage.spacing[1] < top)
    assert inside.mean() > 0.9
    assert 0 <= left < right <= stage.size[0] + 1e-9
    assert 0 <= bottom < top <= stage.size[1] + 1e-9


def test_without_labels_the_square_keeps_to_the_landmarks_or_off_the_edge() -> None:
    case, truth = phantom((48, 56))
    bare = dataclasses.replace(case, fixed_labels=None, moving_labels=None)
    one = dataclasses.replace(kept(OURS, case, truth, rows(OURS, [0.7])[0]), warped_labels=None)
    shown = set_up(Exhibit(bare, "first", (one,))).plane(np.arange(48 * 56).reshape(48, 56))
    warped = case.fixed.data.copy()
    warped.reshape(-1)[shown[:, :2].ravel()] += 50 * case.fixed.data.max()  # an artefact along the left edge
    one = dataclasses.replace(one, warped=warped)
    stage = set_up(Exhibit(bare, "first", (one,)))
    assert stage.region[0] > 2 * stage.spacing[0]
    place = case.fixed.grid.to_world(np.array([[20, 30]]))
    marked = dataclasses.replace(bare, fixed_points=place, moving_points=place)
    stage = set_up(Exhibit(marked, "first", (one,)))
    left, right, bottom, top = stage.region
    dot = np.zeros((48, 56), dtype=bool)
    dot[20, 30] = True
    up, across = (int(v[0]) for v in np.nonzero(stage.plane(dot)))
    at = (across + 0.5) * stage.spacing[0], (up + 0.5) * stage.spacing[1]
    assert left - 12 <= at[0] <= right + 12
    assert bottom - 12 <= at[1] <= top + 12


def test_an_outline_encloses_its_label() -> None:
    shown = exhibit((48, 56), [(OURS, lambda f: f, 0.0)])
    stage = set_up(shown)
    plane = np.zeros((20, 24), dtype=int)
    plane[5:9, 10:16] = 7
    ((label, lines),) = outlines(stage, plane)
    assert label == 7
    line = np.concatenate(lines) / stage.spacing
    np.testing.assert_allclose([line.min(0), line.max(0)], [[10, 5], [16, 9]], atol=1e-6)


def test_the_lattice_of_no_field_is_straight() -> None:
    stage = set_up(exhibit((48, 56), [(OURS, np.zeros_like, 0.0)]))
    lines = lattice_lines(stage, np.zeros((2, 48, 56), np.float32))
    assert len(lines) > 30
    assert all(min(np.ptp(line, axis=0)) < 1e-6 for line in lines)


def test_arrays_without_orientation_are_turned_as_the_track_says() -> None:
    grid = Grid((4, 6, 8), np.diag([1.0, 1, 2, 1]))
    turned = oriented(grid, "LIA")
    assert turned.axes.tolist() == [[-1, 0, 0], [0, 0, 2], [0, -1, 0]]
    assert oriented(Grid((4, 6), np.eye(4)), "LI").axes.tolist() == [[-1, 0], [0, 0], [0, -1]]
    assert oriented(grid, "") is grid
    assert oriented(grid, "LI") is grid
    assert oriented(turned, "LIA") is turned


def test_the_moving_image_is_shown_as_the_start_has_it() -> None:
    shown = exhibit((48, 56), [(NOTHING, np.zeros_like, 0.0), (OURS, lambda f: f, 0.0)])
    other = dataclasses.replace(shown.kept[0], warped=np.full((48, 56), 3.0, np.float32))
    assert set_up(dataclasses.replace(shown, kept=(other, shown.kept[1]))).moving.image.max() == 3
    without = set_up(dataclasses.replace(shown, kept=shown.kept[1:]))
    np.testing.assert_allclose(without.moving.image, shown.case.moving.data, atol=1e-5)
    np.testing.assert_array_equal(without.moving_labels, shown.case.moving_labels.data)


def test_landmark_errors_of_the_true_field_are_zero() -> None:
    case, truth = phantom((48, 56), points=12)
    assert errors_mm(case, truth).max() < 1e-3
    still = errors_mm(case, np.zeros_like(truth))
    np.testing.assert_allclose(still, np.linalg.norm(case.fixed_points - case.moving_points, axis=1))
    assert len(errors_mm(dataclasses.replace(case, fixed_points=None), truth)) == 0


def test_a_point_is_a_landmark_only_if_one_pair_is_all_there_is() -> None:
    shown = exhibit((48, 56), [(OURS, lambda f: f, 0.0)], "first", points=12)
    one = scores(measured([(OURS, rows(OURS, [0.7], tre=1.0))]))
    errors, unit = of_each(one, [shown])
    assert (unit, len(errors["default"])) == ("landmark", 12)
    two = scores(measured([(OURS, rows(OURS, [0.7, 0.8], tre=1.0))]))
    errors, unit = of_each(two, [shown])
    assert (unit, errors["default"].tolist()) == ("pair", [1.0, 1.0])


def test_scores_leave_out_failures_the_start_and_what_was_not_run() -> None:
    found = scores(
        measured([(NOTHING, rows(NOTHING, [0.5])), (OURS, rows(OURS, [0.7, math.nan, 0.9])), (SYN, [])])
    )
    assert [s.entry.key for s in found] == ["default"]
    assert (found[0].mean("dice"), found[0].failed, found[0].asked) == (pytest.approx(0.8), 4, 6)
    assert having(found, "tre") == []
    (narrow,) = on_pairs(found, {"a", "b"})
    assert (len(narrow.rows), narrow.failed) == (1, 1)
    assert on_pairs(found, {"z"}) == []


def test_time_alone_on_the_machine_is_not_mixed_with_time_beside_others() -> None:
    both = [(OURS, rows(OURS, [0.7], seconds=5)), (SYN, rows(SYN, [0.7], seconds=7))]
    first, second = scores(measured(both, [Timing("default", (1.0, 2.0, 9.0), 1, 2)]))
    assert first.seconds == 2.0
    assert math.isnan(second.seconds)
    assert [s.seconds for s in scores(measured(both))] == [5.0, 7.0]
    assert [s.seconds for s in scores(measured(both, [Timing("default", (), 1, 2, "no")]))] == [5.0, 7.0]


def test_the_start_counts_each_pair_once() -> None:
    found = measured([(OURS, rows(OURS, [0.7, 0.8])), (SYN, rows(SYN, [0.7, 0.8, 0.9]))])
    assert before(found, "dice_before").tolist() == [0.5, 0.5, 0.5]
    assert before(found, "dice_before", {"a"}).tolist() == [0.5]


def test_the_fold_axis_has_a_place_for_zero_left_of_all_others() -> None:
    axis = FoldAxis(np.array([0.0, 0.02, 5.0]))
    zero, small, large = axis.place(np.array([0.0, 0.02, 5.0]))
    assert axis.left < zero < axis.edge < small < large < axis.high + 0.12
    assert large - small == pytest.approx(math.log10(250))


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [(0.5, 2000, [1, 10, 100, 1000]), (1, 60, [1, 2, 5, 10, 20, 50]), (0.02, 0.031, [0.02, 0.024, 0.028])],
)
def test_marks_of_a_logarithmic_axis_are_few_and_round(low, high, marks) -> None:
    assert log_marks(low, high) == pytest.approx(marks)


def test_numbers_of_an_axis() -> None:
    assert [thousands(v) for v in (0.02, 5, 2000, 20000, 5e6)] == ["0.02", "5", "2000", "20k", "5M"]


def test_names_in_a_column_keep_apart_and_near() -> None:
    assert spread(np.array([0.0, 10.0]), 5, -100, 100) == [0, 10]
    assert spread(np.array([0.0, 0.0, 0.0]), 5, -100, 100) == [-5, 0, 5]
    close = spread(np.array([1.0, 2.0, 50.0]), 5, 0, 52)
    assert np.diff(close).min() >= 5 - 1e-9
    assert spread(np.array([99.0, 99.5]), 5, 0, 100) == [95, 100]


def test_names_do_not_cover_points_or_each_other() -> None:
    anchors = [(100.0, 100.0), (104.0, 102.0), (300.0, 300.0)]
    boxes = places(anchors, [(60, 14)] * 3, (0, 0, 500, 500), 6)
    for i, a in enumerate(boxes):
        assert a[0] >= 0
        assert a[2] <= 500
        for b in [*boxes[:i], *[(x - 6, y - 6, x + 6, y + 6) for x, y in anchors]]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_a_failure_does_not_squeeze_the_others() -> None:
    assert floored(np.array([0.0, 0.7, 0.75]), 0.5).tolist() == [0.5, 0.7, 0.75]
    assert floored(np.array([0.0, 0.7, 0.75]), math.nan).tolist() == pytest.approx([0.62, 0.7, 0.75])


def test_markers_that_would_cover_each_other_step_aside() -> None:
    assert aside(np.array([0.7, 0.9, 0.701, 0.702, 0.703]), 0.01).tolist() == [0, 0, 1, -1, 0]
    assert aside(np.array([0.1, 0.2]), 0.01).tolist() == [0, 0]


def test_the_exponent_of_a_power_law_is_found() -> None:
    n = np.array([10.0, 100.0, 1000.0])
    assert slope(n, 3 * n**1.5) == pytest.approx(1.5)
    assert math.isnan(slope(n[:1], n[:1]))


def test_sizes_that_failed_are_not_drawn() -> None:
    sizes = [
        Size("a", 8, (8,), 2.0, 1),
        Size("a", 4, (4,), 1.0, 1),
        Size("a", 16, (16,), math.nan, 1),
        Size("b", 4, (4,), 1, 1, 0, "no"),
    ]
    voxels, seconds = series(sizes, "seconds")["a"]
    assert (voxels.tolist(), seconds.tolist(), list(series(sizes, "seconds"))) == ([4, 8], [1, 2], ["a"])


def test_a_damaged_history_is_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path) == []
    folder = history(tmp_path / "x", ["step", "loss", "what"], [[0, "", "abc"], [1, 0.5, "nan"]])
    assert read_history(folder) == [{"step": 0.0}, {"step": 1.0, "loss": 0.5}]
    (folder / "history.csv").write_bytes(b"\xff\xfe\x00step")
    assert read_history(folder) == []


def test_the_way_leads_from_the_start_to_the_result() -> None:
    shown = exhibit((48, 56), [(NOTHING, np.zeros_like, 0.0), (PIRATE, lambda f: f, 0.0)])
    stage, one = set_up(shown), shown.kept[1]
    images = frames(stage, one)
    assert sorted(images) == [0, 10, 20]
    np.testing.assert_array_equal(images[20], one.warped)
    np.testing.assert_array_equal(images[0], shown.kept[0].warped)
    target = stage.grey(stage.fixed)
    first, last = (difference(stage, images[t], target).mean() for t in (0, 20))
    assert last < 0.7 * first  # the true field aligns the phantom


@pytest.mark.parametrize("count", [1, 4, 6, 13, 15])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.4])
def test_cells_fit_a_slide_and_fill_their_rows(count: int, ratio: float) -> None:
    tiles = Tiles("t", "", count, ratio)
    width, height = tiles.figure.get_size_inches()
    assert width <= style.SLIDE[0] + 1e-6
    assert height <= style.SLIDE[1] + 1e-6
    assert tiles.columns * tiles.rows >= count > tiles.columns * (tiles.rows - 1)
    assert (
        tiles.columns - (count - tiles.columns * (tiles.rows - 1)) < tiles.rows
    )  # no row much shorter than others


def test_snapshots_are_thinned_but_keep_their_ends() -> None:
    assert chosen([3, 1, 2]) == [1, 2, 3]
    assert chosen(list(range(0, 101, 10)))[0] == 0
    assert chosen(list(range(0, 101, 10)))[-1] == 100
    assert len(chosen(list(range(50)))) == 5


def test_a_crowded_picture_leaves_out_the_lesser_ones() -> None:
    case, truth = phantom((48, 56))
    row = rows(OURS, [0.7])[0]
    few = [kept(dataclasses.replace(OURS, key=k), case, truth, row) for k in ("default", "fast")]
    assert shows.selected(few) == few
    many = [*few, *[kept(dataclasses.replace(SYN, key=f"s{i}"), case, truth, row) for i in range(12)]]
    assert [k.entry.key for k in shows.selected(many)] == ["default", *(f"s{i}" for i in range(12))]


def test_what_is_written_below_pictures() -> None:
    case, truth = phantom((48, 56))
    row = rows(OURS, [0.7], 0.1, tre=1.5)[0]
    bare = dataclasses.replace(row, tre=math.nan)
    least = dataclasses.replace(bare, dice=math.nan)
    assert [below(kept(OURS, case, truth, r)) for r in (row, bare, least)] == [
        "TRE 1.50 mm · folds 0.10 %", "Dice 0.700 · folds 0.10 %", "correlation 0.900 · folds 0.10 %",
    ]  # fmt: skip
    assert [style.percent(x) for x in (0.0, 0.00123, 0.123, 12.3, math.nan)] == [
        "0 %", "0.0012 %", "0.12 %", "12 %", "–",
    ]  # fmt: skip
    assert [style.seconds_name(x) for x in (0.0213, 1.26, 61.4, math.nan)] == [
        "0.021 s",
        "1.3 s",
        "61 s",
        "–",
    ]
    assert style.name_of(ANATOMY) == "pirate default, anatomy prior †"
    assert style.name_of(OURS) == "pirate default"


def test_what_draws_is_loaded_only_when_something_is_drawn() -> None:
    for file in Path(str(style.__file__)).parent.glob("*.py"):
        for node in ast.parse(file.read_text()).body:  # the top level alone
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [getattr(node, "module", "")]
            )
            for name in names:
                assert (name or "").partition(".")[0] not in ("matplotlib", "PIL", "scipy"), file.name


def test_titles_of_trainings_do_not_run_into_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    keep = style.save
    monkeypatch.setattr(style, "save", lambda figure, path: drawn.append(figure) or keep(figure, path))
    lines = [{"step": 1000.0 * i, "loss": 0.7 / i, "validation_loss": 0.61234 / i} for i in (1, 2, 3)]
    names = ("VoxelMorph (half resolution)", "SYMNet (half resolution)")
    losses(tmp_path / "t.png", dict.fromkeys(names, lines), "Training of the networks")
    assert drawn[0].axes[0].get_title(loc="left") == "VoxelMorph (half resolution)\n0.2041 at step 3,000"
    first, second = (axes._left_title.get_window_extent() for axes in drawn[0].axes)
    assert first.x1 < second.x0
    assert second.x1 <= drawn[0].bbox.x1
