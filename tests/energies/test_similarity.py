"""Gradients of the data terms against autograd and finite differences; their laws; their refusals."""

import functools

import naive_energies as naive
import pytest
import torch
import torch.nn.functional as F

from pirate.energies import GlobalCorrelation, LocalCorrelation, MutualInformation, SquaredError
from pirate.errors import InputError
from pirate.ops.smooth import gaussian
from pirate.ops.warp import warp

SHAPES = [(9, 11), (6, 7, 8)]
NAMES = ["squared error", "global", "local squared", "local plain", "mutual information"]


def images(shape, seed=0, batch=2, dtype=torch.float64):
    """Fixed and warped, related but not equal, and two weights."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(4, batch, 1, *shape, generator=generator, dtype=torch.float64)
    fixed = noise[0]
    warped = 0.6 * fixed + 0.4 * noise[1] + 0.1
    return fixed.to(dtype), warped.to(dtype), noise[2].to(dtype), (noise[3] > 0.3).to(dtype)


def build(name, fixed, fixed_mask=None):
    """Return the energy and its naive twin, a function of (fixed, warped, weight)."""
    spans = torch.tensor([[0.0, 1.0]] * len(fixed)), torch.tensor([[-0.05, 1.2]] * len(fixed))
    mutual = {"fixed_range": spans[0], "moving_range": spans[1], "bins": 8}
    squared, plain = {"window": 5, "squared": True}, {"window": 3, "squared": False}
    return {
        "squared error": lambda: (SquaredError(fixed, fixed_mask), naive.squared_error),
        "global": lambda: (GlobalCorrelation(fixed, fixed_mask), naive.global_correlation),
        "local squared": lambda: (
            LocalCorrelation(fixed, fixed_mask, **squared),
            functools.partial(naive.local_correlation, **squared),
        ),
        "local plain": lambda: (
            LocalCorrelation(fixed, fixed_mask, **plain),
            functools.partial(naive.local_correlation, **plain),
        ),
        "mutual information": lambda: (
            MutualInformation(fixed, fixed_mask, **mutual),
            functools.partial(naive.mutual_information, **mutual),
        ),
    }[name]()


def assert_same(actual, expected, rtol=1e-9):
    """Equal to `rtol` of the largest entry."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=rtol * float(expected.abs().max()))


