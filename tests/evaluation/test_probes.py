import math

import pytest
import torch

from pirate.denoisers import Gaussian, TotalVariation
from pirate.evaluation.probes import asymmetry, jacobian, largest_singular_value
from pirate.ops.compose import compose

FIELD = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SIZE = FIELD.numel()


def linear(matrix, opaque=False):
    def denoise(field, sigma):
        product = (matrix @ field.reshape(-1)).reshape(field.shape)
        return product.detach() if opaque else product

    return denoise


def random(seed):
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("opaque", [False, True])
def test_the_jacobian_of_a_matrix_is_the_matrix(opaque):
    matrix = random(1)
    found = jacobian(linear(matrix, opaque), FIELD, 0.5)
    v = torch.randn_like(FIELD)
    torch.testing.assert_close(found.forward(v).reshape(-1), matrix @ v.reshape(-1), rtol=1e-7, atol=1e-7)
    if opaque:
        assert found.transposed is None
    else:
        torch.testing.assert_close(found.transposed(v).reshape(-1), matrix.T @ v.reshape(-1))


def test_the_jacobian_of_a_denoiser_that_composes():
    """As the anatomy networks do, by compiled code in float32: J v agrees with a difference, J^T v with J v."""
    field, v, w = (
        0.3 * torch.randn(1, 2, 6, 7, generator=torch.Generator().manual_seed(s)) for s in (0, 1, 2)
    )
    update = torch.full_like(field, 0.2, dtype=torch.float64)

    def denoise(z, sigma):
        return compose(z, 0.5 * z - update.to(z.dtype))

    found = jacobian(denoise, field, 0.5)
    step = 1e-5
    there, back = (denoise(field.double() + sign * step * v, 0.5) for sign in (1, -1))
    torch.testing.assert_close(found.forward(v), ((there - back) / (2 * step)).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close((found.forward(v) * w).sum(), (found.transposed(w) * v).sum())


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_asymmetry_of_known_matrices(opaque, share):
    even, odd = random(1), random(2)
    even, odd = even + even.T, odd - odd.T
    even, odd = even / even.norm(), odd / odd.norm()
    matrix = math.sqrt(1 - share**2) * even + share * odd
    exact = float((matrix - matrix.T).norm() / (2 * matrix.norm()))
    assert exact == pytest.approx(share, abs=1e-12)
    found = asymmetry(linear(matrix, opaque), FIELD, 0.5, probes=400)
    assert found == pytest.approx(share, abs=0.13 if opaque and share < 0.5 else 0.03)


def test_an_unrelated_matrix_has_one_over_root_two():
    assert asymmetry(linear(random(3)), FIELD, 0.5, probes=300) == pytest.approx(math.sqrt(0.5), abs=0.05)


def test_the_zero_map_is_symmetric():
    assert asymmetry(linear(torch.zeros(SIZE, SIZE, dtype=torch.float64)), FIELD, 0.5) == 0
    assert largest_singular_value(linear(torch.zeros(SIZE, SIZE, dtype=torch.float64)), FIELD, 0.5) == 0
    assert asymmetry(lambda field, sigma: torch.zeros_like(field), FIELD, 0.5) == 0


def test_the_largest_singular_value_of_known_matrices():
    matrix = random(4)
    exact = float(torch.linalg.matrix_norm(matrix, 2))
    assert largest_singular_value(linear(matrix), FIELD, 0.5, iterations=2000) == pytest.approx(
        exact, rel=5e-3
    )
    shear = torch.eye(SIZE, dtype=torch.float64)
    shear[0, 1] = 10  # every eigenvalue is 1
    exact = float(torch.linalg.matrix_norm(shear, 2))
    assert largest_singular_value(linear(shear), FIELD, 0.5) == pytest.approx(exact, rel=1e-3)
    even = matrix + matrix.T
    found = largest_singular_value(linear(even, opaque=True), FIELD, 0.5, iterations=3000)
    assert found == pytest.approx(float(torch.linalg.matrix_norm(even, 2)), rel=0.02)


def test_it_is_taken_where_the_field_is():
    def square(field, sigma):
        return sigma * field.square()

    found = largest_singular_value(square, FIELD, 0.5, iterations=500)
    assert found == pytest.approx(float(FIELD.abs().max()), rel=1e-2)


def test_the_gaussian_is_nearly_symmetric_and_total_variation_does_not_expand():
    field = torch.randn(1, 2, 24, 20, generator=torch.Generator().manual_seed(1))
    assert asymmetry(Gaussian(), field, 1.0) < 0.1  # the border voxel, repeated, is not symmetric
    assert largest_singular_value(Gaussian(), field, 1.0) == pytest.approx(1, abs=0.05)
    tv = TotalVariation(gap=1e-6, iterations=3000)
    assert largest_singular_value(tv, field.double(), 0.3, iterations=6) <= 1.001
