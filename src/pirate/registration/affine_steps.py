"""Bringing a pose to the nearest place of least penalty, within a group of motions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from pirate.grid import Array
from pirate.registration.affine_images import Pose
from pirate.registration.affine_penalty import Samples

Kind = Literal["rigid", "similarity", "affine"]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pose, its penalty at the level it was last seen at, and the start it came from."""

    pose: Pose
    value: float
    start: str


def refine(level: Samples, candidate: Candidate, kind: Kind, iterations: int) -> Candidate:
    """Levenberg-Marquardt on the poses ``exp(sum of delta_k G_k) linear, shift + delta``.

    With B the derivative of the pose by delta, g and H the gradient and curvature by the pose's entries,

        (B^T H B + damping diag(B^T H B)) delta = -B^T g / ratio

    A step that makes the penalty larger is taken back and the damping raised. H knows nothing of how alike the
    two images are, and is too large where they differ much; the ratio of the gradient's change along the last step to
    that expected from H corrects it. The poses of a kind are a group, so a rigid one stays rigid.

    Args:
        level: the samples.
        candidate: where to begin.
        kind: of the steps.
        iterations: at most so many. A step moves the image's border by at most two voxels of the level; the
            last one by less than a fiftieth.
    """
    pose, d = candidate.pose, len(candidate.pose.shift)
    generators = _generators(kind, d, level.radius)
    value, gradient, curvature = level.equations(pose)
    damping, ratio = 1e-2, 1.0
    for _ in range(iterations):
        basis = _directions(generators, pose)
        system = basis.T @ curvature @ basis
        system += np.diag(damping * np.diag(system) + 1e-9 * np.trace(system))
        delta = -np.linalg.solve(system, basis.T @ gradient) / ratio
        longest = float(np.abs(delta).max())
        delta *= min(1.0, 2 * level.spacing / max(longest, 1e-30))
        turn = exponential(np.tensordot(delta[:-d], generators, 1))
        moved = Pose(turn @ pose.linear, pose.shift + delta[-d:])
        following = level.equations(moved)
        if following[0] < value:
            ratio = _ratio(basis @ delta, following[1] - gradient, curvature)
            pose, (value, gradient, curvature) = moved, following
            damping /= 10
        else:
            damping, ratio = 10 * damping, 1.0
        if longest < 0.02 * level.spacing or damping > 1e3:
            break
    return Candidate(pose, value, candidate.start)


def _ratio(step: Array, change: Array, curvature: Array) -> float:
    """How the gradient changed along the step against what the curvature says, within [0.4, 1]."""
    expected = float(step @ curvature @ step)
    return min(1.0, max(0.4, float(step @ change) / max(expected, 1e-30)))


def _directions(generators: Array, pose: Pose) -> Array:
    """B, (m, p + d): how the entries of ``(linear, shift)``, row by row, change with delta."""
    d, p = len(pose.shift), len(generators)
    result = np.zeros((d, d + 1, p + d))
    result[:, :d, :p] = (generators @ pose.linear).transpose(1, 2, 0)
    result[:, d, p:] = np.eye(d)
    return result.reshape(d * (d + 1), p + d)


def _generators(kind: Kind, d: int, radius: float) -> Array:
    """(p, d, d): what a pose of this kind may do besides shifting, each moving points at `radius` by 1 mm.

    Rotations are the skew matrices, one common scale the identity, scales and shears the symmetric ones.
    """
    found = [skew(v) for v in np.eye(3 if d == 3 else 1)]
    if kind == "similarity":
        found.append(np.eye(d))
    if kind == "affine":
        for a, b in combinations_with_replacement(range(d), 2):
            symmetric = np.zeros((d, d))
            symmetric[a, b] = symmetric[b, a] = 1.0
            found.append(symmetric)
    return np.stack(found) / radius


def skew(vector: Array) -> Array:
    """The cross product with a vector (3,), or the turn of the plane by (1,), as a matrix; radian."""
    if len(vector) == 1:
        return np.array([[0.0, -vector[0]], [vector[0], 0.0]])
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def exponential(matrix: Array) -> Array:
    """``exp(M) = exp(M / 2^k)^(2^k)`` of a small square matrix, the inner one by its series to rounding."""
    halvings = max(0, int(np.ceil(np.log2(np.abs(matrix).sum() + 1e-30))) + 2)
    part = matrix / 2.0**halvings
    result = term = np.eye(len(matrix))
    for n in range(1, 13):
        term = term @ part / n
        result = result + term
    for _ in range(halvings):
        result = result @ result
    return result
