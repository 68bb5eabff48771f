"""Affines in ITK's files: what is written is read back, and what is not an affine is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from transform_samples import sample_affine

from pirate.errors import InputError
from pirate.io.itk import read_affine, write_affine
from pirate.transform import Affine, Transform


@pytest.mark.parametrize("ndim", [2, 3])
def test_an_affine_survives_the_file_exactly(tmp_path, ndim):
    write_affine(tmp_path / "a.txt", sample_affine(), ndim)
    np.testing.assert_array_equal(read_affine(tmp_path / "a.txt").matrix, sample_affine().matrix)


def test_an_affine_that_mixes_z_is_not_two_dimensional(tmp_path):
    matrix = np.eye(4)
    matrix[2, 0] = 0.1
    with pytest.raises(InputError, match="mixes z"):
        write_affine(tmp_path / "a.txt", Affine(matrix), 2)
    assert not (tmp_path / "a.txt").exists()


HEAD = "#Insight Transform File V1.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "lists 0 transforms"),
        (HEAD + 2 * "Transform: IdentityTransform_double_3_3\n", "lists 2 transforms without saying"),
        (HEAD + "Transform: AffineTransform_double_3_3\nParameters: 1 b 3\n", "line 3 holds a word"),
        (HEAD + "Transform: AffineTransform_double_3_3\nParameters: 1 2\n", "12 parameters are needed"),
        (HEAD + "Transform: Euler3DTransform_double_3_3\nParameters: 1 2\n", "6 parameters are needed"),
        (HEAD + "Transform: Euler2DTransform_double_3_3\nParameters: 1 2 3\n", "makes no map"),
        (HEAD + "Transform: AffineTransform_double_2_2\nParameters: 1 1 1 1 0 0\n", "invertible"),
        (HEAD + "Transform: AffineTransform_double_2_2\nParameters: 1 0 0 nan 0 0\n", "finite"),
        (HEAD + "Transform: TranslationTransform_float_2_2\nParameters: 0 1e999\n", "finite"),
        (
            HEAD + "Transform: AffineTransform_double_2_2\nParameters: 1 0 0 9e307 0 0\nFixedParameters: 9 9",
            "finite",
        ),
        (HEAD + "Transform: BSplineTransform_double_3_3\nParameters: 1\n", "it holds a BSplineTransform"),
        (HEAD + "Transform: Affine\nParameters: 1\n", "of type 'Affine'"),
        ("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "FLIRT"),
        ("x" * ((1 << 20) + 1), "larger than 1,048,576 bytes"),
    ],
)
def test_what_is_no_affine_file_is_refused(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_affine(tmp_path / "a.txt")


def test_a_missing_affine_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_affine(tmp_path / "nothing.txt")


def mat_variable(name, values, kind="d"):
    code = {"d": 0, "f": 10}[kind]
    head = struct.pack("<5i", code, len(values), 1, 0, len(name) + 1)
    return head + name.encode() + b"\0" + struct.pack(f"<{len(values)}{kind}", *values)


@pytest.mark.parametrize("kind", ["d", "f"])
def test_the_binary_form_of_ants_is_read(tmp_path, kind):
    content = mat_variable("MatrixOffsetTransformBase_float_2_2", [2, 0, 0, 4, 1, 0.5], kind)
    (tmp_path / "a.mat").write_bytes(content + mat_variable("fixed", [8, 16], kind))
    moved = Transform((read_affine(tmp_path / "a.mat"),)).map([[-10.0, -20.0, 5.0]])  # LPS 10, 20
    np.testing.assert_allclose(moved, [[-(2 * 2 + 1 + 8), -(4 * 4 + 0.5 + 16), 5]])


def damaged_mats():
    good = mat_variable("AffineTransform_double_3_3", [1.0] * 12) + mat_variable("fixed", [0.0] * 3)
    return {
        "cut": good[:-1],
        "one variable": good[: len(good) - 50],
        "huge": struct.pack("<5i", 0, 1 << 30, 1, 0, 5) + b"name\0",
        "other type": struct.pack("<5i", 50, 3, 1, 0, 5) + b"name\0" + b"\0" * 100,
        "negative": struct.pack("<5i", 0, -3, 1, 0, 5) + b"name\0" + b"\0" * 100,
        "no fixed": mat_variable("a", [1.0]) + mat_variable("b", [1.0]),
        "empty": b"",
    }


@pytest.mark.parametrize("name", damaged_mats())
def test_a_damaged_mat_is_refused(tmp_path, name):
    (tmp_path / "a.mat").write_bytes(damaged_mats()[name])
    with pytest.raises(InputError, match="neither ITK transform text nor"):
        read_affine(tmp_path / "a.mat")
