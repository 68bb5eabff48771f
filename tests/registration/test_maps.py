"""Maps of a field: what they show is what they say."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.conftest import blobs

from pirate.denoisers import plug, zoo
from pirate.ops.jacobian import determinant
from pirate.registration.register import register

AXES = np.diag([1.0, 1.0, 1.0, 1.0])


@pytest.fixture
def pair() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    image = blobs((48, 40))
    return (image, AXES), (np.roll(image, 2, 0), AXES)


def test_the_maps_are_the_log_jacobian_and_what_the_prior_would_change(pair, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    result = register(*pair, maps=True, affine="none", threads=1)
    field = torch.from_numpy(result.field)[None]
    log = determinant(field)[0].log().numpy()
    np.testing.assert_allclose(result.maps["log_jacobian"].data, log, atol=1e-5)
    entry = zoo.find("pirate", 2)
    assert entry.resolution == 1
    with torch.no_grad():
        change = field - plug.load("pirate", 2)(field, 0.05)  # type: ignore[call-arg]
    np.testing.assert_allclose(
        result.maps["surprise"].data, change.square().sum(1).sqrt()[0].numpy(), atol=1e-4
    )
    shown = pair[0][0] > pair[0][0].min()
    usual = float(zoo.card_of(entry).metrics["residual_rms"])
    score = np.sqrt((change[0].numpy() ** 2)[:, shown].mean()) / usual
    assert result.metrics["surprise_score"] == pytest.approx(score, rel=1e-3)
    result.save(tmp_path / "out")
    for name in ("log_jacobian", "surprise"):
        stored = nib.load(tmp_path / "out" / "maps" / f"{name}.nii.gz")
        np.testing.assert_allclose(np.squeeze(stored.get_fdata()), result.maps[name].data, atol=1e-6)


def test_without_being_asked_for_there_are_no_maps(pair, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    result = register(*pair, affine="none", threads=1, settings={"iterations": 2})
    assert result.maps == {}
    assert "surprise_score" not in result.metrics
    result.save(tmp_path / "out")
    assert not (tmp_path / "out" / "maps").exists()
