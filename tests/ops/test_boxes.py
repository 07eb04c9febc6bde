"""Overlap against counted pixels, CIoU against the paper's formula in Python floats, encodings against each other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.ops.anchors import make_anchors
from lucid_yolo.ops.boxes import ASPECT_FLOOR, box_area, ciou_ltrb, iou, ltrb_to_xyxy, pairwise_iou, xyxy_to_ltrb

Box = tuple[int, int, int, int]
integer_boxes = st.tuples(*[st.integers(0, 12)] * 4).map(
    lambda v: (min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3]))
)


def pixels(box: Box) -> set[tuple[int, int]]:
    return {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}


@given(integer_boxes, integer_boxes)
def test_iou_equals_counted_pixels(a: Box, b: Box) -> None:
    union = pixels(a) | pixels(b)
    expected = len(pixels(a) & pixels(b)) / len(union) if union else 0.0
    assert iou(torch.tensor(a).float(), torch.tensor(b).float()).item() == pytest.approx(expected, abs=1e-6)


def test_pairwise_iou_is_elementwise_iou_of_every_pair() -> None:
    a = torch.rand(2, 5, 4) * 10
    b = torch.rand(2, 3, 4) * 10
    both = pairwise_iou(a, b)
    assert both.shape == (2, 5, 3)
    for batch, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(5), torch.arange(3)).tolist():
        torch.testing.assert_close(both[batch, i, j], iou(a[batch, i], b[batch, j]), rtol=0, atol=0)


def test_inverted_box_has_no_area_and_no_overlap() -> None:
    inverted, normal = torch.tensor([5.0, 5.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 6.0, 6.0])
    assert box_area(inverted).item() == 0.0
    assert iou(inverted, normal).item() == 0.0
    assert iou(inverted, inverted).item() == 0.0


def test_encoding_and_decoding_are_inverse_and_match_the_hand_calculation() -> None:
    anchors = make_anchors(64, (8, 16, 32))
    origins, signed = anchors.origins(), anchors.signed_strides()
    distances = torch.randn(3, len(anchors), 4)
    boxes = ltrb_to_xyxy(distances, origins, signed)
    torch.testing.assert_close(xyxy_to_ltrb(boxes, origins, signed), distances, rtol=1e-5, atol=1e-5)
    # Anchor 9 of stride 8 on an 8 x 8 grid: row 1, column 1, centre (12, 12).
    unit = torch.tensor([1.0, 0.5, 2.0, 0.25]).expand(len(anchors), 4)
    assert ltrb_to_xyxy(unit, origins, signed)[9].tolist() == [4.0, 8.0, 28.0, 14.0]


def reference_ciou(p: list[float], t: list[float]) -> float:
    """Equations 5 to 11 of arXiv 1911.08287 on xyxy corners."""
    width = max(min(p[2], t[2]) - max(p[0], t[0]), 0.0)
    height = max(min(p[3], t[3]) - max(p[1], t[1]), 0.0)
    inter = width * height
    overlap = inter / ((p[2] - p[0]) * (p[3] - p[1]) + (t[2] - t[0]) * (t[3] - t[1]) - inter)
    rho2 = ((p[0] + p[2] - t[0] - t[2]) / 2) ** 2 + ((p[1] + p[3] - t[1] - t[3]) / 2) ** 2
    c2 = (max(p[2], t[2]) - min(p[0], t[0])) ** 2 + (max(p[3], t[3]) - min(p[1], t[1])) ** 2
    v = 4 / math.pi**2 * (math.atan((t[2] - t[0]) / (t[3] - t[1])) - math.atan((p[2] - p[0]) / (p[3] - p[1]))) ** 2
    weight = v / (1 - overlap + v) if v else 0.0
    return overlap - rho2 / c2 - weight * v


sides = st.floats(0.1, 20.0)
proper_boxes = st.tuples(st.floats(-10, 10), st.floats(-10, 10), sides, sides).map(
    lambda v: [v[0], v[1], v[0] + v[2], v[1] + v[3]]
)


def around_origin(boxes: Tensor) -> Tensor:
    return boxes * torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=boxes.dtype)


@given(proper_boxes, proper_boxes)
def test_ciou_equals_the_papers_formula(p: list[float], t: list[float]) -> None:
    value = ciou_ltrb(*(around_origin(torch.tensor(b, dtype=torch.float64)) for b in (p, t)))
    assert value.item() == pytest.approx(reference_ciou(p, t), abs=1e-6)


def test_ciou_of_equal_boxes_is_one() -> None:
    boxes = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.01, 0.01, 0.01, 0.01], [-3.0, 1.0, 5.0, 2.0]])
    torch.testing.assert_close(ciou_ltrb(boxes, boxes), torch.ones(3), rtol=0, atol=1e-5)


def test_ciou_gradient_is_that_of_the_formula_with_a_constant_aspect_weight() -> None:
    torch.manual_seed(0)
    p = (torch.rand(64, 4, dtype=torch.float64) * 4 + 0.1).requires_grad_()
    t = torch.rand(64, 4, dtype=torch.float64) * 4 + 0.1
    value = ciou_ltrb(p, t)
    value.sum().backward()

    def sizes(d: Tensor) -> tuple[Tensor, Tensor]:
        return d[:, 0] + d[:, 2], d[:, 1] + d[:, 3]

    def frozen(d: Tensor) -> Tensor:  # a of the undisturbed boxes, v by atan(w / h)
        (w, h), (tw, th) = sizes(d), sizes(t)
        inner = torch.minimum(d, t)
        inter = (inner[:, 0] + inner[:, 2]) * (inner[:, 1] + inner[:, 3])
        outer = torch.maximum(d, t)
        c2 = (outer[:, 0] + outer[:, 2]) ** 2 + (outer[:, 1] + outer[:, 3]) ** 2
        rho2 = ((d[:, 2] - d[:, 0] - t[:, 2] + t[:, 0]) / 2) ** 2 + ((d[:, 3] - d[:, 1] - t[:, 3] + t[:, 1]) / 2) ** 2
        overlap = inter / (w * h + tw * th - inter)
        v = 4 / math.pi**2 * (torch.atan(tw / th) - torch.atan(w / h)) ** 2
        return overlap - rho2 / c2 - weight * v

    with torch.no_grad():
        weight = torch.zeros(64, dtype=torch.float64)
        bare = frozen(p)  # weight 0: IoU - rho^2 / c^2
        (w, h), (tw, th) = sizes(p), sizes(t)
        v = 4 / math.pi**2 * (torch.atan(tw / th) - torch.atan(w / h)) ** 2
        weight = (bare - value) / v
        step, numeric = 1e-6, torch.zeros_like(p)
        for i in range(4):
            shift = torch.zeros(4, dtype=torch.float64)
            shift[i] = step
            numeric[:, i] = (frozen(p + shift) - frozen(p - shift)) / (2 * step)
    assert p.grad is not None
    torch.testing.assert_close(p.grad, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", [0.0, 1e-12, 1e-7, 1e-4, ASPECT_FLOOR, -0.5])
def test_ciou_gradient_is_bounded_on_collapsed_boxes(side: float) -> None:
    widths = torch.tensor([[side / 2, 1.0, side / 2, 1.0], [1.0, side / 2, 1.0, side / 2], [side / 2] * 4])
    widths.requires_grad_()
    ciou_ltrb(widths, torch.full((3, 4), 1.0)).sum().backward()
    assert widths.grad is not None
    assert torch.isfinite(widths.grad).all()
    assert widths.grad.abs().max().item() < 20.0
