"""Nested values as tensors and back."""

from __future__ import annotations

import pytest
import torch

from lucid_yolo.data.batch import Targets
from lucid_yolo.nn.predictions import BranchPredictions, Predictions
from lucid_yolo.perf.capture.values import flatten


def test_forms_survive_the_way_through_a_list() -> None:
    a, b, c, d, e = (torch.tensor(float(i)) for i in range(5))
    value = (Predictions(BranchPredictions(a, b), BranchPredictions(c, d)), [e])
    tensors, rebuild = flatten(value)
    assert [t.item() for t in tensors] == [0, 1, 2, 3, 4]
    again = rebuild([t + 10 for t in tensors])
    assert isinstance(again, tuple)
    assert isinstance(again[0], Predictions)
    assert again[0].one_to_one.logits.item() == 13
    assert again[1] == [torch.tensor(14.0)]


def test_dataclasses_are_taken_apart_in_the_order_of_their_fields() -> None:
    targets = Targets(*(torch.full((1,), i) for i in range(4)))
    tensors, rebuild = flatten(targets)
    assert [int(t) for t in tensors] == [0, 1, 2, 3]
    assert rebuild(tensors[::-1]) == Targets(*tensors[::-1])


def test_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match="str is neither"):
        flatten((torch.ones(1), "text"))
