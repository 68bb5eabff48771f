"""Every file of the corpus gets its declared verdict, quickly and within little memory."""

from __future__ import annotations

import os
import signal
import tracemalloc

import numpy as np
import pytest
from corpus import CASES, FAMILIES, IMAGE, Case, gz, nifti_bytes

from pirate.errors import InputError, MemoryExceeded, PirateError
from pirate.io import nifti

READERS = {"image": nifti.read_image, "labels": nifti.read_labels, "mask": nifti.read_mask}
MEMORY = 300 << 20


@pytest.fixture(autouse=True)
def _no_hang():
    def late(*_):
        raise TimeoutError("the reader hangs")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[:60])
def test_a_file_gets_its_verdict(case: Case, tmp_path):
    path = case.build(tmp_path)
    read = READERS[case.reader]
    if case.verdict in ("accepted", "repaired"):
        image = read(path)
        assert np.isfinite(image.data).all()
        assert bool(image.notes) == (case.verdict == "repaired"), image.notes
        assert case.fragment in " ".join(image.notes)
        return
    expected, code = (InputError, 3) if case.verdict == "refused" else (MemoryExceeded, 6)
    tracemalloc.start()
    try:
        with pytest.raises(expected) as caught:
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    sentence = str(caught.value)
    assert case.fragment in sentence
    assert caught.value.exit_code == code
    assert "; expected " in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert peak < MEMORY


def test_the_corpus_covers_the_files_no_reader_should_accept():
    refused = [case.name for case in CASES if case.verdict in ("refused", "too large")]
    assert len(refused) >= 90
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(len(cases) >= 6 for cases in FAMILIES.values())


def test_a_bomb_is_refused_without_growing_the_process(tmp_path):
    """In a child of its own, because allocators hide from tracemalloc: 100 MB behind a small header."""
    path = tmp_path / "bomb.nii.gz"
    path.write_bytes(gz(nifti_bytes() + bytes(100_000_000)))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        verdict = b"?"
        try:
            before = _resident()
            try:
                nifti.read_image(path)
            except PirateError as error:
                verdict = b"%d %d" % (error.exit_code, _peak() - before)
            os.write(writing, verdict)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    code, grown = map(int, os.read(reading, 100).split())
    os.close(reading)
    os.close(writing)
    assert code == 3
    assert grown < 50_000  # kB


def _status(entry: str) -> int:
    with open("/proc/self/status") as file:  # noqa: PTH123
        return next(int(line.split()[1]) for line in file if line.startswith(entry))


def _resident() -> int:
    with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123 - 5 resets the peak
        file.write("5")
    return _status("VmRSS:")


def _peak() -> int:
    return _status("VmHWM:")


def test_the_memory_limit_is_kept(tmp_path):
    path = tmp_path / "image.nii.gz"
    path.write_bytes(gz(nifti_bytes()))
    need = IMAGE.size * (2 + 4)
    assert nifti.read_image(path, memory_limit=need).data.shape == IMAGE.shape
    for limit in (need - 1, 100):
        with pytest.raises(MemoryExceeded, match=r"needs .* bytes of memory"):
            nifti.read_image(path, memory_limit=limit)


def test_running_out_of_memory_is_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "image.nii"
    path.write_bytes(nifti_bytes())

    def none_left(*_):
        raise MemoryError

    monkeypatch.setattr("pirate.io.volume._voxels", none_left)
    with pytest.raises(MemoryExceeded, match="memory ran out"):
        nifti.read_image(path)


def test_a_file_swapped_for_a_pipe_after_the_first_look_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "image.nii"
    path.write_bytes(nifti_bytes())
    honest = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr("os.stat", lambda *_: honest)
    with pytest.raises(InputError, match="pipe"):
        nifti.read_image(path)


def test_neighbours_with_one_stem_are_not_confused(tmp_path):
    (tmp_path / "a.nii").write_bytes(nifti_bytes(IMAGE))
    (tmp_path / "a.nii.gz").write_bytes(gz(nifti_bytes(IMAGE + 1)))
    assert (nifti.read_image(tmp_path / "a.nii").data == IMAGE).all()
    assert (nifti.read_image(tmp_path / "a.nii.gz").data == IMAGE + 1).all()


def test_a_name_cannot_forge_a_line(tmp_path):
    with pytest.raises(InputError) as caught:
        nifti.read_image(tmp_path / "a\n0 errors\x1b[2J.nii")
    assert str(caught.value).isprintable()


def test_prefer_decides_between_contradicting_forms(tmp_path):
    path = tmp_path / "image.nii"
    path.write_bytes(nifti_bytes(qoffset_x=20))
    assert nifti.read_image(path, prefer="sform").grid.origin[0] == -10
    assert nifti.read_image(path, prefer="qform").grid.origin[0] == 20
    path.write_bytes(nifti_bytes(qform_code=0))
    assert nifti.read_image(path, prefer="qform").grid.origin[0] == -10  # no qform: the sform stands
