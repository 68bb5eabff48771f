"""One registration by another tool, in a process of its own; imports nothing but that tool.

    python child_tools.py JOB.json

JOB names the tool, its parameters, the files FIXED and MOVING, the dimension, the number of threads and the folder OUT.
Written there: ``warp.nii.gz``, ITK displacements on the fixed grid; for a tool that makes one ``inverse.nii.gz``; and
``result.json``: seconds from images in memory to the final warp, the process's peak memory in bytes, and the data
term at each iteration where the tool tells it (else it is read from what the tool prints).
"""

from __future__ import annotations

import importlib
import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOT_STARTED = "the tool estimated an affine; every method has to start from the given alignment"


def ants(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """ANTsPy from the identity; the call writes both of its warps itself."""
    tool = importlib.import_module("ants")
    fixed, moving = (tool.image_read(job[name], dimension=job["ndim"]) for name in ("fixed", "moving"))
    parameters = {k: v for k, v in job["parameters"].items() if k not in ("kind", "winsorise")}
    start = time.perf_counter()
    if job["parameters"]["winsorise"]:
        fixed, moving = (tool.iMath(x, "TruncateIntensity", 0.005, 0.995) for x in (fixed, moving))
    result = tool.registration(
        fixed, moving, job["parameters"]["kind"], initial_transform="Identity", outprefix=str(out / "ants_"),
        verbose=True, **parameters,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    _keep(tool, result["fwdtransforms"], "Warp.nii.gz", out / "warp.nii.gz", job["ndim"])
    _keep(tool, result["invtransforms"], "InverseWarp.nii.gz", out / "inverse.nii.gz", job["ndim"])
    return {"seconds": seconds}


def _keep(tool: Any, paths: list[str], ending: str, target: Path, ndim: int) -> None:
    """Rename the one warp among `paths`; an affine among them must be the identity."""
    warps = [Path(p) for p in paths if p.endswith(ending)]
    if len(warps) != 1:
        raise SystemExit(f"expected one warp, ANTs wrote {paths}")
    for path in (p for p in paths if p.endswith(".mat")):
        affine = tool.read_transform(path, dimension=ndim)
        for point in ([0.0] * ndim, [100.0] * ndim, [100.0, *[0.0] * (ndim - 1)]):
            moved = affine.apply_to_point(point)
            if max(abs(a - b) for a, b in zip(moved, point, strict=True)) > 1e-4:
                raise SystemExit(NOT_STARTED)
    warps[0].rename(target)


def greedy(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """Greedy on images in memory; the warp is not rounded (-wp 0), the noise has a fixed seed."""
    sitk, package = importlib.import_module("SimpleITK"), importlib.import_module("picsl_greedy")
    fixed, moving = (sitk.ReadImage(job[name], sitk.sitkFloat32) for name in ("fixed", "moving"))
    tool = package.Greedy2D() if job["ndim"] == 2 else package.Greedy3D()
    command = f"-i fixed moving {job['parameters']['options']} -wp 0 -seed 1 -V 2 -threads {job['threads']} -o warp"
    start = time.perf_counter()
    tool.execute(command, fixed=fixed, moving=moving, warp=None)
    seconds = time.perf_counter() - start
    sitk.WriteImage(tool["warp"], str(out / "warp.nii.gz"))
    return {"seconds": seconds}


def demons(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """SimpleITK's demons after histogram matching, one resolution."""
    sitk = importlib.import_module("SimpleITK")
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(job["threads"])
    fixed, moving = (sitk.ReadImage(job[name], sitk.sitkFloat32) for name in ("fixed", "moving"))
    own, energies = job["parameters"], []
    start = time.perf_counter()
    if own["matching"]:
        moving = sitk.HistogramMatching(moving, fixed, own["histogram_levels"], own["match_points"], True)
    tool = getattr(sitk, own["filter"])()
    tool.SetNumberOfIterations(own["iterations"])
    tool.SetMaximumUpdateStepLength(own["step"])
    tool.SetSmoothDisplacementField(own["displacement_sigma"] > 0)
    tool.SetStandardDeviations(own["displacement_sigma"])
    tool.SetSmoothUpdateField(own["update_sigma"] > 0)
    tool.SetUpdateFieldStandardDeviations(own["update_sigma"])
    tool.AddCommand(sitk.sitkIterationEvent, lambda: energies.append(tool.GetMetric()))
    warp = tool.Execute(fixed, moving)
    seconds = time.perf_counter() - start
    sitk.WriteImage(warp, str(out / "warp.nii.gz"))
    return {"seconds": seconds, "energies": energies}


TOOLS: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "ants": ants,
    "greedy": greedy,
    "demons": demons,
}


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes; Linux's own figure, which leaves the parent out."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        return int(found[1]) * 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def main() -> None:
    """Do what the job file named on the command line says."""
    job = json.loads(Path(sys.argv[1]).read_text())
    if job["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (job["memory"], job["memory"]))
    out = Path(job["out"])
    result = TOOLS[job["tool"]](job, out)
    (out / "result.json").write_text(json.dumps(result | {"peak_memory": peak_memory()}))


if __name__ == "__main__":
    main()
