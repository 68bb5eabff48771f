"""Damaged files, by seed: a sentence or the true voxels, nothing else."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from corpus import IMAGE, PACKED, PLAIN, _mgh, gz, members, nifti_bytes

from pirate.errors import InputError, PirateError
from pirate.io import gz as gz_module
from pirate.io import nifti


def test_every_flipped_bit_of_a_compressed_file_is_caught(tmp_path):
    """400 single flips: refused, or decoded to the very same voxels.

    The time in the gzip header, and a copy taken from another equal stretch, carry no data.
    """
    path = tmp_path / "image.nii.gz"
    random = np.random.default_rng(400)
    refused = harmless = 0
    for position in random.choice(8 * len(PACKED), 400, replace=False):
        damaged = bytearray(PACKED)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            image = nifti.read_image(path)
        except InputError:
            refused += 1
        else:
            assert (image.data == IMAGE).all()
            harmless += 1
    assert refused + harmless == 400
    assert refused >= 390


@pytest.mark.parametrize("feed", [2, 3, 7, 20, 1 << 16])
def test_members_are_read_wherever_they_end_in_what_was_read(feed, tmp_path, monkeypatch):
    monkeypatch.setattr(gz_module, "FEED", feed)
    path = tmp_path / "image.nii.gz"
    for size in (300, 351, 1777):
        path.write_bytes(members(PLAIN, size))
        image = nifti.read_image(path)
        assert (image.data == IMAGE).all()
        assert image.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_flipped_bit_of_a_file_of_members_is_caught(tmp_path):
    path, packed = tmp_path / "image.nii.gz", members(PLAIN, 1000)
    refused = 0
    for position in np.random.default_rng(401).choice(8 * len(packed), 200, replace=False):
        damaged = bytearray(packed)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            assert (nifti.read_image(path).data == IMAGE).all()
        except InputError:
            refused += 1
    assert refused >= 180  # times and extra fields carry no data


def test_every_cut_of_a_file_of_members_is_caught(tmp_path):
    """Only the empty last member may be missing."""
    path, packed = tmp_path / "image.nii.gz", members(PLAIN, 1000)
    whole = len(packed) - len(members(b"", 1))
    for length in {*range(0, len(packed), 13), *range(whole - 9, len(packed))} - {whole}:
        path.write_bytes(packed[:length])
        with pytest.raises(InputError):
            nifti.read_image(path)


def test_every_cut_of_a_compressed_file_is_caught(tmp_path):
    path = tmp_path / "image.nii.gz"
    for length in range(0, len(PACKED), 13):
        path.write_bytes(PACKED[:length])
        with pytest.raises(InputError):
            nifti.read_image(path)


def _mutated(data: bytes, random: np.random.Generator) -> bytes:
    """Damage `data` in one to four ways: bits, header words, cuts, doubled and swapped stretches."""
    out = bytearray(data)
    for _ in range(random.integers(1, 5)):
        if len(out) < 4:
            break
        kind = random.integers(5)
        at = int(random.integers(len(out)))
        if kind == 0:
            out[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            start = 2 * int(random.integers(0, min(len(out), 348) // 2))
            words = (b"\0\0", b"\xff\xff", b"\xff\x7f", b"\0\x80", b"\1\0", b"\xc0\x7f", random.bytes(2))
            out[start : start + 2] = words[random.integers(len(words))]
        elif kind == 2:
            del out[max(at, 1) :]
        elif kind == 3:
            out[at:at] = out[at : at + int(random.integers(1, 200))]
        else:
            other = int(random.integers(len(out)))
            out[at : at + 16] = out[other : other + 16]
    return bytes(out)


@pytest.mark.parametrize("seed", range(5))
def test_a_mutated_file_is_read_or_refused(seed, tmp_path):
    random = np.random.default_rng(seed)
    bases = [
        ("a.nii.gz", PACKED, False),
        ("b.nii", PLAIN, False),
        ("c.nii.gz", PLAIN, True),
        ("d.nii", nifti_bytes(version=2), False),
        ("e.nii", nifti_bytes(order=">"), False),
        ("f.mgz", _mgh(), True),
        ("g.mgh", _mgh(), False),
    ]
    readers = (nifti.read_image, nifti.read_labels, nifti.read_mask, nifti.load_verified)
    outcomes = {"read": 0, "refused": 0}
    for number in range(100):
        name, base, packed_after = bases[number % len(bases)]
        damaged = _mutated(base, random)
        (tmp_path / name).write_bytes(gz(damaged) if packed_after else damaged)
        try:
            readers[random.integers(len(readers))](tmp_path / name)
            outcomes["read"] += 1
        except PirateError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 20
    assert outcomes["read"] > 5


def test_a_compressed_file_damaged_anywhere_never_gives_other_voxels(tmp_path):
    random = np.random.default_rng(11)
    path = tmp_path / "image.nii.gz"
    for _ in range(150):
        path.write_bytes(_mutated(PACKED, random))
        try:
            image = nifti.read_image(path)
        except InputError:
            continue
        assert (image.data == IMAGE).all()
