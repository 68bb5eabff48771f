"""Time of every compiled kernel against the same mathematics in torch, and against the memory bandwidth.

    python benchmarks/kernels.py [--threads 2] [--repeats 10] [--json FILE] [--without-torch]

Images are 160 x 192 x 224: an ellipsoid with texture, about half background. One process; the kernels are
timed first, because torch's OpenMP threads keep spinning after their work. Times are medians, in memory, into
buffers that exist. "x limit" is the time divided by the time that the bytes which must be read or written at
least would take at the bandwidth of a triad (a = b + s c) measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pirate import kernels
from pirate.ops import compose, derivative, jacobian, resample, smooth, warp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kernels"))
import twins

SHAPE = (160, 192, 224)
HALF = (80, 96, 112)
RADIUS, EPSILON = 2, 1e-5


class Case(NamedTuple):
    """One row of the table."""

    name: str
    floats: float
    """Floats per voxel that must be read or written at least once."""
    ours: Callable[[], Any]
    torch: Callable[[], Any] | None


def phantom(shift: float) -> Tensor:
    """Ellipsoid with texture, 0 outside, (1, 1, *SHAPE)."""
    axes = [torch.linspace(-1, 1, n) for n in SHAPE]
    i, j, k = torch.meshgrid(*axes, indexing="ij")
    inside = (i / 0.98) ** 2 + (j / 0.98) ** 2 + (k / 0.98) ** 2 < 1
    texture = torch.rand(1, 1, *[n // 4 for n in SHAPE], generator=torch.Generator().manual_seed(0))
    texture = F.interpolate(texture, size=SHAPE, mode="trilinear", align_corners=True)[0, 0]
    waves = torch.sin(23 * i + shift) * torch.cos(19 * j) * torch.sin(21 * k + shift)
    return (inside * (0.5 + 0.3 * texture + 0.2 * waves))[None, None].contiguous()


def smooth_field(shape: tuple[int, ...], size: float, seed: int) -> Tensor:
    """Random field of about `size` voxels that changes over some ten voxels."""
    coarse = torch.randn(1, 3, *[n // 12 for n in shape], generator=torch.Generator().manual_seed(seed))
    return size * F.interpolate(coarse, size=shape, mode="trilinear", align_corners=True)


def milliseconds(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median and least time of `call`, after one call to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), min(times)


def bandwidth(repeats: int) -> float:
    """Bytes per second of a triad, by the extension's threads: three streams of 110 MB."""
    n = 160 * 192 * 224 * 4
    a, b, c = (torch.zeros(n) for _ in range(3))
    _, least = milliseconds(
        lambda: kernels._extension.triad(n, a.data_ptr(), b.data_ptr(), c.data_ptr()), repeats
    )
    return 3 * 4 * n / (least / 1e3)


