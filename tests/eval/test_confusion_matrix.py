"""Confusion matrix against hand counts and a counting loop."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_yolo.eval.confusion import confusion_matrix


def test_counts_by_hand(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 0), (20, 0, 30, 10, 1), (40, 0, 50, 10, 1)], []], 2)
    found = {
        0: make_detections(
            [
                (0, 0, 10, 10, 0.9, 0),  # right
                (20, 0, 30, 10, 0.8, 0),  # class 1 taken for class 0
                (0, 0, 10, 9, 0.7, 0),  # a second one on the first object: background
                (40, 0, 50, 10, 0.1, 1),  # below the confidence: the object is missed
            ]
        ),
        1: make_detections([(0, 0, 10, 10, 0.5, 1)]),
    }
    assert confusion_matrix(index, found).tolist() == [[1, 0, 0], [1, 0, 1], [1, 1, 0]]


def test_crowd_is_ignored(make_split, make_detections):
    index = make_split([[(0, 0, 100, 100, -1)]], 2)
    inside = make_detections([(10, 10, 30, 30, 0.9, 0), (10, 10, 30, 30, 0.9, 1), (90, 90, 120, 120, 0.9, 0)])
    # only the first: the second has another class, the third lies outside for the most part
    assert confusion_matrix(index, [inside]).tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 0]]


def test_same_class_wins_among_equal_overlaps(make_split, make_detections):
    index = make_split([[(0, 0, 10, 10, 0), (0, 0, 10, 10, 1)]], 2)
    found = make_detections([(0, 0, 10, 10, 0.9, 1), (0, 0, 10, 10, 0.8, 0)])
    assert confusion_matrix(index, [found]).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


def iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union


@pytest.mark.parametrize("seed", range(6))
def test_equal_to_a_counting_loop(random_case, seed):
    index, detections = random_case(seed)
    expected = np.zeros((6, 6), int)
    for image in range(len(index)):
        rows = index.rows(image)
        objects = list(
            zip(index.boxes[rows].tolist(), index.classes[rows].tolist(), index.crowd[rows].tolist(), strict=True)
        )
        truth = [(box, label) for box, label, crowd in objects if not crowd]
        crowds = [(box, label) for box, label, crowd in objects if crowd]
        one = detections[image].above(0.25)
        found = list(zip(one.boxes.tolist(), one.classes.tolist(), strict=True))
        while truth and found:
            best, t, d = max((iou(g[0], f[0]), t, d) for t, g in enumerate(truth) for d, f in enumerate(found))
            if best < 0.5:
                break
            expected[truth.pop(t)[1], found.pop(d)[1]] += 1
        for _, label in truth:
            expected[label, 5] += 1
        for box, label in found:
            area = (box[2] - box[0]) * (box[3] - box[1])
            inside = [
                max(0, min(box[2], c[2]) - max(box[0], c[0])) * max(0, min(box[3], c[3]) - max(box[1], c[1])) / area
                for c, of_class in crowds
                if of_class == label
            ]
            if max(inside, default=0) < 0.5:
                expected[5, label] += 1
    assert confusion_matrix(index, detections).tolist() == expected.tolist()
