"""Binary cross-entropy of masks that are sums of prototypes, at a fixed number of places, with bounded memory.

A mask's logits at the grid of the prototypes are ``sum of coefficients x prototypes`` (arXiv 1904.02689, section 3.1).
They are by far the largest tensor of a segmentation: nothing of their size is kept for the backward pass, which
computes them again, some masks at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_AT_ONCE = 32  # masks of an image whose logits exist at the same time


def mask_bce(coefficients: Tensor, prototypes: Tensor, masks: Tensor, rows: Tensor, boxes: Tensor) -> Tensor:
    """Sum the binary cross-entropy of masks over the cells of their boxes.

    A cell is in a box when its centre is: the box's left and upper edges belong to it, the right and lower ones do not.
    What is outside of the box, not even NaN, reaches neither the sum nor the gradient of the prototypes. At most 32
    masks an image are computed at once, each in about three maps of (H, W) in the dtype of the coefficients: in float32
    on a canvas of 640 pixels 10 MB an image, forward and backward.

    Args:
        coefficients: (B, K, M) of each mask; with gradient.
        prototypes: (B, M, H, W) of each image, same dtype; with gradient.
        masks: (T, H, W / 8) uint8, packed true masks, see ``Targets``.
        rows: (B, K) int64, row of the true mask of each.
        boxes: (B, K, 4) xyxy in cells; an empty box makes its sum an exact zero without gradient.

    Returns:
        (B, K) nats.
    """
    height, width = prototypes.shape[-2:]
    left, top, right, bottom = boxes.unsqueeze(-1).unbind(-2)
    x = torch.arange(width, device=boxes.device, dtype=boxes.dtype) + 0.5
    y = torch.arange(height, device=boxes.device, dtype=boxes.dtype) + 0.5
    beside, above = (x < left) | (x >= right), (y < top) | (y >= bottom)  # above or below
    truth = masks.index_select(0, rows.flatten()).unflatten(0, rows.shape)  # type: ignore[no-untyped-call]
    # Cell by cell: in channels_last memory this is a view, and so is its gradient.
    maps = prototypes.permute(0, 2, 3, 1).flatten(1, 2)
    sums: Tensor = _MaskBce.apply(  # type: ignore[no-untyped-call]
        coefficients, maps, truth, beside.unsqueeze(-2), above.unsqueeze(-1), bit_places(masks.device)
    )
    return sums


class _MaskBce(torch.autograd.Function):
    """See :func:`mask_bce`.

    ``maps`` are the prototypes as (B, H * W, M), ``truth`` the packed masks (B, K, H, W / 8); ``beside`` (B, K, 1, W)
    and ``above`` (B, K, H, 1) say which columns and rows are outside of a box.
    """

    @staticmethod
    def forward(
        ctx: Any, coefficients: Tensor, maps: Tensor, truth: Tensor, beside: Tensor, above: Tensor, places: Tensor
    ) -> Tensor:
        ctx.save_for_backward(coefficients, maps, truth, beside, above, places)
        sums = []
        for some, packed, *lines in _parts(coefficients, truth, beside, above):
            covered = unpack(packed, places)
            logits = torch.bmm(some, maps.transpose(1, 2)).view(covered.shape)
            losses = F.binary_cross_entropy_with_logits(logits, covered.to(logits.dtype), reduction="none")
            sums.append(losses.masked_fill_(torch.logical_or(*lines), 0.0).sum((-2, -1)))
        return torch.cat(sums, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        coefficients, maps, truth, beside, above, places = ctx.saved_tensors
        of_coefficients, of_maps = [], torch.zeros_like(maps)
        with torch.autocast(maps.device.type, enabled=False):
            for some, given, packed, *lines in _parts(coefficients, gradient, truth, beside, above):
                covered = unpack(packed, places)
                slope = torch.bmm(some, maps.transpose(1, 2)).sigmoid_().view(covered.shape)
                slope = slope.sub_(covered).mul_(given[..., None, None])
                slope = slope.masked_fill_(torch.logical_or(*lines), 0.0).flatten(2)
                of_coefficients.append(torch.bmm(slope, maps))
                of_maps.baddbmm_(slope.transpose(1, 2), some)
        return torch.cat(of_coefficients, 1), of_maps, None, None, None, None


def _parts(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some masks of every image at a time."""
    return zip(*(torch.split(tensor, _AT_ONCE, 1) for tensor in tensors), strict=True)


def bit_places(device: torch.device) -> Tensor:
    """(8,) place of each cell of a packed byte, the leftmost first."""
    return torch.arange(7, -1, -1, dtype=torch.uint8, device=device)


def unpack(masks: Tensor, places: Tensor) -> Tensor:
    """Write packed masks (..., W / 8) uint8 out as (..., W) uint8, 0 or 1; see :func:`bit_places`."""
    return (masks.unsqueeze(-1) >> places).bitwise_and_(1).flatten(-2)


def pick_rows(values: Tensor, positions: Tensor) -> Tensor:
    """Pick rows of every image; the gradient goes back without an addition whose order could vary.

    The backward pass of a gather adds up what comes from equal positions, for which CUDA must sort them to be
    deterministic. Positions that differ need no addition: each row looks up which pick it was.

    Args:
        values: (B, A, M).
        positions: (B, K) int64, all different within an image.

    Returns:
        (B, K, M).
    """
    picked: Tensor = _PickRows.apply(values, positions)  # type: ignore[no-untyped-call]
    return picked


class _PickRows(torch.autograd.Function):
    """See :func:`pick_rows`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.count = values.shape[1]
        return values.gather(1, positions.unsqueeze(-1).expand(-1, -1, values.shape[-1]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (positions,) = ctx.saved_tensors
        batch, picks, width = gradient.shape
        order = torch.arange(picks, device=positions.device).expand(batch, -1)
        pick = positions.new_full((batch, ctx.count), picks).scatter_reduce_(1, positions, order, "amin")
        padded = torch.cat((gradient, gradient.new_zeros(batch, 1, width)), 1)  # the last one: not picked
        return padded.gather(1, pick.unsqueeze(-1).expand(-1, -1, width)), None
