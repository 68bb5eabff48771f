"""What the tests of the kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pirate import kernels


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set that this machine runs, in turn."""
    before = kernels.variant()
    if request.param not in kernels._extension.variants():
        pytest.skip(f"this machine does not run {request.param}")
    kernels._extension.select(request.param)
    yield request.param
    kernels._extension.select(before)
    kernels.set_threads(0)
