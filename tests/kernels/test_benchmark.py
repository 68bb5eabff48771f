"""Every row of ``make bench`` runs, and both its sides compute; how fast is not tested."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pirate import kernels

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import kernels as module

    monkeypatch.setattr(module, "SHAPE", (24, 36, 40))
    monkeypatch.setattr(module, "HALF", (12, 18, 20))
    return module


@pytest.mark.skipif(not kernels.available(), reason="the extension is not built")
def test_every_row_of_the_kernel_benchmark_runs(benchmark: ModuleType) -> None:
    rows = benchmark.cases()
    assert len({case.name for case in rows}) == len(rows) > 15
    for case in rows:
        case.ours()
        with kernels.disabled():
            case.torch()
