"""One registration, or one skull stripping, by another tool, in a process of its own; imports nothing but that tool.

    python child_tools.py JOB.json

JOB names the tool, its parameters, the files FIXED and MOVING, the dimension, the number of threads and the folder OUT.
Written there: ``warp.nii.gz``, ITK displacements on the fixed grid; for a tool that makes one ``inverse.nii.gz``; and
``result.json``: seconds from images in memory to the final warp, the process's peak memory in bytes, and the data
term at each iteration where the tool tells it (else it is read from what the tool prints).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def ants(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """ANTs' own program, antsRegistration, as ANTsPy holds it; both files are read and both warps written by it."""
    importlib.import_module("ants")
    register = importlib.import_module("ants.internal").get_lib_fn("antsRegistration")
    words = [word.format(fixed=job["fixed"], moving=job["moving"]) for word in job["parameters"]["words"]]
    start = time.perf_counter()
    code = register([*words, "--output", f"[{out}/ants_]", "--verbose", "1"])
    seconds = time.perf_counter() - start
    if code != 0:
        raise SystemExit(f"antsRegistration ended with code {code}")
    (out / "ants_0Warp.nii.gz").rename(out / "warp.nii.gz")
    (out / "ants_0InverseWarp.nii.gz").rename(out / "inverse.nii.gz")
    return {"seconds": seconds}


def greedy(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """Greedy on images in memory; the warp is not rounded (-wp 0), the noise has a fixed seed."""
    sitk, package = importlib.import_module("SimpleITK"), importlib.import_module("picsl_greedy")
    fixed, moving = (sitk.ReadImage(job[name], sitk.sitkFloat32) for name in ("fixed", "moving"))
    tool = package.Greedy2D() if job["ndim"] == 2 else package.Greedy3D()
    command = (
        f"-i fixed moving {job['parameters']['options']} -wp 0 -seed 1 -threads {job['threads']} -o warp"
    )
    start = time.perf_counter()
    tool.execute(command, fixed=fixed, moving=moving, warp=None)
    seconds = time.perf_counter() - start
    sitk.WriteImage(tool["warp"], str(out / "warp.nii.gz"))
    sign = job["parameters"]["sign"]  # a correlation is maximised
    values = [sign * float(v) for level in tool.metric_log() for v in level["TotalPerPixelMetric"]]
    return {"seconds": seconds, "energies": values}


def demons(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """SimpleITK's demons after histogram matching, one resolution; it wants both images on one grid."""
    sitk = importlib.import_module("SimpleITK")
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(job["threads"])
    fixed, moving = (sitk.ReadImage(job[name], sitk.sitkFloat32) for name in ("fixed", "moving"))
    own, energies = job["parameters"], []
    least = float(sitk.GetArrayViewFromImage(moving).min())
    moving = sitk.Resample(moving, fixed, sitk.Transform(), sitk.sitkNearestNeighbor, least)  # one lattice
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


def deepbet(job: dict[str, Any], out: Path) -> dict[str, Any]:
    """The brain in a head, by deepbet's networks, whose weights come with it: ``mask.nii.gz``."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(job["threads"])
    extraction = importlib.import_module("deepbet.bet").BrainExtraction(no_gpu=True)
    start = time.perf_counter()
    extraction.run(job["image"], mask_path=str(out / "mask.nii.gz"), threshold=job["threshold"])
    return {"seconds": time.perf_counter() - start}


TOOLS: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "ants": ants,
    "greedy": greedy,
    "demons": demons,
    "deepbet": deepbet,
}


def peak_memory() -> int:
    """Largest resident size of this process so far, bytes; Linux's own figure, which leaves the parent out."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        return int(found[1]) * 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when `parent`, its starter, ends: nobody would read the result."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        raise SystemExit("the process that started this one has ended")


def main() -> None:
    """Do what the job file named on the command line says."""
    job = json.loads(Path(sys.argv[1]).read_text())
    die_with_parent(job["parent"])
    if job["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (job["memory"], job["memory"]))
    out = Path(job["out"])
    result = TOOLS[job["tool"]](job, out)
    (out / "result.json").write_text(json.dumps(result | {"peak_memory": peak_memory()}))


if __name__ == "__main__":
    main()
