"""Candidates of rotated objects against a loop that turns points back, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.assign.rotated import inside_rotated
from lucid_yolo.assign.task_aligned import inside_boxes, task_aligned_assignment
from lucid_yolo.config.tasks import AssignerConfig
from lucid_yolo.data.batch import Targets
from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.ops.rotated_np import envelopes
from tests.assign.assignment_loop import inside_turned, slow_assignment
from tests.ops.rotated_boxes import Rotated, equivalents

ANCHORS = make_anchors(64, (8, 16, 32))
CLASSES = 3
sides = st.integers(20, 600).map(lambda tenths: tenths / 10)
angles = st.integers(-70, 230).map(lambda hundredths: hundredths / 100)
# Whole centres, and no angle that is almost 0: an anchor lies on an edge, or is farther from it than float32 resolves.
boxes = st.tuples(st.integers(0, 64), st.integers(0, 64), sides, sides, angles)


def make_targets(rows: list[tuple[int, int, Rotated]], padded_to: int) -> Targets:
    """Pack (image, class, rotated box) rows."""
    pad = padded_to - len(rows)
    rotated = np.array([row[2] for row in rows] + [(0.0,) * 5] * pad).reshape(-1, 5)
    return Targets(
        image_index=torch.tensor([r[0] for r in rows] + [0] * pad),
        classes=torch.tensor([r[1] for r in rows] + [0] * pad),
        boxes=torch.from_numpy(envelopes(rotated)).float(),
        valid=torch.tensor([True] * len(rows) + [False] * pad),
        rotated=torch.from_numpy(rotated).float(),
    )


def candidates(box: Rotated, config: AssignerConfig) -> Tensor:
    return ANCHORS.centers[inside_rotated(ANCHORS.centers, make_targets([(0, 0, box)], 1), config)[0]]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, CLASSES - 1), boxes), max_size=8), st.integers(0, 2**31))
def test_the_assignment_equals_the_loop(rows: list[tuple[int, int, Rotated]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    targets, config = make_targets(rows, 8), AssignerConfig()
    logits = torch.randn(2, 2, len(ANCHORS), CLASSES, generator=generator, dtype=torch.float64)
    reach = torch.rand(2, 2, len(ANCHORS), 4, generator=generator, dtype=torch.float64) * 20 + 64
    predicted = torch.cat((ANCHORS.centers - reach[..., :2], ANCHORS.centers + reach[..., 2:]), -1)
    result = task_aligned_assignment(logits, predicted, ANCHORS.centers, targets, config, inside_rotated)
    slow = slow_assignment(logits, predicted, ANCHORS.centers, targets, config, lies_in=inside_turned)
    positive, row, weight = slow.tensors(2, len(ANCHORS))
    assert torch.equal(result.positive, positive)
    assert torch.equal(result.row, row)
    torch.testing.assert_close(result.weight, weight, rtol=1e-9, atol=1e-12)


@given(boxes)
def test_every_encoding_has_the_same_candidates(box: Rotated) -> None:
    expected = candidates(box, AssignerConfig()).tolist()
    assert all(candidates(one, AssignerConfig()).tolist() == expected for one in equivalents(box, turns=1))


@pytest.mark.parametrize("quarter", [0, 1, -2])
def test_upright_boxes_have_the_candidates_of_detection(quarter: int) -> None:
    config = AssignerConfig()
    for x, y, width, height in ((32.0, 20.0, 40.0, 24.0), (28.0, 28.0, 3.0, 16.0), (20.0, 44.0, 7.5, 8.0)):
        sides = (height, width) if quarter % 2 else (width, height)
        targets = make_targets([(0, 0, (x, y, *sides, quarter * math.pi / 2))], 2)
        targets.boxes[0] = torch.tensor([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
        expected = inside_boxes(ANCHORS.centers, targets, config)
        assert torch.equal(inside_rotated(ANCHORS.centers, targets, config), expected)
        assert expected[0].any()
        assert not expected[1].any()


def test_a_diagonal_box_leaves_the_corners_of_its_envelope_alone() -> None:
    found = candidates((32.0, 32.0, 60.0, 10.0, math.pi / 4), AssignerConfig())
    # Across the diagonal y = x, a centre is |x - y| / sqrt(2) away: at most 5.
    assert (found[:, 0] - found[:, 1]).abs().max() / math.sqrt(2) <= 5
    eights = [p for p in found.tolist() if p[0] % 8 == 4 and p[1] % 8 == 4]
    assert [12.0, 12.0] in eights  # 28.3 from the middle along the box, which reaches 30
    assert [4.0, 4.0] not in eights  # 39.6


def test_a_small_side_is_widened_along_its_own_axis() -> None:
    thin: Rotated = (32.0, 32.0, 60.0, 2.0, math.pi / 4)
    across = [abs(x - y) / math.sqrt(2) for x, y in candidates(thin, AssignerConfig()).tolist()]
    assert 5 < max(across) <= 8  # widened to 16
    exact = candidates(thin, AssignerConfig(small_side=0.0))
    assert exact.tolist()
    assert (exact[:, 0] == exact[:, 1]).all()
