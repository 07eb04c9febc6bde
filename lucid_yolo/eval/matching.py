"""Pairing of detections with objects in one image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pairwise_iou(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Intersection over union, (N, M), of boxes (N, 4) and (M, 4) xyxy; 0 for two boxes without area."""
    inter, area_first, area_second = _overlap(first, second)
    union = area_first[:, None] + area_second[None, :] - inter
    return np.divide(inter, union, out=np.zeros_like(inter), where=union > 0)


def pairwise_coverage(boxes: NDArray[np.floating], regions: NDArray[np.floating]) -> NDArray[np.float64]:
    """Share of each box that lies in each region, (N, M): COCO's overlap with a crowd."""
    inter, area, _ = _overlap(boxes, regions)
    area = np.broadcast_to(area[:, None], inter.shape)
    return np.divide(inter, area, out=np.zeros_like(inter), where=area > 0)


def match_by_overlap(overlap: NDArray[np.float64], *, threshold: float, prefer: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Pair one to one, the highest overlap first.

    Args:
        overlap: (D, G).
        threshold: least overlap of a pair.
        prefer: (D, G) pairs that win among equal overlaps (same class).

    Returns:
        (D,) object of each detection, -1 where it has none.
    """
    partner = np.full(overlap.shape[0], -1, np.int64)
    taken = np.zeros(overlap.shape[1], bool)
    rows, columns = np.nonzero(overlap >= threshold)
    order = np.lexsort((~prefer[rows, columns], -overlap[rows, columns]))
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if partner[row] < 0 and not taken[column]:
            partner[row] = column
            taken[column] = True
    return partner


def match_by_score(overlap: NDArray[np.float64], *, threshold: float) -> NDArray[np.int64]:
    """Pair one to one, each detection in turn with its best free object (COCO's rule without ignored objects).

    Args:
        overlap: (D, G), detections best first; 0 where the classes differ.
        threshold: least overlap of a pair, above 0.

    Returns:
        (D,) object of each detection, -1 where it has none.
    """
    partner = np.full(overlap.shape[0], -1, np.int64)
    free = overlap.copy()
    for row in np.flatnonzero((overlap >= threshold).any(axis=1)):
        column = int(free[row].argmax())
        if free[row, column] >= threshold:
            partner[row] = column
            free[:, column] = 0.0
    return partner


def match_by_score_at(
    overlap: NDArray[np.float64], ignored: NDArray[np.bool_], thresholds: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Pair one to one at several thresholds at once, each detection in turn with its best free object (COCO's rule).

    An ignored object is taken only where no other one is free and near enough. Among equal overlaps the last object
    wins, as in the COCO tools.

    Args:
        overlap: (D, G), detections best first; 0 where the classes differ.
        ignored: (G,) objects that give way to the others.
        thresholds: (R,) least overlap of a pair, above 0.

    Returns:
        (R, D) object of each detection, -1 where it has none.
    """
    partner = np.full((len(thresholds), overlap.shape[0]), -1, np.int64)
    free = np.ones((len(thresholds), overlap.shape[1]), bool)
    levels, last = np.arange(len(thresholds)), overlap.shape[1] - 1
    rank = np.where(ignored, 1.0, 2.0) + overlap  # an overlap is at most 1: ignored objects come last
    for row in np.flatnonzero((overlap >= thresholds.min()).any(axis=1)):
        fit = np.where(free & (overlap[row] >= thresholds[:, None]), rank[row], 0.0)
        column = last - fit[:, ::-1].argmax(axis=1)
        taken = fit[levels, column] > 0
        partner[taken, row] = column[taken]
        free[levels[taken], column[taken]] = False
    return partner


def _overlap(
    first: NDArray[np.floating], second: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(first, np.float64).reshape(-1, 4), np.asarray(second, np.float64).reshape(-1, 4)
    top_left = np.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (bottom_right - top_left).clip(min=0).prod(axis=2)
    return inter, (a[:, 2:] - a[:, :2]).prod(axis=1), (b[:, 2:] - b[:, :2]).prod(axis=1)