class Wrapped(torch.autograd.Function):
    """An energy as an autograd function, so that gradcheck compares its gradient with its values."""

    @staticmethod
    def forward(ctx, evaluate, x):
        value, gradient = evaluate(x)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(ctx, upstream):
        (gradient,) = ctx.saved_tensors
        return None, gradient * upstream.view(-1, *[1] * (gradient.ndim - 1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("masks", ["none", "fixed", "moving", "both"])
@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_equal_autograd_of_the_definition(name, masks, shape):
    fixed, warped, soft, hard = images(shape)
    fixed_mask = hard if masks in ("fixed", "both") else None
    mask = soft if masks in ("moving", "both") else None
    weight = {"none": None, "fixed": hard, "moving": soft, "both": hard * soft}[masks]
    energy, twin = build(name, fixed, fixed_mask)
    value, gradient = energy.value_and_gradient(warped, mask)
    leaf = warped.clone().requires_grad_()
    expected = twin(fixed, leaf, weight)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    assert value.shape == (2,)
    assert value.dtype == torch.float64
    assert_same(value, expected.detach())
    assert_same(gradient, slope)


@pytest.mark.parametrize("shape", [(5, 6), (4, 4, 5)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_finite_differences(name, masked, shape):
    fixed, warped, soft, hard = images(shape, seed=1)
    energy, _ = build(name, fixed, hard if masked else None)
    evaluate = functools.partial(energy.value_and_gradient, mask=soft if masked else None)
    assert torch.autograd.gradcheck(
        lambda x: Wrapped.apply(evaluate, x), warped.requires_grad_(), eps=1e-6, atol=1e-9, rtol=1e-5
    )


def moved_pair(shape, field_shape):
    """Smooth images and a field large enough to leave the grid, none of whose points is on a voxel."""
    d = len(shape)
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(3, 2, 1, *shape, generator=generator, dtype=torch.float64)
    fixed, moving = (gaussian(x, 1.0).sigmoid() for x in noise[:2])
    fixed, moving = fixed, 0.5 * fixed + 0.5 * moving
    field = 1.3 * torch.randn(2, d, *field_shape, generator=generator, dtype=torch.float64)
    return fixed, moving, field, noise[2].sigmoid()


@pytest.mark.parametrize(
    ("shape", "field_shape"),
    [((9, 11), (9, 11)), ((9, 11), (5, 6)), ((6, 7, 8), (6, 7, 8)), ((6, 7, 8), (3, 4, 4))],
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_on_field_equals_autograd_through_resizing_and_warping(name, masked, shape, field_shape):
    fixed, moving, field, soft = moved_pair(shape, field_shape)
    energy, twin = build(name, fixed, soft if masked else None)
    value, gradient = energy.on_field(moving, field, soft if masked else None)

    leaf = field.clone().requires_grad_()
    mode = {2: "bilinear", 3: "trilinear"}[len(shape)]
    ratio = [(n - 1) / (m - 1) for n, m in zip(shape, field_shape, strict=True)]
    full = F.interpolate(leaf, shape, mode=mode, align_corners=True)
    full = full * torch.tensor(ratio, dtype=field.dtype).view(1, -1, *[1] * len(shape))
    weight = soft * warp(soft, full.detach()) if masked else None
    expected = twin(fixed, warp(moving, full), weight)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    assert gradient.shape == field.shape
    assert_same(value, expected.detach())
    assert_same(gradient, slope)


@pytest.mark.parametrize("name", NAMES)
def test_on_field_gradient_equals_finite_differences(name):
    fixed, moving, field, _ = moved_pair((6, 7), (3, 4))
    energy, _ = build(name, fixed)
    assert torch.autograd.gradcheck(
        lambda x: Wrapped.apply(functools.partial(energy.on_field, moving), x),
        field.requires_grad_(),
        eps=1e-7,
        atol=1e-8,
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_its_images_one_by_one(name):
    fixed, warped, soft, hard = images((6, 7, 8))
    value, gradient = build(name, fixed, hard)[0].value_and_gradient(warped, soft)
    for b in range(2):
        one = slice(b, b + 1)
        v, g = build(name, fixed[one], hard[one])[0].value_and_gradient(warped[one], soft[one])
        torch.testing.assert_close(value[one], v, rtol=1e-14, atol=0)
        torch.testing.assert_close(gradient[one], g, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_of_ones_changes_nothing_but_the_local_windows_at_the_border(name):
    fixed, warped, _, _ = images((12, 13))
    ones = torch.ones_like(fixed)
    plain = build(name, fixed)[0].value_and_gradient(warped)
    masked = build(name, fixed, ones.bool())[0].value_and_gradient(warped, ones)
    if "local" not in name:
        torch.testing.assert_close(plain, masked, rtol=1e-12, atol=1e-15)
        return
    inner = (..., slice(5, -5), slice(5, -5))  # a voxel's windows, and their windows, are all inside
    torch.testing.assert_close(plain[1][inner], masked[1][inner], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_what_lies_outside_the_mask_does_not_matter(name):
    fixed, warped, soft, hard = images((9, 11))
    value, gradient = build(name, fixed, hard)[0].value_and_gradient(warped, soft)
    other = torch.where(hard > 0, warped, 0.5 * warped + 0.3)
    altered = torch.where(hard > 0, fixed, 1 - fixed)
    v, g = build(name, altered, hard)[0].value_and_gradient(other, soft)
    torch.testing.assert_close(value, v, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, g, rtol=1e-9, atol=1e-12)
    assert (gradient[hard == 0] == 0).all()


@pytest.mark.parametrize(("gain", "offset"), [(3.0, 0.0), (0.2, -7.0), (50.0, 1e4)])
def test_correlations_ignore_a_linear_change_of_intensity(gain, offset):
    fixed, warped, soft, _ = images((8, 9))
    value, gradient = GlobalCorrelation(fixed).value_and_gradient(warped)
    v, g = GlobalCorrelation(fixed).value_and_gradient(gain * warped + offset)
    torch.testing.assert_close(v, value, rtol=1e-9, atol=0)
    torch.testing.assert_close(g * gain, gradient, rtol=1e-6, atol=1e-10)
    for squared in (True, False):  # weights make zero padding immaterial; epsilon vanishes
        local = LocalCorrelation(fixed, soft, window=5, squared=squared, epsilon=1e-18)
        torch.testing.assert_close(
            local.value_and_gradient(gain * warped + offset)[0],
            local.value_and_gradient(warped)[0],
            rtol=1e-6,
            atol=0,
        )


def test_perfect_and_opposite_images():
    fixed, _, soft, _ = images((8, 9))
    for energy in (GlobalCorrelation(fixed), LocalCorrelation(fixed, soft, squared=False, epsilon=1e-18)):
        zero, slope = energy.value_and_gradient(fixed)
        torch.testing.assert_close(zero, torch.zeros_like(zero), rtol=0, atol=1e-9)
        torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-9)
        two, _ = energy.value_and_gradient(1 - fixed)
        torch.testing.assert_close(two, 2 * torch.ones_like(two), rtol=1e-9, atol=0)
    assert (SquaredError(fixed).value_and_gradient(fixed)[0] == 0).all()


@pytest.mark.parametrize("name", ["global", "local squared", "local plain"])
def test_float32_with_a_mean_of_ten_thousand_is_accurate(name):
    """The single-pass float32 formula E[x^2] - E[x]^2 gives NaN here."""
    fixed, warped, soft, _ = images((16, 17, 18), batch=1)
    fixed, warped, soft = (100 * fixed + 1e4).float(), (100 * warped + 1e4).float(), soft.float()
    value, gradient = build(name, fixed, soft)[0].value_and_gradient(warped)
    v, g = build(name, fixed.double(), soft.double())[0].value_and_gradient(warped.double())
    centred = build(name, fixed.double() - 1e4, soft.double())[0].value_and_gradient(warped.double() - 1e4)
    torch.testing.assert_close(value, v, rtol=1e-12, atol=0)
    assert gradient.dtype == torch.float32
    assert_same(gradient.double(), g, rtol=1e-6)
    assert_same(value, centred[0], rtol=1e-9)
    assert_same(gradient.double(), centred[1], rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", NAMES)
def test_gradient_has_the_type_of_warped_and_the_value_is_float64(name, dtype):
    fixed, warped, _, _ = images((8, 9), dtype=dtype)
    value, gradient = build(name, fixed)[0].value_and_gradient(warped)
    v, g = build(name, fixed.double())[0].value_and_gradient(warped.double())
    assert (value.dtype, gradient.dtype) == (torch.float64, dtype)
    torch.testing.assert_close(value, v, rtol=1e-12, atol=0)
    assert_same(gradient.double(), g, rtol=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 0.1, 1e4])
@pytest.mark.parametrize("name", NAMES)
def test_a_constant_image_is_refused_by_name(name, level, dtype):
    fixed, warped, soft, _ = images((9, 10, 11), dtype=dtype)
    with pytest.raises(InputError, match=r"^warped moving: the image is constant .*; expected .* Check"):
        build(name, fixed)[0].value_and_gradient(torch.full_like(warped, level))
    energy, _ = build(name, torch.full_like(fixed, level))
    with pytest.raises(InputError, match=r"^fixed: the image is constant"):
        energy.value_and_gradient(warped)
    with pytest.raises(InputError, match=r"^fixed: the image is constant"):
        energy.value_and_gradient(warped, soft)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", NAMES)
def test_an_image_that_is_not_finite_is_refused_by_name(name, bad):
    fixed, warped, _, _ = images((6, 7))
    spoilt = warped.clone()
    spoilt[1, 0, 2, 3] = bad
    with pytest.raises(InputError, match=r"^warped moving: .* not finite; expected finite .* Replace"):
        build(name, fixed)[0].value_and_gradient(spoilt)
    with pytest.raises(InputError, match=r"^fixed: .* not finite"):
        build(name, spoilt)[0].value_and_gradient(warped)


@pytest.mark.parametrize("name", NAMES)
def test_masks_that_do_not_overlap_are_refused(name):
    fixed, warped, _, hard = images((6, 7))
    with pytest.raises(InputError, match=r"^mask: no voxel is inside both"):
        build(name, fixed, hard)[0].value_and_gradient(warped, 1 - hard)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_would_broadcast_are_refused(name):
    fixed, warped, soft, _ = images((6, 7))
    with pytest.raises(
        InputError, match=r"^warped moving: the shape is \(2, 1, 6, 1\); expected \(2, 1, 6, 7\)"
    ):
        build(name, fixed)[0].value_and_gradient(warped[..., :1])
    with pytest.raises(InputError, match=r"^mask: the shape is"):
        build(name, fixed)[0].value_and_gradient(warped, soft[:1])


@pytest.mark.parametrize("name", NAMES)
def test_a_moving_image_pushed_off_the_grid_is_refused(name):
    fixed, warped, _, _ = images((6, 7))
    with pytest.raises(InputError, match=r"^warped moving: the image is constant"):
        build(name, fixed)[0].on_field(warped, torch.full((2, 2, 6, 7), 50.0, dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_is_not_finite_is_refused(name):
    fixed, warped, _, _ = images((6, 7))
    field = torch.zeros(2, 2, 6, 7, dtype=torch.float64)
    field[0, 1, 2, 2] = float("nan")
    with pytest.raises(InputError, match=r"^warped moving: .* not finite"):
        build(name, fixed)[0].on_field(warped, field)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_step_against_the_gradient_lowers_the_value(name):
    fixed, moving, field, _ = moved_pair((9, 11), (5, 6))
    energy, _ = build(name, fixed)
    value, gradient = energy.on_field(moving, field)
    step = 1e-4 / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert (energy.on_field(moving, field - step * gradient)[0] < value).all()
