"""One door for every transform file, and for the folder that `pirate register` writes."""

from __future__ import annotations

from pathlib import Path

from pirate.errors import reject
from pirate.io.composite import read_composite
from pirate.io.fields import read_field
from pirate.io.itk import read_affine
from pirate.transform import Affine, Part, Transform

FORWARD_WARP = "moving_to_fixed_warp.nii.gz"
"""The field that brings the moving image onto the fixed grid, before the affine."""

INVERSE_WARP = "fixed_to_moving_warp.nii.gz"
"""The field that brings the fixed image onto the moving one, after the inverse affine; on the fixed grid."""

AFFINE = "affine.txt"
"""The affine, fixed world to moving world; absent when there is none."""

DONE = "run.json"
"""Written last: its presence says that the folder is complete."""


def read_transform(path: Path, inverse: bool = False, memory_limit: int | None = None) -> Transform:
    """Read a transform, or its inverse.

    Args:
        path: a displacement field (.nii, .nii.gz), an affine (.txt, .tfm, .mat), an ITK composite (.h5,
            .hdf5), or a folder written by `pirate register`.
        inverse: return the inverse. A folder holds it; an affine has one; a lone field does not.
        memory_limit: refuse fields larger than so many bytes.

    Returns:
        a map of world points, RAS mm: from fixed to moving, with `inverse` from moving to fixed.
    """
    path = Path(path)
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
                f"Give {INVERSE_WARP} from the registration's folder, or the folder itself.",
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


def _of_folder(folder: Path, inverse: bool, memory_limit: int | None) -> Transform:
    if not (folder / DONE).is_file():
        raise reject(
            folder,
            f"there is no {DONE} in it",
            "a folder that `pirate register` completed",
            "Run the registration again, or give a transform file.",
        )
    affine = (read_affine(folder / AFFINE),) if (folder / AFFINE).exists() else ()
    if inverse:
        field = read_field(folder / INVERSE_WARP, memory_limit)
        return Transform((*(a.inverse() for a in affine), field), source="moving", target="fixed")
    field = read_field(folder / FORWARD_WARP, memory_limit)
    return Transform((field, *affine), source="fixed", target="moving")
