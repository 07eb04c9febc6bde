"""Recall of the objects that are large enough."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_yolo.eval.coco import evaluate_boxes
from lucid_yolo.eval.recall import recall_at


def test_counts_by_hand(make_split, make_detections):
    objects = [(0, 0, 20, 20, 0), (50, 0, 70, 20, 0), (100, 0, 120, 7, 0), (150, 0, 190, 40, -1)]
    index = make_split([objects, [(0, 0, 8, 8, 1)]], 2)
    found = [
        make_detections(
            [(0, 0, 20, 20, 0.9, 0), (0, 0, 20, 19, 0.8, 0), (50, 0, 70, 20, 0.7, 1), (100, 0, 120, 7, 0.6, 0)]
        ),
        make_detections([(0, 0, 8, 8, 0.1, 1)]),
    ]
    # object 1: found once; object 2: wrong class; object 3: 7 px high, not counted; crowd: not counted; object 5: found
    recall = recall_at(index, found)
    assert (recall.found, recall.objects) == (2, 3)
    assert recall.value == 2 / 3
    assert recall_at(index, found, confidence=0.5).found == 1
    assert recall_at(index, found, min_side=0).objects == 4


def test_without_objects(make_split, make_detections):
    recall = recall_at(make_split([[]]), [make_detections([])])
    assert recall.objects == 0
    assert math.isnan(recall.value)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_equal_to_the_coco_tools_without_crowds_or_a_least_side(random_case, seed):
    index, found = random_case(seed)
    index.crowd[:] = False  # the pairing of an object and a crowd is COCO's own affair
    curves = evaluate_boxes(index, found).curves
    assert recall_at(index, found, min_side=0).found == curves.true_positives[0].sum()
