import subprocess
import sys

import numpy as np
import pytest
from PIL import Image as Picture

from pirate.data.phantom import brain_pair
from pirate.errors import OutputError
from pirate.grid import Grid
from pirate.image import Image
from pirate.reporting import figures, pen
from pirate.reporting.canvas import BLUE, FAINT, GROUND, INK, LOUD, ORANGE, Sheet
from pirate.reporting.convergence import convergence
from pirate.reporting.figures import Scene
from pirate.reporting.intensity import Shown
from pirate.solvers.solution import Record


def pixels(path):
    return np.asarray(Picture.open(path).convert("RGB")).astype(int)


def has_colour(path, colour, at_least=5):
    target = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (np.abs(pixels(path) - target).max(-1) < 30).sum() >= at_least


def scene(pair, moving=None, warped=None):
    moving, warped = (pair.moving.data if x is None else x for x in (moving, warped))
    return Scene.of(pair.fixed.grid, pair.fixed.data, moving, warped)


def trace(levels=(5, 4)):
    return [Record(t, 0.5, 1 / (t + 1), 0.1 / (t + 1), 0.2 / (t + 1)) for n in levels for t in range(n)]


@pytest.fixture(scope="module", params=[(32, 36, 32), (48, 56)], ids=["3d", "2d"])
def pair(request):
    return brain_pair(request.param)


def test_all_figures_are_written_whole_and_nothing_else(pair, tmp_path):
    folder = tmp_path / "new" / "figures"
    written = figures.write_all(
        folder, pair.fixed, pair.moving.data, pair.moving.data, pair.field, trace(),
        pair.fixed_labels.data, pair.moving_labels.data, np.abs(pair.field).sum(0),
    )  # fmt: skip
    names = ["slices", "difference", "warped_grid", "determinant", "convergence", "labels", "surprise"]
    assert [p.name for p in written] == [f"{n}.png" for n in names]
    assert sorted(folder.iterdir()) == sorted(written)
    for path in written:
        assert pixels(path).std() > 5
        assert path.stat().st_size < 600_000
        assert has_colour(path, INK, at_least=50)  # the title


def test_labels_and_convergence_are_drawn_only_when_there_is_something_to_draw(pair, tmp_path):
    written = figures.write_all(tmp_path, pair.fixed, pair.moving.data, pair.moving.data, pair.field, [])
    assert {p.stem for p in written} == {"slices", "difference", "warped_grid", "determinant"}


def test_the_same_arrays_give_the_same_bytes(pair, tmp_path):
    a, b = (figures.slices(tmp_path / n, scene(pair)) for n in ("a.png", "b.png"))
    assert a.read_bytes() == b.read_bytes()


def test_folded_voxels_are_loud_and_others_are_not(pair, tmp_path):
    calm = figures.determinant_map(tmp_path / "calm.png", scene(pair), pair.field)
    assert not has_colour(calm, LOUD)
    folded = pair.field + 3 * np.random.default_rng(0).standard_normal(pair.field.shape).astype(np.float32)
    wild = figures.determinant_map(tmp_path / "wild.png", scene(pair), folded)
    assert has_colour(wild, LOUD, at_least=200)


def test_contours_of_the_fixed_image_are_drawn(pair, tmp_path):
    path = figures.slices(tmp_path / "s.png", scene(pair, pair.fixed.data, pair.fixed.data))
    assert has_colour(path, ORANGE, at_least=100)


def test_equal_images_leave_no_difference(pair, tmp_path):
    path = figures.difference(tmp_path / "d.png", scene(pair, warped=pair.fixed.data))
    picture = pixels(path).sum(-1)
    bright = picture[:, : int(0.88 * picture.shape[1])] > 60  # without the colour bar
    axis = 0 if pair.fixed.grid.ndim == 3 else 1
    before, after = (half.mean() for half in np.array_split(bright, 2, axis))
    assert before > 0.1
    assert after < 0.02  # letters and captions


