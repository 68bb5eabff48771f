"""Shared pairs of small images, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from pirate import cli
from pirate.grid import Grid
from pirate.image import Image
from pirate.io.nifti import write_image

torch.set_num_threads(1)


def blobs(shape: tuple[int, ...], seed: int = 0, shift: tuple[float, ...] | None = None) -> np.ndarray:
    """A smooth random image with zero background, optionally moved by `shift` voxels."""
    rng = np.random.default_rng(seed)
    texture = ndimage.gaussian_filter(rng.normal(size=shape), 2.0)
    texture = (texture - texture.min()) / np.ptp(texture) + 0.3
    centre = np.indices(shape, dtype=float)
    radius = sum(((c - (n - 1) / 2) / (0.36 * n)) ** 2 for c, n in zip(centre, shape, strict=True))
    image = ndimage.gaussian_filter(np.where(radius < 1, texture, 0.0), 0.7)
    if shift is not None:
        image = ndimage.shift(image, shift, order=3, mode="constant")
    return np.clip(image, 0, None).astype(np.float32)


def labels_of(image: np.ndarray) -> np.ndarray:
    """Four tissues by intensity, 0 outside."""
    return np.digitize(image, [0.25, 0.6, 0.8, 1.0]).astype(np.int16)


@pytest.fixture(scope="session")
def oblique() -> Callable[[tuple[int, ...]], Grid]:
    """Makes an oblique, anisotropic grid of a given shape, centred near the world's origin."""

    def make(shape: tuple[int, ...]) -> Grid:
        angle = 0.2
        turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        affine = np.eye(4)
        affine[:3, :3] = turn @ np.diag([1.1, 0.9, 1.4])
        centre = np.array([(n - 1) / 2 for n in shape] + [0] * (3 - len(shape)))
        affine[:3, 3] = -affine[:3, :3] @ centre
        return Grid(shape, affine)

    return make


@pytest.fixture(scope="session")
def pair(oblique: Callable[[tuple[int, ...]], Grid]) -> Callable[[tuple[int, ...]], tuple[Image, Image]]:
    """Makes a fixed image and the same one moved by 1.5, -1.0 (, 0.8) voxels."""

    def make(shape: tuple[int, ...]) -> tuple[Image, Image]:
        grid = oblique(shape)
        shift = (1.5, -1.0, 0.8)[: len(shape)]
        return Image(blobs(shape), grid, "fixed"), Image(blobs(shape, shift=shift), grid, "moving")

    return make


@pytest.fixture
def files(tmp_path: Path, pair: Callable[[tuple[int, ...]], tuple[Image, Image]]) -> Path:
    """A folder with fixed, moving and both label maps of a 2-D pair, as a user would have them."""
    fixed, moving = pair((40, 44))
    for name, image in (("fixed", fixed), ("moving", moving)):
        write_image(tmp_path / f"{name}.nii.gz", image.data, image.grid)
        write_image(tmp_path / f"{name}_labels.nii.gz", labels_of(image.data), image.grid)
    return tmp_path


@pytest.fixture
def pirate_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs ``pirate`` in this process; returns exit code, stdout, stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["pirate", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
