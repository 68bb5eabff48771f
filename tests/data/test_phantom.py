import numpy as np
import pytest
import torch

from pirate.data.anatomy import LABELS, Anatomy, _tube
from pirate.data.phantom import brain_pair
from pirate.errors import InputError
from pirate.evaluation.folding import folding
from pirate.evaluation.overlap import dice, mean_dice
from pirate.ops.warp import identity, warp

SHAPES = [(64, 72, 64), (96, 112)]


@pytest.fixture(scope="module", params=SHAPES, ids=["3d", "2d"])
def phantom(request):
    return brain_pair(request.param, seed=3)


def warped(image, field, interpolation="linear"):
    data = torch.from_numpy(image.data)[None, None].float()
    return warp(data, torch.from_numpy(field)[None], interpolation)[0, 0].numpy()


def test_arrays_have_the_promised_shapes_and_types(phantom):
    shape = phantom.fixed.data.shape
    assert phantom.field.shape == (len(shape), *shape)
    assert phantom.field.dtype == phantom.fixed.data.dtype == phantom.moving.data.dtype == np.float32
    assert phantom.fixed_labels.is_integer
    assert phantom.moving_labels.is_integer
    assert (
        phantom.moving.grid == phantom.fixed.grid == phantom.fixed_labels.grid == phantom.moving_labels.grid
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ones(shape):
    small = tuple(n // 2 for n in shape)
    a, b, c = brain_pair(small, seed=5), brain_pair(small, seed=5), brain_pair(small, seed=6)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        assert getattr(a, name).data.tobytes() == getattr(b, name).data.tobytes()
        assert getattr(a, name).data.tobytes() != getattr(c, name).data.tobytes()
    assert a.field.tobytes() == b.field.tobytes()


def test_the_field_carries_fixed_structures_onto_the_moving_ones(phantom):
    before = mean_dice(dice(phantom.fixed_labels.data, phantom.moving_labels.data))
    labels = warped(phantom.moving_labels, phantom.field, "nearest").astype(np.int16)
    after = mean_dice(dice(phantom.fixed_labels.data, labels))
    assert before < 0.75
    assert after > 0.85


def test_the_field_makes_the_images_agree(phantom):
    inside = phantom.fixed_labels.data != 0
    fixed, moving = phantom.fixed.data[inside], phantom.moving.data[inside]
    aligned = warped(phantom.moving, phantom.field)[inside]
    assert np.corrcoef(fixed, aligned)[0, 1] > 0.93
    assert np.corrcoef(fixed, moving)[0, 1] < 0.8


@pytest.mark.parametrize("shape", SHAPES)
def test_the_field_is_the_inverse_of_what_moved_the_anatomy(shape, monkeypatch):
    """Repaint the moving anatomy by hand: psi(x + field(x)) = x within 0.01 voxel in the brain."""
    from pirate.data import phantom as module

    kept = {}
    original = module._diffeomorphism

    def spy(*arguments):
        kept["field"], kept["inverse"] = original(*arguments)
        return kept["field"], kept["inverse"]

    monkeypatch.setattr(module, "_diffeomorphism", spy)
    pair = module.brain_pair(shape, seed=1)
    positions = identity(kept["field"]) + kept["field"]
    back = positions + warp(kept["inverse"], kept["field"], padding="border")
    error = torch.linalg.vector_norm(back - identity(kept["field"]), dim=1)[0].numpy()
    assert error[pair.fixed_labels.data != 0].max() < 0.01


def test_the_field_is_a_diffeomorphism_of_a_useful_size(phantom):
    measured = folding(torch.from_numpy(phantom.field)[None])
    assert measured["min_determinant"] > 0.2
    assert measured["nondiffeomorphic_cells"] == 0
    mm = np.linalg.norm(
        phantom.field * np.reshape(phantom.fixed.grid.spacing, (-1, *[1] * (phantom.field.ndim - 1))), axis=0
    )
    assert 4 < mm[phantom.fixed_labels.data != 0].max() < 11


def test_the_field_has_little_affine_part_in_the_brain(phantom):
    inside = phantom.fixed_labels.data != 0
    points = np.stack(np.nonzero(inside), 1).astype(float)
    design = np.c_[points - points.mean(0), np.ones(len(points))]
    values = phantom.field[:, inside].T.astype(float)
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    assert (fitted**2).sum() < 0.25 * (values**2).sum()


def test_the_background_is_exactly_0_and_the_brain_is_not(phantom):
    for image, labels in ((phantom.fixed, phantom.fixed_labels), (phantom.moving, phantom.moving_labels)):
        np.testing.assert_array_equal(image.data == 0, labels.data == 0)
        border = np.ones(labels.data.shape, dtype=bool)
        border[tuple(slice(1, -1) for _ in labels.data.shape)] = False
        assert not labels.data[border].any()


def test_left_is_left():
    """In the world, labels called left have the smaller x, whatever the orientation of the axes."""
    pair = brain_pair((64, 72, 64))
    where = {v: pair.fixed.grid.to_world(np.argwhere(pair.fixed_labels.data == v)).mean(0) for v in LABELS}
    names = {name: v for v, name in LABELS.items()}
    for v, name in LABELS.items():
        if name.startswith("left"):
            assert where[v][0] < where[names[name.replace("left", "right")]][0] - 5
    assert where[8][2] < where[3][2] - 30  # the cerebellum lies below
    assert where[8][1] < where[3][1] - 20  # and behind


def test_all_structures_are_there():
    pair = brain_pair((64, 72, 64))
    assert set(np.unique(pair.fixed_labels.data)) == {0, *LABELS}
    assert set(np.unique(pair.moving_labels.data)) == {0, *LABELS}


def test_the_default_grid_is_oblique_with_uneven_voxels():
    pair = brain_pair((64, 72, 64))
    np.testing.assert_allclose(pair.fixed.grid.spacing, (2.4, 2.2, 2.6))
    direction = pair.fixed.grid.axes / pair.fixed.grid.spacing
    np.testing.assert_allclose(direction.T @ direction, np.eye(3), atol=1e-12)
    assert np.abs(direction).min() > 0.01


def test_strength_0_gives_one_anatomy_twice_in_different_noise():
    pair = brain_pair((48, 56), strength=0)
    np.testing.assert_array_equal(pair.fixed_labels.data, pair.moving_labels.data)
    assert not pair.field.any()
    assert (pair.fixed.data != pair.moving.data).any()


def test_resolution_changes_the_sampling_and_not_the_brain():
    coarse, fine = brain_pair((64, 72)), brain_pair((128, 144))
    area = [(p.fixed_labels.data == 2).sum() * np.prod(p.fixed.grid.spacing) for p in (coarse, fine)]
    assert area[0] == pytest.approx(area[1], rel=0.03)


@pytest.mark.parametrize("shape", [(64,), (64, 64, 64, 3), (8, 64, 64)])
def test_a_shape_that_cannot_hold_a_brain_is_refused(shape):
    with pytest.raises(InputError, match="two or three axes"):
        brain_pair(shape)


@pytest.mark.parametrize("strength", [-0.1, 2.0, float("nan")])
def test_a_strength_that_would_fold_is_refused(strength):
    with pytest.raises(InputError, match="strength"):
        brain_pair((32, 32), strength=strength)


def test_a_tube_needs_two_points():
    with pytest.raises(ValueError, match="two points"):
        _tube(torch.zeros(1, 3), [(0.0, 0.0, 0.0)], 1.0)


def test_a_tube_is_the_distance_from_its_axis():
    points = torch.tensor([[0.0, 3.0, 0.0], [5.0, 0.0, 0.0], [14.0, 0.0, 0.0]])
    expected = torch.tensor([1.0, -2.0, 2.0])
    torch.testing.assert_close(_tube(points, [(0.0, 0.0, 0.0), (10.0, 0.0, 0.0)], 2.0), expected)


def test_every_layer_carries_known_labels():
    layers = list(Anatomy(np.random.default_rng(0)).layers(torch.zeros(4, 3)))
    assert {v for layer in layers for v in (layer.left, layer.right)} == set(LABELS)
    assert all(layer.distance.shape == (4,) for layer in layers)