def cases() -> list[Case]:
    """All rows, on images and fields made here."""
    fixed, moving = phantom(0.0), phantom(0.4)
    field, other = smooth_field(SHAPE, 1.5, 1), smooth_field(SHAPE, 0.3, 2)
    half = smooth_field(HALF, 1.0, 3)
    update = other.clamp(-0.9, 0.9)
    image_out, field_out, half_out = torch.empty_like(fixed), torch.empty_like(field), torch.empty_like(half)
    force_out, step_out = torch.empty_like(field), torch.empty_like(field)
    warped = warp.warp(moving, field)

    def step() -> None:
        kernels.local_correlation_force(
            fixed, moving, field, RADIUS, True, EPSILON, "compositional", force_out
        )
        kernels.gaussian(force_out, 1.2, 3.0, step_out)
        kernels.compose_small(field, update, out=force_out)
        kernels.gaussian(force_out, 0.4, 3.0, step_out)

    def torch_step() -> None:
        _, force = twins.local_correlation_force(fixed, moving, field, RADIUS, True, EPSILON, "compositional")
        smooth.gaussian(force, 1.2)
        smooth.gaussian(compose.compose_small(field, update), 0.4)

    def composed() -> None:
        kernels.compose(field, other, field_out)
        kernels.compose_adjoint(field, other, update)

    def torch_composed() -> None:
        both = [x.detach().requires_grad_() for x in (field, other)]
        torch.autograd.grad(compose.compose(*both), both, update)

    def no_autograd(call: Callable[[], Any]) -> Callable[[], Any]:
        return torch.no_grad()(call)

    force = kernels.local_correlation_force
    return [
        Case(
            "warp",
            5,
            lambda: kernels.warp(moving, field, "zeros", image_out),
            no_autograd(lambda: warp.warp(moving, field)),
        ),
        Case(
            "warp_with_gradient",
            8,
            lambda: kernels.warp_with_gradient(moving, field),
            lambda: twins.warp_with_gradient(moving, field),
        ),
        Case(
            "global_correlation (half-resolution field)",
            2 + 6 / 8,
            lambda: kernels.global_correlation(fixed, moving, half, None, half_out),
            lambda: twins.global_correlation(fixed, moving, half),
        ),
        Case(
            "global_correlation (full-resolution field)",
            8,
            lambda: kernels.global_correlation(fixed, moving, field, None, field_out),
            lambda: twins.global_correlation(fixed, moving, field),
        ),
        Case(
            "local_correlation (radius 2)",
            3,
            lambda: kernels.local_correlation(fixed, warped, RADIUS, True, EPSILON, None, image_out),
            lambda: twins.local_correlation(fixed, warped, RADIUS, True, EPSILON),
        ),
        Case(
            "local_correlation_force (compositional, radius 2)",
            8,
            lambda: force(fixed, moving, field, RADIUS, True, EPSILON, "compositional", field_out),
            lambda: twins.local_correlation_force(
                fixed, moving, field, RADIUS, True, EPSILON, "compositional"
            ),
        ),
        Case(
            "local_correlation_force (additive, radius 2)",
            8,
            lambda: force(fixed, moving, field, RADIUS, True, EPSILON, "additive", field_out),
            lambda: twins.local_correlation_force(fixed, moving, field, RADIUS, True, EPSILON, "additive"),
        ),
        Case(
            "gaussian (field, sigma 1.2)",
            6,
            lambda: kernels.gaussian(field, 1.2, 3.0, field_out),
            no_autograd(lambda: smooth.gaussian(field, 1.2)),
        ),
        Case(
            "gaussian (field, sigma 0.4)",
            6,
            lambda: kernels.gaussian(field, 0.4, 3.0, field_out),
            no_autograd(lambda: smooth.gaussian(field, 0.4)),
        ),
        Case(
            "compose",
            9,
            lambda: kernels.compose(field, other, field_out),
            no_autograd(lambda: compose.compose(field, other)),
        ),
        Case("compose and its derivative", 24, composed, torch_composed),
        Case(
            "compose_small",
            9,
            lambda: kernels.compose_small(field, update, out=field_out),
            no_autograd(lambda: compose.compose_small(field, update)),
        ),
        Case(
            "determinant (central)",
            4,
            lambda: kernels.determinant(field),
            no_autograd(lambda: jacobian.determinant(field)),
        ),
        Case(
            "folds",
            3,
            lambda: kernels.folds(field),
            no_autograd(
                lambda: (
                    jacobian.folding_ratio(field),
                    jacobian.folding_ratio(field, derivative.forward_difference),
                )
            ),
        ),
        Case(
            "resize_field (half to full)",
            3 + 3 / 8,
            lambda: kernels.resize_field(half, SHAPE, field_out),
            no_autograd(lambda: resample.resize_field(half, SHAPE)),
        ),
        Case(
            "resize_field_adjoint (full to half)",
            3 + 3 / 8,
            lambda: kernels.resize_field_adjoint(field, HALF, half_out),
            no_autograd(lambda: resample.resize_field_adjoint(field, HALF)),
        ),
        Case(
            "smoothness_gradient",
            6,
            lambda: kernels.smoothness_gradient(field, field_out),
            no_autograd(lambda: twins.smoothness_gradient(field)),
        ),
        Case(
            "full local-correlation step (force, gaussian 1.2, compose_small, gaussian 0.4)",
            8 + 6 + 9,
            step,
            torch_step,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-torch", action="store_true", help="time the kernels only")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    kernels.set_threads(options.threads)
    torch.set_num_threads(options.threads)
    rate = bandwidth(options.repeats)
    rows: list[dict[str, Any]] = []
    chosen = [c for c in cases() if options.only in c.name]
    time.sleep(0.5)  # torch's threads stop spinning
    voxels = SHAPE[0] * SHAPE[1] * SHAPE[2]
    for case in chosen:
        median, least = milliseconds(case.ours, options.repeats)
        megabytes = 4e-6 * case.floats * voxels
        limit = 1e9 * megabytes / rate
        rows.append(
            {
                "kernel": case.name,
                "ms": median,
                "least": least,
                "megabytes": megabytes,
                "limit": median / limit,
            }
        )
    for case, row in zip(chosen, rows, strict=True):
        if case.torch is not None and not options.without_torch:
            with kernels.disabled():
                row["torch"], _ = milliseconds(case.torch, 3 if row["ms"] > 4 else options.repeats)
    share = float((phantom(0.0) != 0).float().mean())
    machine = f"{options.threads} threads, {kernels.variant()}, triad {rate / 1e9:.1f} GB/s"
    print(f"Shape {SHAPE}, foreground {share:.0%}, {machine}.\n")
    print("| kernel | ms (median) | ms (least) | torch ms | torch / ours | MB at least | x limit |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        other = f"{r['torch']:.0f} | {r['torch'] / r['ms']:.1f}" if "torch" in r else "- | -"
        print(
            f"| {r['kernel']} | {r['ms']:.1f} | {r['least']:.1f} | {other} | {r['megabytes']:.0f} | {r['limit']:.1f} |"
        )
    if options.json:
        options.json.write_text(
            json.dumps({"bandwidth": rate, "threads": options.threads, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
