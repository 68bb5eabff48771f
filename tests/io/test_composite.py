"""ITK composites in HDF5: read back as written, refused when damaged, and never a crash."""

from __future__ import annotations

import resource
import struct

import h5py
import numpy as np
import pytest
from transform_samples import sample_affine, sample_field

from pirate.errors import InputError, OutputError
from pirate.io.composite import read_composite, write_composite
from pirate.transform import Affine, Displacement, Transform


@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 6)])
def test_a_composite_survives_the_file(tmp_path, shape):
    transform = Transform((sample_field(shape), sample_affine(), sample_field(shape, seed=1)))
    write_composite(tmp_path / "t.h5", transform)
    again = read_composite(tmp_path / "t.h5")
    assert [type(p) for p in again.parts] == [Displacement, Affine, Displacement]
    points = np.random.default_rng(0).uniform(-5, 9, size=(50, 3))
    np.testing.assert_allclose(again.map(points), transform.map(points), atol=1e-5)


def test_a_composite_has_one_dimension(tmp_path):
    with pytest.raises(InputError, match="on a plane and on a volume"):
        write_composite(tmp_path / "t.h5", Transform((sample_field(), sample_field((5, 6)))))


def test_old_itk_spelling_is_read(tmp_path):
    write_composite(tmp_path / "t.h5", Transform((sample_field(),)))
    with h5py.File(tmp_path / "t.h5", "r+") as file:
        for name in ("Parameters", "FixedParameters"):
            file["TransformGroup/1"].move(f"Transform{name}", f"Tranform{name}")
    np.testing.assert_allclose(
        read_composite(tmp_path / "t.h5").parts[0].field, sample_field().field, atol=1e-5
    )


def _set(name, value):
    def damage(file):
        del file[name]
        file[name] = value

    return damage


def _without(name):
    def damage(file):
        del file[name]

    return damage


def _outside(file):
    del file["TransformGroup/1/TransformParameters"]
    file["TransformGroup/1/TransformParameters"] = h5py.ExternalLink("/etc/hostname", "x")


def _never_written(file):
    del file["TransformGroup/1/TransformParameters"]
    file.create_dataset("TransformGroup/1/TransformParameters", (630,), "f8")


def _external_storage(file):
    del file["TransformGroup/1/TransformParameters"]
    file.create_dataset(
        "TransformGroup/1/TransformParameters", (630,), "f8", external=[("other.bin", 0, 5040)]
    )


def _lost_name(file):
    """Point the name of the transform to a heap that is not there."""
    address = file["TransformGroup/1/TransformType"].id.get_offset()
    file.flush()
    with open(file.filename, "r+b") as raw:  # noqa: PTH123
        raw.seek(address + 4)
        raw.write(struct.pack("<Q", (1 << 64) - 2))


def _many(file):
    for index in range(2, 70):
        file.create_group(f"TransformGroup/{index}")


FIXED = "TransformGroup/1/TransformFixedParameters"
GEOMETRY = [5, 6, 7, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1.0]
FIELD = "TransformGroup/1/TransformParameters"
TYPE = "TransformGroup/1/TransformType"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without("TransformGroup"), "no /TransformGroup of its own"),
        (_without("TransformGroup/0"), "no /TransformGroup/0 of its own"),
        (_without(TYPE), "no /TransformGroup/1/TransformType of its own"),
        (_without(FIELD), "no /TransformGroup/1/TransformParameters of its own"),
        (_outside, "no /TransformGroup/1/TransformParameters of its own"),
        (_never_written, "claims 5,040 bytes and stores 0"),
        (_external_storage, "numbers stored in this file"),
        (_many, "lists 70 transforms"),
        (_set(TYPE, ["BSplineTransform_double_3_3"]), "it holds a BSplineTransform"),
        (_set(TYPE, ["CompositeTransform_double_3_3"]), "it holds a CompositeTransform"),
        (_set(TYPE, np.arange(3)), "of type ''"),
        (_set(FIELD, np.zeros(629)), "holds 629 values"),
        (_set(FIELD, np.zeros(630, "i4")), "values of type int32"),
        (_set(FIELD, np.full(630, np.nan)), "NaN"),
        (_set(FIELD, np.full(630, 1e300)), "NaN or infinite"),
        (_lost_name, "of type ''"),
        (_set(FIXED, np.zeros(300)), "at most 256"),
        (_set(FIXED, np.array(GEOMETRY[:-1], float)), "size, origin, spacing and direction"),
        (_set(FIXED, np.array([0.0, *GEOMETRY[1:]])), "size, origin, spacing and direction"),
        (_set(FIXED, np.array([1e15, 1e15, *GEOMETRY[2:]])), "floating-point numbers"),
        (_set(FIXED, np.array([*GEOMETRY[:-1], 0.0])), "span no volume"),
    ],
)
def test_a_damaged_composite_is_refused(tmp_path, damage, message):
    path = tmp_path / "t.h5"
    write_composite(path, Transform((sample_field(),)))
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(InputError, match=message):
        read_composite(path)


def test_damaged_bytes_are_read_or_refused_but_never_crash(tmp_path):
    """HDF5 itself crashes on some of these; the file has no checksums, so a flip in a number goes unseen."""
    path = tmp_path / "t.h5"
    write_composite(path, Transform((sample_field((3, 4, 5)), sample_affine())))
    good, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for trial in range(150):
        damaged = bytearray(good[: rng.integers(len(good))] if trial % 3 == 0 else good)
        for place in rng.integers(max(len(damaged), 1), size=3 if trial % 3 else 0):
            damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            read_composite(path)
        except InputError:
            refused += 1
    assert refused >= 50  # every cut file at least


def test_a_fixed_length_name_is_read(tmp_path):
    write_composite(tmp_path / "t.h5", Transform((sample_field(),)))
    with h5py.File(tmp_path / "t.h5", "r+") as file:
        _set(TYPE, np.array([b"DisplacementFieldTransform_double_3_3"]))(file)
    assert len(read_composite(tmp_path / "t.h5").parts) == 1


def test_what_is_no_hdf5_is_refused(tmp_path):
    (tmp_path / "t.h5").write_bytes(b"not HDF5")
    with pytest.raises(InputError, match="not a readable HDF5 file"):
        read_composite(tmp_path / "t.h5")


def test_a_composite_above_the_memory_limit_is_refused(tmp_path):
    write_composite(tmp_path / "t.h5", Transform((sample_field(),)))
    with pytest.raises(InputError, match="at most 1,000"):
        read_composite(tmp_path / "t.h5", memory_limit=1000)


def test_a_composite_that_does_not_fit_leaves_the_old_one(tmp_path):
    path = tmp_path / "t.h5"
    write_composite(path, Transform((sample_affine(),)))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(OutputError):
            write_composite(path, Transform((sample_field((20, 20, 20)),)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
