"""One registration by another tool, in a process of its own; imports nothing but that tool.

    python tools.py JOB.json

JOB names the tool, its parameters, FIXED, MOVING, the number of threads and the folder OUT. Written there:
``warp.nii.gz`` (ITK displacements on the fixed grid), ``warped.nii.gz`` (the tool's own resampling) and
``seconds.json``: the time from images in memory to the final transform.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def ants_syn(job: dict[str, Any], out: Path) -> float:
    """ANTsPy's SyNOnly from the identity; the call writes both of its warps itself."""
    import ants
    import numpy as np

    fixed, moving = ants.image_read(job["fixed"]), ants.image_read(job["moving"])
    start = time.perf_counter()
    result = ants.registration(
        fixed,
        moving,
        "SyNOnly",
        initial_transform="Identity",
        outprefix=str(out / "ants_"),
        verbose=True,  # prints the time of the optimisation alone; read by `ants_stage_seconds`
        **job["parameters"],
    )
    seconds = time.perf_counter() - start
    warps = [Path(p) for p in result["fwdtransforms"] if p.endswith("Warp.nii.gz")]
    affines = [p for p in result["fwdtransforms"] if p.endswith(".mat")]
    if len(warps) != 1 or len(warps) + len(affines) != len(result["fwdtransforms"]):
        raise SystemExit(f"expected one warp, ANTs wrote {result['fwdtransforms']}")
    for path in affines:
        matrix = ants.read_transform(path)
        points = np.random.default_rng(0).normal(0, 100, (20, 3))
        moved = np.array([matrix.apply_to_point(p) for p in points])
        if np.abs(moved - points).max() > 1e-4:
            raise SystemExit("ANTs estimated an affine; every method has to start from the given alignment")
    warps[0].rename(out / "warp.nii.gz")
    ants.image_write(result["warpedmovout"], str(out / "warped.nii.gz"))
    return seconds


def greedy(job: dict[str, Any], out: Path) -> float:
    """Greedy on images in memory; the warp is not rounded (-wp 0), the noise has a fixed seed."""
    import SimpleITK as sitk  # noqa: N813
    from picsl_greedy import Greedy3D

    fixed = sitk.ReadImage(job["fixed"], sitk.sitkFloat32)
    moving = sitk.ReadImage(job["moving"], sitk.sitkFloat32)
    tool, common = Greedy3D(), f"-threads {job['threads']}"
    start = time.perf_counter()
    tool.execute(
        f"-i fixed moving {job['parameters']['options']} -wp 0 -seed 1 {common} -o warp",
        fixed=fixed,
        moving=moving,
        warp=None,
    )
    seconds = time.perf_counter() - start
    tool.execute(f"-rf fixed -rm moving warped -r warp {common}", warped=None)
    sitk.WriteImage(tool["warp"], str(out / "warp.nii.gz"))
    sitk.WriteImage(tool["warped"], str(out / "warped.nii.gz"))
    return seconds


def demons(job: dict[str, Any], out: Path) -> float:
    """SimpleITK's fast symmetric forces demons after histogram matching, one resolution."""
    import SimpleITK as sitk  # noqa: N813

    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(job["threads"])
    fixed = sitk.ReadImage(job["fixed"], sitk.sitkFloat32)
    moving = sitk.ReadImage(job["moving"], sitk.sitkFloat32)
    parameters = job["parameters"]
    start = time.perf_counter()
    matched = sitk.HistogramMatching(
        moving, fixed, parameters["histogram_levels"], parameters["match_points"], True
    )
    tool = sitk.FastSymmetricForcesDemonsRegistrationFilter()
    tool.SetNumberOfIterations(parameters["iterations"])
    tool.SetSmoothDisplacementField(True)
    tool.SetStandardDeviations(parameters["displacement_sigma"])
    warp = tool.Execute(fixed, matched)
    seconds = time.perf_counter() - start
    sitk.WriteImage(warp, str(out / "warp.nii.gz"))
    transform = sitk.DisplacementFieldTransform(sitk.Cast(warp, sitk.sitkVectorFloat64))
    sitk.WriteImage(sitk.Resample(moving, fixed, transform, sitk.sitkLinear, 0.0), str(out / "warped.nii.gz"))
    return seconds


TOOLS: dict[str, Callable[[dict[str, Any], Path], float]] = {
    "ants_syn": ants_syn,
    "greedy": greedy,
    "demons": demons,
}


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    out = Path(job["out"])
    seconds = TOOLS[job["tool"]](job, out)
    (out / "seconds.json").write_text(json.dumps({"registration_s": seconds}))


if __name__ == "__main__":
    main()
