"""The energies again, written straight from their definitions, slow, differentiable by autograd."""

import itertools

import torch
import torch.nn.functional as F


def share(fixed, weight):
    weight = torch.ones_like(fixed) if weight is None else weight
    return weight / weight.flatten(1).sum(1).view(-1, *[1] * (fixed.ndim - 1))


def squared_error(fixed, warped, weight=None):
    return (share(fixed, weight) * (fixed - warped) ** 2).flatten(1).sum(1)


def global_correlation(fixed, warped, weight=None):
    values = []
    for f, w, s in zip(fixed, warped, share(fixed, weight), strict=True):
        f, w = f - (s * f).sum(), w - (s * w).sum()
        values.append(1 - (s * f * w).sum() / ((s * f * f).sum() * (s * w * w).sum()).sqrt())
    return torch.stack(values)


def windows(x, window):
    """(B, 1, *shape) to (B, 1, *shape, window^d), zeros outside."""
    d = x.ndim - 2
    x = F.pad(x, [window // 2] * (2 * d))
    for axis in range(d):
        x = x.unfold(2 + axis, window, 1)
    return x.flatten(2 + d)


def local_correlation(fixed, warped, weight=None, *, window, squared, epsilon=1e-5):
    f, w = windows(fixed, window), windows(warped, window)
    a = torch.ones_like(f) if weight is None else windows(weight, window)
    n = a.sum(-1, keepdim=True).clamp_min(1e-300)
    f, w = f - (a * f).sum(-1, keepdim=True) / n, w - (a * w).sum(-1, keepdim=True) / n
    cross, vf, vw = (a * f * w).sum(-1), (a * f * f).sum(-1), (a * w * w).sum(-1)
    c = cross**2 / (vf * vw + epsilon) if squared else cross / (vf * vw + epsilon).sqrt()
    return 1 - (share(fixed, weight) * c).flatten(1).sum(1)


def spline(x):
    """Cubic B-spline of any real number."""
    x = x.abs()
    return torch.where(
        x < 1, 2 / 3 - x**2 + x**3 / 2, torch.where(x < 2, (2 - x) ** 3 / 6, torch.zeros_like(x))
    )


def mutual_information(fixed, warped, weight=None, *, fixed_range, moving_range, bins):
    values = []
    for b, s in enumerate(share(fixed, weight)):
        low, high = fixed_range[b].tolist()
        row = ((fixed[b] - low) / (high - low) * bins).floor().clamp(0, bins - 1)
        low, high = moving_range[b].tolist()
        u = 1 + (warped[b] - low) / (high - low) * (bins - 3)
        cells = {}
        for i, j in itertools.product(range(bins), repeat=2):
            cells[i, j] = (s * (row == i) * spline(j - u)).sum()
        value = 0
        for i, j in cells:
            pi = sum(cells[i, k] for k in range(bins))
            pj = sum(cells[k, j] for k in range(bins))
            if cells[i, j] > 0:
                value = value - cells[i, j] * (cells[i, j] / (pi * pj)).log()
        values.append(value)
    return torch.stack(values)


def smoothness(field):
    d, n = field.shape[1], field[0, 0].numel()
    value = 0
    for axis in range(2, 2 + d):
        value = value + 2 / d * field.diff(dim=axis).square().flatten(1).sum(1) / (d * n)
    return value


def jacobian(field, difference):
    """(B, *shape, d, d) by torch.gradient, or by diff with the last voxel repeated."""
    d = field.shape[1]
    columns = []
    for axis in range(2, 2 + d):
        if difference == "central":
            columns.append(torch.gradient(field, dim=axis)[0])
        else:
            last = field.narrow(axis, field.shape[axis] - 1, 1)
            columns.append(field.diff(dim=axis, append=last))
    return torch.stack(columns, -1).movedim(1, -2) + torch.eye(d, dtype=field.dtype)


def folding(field, margin, difference):
    determinant = torch.linalg.det(jacobian(field, difference))
    if difference == "forward":
        determinant = determinant[(slice(None), *[slice(0, -1)] * field.shape[1])]
    return (margin - determinant).relu().square().flatten(1).mean(1)
