"""The picture of a training: what it shows, against known answers."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image as Picture

from pirate.reporting.canvas import BLUE, ORANGE
from pirate.reporting.curves import curves, extremes, running_mean


def pixels(path, colour: str) -> np.ndarray:
    """Rows and columns (N, 2) of the pixels of one colour."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    image = np.asarray(Picture.open(path).convert("RGB")).astype(int)
    return np.argwhere(np.abs(image - rgb).max(-1) < 12)


def within(found: np.ndarray) -> np.ndarray:
    """Those inside the graph of the losses: below the legend, left of the small graphs."""
    return found[(found[:, 0] > 112) & (found[:, 1] < 790)]


def test_a_falling_loss_falls_and_a_rising_validation_rises(tmp_path):
    losses = [math.exp(-k / 40) for k in range(200)]
    history = [{"step": k, "validation_loss": 0.1 + k / 400, "gradient_norm": 1.0, "learning_rate": 1e-3}
               for k in range(0, 201, 20)]  # fmt: skip
    path = curves(tmp_path / "a.png", losses, history, "A training")
    training, checks = within(pixels(path, ORANGE)), within(pixels(path, BLUE))
    for found, sign in ((training, 1), (checks, -1)):
        start = found[found[:, 1] < found[:, 1].min() + 20, 0].mean()
        end = found[found[:, 1] > found[:, 1].max() - 20, 0].mean()
        assert sign * (end - start) > 50


def test_losses_below_zero_and_few_rows_are_drawn_too(tmp_path):
    rows = [{"step": 0, "validation_loss": -0.4}, {"step": 2, "validation_loss": -0.5, "gradient_norm": 1.0}]
    path = curves(tmp_path / "a.png", [-0.4, -0.5], rows)
    assert len(within(pixels(path, ORANGE))) > 50
    only = curves(tmp_path / "b.png", [], rows[:1])
    assert len(within(pixels(only, BLUE))) > 5
    assert not len(within(pixels(only, ORANGE)))


def test_the_running_mean_is_that_of_the_neighbours_there_are():
    values = np.array([1.0, 2.0, 6.0, 3.0, 0.0])
    np.testing.assert_allclose(running_mean(values, 3), [1.5, 3, 11 / 3, 3, 1.5])
    np.testing.assert_allclose(running_mean(values, 1), values)
    assert len(running_mean(values[:0], 1)) == 0


def test_many_steps_are_drawn_by_their_extremes():
    values = np.random.default_rng(0).normal(size=50_000)
    values[31_234], values[41_000] = 99.0, -99.0
    steps, drawn = extremes(values)
    assert len(steps) <= 1200
    assert (np.diff(steps) >= 0).all()
    np.testing.assert_array_equal(values[steps - 1], drawn)
    assert (drawn.max(), drawn.min()) == (99.0, -99.0)
    assert [list(part) for part in extremes(values[:0])] == [[], []]
