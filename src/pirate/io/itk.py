"""Affine transforms in ITK's files: text (.txt, .tfm) and the binary .mat that ANTs writes.

ITK's matrix-offset transforms map an LPS point x to ``M (x - c) + t + c`` with a centre c.
"""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pirate.errors import reject
from pirate.grid import Array
from pirate.io.atomic import replacing
from pirate.io.files import check_sha256, read_limited
from pirate.io.geometry import LPS
from pirate.transform import Affine

_LARGEST_FILE = 1 << 20  # bytes; an affine takes about 300
_TYPE = re.compile(r"([A-Za-z0-9]+)_(double|float)_([23])_\3")
_AFFINE_TYPES = (
    "AffineTransform",
    "MatrixOffsetTransformBase",
    "TranslationTransform",
    "IdentityTransform",
    "Euler3DTransform",
    "VersorRigid3DTransform",
    "Similarity3DTransform",
    "Euler2DTransform",
    "Rigid2DTransform",
    "Similarity2DTransform",
)


def write_affine(path: Path, affine: Affine, ndim: int = 3) -> None:
    """Write an affine as ITK text, ``AffineTransform_double_3_3`` or, with `ndim` 2, ``_2_2``."""
    parameters = " ".join(repr(float(v)) for v in affine_parameters(path, affine, ndim))
    text = (
        "#Insight Transform File V1.0\n#Transform 0\n"
        f"Transform: AffineTransform_double_{ndim}_{ndim}\n"
        f"Parameters: {parameters}\nFixedParameters: {' '.join('0' * ndim)}\n"
    )
    with replacing(path) as part:
        Path(part).write_text(text, encoding="ascii")


def read_affine(path: Path, sha256: str | None = None) -> Affine:
    """Read an affine from ITK text or from ANTs' binary .mat; a chain of affines becomes their product.

    Args:
        path: a regular file.
        sha256: of the file's bytes, where it is known; any other file is refused.
    """
    content = read_limited(path, _LARGEST_FILE, "an affine transform file", "Is this an image or a field?")
    check_sha256(path, hashlib.sha256(content).hexdigest(), sha256)
    listed = (
        _text_transforms(path, content)
        if content.startswith(b"#Insight")
        else [_mat_transform(path, content)]
    )
    matrix = np.eye(4)
    for kind, parameters, fixed in listed:  # the last listed is applied first
        matrix = matrix @ affine_of(path, kind, parameters, fixed).matrix
    return Affine(matrix)


def affine_parameters(path: Path, affine: Affine, ndim: int) -> Array:
    """(12,) or (6,): ITK's parameters about the centre 0, matrix by rows, then translation, LPS mm."""
    lps = LPS @ affine.matrix @ LPS
    if ndim == 2 and not (
        np.allclose(lps[2, [0, 1, 3]], 0, atol=1e-9) and np.allclose(lps[:2, 2], 0, atol=1e-9)
    ):
        raise reject(
            path,
            "the affine mixes z with x and y",
            "one that stays in the axial plane, because a two-dimensional ITK transform has no z",
            "Write it as a three-dimensional transform.",
        )
    return np.concatenate([lps[:ndim, :ndim].ravel(), lps[:ndim, 3]])


def affine_of(path: Path, kind: str, parameters: ArrayLike, fixed: ArrayLike) -> Affine:
    """Return the affine (RAS mm) that ITK means by a type name, its parameters and its fixed parameters.

    Args:
        path: what a refusal calls the file.
        kind: as written by ITK, for example ``Euler3DTransform_double_3_3``.
        parameters: numbers, radians and LPS mm.
        fixed: the centre in LPS mm, and whatever else the type keeps there.
    """
    name, ndim = type_of(path, kind)
    p, centre = np.asarray(parameters, np.float64).ravel(), np.asarray(fixed, np.float64).ravel()
    try:
        matrix, translation = _linear(name, ndim, p, centre)
        c = np.zeros(ndim) if centre.size == 0 else centre[:ndim]
        lps = np.eye(4)
        lps[:ndim, :ndim] = matrix
        with np.errstate(over="ignore", invalid="ignore"):  # Affine refuses what is not finite
            lps[:ndim, 3] = translation + c - matrix @ c
            return Affine(LPS @ lps @ LPS)
    except (ValueError, IndexError) as error:
        raise reject(
            path,
            f"its {name} ({p.size} parameters, {centre.size} fixed ones) makes no map: {error}",
            "finite numbers, as many as ITK writes, and an invertible matrix",
            "Write the transform again.",
        ) from error


def type_of(path: Path, kind: str, also: tuple[str, ...] = ()) -> tuple[str, int]:
    """Split ITK's type name into the class, affine or one of `also`, and its dimension, 2 or 3."""
    found = _TYPE.fullmatch(kind.strip())
    if found is None:
        raise reject(
            path,
            f"it holds a transform of type {kind.strip()[:80]!r}",
            "an ITK transform of two or three dimensions, such as AffineTransform_double_3_3",
            "Convert it to an affine or a displacement field with ITK first.",
        )
    if found[1] not in (*_AFFINE_TYPES, *also):
        raise reject(
            path,
            f"it holds a {found[1]}",
            "an affine, rigid, similarity or translation transform, or in .h5 a displacement field",
            "Sample it into a displacement field first (SimpleITK: TransformToDisplacementField).",
        )
    return found[1], int(found[3])


