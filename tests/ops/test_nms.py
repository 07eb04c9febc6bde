"""Suppression against the greedy loop of its definition, one image and one pair at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.ops.boxes import pairwise_iou
from lucid_yolo.ops.nms import batched_nms


def greedy(
    boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float, confidence: float, limit: int
) -> list[int]:
    """Indices of the survivors of one image."""
    overlaps = (pairwise_iou(boxes, boxes) > threshold).tolist()
    labels = classes.tolist()
    order = sorted((i for i in range(len(scores)) if scores[i] > confidence), key=lambda i: (-scores[i].item(), i))
    kept: list[int] = []
    for i in order:
        if all(labels[i] != labels[k] or not overlaps[k][i] for k in kept):
            kept.append(i)
    return kept[:limit]


@st.composite
def candidates(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    batch, count = draw(st.integers(1, 3)), draw(st.integers(1, 14))
    numbers = st.integers(0, 8)
    flat = draw(st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=batch * count, max_size=batch * count))
    boxes = torch.tensor([[x, y, x + w, y + h] for x, y, w, h in flat], dtype=torch.float32)
    scores = draw(st.lists(st.integers(0, 6), min_size=batch * count, max_size=batch * count))
    classes = draw(st.lists(st.integers(0, 1), min_size=batch * count, max_size=batch * count))
    shape = (batch, count)
    return boxes.view(*shape, 4), torch.tensor(scores).view(shape) / 6, torch.tensor(classes).view(shape)


@settings(deadline=None, max_examples=200)
@given(candidates(), st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]), st.sampled_from([0.0, 0.4]), st.integers(1, 16))
def test_equals_the_greedy_loop(
    case: tuple[Tensor, Tensor, Tensor], threshold: float, confidence: float, limit: int
) -> None:
    boxes, scores, classes = case
    kept = batched_nms(boxes, scores, classes, iou=threshold, confidence=confidence, limit=limit)
    assert kept.indices.shape == kept.valid.shape == (len(boxes), min(limit, boxes.shape[1]))
    for image in range(len(boxes)):
        expected = greedy(boxes[image], scores[image], classes[image], threshold, confidence, limit)
        assert kept.indices[image][kept.valid[image]].tolist() == expected
        assert kept.valid[image].tolist() == sorted(kept.valid[image].tolist(), reverse=True)  # padding comes last


def test_classes_do_not_suppress_each_other() -> None:
    boxes = torch.tensor([[[0.0, 0.0, 10.0, 10.0]] * 3])
    scores, classes = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0, 0, 1]])
    kept = batched_nms(boxes, scores, classes, iou=0.7)
    assert kept.indices[0][kept.valid[0]].tolist() == [0, 2]


@pytest.mark.parametrize("seed", range(3))
def test_many_overlapping_candidates(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(2, 300, 2, generator=generator) * 60
    boxes = torch.cat((corner, corner + 5 + torch.rand(2, 300, 2, generator=generator) * 20), -1)
    scores = torch.rand(2, 300, generator=generator)
    classes = torch.randint(0, 3, (2, 300), generator=generator)
    kept = batched_nms(boxes, scores, classes, iou=0.5, confidence=0.05, limit=40)
    for image in range(2):
        expected = greedy(boxes[image], scores[image], classes[image], 0.5, 0.05, 40)
        assert kept.indices[image][kept.valid[image]].tolist() == expected
