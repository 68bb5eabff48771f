"""Files written beside other work: all of them or an error, whatever the threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pirate.errors import OutputError
from pirate.io.atomic import sha256_of, write_text
from pirate.registration.writers import writing


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_every_file_is_written_and_its_checksum_known(threads: int, tmp_path: Path) -> None:
    with writing(threads) as writers:
        for name in "abcde":
            writers.add(tmp_path / name, lambda path: write_text(path, path.name * 1000))
        digests = writers.digests()
    assert digests == {tmp_path / name: sha256_of(tmp_path / name) for name in "abcde"}
    assert [path.name for path in digests] == list("abcde")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_cannot_be_written_is_told(threads: int, tmp_path: Path) -> None:
    def run() -> None:
        with writing(threads) as writers:
            writers.add(tmp_path / "missing" / "a", lambda path: write_text(path, "a"))
            writers.digests()

    with pytest.raises(OutputError, match="its folder does not exist"):
        run()


def test_when_the_block_fails_what_was_begun_is_whole_and_the_rest_is_left_out(tmp_path: Path) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slowly(path: Path) -> None:
        begun.release()
        go_on.wait(10)
        write_text(path, "whole")

    def run() -> None:
        with writing(2) as writers:
            for name in "abcdef":
                writers.add(tmp_path / name, slowly)
            for _ in range(2):
                begun.acquire(timeout=10)
            threading.Timer(0.05, go_on.set).start()
            raise RuntimeError("drawing failed")

    with pytest.raises(RuntimeError, match="drawing failed"):
        run()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["a", "b"]
    assert all((tmp_path / name).read_text() == "whole" for name in left)