def test_a_constant_image_can_be_drawn(tmp_path):
    grid = Grid((12, 13, 14), np.eye(4))
    flat = np.full(grid.shape, 7.0, dtype=np.float32)
    field = np.zeros((3, *grid.shape), dtype=np.float32)
    assert len(figures.write_all(tmp_path, Image(flat, grid), flat, flat, field, trace((1,)))) == 5


def test_values_that_a_logarithm_does_not_take_are_left_out(tmp_path):
    records = [Record(0, 0.0, 1.0, 0.0, float("inf")), Record(1, 0.1, float("nan"), -1.0, 0.0)]
    assert pixels(convergence(tmp_path / "c.png", records)).std() > 5
    wide = [Record(t, 0.1, 1.0, 10.0**-t, 10.0**-t) for t in range(6)]
    assert has_colour(convergence(tmp_path / "w.png", wide), ORANGE, at_least=100)


def test_a_rival_that_tells_its_data_term_only_gets_that_graph_alone(tmp_path):
    """The line crosses the whole sheet; with residuals it would end in the first third."""
    nan = float("nan")
    told = [Record(t, nan, 1 / (t + 1), nan, nan) for t in range(9)]
    target = [int(ORANGE[i : i + 2], 16) for i in (1, 3, 5)]
    shown = np.abs(pixels(convergence(tmp_path / "c.png", told)) - target).max(-1) < 30
    columns = np.flatnonzero(shown.any(0)) / shown.shape[1]
    assert columns.min() < 0.15
    assert columns.max() > 0.85
    assert np.diff(columns).max() < 0.02


def test_a_folder_that_is_missing_is_reported(tmp_path):
    with pytest.raises(OutputError, match=r"missing.c\.png"):
        convergence(tmp_path / "missing" / "c.png", trace())


def test_a_picture_of_many_colours_is_reduced_and_keeps_its_inks(tmp_path):
    sheet = Sheet("Title", "note", [1], [1])
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3)).astype(np.uint8)
    pen.paste(sheet.picture, noise, (0, 120))
    for row, colour in enumerate((ORANGE, BLUE, LOUD)):
        pen.rule(sheet.picture, (400, 200 + 10 * row), (600, 200 + 10 * row), colour)
    path = sheet.save(tmp_path / "noise.png")
    assert Picture.open(path).mode == "P"
    assert all(has_colour(path, colour, at_least=50) for colour in (INK, FAINT, ORANGE, BLUE, LOUD))


def test_without_matplotlib_s_font_there_is_text_all_the_same(monkeypatch):
    monkeypatch.setattr(pen, "find_spec", lambda name: None)
    pen._font.cache_clear()
    picture = Picture.new("RGB", (60, 30), GROUND)
    pen.text(picture, (5, 20), "Aa", INK, 12, "ls")
    pen._font.cache_clear()
    assert np.asarray(picture).max() > 200


def test_intensities_are_scaled_and_classed():
    image = np.zeros((30, 30, 30), dtype=np.float32)
    image[5:15], image[15:20], image[20:25] = 20, 60, 100
    shown = Shown.of(image)
    assert shown.foreground().mean() == pytest.approx(20 / 30)
    assert shown.scaled(image).max() == pytest.approx(1.0)
    low, high = shown.tissue_levels()
    assert 20 < low < 60 < high < 100


def test_nothing_for_drawing_is_imported_before_it_is_used_and_no_matplotlib_even_then(tmp_path):
    code = (
        "import sys, pathlib, pirate.reporting.figures\n"
        "from pirate.reporting.convergence import convergence\n"
        "from pirate.solvers.solution import Record\n"
        "assert not {'PIL', 'contourpy', 'scipy.ndimage'} & set(sys.modules)\n"
        "convergence(pathlib.Path(sys.argv[1]) / 'c.png', [Record(0, 0.1, 0.5, 0.1, 0.1)])\n"
        "assert 'PIL' in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