def _linear(name: str, ndim: int, p: Array, centre: Array) -> tuple[Array, Array]:
    """Matrix (ndim, ndim) and translation (ndim,), LPS mm, of ITK's class `name`."""
    if name in ("AffineTransform", "MatrixOffsetTransformBase"):
        _expect(p, ndim * (ndim + 1))
        return p[: ndim * ndim].reshape(ndim, ndim), p[ndim * ndim :]
    if name == "TranslationTransform":
        _expect(p, ndim)
        return np.eye(ndim), p
    if name == "IdentityTransform":
        return np.eye(ndim), np.zeros(ndim)
    if name == "Euler3DTransform":
        _expect(p, 6)
        x, y, z = (_rotation(axis, angle) for axis, angle in enumerate(p[:3]))
        return (z @ y @ x if centre.size > 3 and centre[3] else z @ x @ y), p[3:]
    if name in ("VersorRigid3DTransform", "Similarity3DTransform"):
        _expect(p, 6 if name.startswith("V") else 7)
        return _versor(p[:3]) * (1.0 if p.size == 6 else p[6]), p[3:6]
    if name in ("Euler2DTransform", "Rigid2DTransform"):
        _expect(p, 3)
        return _rotation(2, p[0])[:2, :2], p[1:]
    _expect(p, 4)  # Similarity2DTransform
    return p[0] * _rotation(2, p[1])[:2, :2], p[2:]


def _expect(parameters: Array, count: int) -> None:
    if parameters.size != count:
        raise ValueError(f"{count} parameters are needed")


def _rotation(axis: int, angle: float) -> Array:
    """Rotation (3, 3) by `angle` radians about a coordinate axis."""
    a, b = [(1, 2), (2, 0), (0, 1)][axis]
    matrix = np.eye(3)
    matrix[a, a] = matrix[b, b] = np.cos(angle)
    matrix[b, a] = np.sin(angle)
    matrix[a, b] = -matrix[b, a]
    return matrix


def _versor(v: Array) -> Array:
    """Rotation (3, 3) of the unit quaternion (w, v): ``I + 2 w [v] + 2 [v]^2``."""
    w = np.sqrt(max(0.0, 1.0 - float(v @ v)))
    cross = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.asarray(np.eye(3) + 2 * w * cross + 2 * cross @ cross)


def _text_transforms(path: Path, content: bytes) -> list[tuple[str, list[float], list[float]]]:
    """Type, parameters and fixed parameters of each transform listed in ITK text."""
    listed: list[tuple[str, list[float], list[float]]] = []
    composite = False
    for number, line in enumerate(content.decode("ascii", "replace").splitlines(), start=1):
        key, _, value = line.partition(":")
        if key == "Transform" and value.strip().startswith("CompositeTransform"):
            composite = True
        elif key == "Transform":
            listed.append((value.strip(), [], []))
        elif key in ("Parameters", "FixedParameters") and listed:
            try:
                _, parameters, fixed = listed[-1]
                (parameters if key == "Parameters" else fixed)[:] = [float(v) for v in value.split()]
            except ValueError as error:
                raise reject(
                    path, f"line {number} holds a word", "numbers", "Write the transform again."
                ) from error
    if not listed or (len(listed) > 1 and not composite):
        raise reject(
            path,
            f"it lists {len(listed)} transforms without saying how they combine",
            "one transform, or a CompositeTransform",
            "Give each transform in a file of its own.",
        )
    return listed


def _mat_transform(path: Path, content: bytes) -> tuple[str, Array, Array]:
    """Type, parameters and fixed parameters in a MATLAB level 4 file, as ITK writes it.

    Each variable is five int32 (precision code: 0 double, 10 single; rows; columns; 0; length of the name),
    the name with its NUL, and the numbers.
    """
    variables: list[tuple[str, Array]] = []
    at = 0
    while at + 20 <= len(content) and len(variables) < 2:
        code, rows, columns, imaginary, length = struct.unpack_from("<5i", content, at)
        width = {0: 8, 10: 4}.get(code, 0)
        start = at + 20 + length
        if not (width and 0 <= rows <= 4096 and 0 <= columns <= 1 and not imaginary and 0 < length < 256):
            break
        at = start + rows * columns * width
        if at > len(content):
            break
        numbers = np.frombuffer(content[start:at], f"<f{width}").astype(np.float64)
        variables.append((content[start - length : start - 1].decode("ascii", "replace"), numbers))
    if len(variables) != 2 or variables[1][0] != "fixed":
        raise reject(
            path,
            "it is neither ITK transform text nor ITK's binary .mat",
            "a file that starts with #Insight Transform File, or the .mat that ANTs writes",
            "A matrix of FSL's FLIRT must be turned into ITK's form first, with the two images at hand.",
        )
    return variables[0][0], variables[0][1], variables[1][1]
