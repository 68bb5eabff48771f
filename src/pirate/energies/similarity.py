"""Data terms g(fixed, warped): what they share, squared error and global correlation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pirate import kernels
from pirate.energies.composition import Remembered, gradient_product, weights
from pirate.energies.statistics import centred, check_shape, column, sound, total
from pirate.errors import reject
from pirate.ops.resample import resize_field, resize_field_adjoint
from pirate.ops.warp import warp, warp_with_gradient


@dataclass(frozen=True, eq=False)
class Similarity(ABC):
    """A penalty that is small where `warped` resembles `fixed`.

    Each voxel counts with the weight ``fixed_mask * mask``; a mask that is not given is 1 everywhere. The
    weight is a constant of the derivative: how the moving mask itself moves with the field is not
    differentiated. Sums run in float64 about the mean, so a large offset of the intensities is harmless.
    """

    fixed: Tensor
    """(B, 1, *shape), any intensity unit."""
    fixed_mask: Tensor | None = None
    """(B, 1, *shape), weights in [0, 1] or bool."""

    @abstractmethod
    def value_and_gradient(self, warped: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the penalty and its derivative with respect to `warped`.

        Args:
            warped: (B, 1, *shape), any intensity unit.
            mask: (B, 1, *shape), the warped moving mask, weights in [0, 1] or bool.

        Returns:
            value, (B,), float64; gradient, (B, 1, *shape), type of `warped`, per its intensity unit.
        """

    def on_field(
        self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the penalty of ``moving(x + U(x))`` and its derivative with respect to `field`.

        U is `field` resampled to the image grid, R field. By the chain rule the derivative is
        ``R^T (dg/dwarped * grad moving (x + U))``, with the gradient of the linear interpolant itself.

        Args:
            moving: (B, 1, *shape), any intensity unit.
            field: (B, d, *field_shape), voxels of its own grid.
            moving_mask: (B, 1, *shape), weights in [0, 1] or bool; 0 outside the image.

        Returns:
            value, (B,), float64; gradient, (B, d, *field_shape), per voxel of the field's grid.
        """
        shape, own = self.fixed.shape[2:], field.shape[2:]
        full = field if own == shape else resize_field(field, shape)
        warped, slope = warp_with_gradient(moving, full)
        mask = None if moving_mask is None else warp(moving_mask.to(full.dtype), full)
        pair = self.pair(warped, None, mask)
        value, pull = (pair and self.compiled(pair, None, True)) or self.value_and_gradient(warped, mask)
        gradient = pull * slope
        return value, gradient if own == shape else resize_field_adjoint(gradient, own)

    def force(
        self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the penalty of ``warped = moving(x + field(x))`` and its derivative by a composed step.

        The step d acts on the right, ``warped(x + d(x))``. At d = 0 the derivative is ``dg/dwarped * D warped``,
        D the central difference, one-sided at the borders.

        Args:
            moving: (B, 1, *shape), any intensity unit.
            field: (B, d, *shape), voxels, as fine as the images.
            moving_mask: (B, 1, *shape), weights in [0, 1] or bool; 0 outside the image.
            out: (B, d, *shape) for the derivative, or None for a new tensor.

        Returns:
            value, (B,), float64; derivative, (B, d, *shape), per voxel.
        """
        self._check_pair(moving, field)
        pair = self.pair(moving, field, moving_mask)
        if pair is not None and (term := self.compiled(pair, out, True)) is not None:
            return term
        warped = warp(moving, field)
        mask = None if moving_mask is None else warp(moving_mask.to(field.dtype), field)
        value, pull = self.value_and_gradient(warped, mask)
        return value, gradient_product(warped, pull, out)

    def value(self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None) -> Tensor:
        """Return the penalty alone, (B,), float64; arguments as in `force`."""
        self._check_pair(moving, field)
        pair = self.pair(moving, field, moving_mask)
        if pair is not None and (term := self.compiled(pair, None, False)) is not None:
            return term[0]
        mask = None if moving_mask is None else warp(moving_mask.to(field.dtype), field)
        return self.value_and_gradient(warp(moving, field), mask)[0]

    def compiled(
        self, pair: kernels.Pair, out: Tensor | None, gradient: bool
    ) -> tuple[Tensor, Tensor] | None:
        """Value and derivative from a kernel; None where there is none, or only torch can say what is wrong.

        Args:
            pair: the images, masks and field, as the kernels take them.
            out: for the derivative, or None.
            gradient: False if the value is all that is wanted; the derivative may then be an empty tensor.
        """
        return None

    def pair(self, moving: Tensor, field: Tensor | None, mask: Tensor | None) -> kernels.Pair | None:
        """What `compiled` reads; None where the kernels do not take these tensors."""
        if not kernels.usable(self.fixed, moving, *([] if field is None else [field])):
            return None
        check_shape(moving, self.fixed, "moving")
        for m in (self.fixed_mask, mask):
            if m is not None:
                check_shape(m, self.fixed, "mask")
        other = None if mask is None else self._weights(mask)
        return kernels.Pair(self.fixed, moving, field, self._fixed_weights, other)

    def _check_pair(self, moving: Tensor, field: Tensor) -> None:
        check_shape(moving, self.fixed, "moving")
        d, shape = self.fixed.ndim - 2, self.fixed.shape[2:]
        if field.shape != (len(self.fixed), d, *shape):
            raise reject(
                "field",
                f"the shape is {tuple(field.shape)}",
                f"{(len(self.fixed), d, *shape)}, as fine as the fixed image",
                "Resample it to the fixed image's grid.",
            )

    @cached_property
    def fixed_is_sound(self) -> bool:
        """Whether fixed can be aligned where its own mask holds; where the kernels take it."""
        pair = kernels.Pair(self.fixed, self.fixed, None, self._fixed_weights)
        return sound(kernels.correlation(pair, None, False).moments)

    @cached_property
    def _weights(self) -> Remembered[Tensor]:
        return Remembered(weights)

    @cached_property
    def _fixed_weights(self) -> Tensor | None:
        return None if self.fixed_mask is None else weights(self.fixed_mask)

    def weight(self, mask: Tensor | None) -> Tensor | None:
        """Weight of each voxel, fixed_mask * mask, (B, 1, *shape), float64; None where all count the same."""
        masks = [m for m in (self.fixed_mask, mask) if m is not None]
        if not masks:
            return None
        for m in masks:
            check_shape(m, self.fixed, "mask")
        weight = masks[0].double()
        return weight * masks[1] if len(masks) == 2 else weight

    def weight_on_field(self, field: Tensor, moving_mask: Tensor | None) -> Tensor | None:
        """`weight`, (B, 1, *shape), type of `field`, the moving mask warped by `field` of any resolution."""
        mask = moving_mask
        if moving_mask is not None:
            mask = warp(moving_mask.to(field.dtype), resize_field(field, self.fixed.shape[2:]))
        weight = self.weight(mask)
        return None if weight is None else weight.to(field.dtype)

    def share(self, weight: Tensor | None) -> Tensor:
        """Weights scaled to sum to 1 over each image, (B, 1, *shape) or one number for all, float64.

        Raises:
            InputError: the weights of an image sum to nothing.
        """
        if weight is None:
            count = self.fixed[0].numel()
            return torch.tensor(1 / count, dtype=torch.float64, device=self.fixed.device)
        sums = total(weight)
        if not bool((sums > 0).all()):
            raise reject(
                "mask",
                "no voxel is inside both the fixed and the warped moving mask",
                "masks that overlap",
                "Check that the masks belong to these images and that the images are roughly aligned.",
            )
        return weight / column(sums, weight)

    @cached_property
    def whole_fixed(self) -> tuple[Tensor, Tensor]:
        """`centred` of fixed when there is no moving mask; it does not change while the field moves."""
        return centred(self.fixed, self.share(self.weight(None)), "fixed")

    def centred_pair(
        self, warped: Tensor, mask: Tensor | None, share: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Fixed and warped minus their means, (B, 1, *shape), each followed by its variance, (B,)."""
        check_shape(warped, self.fixed, "warped moving")
        f, vf = self.whole_fixed if mask is None else centred(self.fixed, share, "fixed")
        w, vw = centred(warped, share, "warped moving")
        return f, vf, w, vw


@dataclass(frozen=True, eq=False)
class SquaredError(Similarity):
    """Weighted mean squared difference.

    With shares s that sum to 1 over the voxels:

        g     = sum s (w - f)^2
        dg/dw = 2 s (w - f)
    """

    def value_and_gradient(self, warped: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return g, (B,), float64, squared intensity, and dg/dwarped, (B, 1, *shape)."""
        share = self.share(self.weight(mask))
        self.centred_pair(warped, mask, share)  # refuses what cannot be aligned
        difference = warped.double() - self.fixed.double()
        pull = share * difference
        return total(pull * difference), (2 * pull).to(warped.dtype)

    def compiled(
        self, pair: kernels.Pair, out: Tensor | None, gradient: bool
    ) -> tuple[Tensor, Tensor] | None:
        """As in the base class, in two passes."""
        term = kernels.squared_error(pair, out, gradient)
        return (term.value, term.gradient) if sound(term.moments) else None


@dataclass(frozen=True, eq=False)
class GlobalCorrelation(Similarity):
    """Penalty g of eq. (7), read as one minus the correlation of fixed and warped, in [0, 2].

    With shares s that sum to 1, f and w centred by their weighted means and divided by their standard
    deviations, and rho = sum s f w:

        g     = 1 - rho
        dg/dw = s (rho w - f) / sigma_w
    """

    def value_and_gradient(self, warped: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return g, (B,), float64, no unit, and dg/dwarped, (B, 1, *shape), per intensity unit."""
        share = self.share(self.weight(mask))
        f, vf, w, vw = self.centred_pair(warped, mask, share)
        rho = total(share * f * w) / (vf * vw).sqrt()
        gradient = share * (column(rho / vw, w) * w - column((vf * vw).rsqrt(), w) * f)
        return 1 - rho, gradient.to(warped.dtype)

    def compiled(
        self, pair: kernels.Pair, out: Tensor | None, gradient: bool
    ) -> tuple[Tensor, Tensor] | None:
        """As in the base class, in two passes."""
        term = kernels.correlation(pair, out, gradient)
        return (term.value, term.gradient) if sound(term.moments) else None

    def on_field(
        self, moving: Tensor, field: Tensor, moving_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As in the base class, in one compiled pass where that is possible."""
        if kernels.usable(self.fixed, moving, field):
            check_shape(moving, self.fixed, "moving")
            weight = self.weight_on_field(field, moving_mask)
            value, gradient = kernels.global_correlation(self.fixed, moving, field, weight)
            if bool((value != 1).all() and value.isfinite().all()):
                return value, gradient
        return super().on_field(moving, field, moving_mask)  # says what is wrong with the images
