"""Rotated boxes in torch against complex numbers, covariance matrices, an integral and the papers' formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import shapely
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from lucid_yolo.ops.rotated import (
    SIDE_FLOOR,
    anchors_to_canvas,
    angle_penalty,
    canonical,
    canvas_to_anchors,
    contains,
    corners,
    envelopes,
    ltrb_to_rotated,
    nearest_encoding,
    prob_iou,
    prob_iou_hellinger,
)
from lucid_yolo.ops.rotated_np import ROUNDING
from tests.ops.rotated_boxes import (
    Rotated,
    angles,
    equivalents,
    polygon,
    random_boxes,
    rotated_boxes,
    sides,
    vertices,
)


def double(box: Rotated) -> Tensor:
    return torch.tensor(box, dtype=torch.float64)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((1, 2, 4, 2, 0.3), (1, 2, 4, 2, 0.3)),
        ((1, 2, 2, 4, 0), (1, 2, 4, 2, math.pi / 2)),
        ((1, 2, 2, 4, -0.3), (1, 2, 4, 2, math.pi / 2 - 0.3)),
        ((1, 2, 4, 2, 3), (1, 2, 4, 2, 3 - math.pi)),
        ((1, 2, 4, 2, 3 * math.pi / 4), (1, 2, 4, 2, -math.pi / 4)),
        ((1, 2, 4, 2, 3 * math.pi / 4 - 2e-6), (1, 2, 4, 2, -math.pi / 4)),  # but for rounding
        ((1, 2, 2, 4, math.pi / 4), (1, 2, 4, 2, -math.pi / 4)),
        ((1, 2, 3, 3, math.pi / 2 + 0.1), (1, 2, 3, 3, 0.1)),
        ((1, 2, 3, 3, 0.8), (1, 2, 3, 3, 0.8 - math.pi / 2)),
        ((1, 2, 3, 3, -100.25 * math.pi), (1, 2, 3, 3, -math.pi / 4)),
        ((1, 2, 0, 0, 5), (1, 2, 0, 0, 5 - 3 * math.pi / 2)),
    ],
)
def test_canonical_by_hand(box: Rotated, expected: Rotated) -> None:
    for dtype in (torch.float32, torch.float64):
        found = canonical(torch.tensor(box, dtype=dtype))
        torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), rtol=0, atol=3e-5)
        assert found[4] >= torch.tensor(-math.pi / 4, dtype=dtype)


@given(rotated_boxes)
def test_canonical_is_the_same_rectangle_in_range(box: Rotated) -> None:
    found = canonical(double(box))
    _, _, width, height, theta = found.tolist()
    assert width >= height
    assert -math.pi / 4 <= theta < (math.pi / 4 if width == height else 3 * math.pi / 4)
    distance = polygon(box).hausdorff_distance(polygon(tuple(found.tolist())))
    assert distance < 1e-3  # the fold of almost equal sides and of the last bit of the range


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(box=rotated_boxes)
def test_equal_rectangles_have_equal_encodings(dtype: torch.dtype, box: Rotated) -> None:
    found = canonical(torch.tensor(equivalents(box), dtype=dtype))
    beyond = (box[4] + math.pi / 4 + ROUNDING) % (math.pi / 2)
    assume(2e-6 < beyond < math.pi / 2 - 2e-6)  # the jump has to be somewhere: beside the multiples of pi / 4
    torch.testing.assert_close(found, found[:1].expand_as(found), rtol=1e-6, atol=1e-5)


def test_canonical_has_the_gradient_of_the_sides_that_it_takes() -> None:
    boxes = torch.tensor([[1.0, 2.0, 5.0, 3.0, 9.0], [1.0, 2.0, 3.0, 5.0, -4.0], [1.0, 2.0, 3.0, 3.0, 2.0]])
    boxes = boxes.double().requires_grad_()
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    (canonical(boxes) * weights).sum().backward()
    assert boxes.grad is not None
    assert boxes.grad.tolist() == [[1, 2, 3, 4, 5], [1, 2, 4, 3, 5], [1, 2, 3, 4, 5]]
    assert torch.autograd.gradcheck(canonical, boxes.detach()[:2].requires_grad_())


def test_corners_by_hand() -> None:
    upright, standing = corners(torch.tensor([[10.0, 20.0, 4.0, 2.0, 0.0], [10.0, 20.0, 4.0, 2.0, math.pi / 2]]))
    assert upright.tolist() == [[8, 19], [12, 19], [12, 21], [8, 21]]
    expected = torch.tensor([[11.0, 18.0], [11.0, 22.0], [9.0, 22.0], [9.0, 18.0]])  # +x has become +y
    torch.testing.assert_close(standing, expected, rtol=0, atol=1e-5)


@given(rotated_boxes)
def test_corners_and_envelopes_equal_rotated_complex_numbers(box: Rotated) -> None:
    expected = torch.tensor(vertices(box), dtype=torch.float64)
    found = corners(double(box).expand(2, 3, 5))
    assert found.shape == (2, 3, 4, 2)
    torch.testing.assert_close(found, expected.expand(2, 3, 4, 2), rtol=0, atol=1e-12)
    around = torch.cat((expected.amin(0), expected.amax(0)))
    torch.testing.assert_close(envelopes(double(box)), around, rtol=0, atol=1e-12)


@pytest.mark.parametrize("function", [corners, envelopes])
def test_gradients_of_corners_and_envelopes(function: Callable[[Tensor], Tensor]) -> None:
    boxes = torch.from_numpy(random_boxes(np.random.default_rng(0), 6)).requires_grad_()
    assert torch.autograd.gradcheck(function, boxes)


@given(rotated_boxes, st.lists(st.tuples(st.floats(-80, 80), st.floats(-80, 80)), min_size=1, max_size=8))
def test_contains_equals_the_polygon_away_from_its_edge(box: Rotated, points: list[tuple[float, float]]) -> None:
    shape = polygon(box)
    inside = contains(torch.tensor(points), torch.tensor([box]))
    assert inside.shape == (1, len(points))
    for point, found in zip(points, inside[0].tolist(), strict=True):
        if shape.exterior.distance(shapely.Point(point)) > 1e-3:
            assert found == shape.contains(shapely.Point(point))


@pytest.mark.parametrize("turn", [0.0, math.pi / 2, math.pi, -math.pi / 2, 3 * math.pi / 2])
def test_edges_are_included_however_the_upright_box_is_written(turn: float) -> None:
    """Anchor centres often lie on the edges of upright boxes, and a tall one is written at pi/2."""
    center, width, height = (1004.0, 2012.0), 480.0, 1200.0
    standing = abs(math.sin(turn)) > 0.5
    first, second = (height, width) if standing else (width, height)
    box = torch.tensor([[*center, first, second, turn]])
    columns = center[0] + torch.arange(-31, 32) * 8.0
    rows = center[1] + torch.arange(-76, 77) * 8.0
    points = torch.cartesian_prod(columns, rows)
    expected = ((points - torch.tensor(center)).abs() <= torch.tensor([width / 2, height / 2])).all(1)
    assert torch.equal(contains(points, box)[0], expected)
    assert expected.sum() == 61 * 151  # 60 and 150 strides, both edges included


def hellinger_by_matrices(first: Rotated, second: Rotated) -> float:
    """Definition of the distance, with the covariance matrices written out and inverted."""
    means, covariances = [], []
    for x, y, width, height, theta in (first, second):
        turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
        means.append(np.array([x, y]))
        covariances.append(turn @ np.diag([width**2 / 12, height**2 / 12]) @ turn.T)
    middle, offset = (covariances[0] + covariances[1]) / 2, means[0] - means[1]
    shapes = np.linalg.det(covariances[0]) * np.linalg.det(covariances[1])
    distance = offset @ np.linalg.inv(middle) @ offset / 8
    distance += math.log(np.linalg.det(middle) / math.sqrt(shapes)) / 2
    return math.sqrt(max(1 - math.exp(-distance), 0.0))


@given(rotated_boxes, rotated_boxes)
def test_hellinger_equals_the_definition(first: Rotated, second: Rotated) -> None:
    value = prob_iou_hellinger(double(first), double(second)).item()
    assert value == pytest.approx(hellinger_by_matrices(first, second), abs=1e-5)  # the definition cancels
    assert value == pytest.approx(prob_iou_hellinger(double(second), double(first)).item(), abs=1e-9)
    assert prob_iou(double(first), double(second)).item() == pytest.approx(1 - value)


def test_hellinger_equals_the_integral_over_the_two_densities() -> None:
    first, second = (0.0, 0.0, 6.0, 2.0, 0.4), (1.0, 0.5, 4.0, 3.0, -0.7)
    x, y = np.meshgrid(np.linspace(-12, 12, 601), np.linspace(-12, 12, 601))
    densities = []
    for center_x, center_y, width, height, theta in (first, second):
        along = (x - center_x) * math.cos(theta) + (y - center_y) * math.sin(theta)
        across = (y - center_y) * math.cos(theta) - (x - center_x) * math.sin(theta)
        exponent = -6 * ((along / width) ** 2 + (across / height) ** 2)  # variances w^2 / 12 and h^2 / 12
        densities.append(np.exp(exponent) * 12 / (2 * math.pi * width * height))
    shared = np.sqrt(densities[0] * densities[1]).sum() * 0.04**2
    value = prob_iou_hellinger(double(first), double(second)).item()
    assert value == pytest.approx(math.sqrt(1 - shared), abs=1e-6)


def test_hellinger_by_hand() -> None:
    box = torch.tensor([[3.0, -4.0, 6.0, 2.0, 0.5]]).double()
    moved = box + 3 * torch.tensor([[math.cos(0.5), math.sin(0.5), 0, 0, 0]])  # half its width along its width
    assert prob_iou_hellinger(box, moved).item() == pytest.approx(math.sqrt(1 - math.exp(-1.5 / 4)))
    wider = box * torch.tensor([[1, 1, 2, 1, 1]])  # variances 1 to 4: mean 5 / 2, geometric mean 2
    assert prob_iou_hellinger(box, wider).item() == pytest.approx(math.sqrt(1 - math.sqrt(4 / 5)))


@given(rotated_boxes, rotated_boxes)
def test_hellinger_and_penalty_do_not_see_the_encoding(first: Rotated, second: Rotated) -> None:
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.float64, 1e-12)):
        a = torch.tensor(equivalents(first), dtype=dtype).unsqueeze(1)
        b = torch.tensor(equivalents(second), dtype=dtype)
        for function in (prob_iou_hellinger, angle_penalty):
            values = function(a, b)
            assert (values - values[0, 0]).abs().max().item() < tolerance
        assert prob_iou_hellinger(a, a.transpose(0, 1)).max().item() < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@given(box=rotated_boxes, scale=st.sampled_from([0.0, 1e-6, 1e-3, 1.0, 1e3]))
def test_equal_boxes_have_no_distance_and_no_gradient(dtype: torch.dtype, box: Rotated, scale: float) -> None:
    a = torch.tensor([box], dtype=dtype) * torch.tensor([scale, scale, scale, scale, 1.0], dtype=dtype)
    a, b = a.clone().requires_grad_(), a.clone().requires_grad_()
    value = prob_iou_hellinger(a, b)
    value.sum().backward()
    assert value.tolist() == [0.0]
    for boxes in (a, b):
        assert boxes.grad is not None
        assert not boxes.grad.any()


def test_gradient_of_hellinger() -> None:
    rng = np.random.default_rng(1)
    a = torch.from_numpy(random_boxes(rng, 8)).requires_grad_()
    b = (a.detach() + torch.from_numpy(rng.normal(0, [5, 5, 2, 2, 0.3], (8, 5)))).requires_grad_()
    assert torch.autograd.gradcheck(prob_iou_hellinger, (a, b))
    assert torch.autograd.gradcheck(prob_iou_hellinger, (a, b.detach()[:1].requires_grad_()))  # broadcast


@pytest.mark.parametrize("step", [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0])
@pytest.mark.parametrize("aspect", [1.0, 20.0])
def test_float32_resolves_boxes_that_are_almost_equal(step: float, aspect: float) -> None:
    """Values and gradients equal those of float64, where the definition has an error of 1e-8."""
    rng = np.random.default_rng(2)
    a = rng.uniform([-2, -2, 8 * aspect, 8, -2], [2, 2, 10 * aspect, 10, 2], (50, 5)).astype(np.float32)
    b = (a + step * rng.normal(size=(50, 5))).astype(np.float32)
    results = []
    for dtype in (torch.float32, torch.float64):
        x, y = torch.tensor(a, dtype=dtype, requires_grad=True), torch.tensor(b, dtype=dtype)
        value = prob_iou_hellinger(x, y)
        value.sum().backward()
        assert x.grad is not None
        results.append((value.detach().double(), x.grad.double()))
    (value, gradient), (exact, exact_gradient) = results
    torch.testing.assert_close(value, exact, rtol=1e-4, atol=0)
    assert ((gradient - exact_gradient).norm(dim=1) / exact_gradient.norm(dim=1)).max().item() < 1e-3
    by_definition = [hellinger_by_matrices(tuple(p), tuple(q)) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    torch.testing.assert_close(exact, torch.tensor(by_definition, dtype=torch.float64), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("size", [-3.0, 0.0, 1e-30, 1e-6, 1e4])
def test_hellinger_of_collapsed_and_huge_boxes_is_finite(size: float) -> None:
    a = torch.tensor([[0.0, 0.0, size, 5.0, 0.3], [0.0, 0.0, size, size, 0.3], [1e5, -1e5, 5.0, size, 60.0]])
    a.requires_grad_()
    value = prob_iou_hellinger(a, torch.tensor([[0.0, 0.0, 4.0, 8.0, 1.0]]))
    value.sum().backward()
    assert a.grad is not None
    assert a.grad.isfinite().all()
    assert ((value >= 0) & (value <= 1)).all()
    floored = a.detach().clone()
    floored[:, 2:4] = floored[:, 2:4].clamp(min=SIDE_FLOOR)
    assert torch.equal(prob_iou_hellinger(floored, torch.tensor([[0.0, 0.0, 4.0, 8.0, 1.0]])), value)


@given(sides, sides, angles, angles)
def test_penalty_equals_the_papers_equations(width: float, height: float, predicted: float, target: float) -> None:
    delta = (predicted - target + math.pi / 2) % math.pi - math.pi / 2  # wrapped as in the paper
    expected = math.exp(-(math.log(width / height) ** 2) / 3**2) * math.sin(2 * delta) ** 2
    value = angle_penalty(double((9, 9, 7, 1, predicted)), double((0, 0, width, height, target)))
    assert value.item() == pytest.approx(expected, abs=1e-12)


def test_penalty_by_hand() -> None:
    target = torch.tensor([[0, 0, 5, 5, 0.2], [0, 0, math.e**3, 1, 0.2], [0, 0, 5, 5, 0.2], [0, 0, 0, 0, 0.2]])
    predicted = torch.zeros(4, 5)
    predicted[:, 4] = torch.tensor([0.2 + math.pi / 4, 0.2 - math.pi / 4, 0.2 + math.pi / 2, 0.2 + math.pi / 8])
    expected = torch.tensor([1.0, math.exp(-1), 0.0, 0.5])
    torch.testing.assert_close(angle_penalty(predicted, target), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(angle_penalty(predicted[1], target[1], spread=1.5).item(), math.exp(-4))


def test_gradient_of_the_penalty() -> None:
    rng = np.random.default_rng(3)
    predicted, target = (torch.from_numpy(random_boxes(rng, 6)).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(angle_penalty, (predicted, target))


def test_nothing_depends_on_values() -> None:
    """Meta tensors have none: a read on the host or a shape from data would raise."""
    boxes = torch.empty(2, 3, 5, device="meta", requires_grad=True)
    for function, shape in ((canonical, (2, 3, 5)), (corners, (2, 3, 4, 2)), (envelopes, (2, 3, 4))):
        found = function(boxes)
        found.sum().backward()
        assert found.shape == shape
    for compare in (prob_iou_hellinger, prob_iou, angle_penalty):
        found = compare(boxes, boxes)
        found.sum().backward()
        assert found.shape == (2, 3)
    assert contains(torch.empty(7, 2, device="meta"), torch.empty(4, 5, device="meta")).shape == (4, 7)


# around anchors


def test_distances_to_a_rotated_box_and_back_by_hand() -> None:
    # Anchor (20, 12), stride 8. Left 1, top 2, right 3, bottom 1: 32 x 24 about (20 + 8, 12 - 4).
    around = ltrb_to_rotated(torch.tensor([[1.0, 2.0, 3.0, 1.0]]), torch.tensor([0.7]))
    torch.testing.assert_close(around, torch.tensor([[1.0, -0.5, 4.0, 3.0, 0.7]]))
    centers, strides = torch.tensor([[20.0, 12.0]]), torch.tensor([8.0])
    canvas = anchors_to_canvas(around, centers, strides)
    torch.testing.assert_close(canvas, torch.tensor([[28.0, 8.0, 32.0, 24.0, 0.7]]))
    torch.testing.assert_close(canvas_to_anchors(canvas, centers, strides), around)


@given(rotated_boxes, st.floats(-20, 20))
def test_the_nearest_encoding_is_the_same_box_at_most_an_eighth_turn_away(box: Rotated, angle: float) -> None:
    found = nearest_encoding(torch.tensor([box], dtype=torch.float64), torch.tensor([angle], dtype=torch.float64))[0]
    assert abs(found[4].item() - angle) <= math.pi / 4 + 1e-9
    same = min(equivalents(box, turns=8), key=lambda one: abs(one[4] - found[4].item()))
    assert found.tolist() == pytest.approx(same, abs=1e-9)


def test_the_choice_of_an_encoding_has_no_gradient() -> None:
    box = torch.tensor([[0.0, 0.0, 4.0, 2.0, 0.0]], requires_grad=True)
    angle = torch.tensor([2.0], requires_grad=True)
    found = nearest_encoding(box, angle)
    assert found.tolist() == [[0.0, 0.0, 2.0, 4.0, pytest.approx(math.pi / 2)]]
    (of_box,) = torch.autograd.grad(found.sum(), [box])
    assert of_box.tolist() == [[1.0] * 5]
