"""What follows from the names of key points, and what is known of COCO's."""

from __future__ import annotations

import re
from collections.abc import Sequence

COCO_NAMES = (
    "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow",
    "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle",
    "right_ankle",
)  # fmt: skip
"""The points of a person (arXiv 1405.0312)."""

COCO_SKELETON = (
    (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10),
    (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6),
)  # fmt: skip

COCO_SIGMAS = (
    0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089,
    0.089,
)  # fmt: skip
"""Spread of each point in Object Keypoint Similarity, as the evaluation of COCO has it."""

_SIDES = (("left", "right"), ("Left", "Right"), ("LEFT", "RIGHT"))
_INITIALS = (("l", "r"), ("L", "R"))
_OTHER_SIDE = {a: b for pair in _SIDES + _INITIALS for a, b in (pair, pair[::-1])}
_WORD = re.compile("|".join(word for pair in _SIDES for word in pair))
_INITIAL = re.compile(r"(?<![A-Za-z])[lrLR](?![A-Za-z])")


def mirrored_positions(names: Sequence[str]) -> tuple[int, ...] | None:
    """Position that each point takes in a mirrored picture: left_eye that of right_eye, l_hip that of r_hip.

    A name without a partner keeps its place: it lies on the middle line. The result undoes itself, or is None where
    names are there twice, so that partners cannot be told apart.
    """
    positions = {name: position for position, name in enumerate(names)}
    others = map(_other_side, names)
    flip = tuple(i if names[i] == other else positions.get(other, i) for i, other in enumerate(others))
    return flip if flip_problem(flip, len(names)) is None else None


def known_sigmas(names: Sequence[str]) -> tuple[float, ...] | None:
    """Spreads of points with COCO's names, in their order; None for any other names."""
    return COCO_SIGMAS if tuple(names) == COCO_NAMES else None


def flip_problem(flip: Sequence[int], count: int) -> str | None:
    """Say why a permutation is none for a mirrored picture; None: it is one.

    Args:
        flip: position that each point takes.
        count: number of points.
    """
    if len(flip) != count:
        return f"it has {len(flip)} positions for {count} points"
    for point, partner in enumerate(flip):
        if not 0 <= partner < count:
            return f"point {point} goes to {partner}; allowed: 0 to {count - 1}"
        if flip[partner] != point:
            return f"point {point} goes to {partner}, but {partner} to {flip[partner]}; points change places in pairs"
    return None


def skeleton_problem(skeleton: Sequence[tuple[int, int]], count: int) -> str | None:
    """Say why lines cannot be drawn between ``count`` points; None: they can."""
    wrong = next((pair for pair in skeleton if not all(0 <= end < count for end in pair)), None)
    return None if wrong is None else f"a line joins {wrong[0]} and {wrong[1]}; allowed: 0 to {count - 1}"


def _other_side(name: str) -> str:
    """The name with left and right exchanged; the initials only where there is no such word."""
    pattern = _WORD if _WORD.search(name) else _INITIAL
    return pattern.sub(lambda found: _OTHER_SIDE[found.group()], name)
