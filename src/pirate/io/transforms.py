"""One door for every transform file, and for the folder that `pirate register` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pirate.errors import reject
from pirate.grid import Grid
from pirate.io.composite import read_composite
from pirate.io.fields import read_field
from pirate.io.files import read_limited
from pirate.io.itk import read_affine
from pirate.transform import Affine, Part, Transform

FORWARD_WARP = "moving_to_fixed_warp.nii.gz"
"""The field that brings the moving image onto the fixed grid, before the affine."""

INVERSE_WARP = "fixed_to_moving_warp.nii.gz"
"""The field that brings the fixed image onto the moving one, after the inverse affine; on the fixed grid."""

AFFINE = "affine.txt"
"""The affine, fixed world to moving world; absent when there is none."""

DONE = "run.json"
"""Written last: its presence says that the folder is complete; its "outputs" say which files belong to it."""

_LARGEST_RECORD = 1 << 24  # bytes; run.json takes a few thousand


def read_transform(path: Path, inverse: bool = False, memory_limit: int | None = None) -> Transform:
    """Read a transform, or its inverse.

    Args:
        path: a displacement field (.nii, .nii.gz), an affine (.txt, .tfm, .mat), an ITK composite (.h5,
            .hdf5), or a folder written by `pirate register`, of which only the files are read that its
            ``run.json`` lists, unchanged.
        inverse: return the inverse. A folder holds it; an affine has one; a lone field does not.
        memory_limit: refuse fields larger than so many bytes.

    Returns:
        a map of world points, RAS mm: from fixed to moving, with `inverse` from moving to fixed.
    """
    path = Path(path)
    if not path.exists():
        raise reject(path, "there is no such file or folder", "a transform", "Check the path.")
    if path.is_dir():
        return _of_folder(path, inverse, memory_limit)
    transform = _of_file(path, memory_limit)
    if not inverse:
        return transform
    undone: list[Part] = []
    for part in reversed(transform.parts):
        if not isinstance(part, Affine):
            raise reject(
                path,
                "a displacement field is not inverted",
                "an affine, or a folder that holds both directions",
                "Give the registration's folder.",
            )
        undone.append(part.inverse())
    return Transform(tuple(undone))


def _of_file(path: Path, memory_limit: int | None) -> Transform:
    name = path.name.lower()
    if name.endswith((".nii", ".nii.gz")):
        return Transform((read_field(path, memory_limit),))
    if name.endswith((".txt", ".tfm", ".mat")):
        return Transform((read_affine(path),))
    if name.endswith((".h5", ".hdf5")):
        return read_composite(path, memory_limit)
    raise reject(
        path,
        "its name does not say what kind of transform it is",
        ".nii or .nii.gz (field), .txt, .tfm or .mat (affine), .h5 or .hdf5 (composite), or a folder",
        "Rename it, or give the folder written by `pirate register`.",
    )


def recorded_grid(folder: Path, side: str) -> Grid:
    """The grid of the `side` image ("fixed" or "moving") as ``run.json`` of a registration records it."""
    try:
        record = _recorded(folder)[side]["grid"]
        affine = np.array(record["affine"], dtype=np.float64)
        return Grid(tuple(record["shape"]), affine, record.get("slice_axis"))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise reject(
            folder / DONE,
            f"does not record the {side} image's grid",
            "a file written by `pirate register`",
            "Give an image on that grid (--reference of apply, --moving of convert).",
        ) from error


def _of_folder(folder: Path, inverse: bool, memory_limit: int | None) -> Transform:
    outputs = _outputs(folder)
    name, option = (INVERSE_WARP, "inverse") if inverse else (FORWARD_WARP, "warp")
    if name not in outputs:
        raise reject(
            folder / name,
            f"that output was not written, {DONE} does not list it",
            "a folder with the warp of this direction",
            f"Run the registration again with --write {option}, or without --write.",
        )
    affine = (read_affine(folder / AFFINE, outputs[AFFINE]),) if AFFINE in outputs else ()
    field = read_field(folder / name, memory_limit, outputs[name])
    if inverse:
        return Transform((*(a.inverse() for a in affine), field), source="moving", target="fixed")
    return Transform((field, *affine), source="fixed", target="moving")


def _outputs(folder: Path) -> dict[str, str]:
    """The files that belong to the registration in `folder`, each with its SHA-256."""
    outputs = _recorded(folder).get("outputs")
    if not isinstance(outputs, dict) or not all(isinstance(sha256, str) for sha256 in outputs.values()):
        raise reject(
            folder / DONE,
            "does not list the files of the registration",
            'a table "outputs" of names and checksums',
            "Run the registration again, or give a transform file.",
        )
    return outputs


def _recorded(folder: Path) -> dict[str, Any]:
    """What ``run.json`` says."""
    path, expected = folder / DONE, "a folder that `pirate register` completed"
    remedy = "Run the registration again, or give a transform file."
    if not path.is_file():
        raise reject(folder, f"there is no {DONE} in it", expected, remedy)
    try:
        record = json.loads(read_limited(path, _LARGEST_RECORD, expected, remedy))
    except (ValueError, RecursionError) as error:
        raise reject(path, "it is not JSON", expected, remedy) from error
    if not isinstance(record, dict):
        raise reject(path, "it is not a table", expected, remedy)
    return record
