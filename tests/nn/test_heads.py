"""The heads for segmentation, key points and oriented boxes, beside detection's."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.nn.heads import detect
from lucid_yolo.nn.heads.keypoints import point_widths
from lucid_yolo.nn.heads.obb import angle_width
from lucid_yolo.nn.heads.segment import Fusion, SegmentHead
from lucid_yolo.nn.model import Detector, Network
from lucid_yolo.nn.predictions import (
    DeployedSegment,
    KeypointBranch,
    KeypointPredictions,
    ObbBranch,
    ObbPredictions,
    SegmentBranch,
    SegmentPredictions,
)
from lucid_yolo.perf.capture.values import flatten
from tests.losses.dispatch import Watch
from tests.nn.networks import GROUPS, POINTS, leaves, make_network
from tests.nn.scales import SCALES, TINY

FURTHER = sorted(GROUPS)
ANCHORS = 84  # 8^2 + 4^2 + 2^2 at 64 pixels
KINDS = {
    "segment": (SegmentPredictions, SegmentBranch, DeployedSegment),
    "keypoints": (KeypointPredictions, KeypointBranch, KeypointBranch),
    "obb": (ObbPredictions, ObbBranch, ObbBranch),
}


def make(task: str, *, seed: int = 0, num_classes: int = 3, **settings: bool) -> Network[Any, Any]:
    torch.manual_seed(seed)
    return make_network(task, TINY, num_classes, **settings)


def draw_images(memory_format: torch.memory_format = torch.channels_last) -> Tensor:
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    return images.contiguous(memory_format=memory_format)


def draw_levels(channels: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(2, c, 8 // 2**i, 8 // 2**i, generator=generator) for i, c in enumerate(channels)]


def last_convolutions(stems: nn.ModuleList) -> list[nn.Conv2d]:
    return [stem[-1] for stem in stems]


@pytest.mark.parametrize("task", FURTHER)
def test_shapes(task: str) -> None:
    with torch.device("meta"):
        model = make_network(task, SCALES["n"], 80)
        predictions = model(torch.empty(2, 3, 640, 640))
    shape = {"segment": (32,), "keypoints": (POINTS, 4), "obb": ()}[task]
    whole, branch, _ = KINDS[task]
    assert type(predictions) is whole
    assert whole._fields[:2] == ("one_to_many", "one_to_one")
    assert branch._fields == ("distances", "logits", GROUPS[task])
    for each in predictions[:2]:
        assert type(each) is branch
        assert [t.shape for t in each] == [(2, 8400, 4), (2, 8400, 80), (2, 8400, *shape)]
    if task == "segment":
        assert predictions.prototypes.shape == (2, 32, 160, 160)
        assert predictions.semantic.shape == (2, 80, 80, 80)
    assert model.strides == Detector.strides


def test_widths() -> None:
    assert [angle_width(c) for c in (16, 64, 256)] == [16, 32, 128]
    assert point_widths((64, 128, 256)) == [320, 160, 128]
    assert point_widths((384, 768, 768)) == [320, 384, 384]


def checksum(state: dict[str, Tensor]) -> float:
    """A number that depends on every value and its position."""
    values = [value.double().flatten() for value in state.values()]
    return sum((i + 1) * float(v @ torch.arange(1, len(v) + 1).double().cos()) for i, v in enumerate(values))


def test_a_seed_gives_the_detector_it_gave_before_there_were_other_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    # Printed by the code of commit 3ac0507, whose detector was a class of its own, with stems of any width.
    for width in ("hidden_width", "class_width"):
        monkeypatch.setattr(detect, width, lambda channels: max(16, channels // 3))
    state = make("detect").state_dict()
    assert len(state) == 599
    assert hashlib.sha256("\n".join(state).encode()).hexdigest().startswith("0e29bfa3b4a67eda")
    assert checksum(state) == pytest.approx(-22479.43486154117, rel=1e-7)


@pytest.mark.parametrize("task", FURTHER)
def test_a_seed_gives_every_task_the_same_detector(task: str) -> None:
    detector, state = make("detect").state_dict(), make(task).state_dict()
    assert list(state)[: len(detector)] == list(detector)
    assert all(torch.equal(state[name], value) for name, value in detector.items())
    further = {name.split(".")[1] for name in list(state)[len(detector) :]}
    assert further == {GROUPS[task]} | ({"fusion", "prototypes", "semantic"} if task == "segment" else set())


@pytest.mark.parametrize("task", FURTHER)
def test_boxes_and_classes_are_those_of_the_detector(task: str) -> None:
    expected, predictions = make("detect")(draw_images()), make(task)(draw_images())
    for one, other in zip(expected, predictions[:2], strict=True):
        assert torch.equal(one.distances, other.distances)
        assert torch.equal(one.logits, other.logits)


@pytest.mark.parametrize("task", FURTHER)
def test_classes_are_where_detection_has_them_and_start_at_the_prior(task: str) -> None:
    head = make(task).head
    finals = [final for branch in (head.one_to_many, head.one_to_one) for final in last_convolutions(branch.cls)]
    assert len(finals) == 6
    for final in (*finals, *([head.semantic] if task == "segment" else [])):
        torch.testing.assert_close(final.bias.sigmoid(), torch.full((3,), 0.01))


@pytest.mark.parametrize("task", FURTHER)
def test_the_gradient_reaches_every_parameter(task: str) -> None:
    model = make(task)
    generator = torch.Generator().manual_seed(3)
    # Random weights: the mean of what a normalisation gives is fixed, so that a plain sum has no gradient there.
    sum((t * torch.randn(t.shape, generator=generator)).sum() for t in leaves(model(draw_images()))).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not missing


@pytest.mark.parametrize("task", FURTHER)
@pytest.mark.parametrize("detach", [False, True])
def test_one_to_one_gradient_reaches_the_trunk_unless_detached(task: str, detach: bool) -> None:
    model = make(task, detach_one_to_one=detach)
    sum(t.sum() for t in leaves(model(draw_images()).one_to_one)).backward()
    reached = [p.grad is not None for p in (*model.backbone.parameters(), *model.neck.parameters())]
    assert all(reached) if not detach else not any(reached)
    group = getattr(model.head, GROUPS[task])
    assert all(p.grad is not None for part in (model.head, group) for p in part.one_to_one.parameters())
    assert all(p.grad is None for part in (model.head, group) for p in part.one_to_many.parameters())


@pytest.mark.parametrize("task", FURTHER)
def test_detaching_changes_no_value(task: str) -> None:
    one, other = make(task)(draw_images()), make(task, detach_one_to_one=True)(draw_images())
    assert all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


def test_prototypes_and_class_maps_keep_their_gradient_where_the_branch_is_detached() -> None:
    for name in ("prototypes", "semantic"):
        model = make("segment", detach_one_to_one=True)
        getattr(model(draw_images()), name).sum().backward()
        assert all(p.grad is not None for p in model.backbone.parameters())


@pytest.mark.parametrize("task", FURTHER)
def test_deployed_view_is_the_one_to_one_branch(task: str) -> None:
    model = make(task).eval()
    with torch.no_grad():
        both, deployed = model(draw_images()), model.one_to_one_forward(draw_images())
    assert type(deployed) is KINDS[task][2]
    expected = (both.one_to_one, both.prototypes) if task == "segment" else both.one_to_one
    assert all(torch.equal(a, b) for a, b in zip(leaves(expected), leaves(deployed), strict=True))


def test_class_maps_are_for_training_only() -> None:
    model = make("segment").eval()
    calls = []
    model.head.semantic.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        predictions = model(draw_images())
        model.one_to_one_forward(draw_images())
    assert predictions.semantic == ()
    assert not calls
    model.train()(draw_images())
    assert len(calls) == 1


@pytest.mark.parametrize("task", FURTHER)
@pytest.mark.parametrize("training", [True, False])
def test_predictions_can_be_taken_apart_and_put_together(task: str, training: bool) -> None:
    predictions = make(task).train(training)(draw_images())
    tensors, rebuild = flatten(predictions)
    again = rebuild(tensors)
    assert type(again) is type(predictions)
    assert [type(branch) for branch in again[:2]] == [KINDS[task][1]] * 2
    assert all(a is b for a, b in zip(leaves(again), leaves(predictions), strict=True))


@pytest.mark.parametrize("task", FURTHER)
def test_groups_can_be_called_by_themselves(task: str) -> None:
    model = make(task).eval()
    head = model.head
    with torch.no_grad():
        whole = model(draw_images())
        levels = model.features(draw_images())
        boxes, group = head.detect(levels), getattr(head, GROUPS[task])(levels)
        assert torch.equal(group.one_to_many, whole.one_to_many[2])
        assert torch.equal(group.one_to_one, whole.one_to_one[2])
        assert torch.equal(boxes.one_to_many.logits, whole.one_to_many.logits)
        if task == "segment":
            assert torch.equal(head.prototypes(head.fusion(levels)), whole.prototypes)
    used = {id(p) for name in (GROUPS[task], "one_to_many", "one_to_one") for p in getattr(head, name).parameters()}
    rest = {name.split(".")[0] for name, p in head.named_parameters() if id(p) not in used}
    assert rest == ({"fusion", "prototypes", "semantic"} if task == "segment" else set())


@pytest.mark.parametrize("task", FURTHER)
def test_channels_last_keeps_values_and_copies_no_map(task: str) -> None:
    contiguous = make(task).double()
    expected = contiguous(draw_images(torch.contiguous_format).double())
    model = make(task).double().to(memory_format=torch.channels_last)
    found = model(draw_images().double())
    for a, b in zip(leaves(expected), leaves(found), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    assert all(t.is_contiguous() for branch in found[:2] for t in branch)
    if task == "segment":
        assert found.prototypes.is_contiguous(memory_format=torch.channels_last)
        assert found.semantic.is_contiguous(memory_format=torch.channels_last)


def zero_but_bias(stems: nn.ModuleList, bias: Tensor) -> None:
    for final in last_convolutions(stems):
        nn.init.zeros_(final.weight)
        final.bias.data = bias


def test_coefficients_are_bounded_by_tanh() -> None:
    model = make("segment")
    zero_but_bias(model.head.coefficients.one_to_one, torch.linspace(-3, 3, 32))
    found = model(draw_images()).one_to_one.coefficients
    np.testing.assert_allclose(found[1, 17].detach(), np.tanh(np.linspace(-3, 3, 32)), rtol=1e-5)


def test_points_are_stored_one_after_the_other() -> None:
    model = make("keypoints")
    zero_but_bias(model.head.points.one_to_many, torch.arange(4.0 * POINTS))
    found = model(draw_images()).one_to_many.points
    for k in range(POINTS):
        assert found[0, ANCHORS - 1, k].tolist() == [4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3]


def test_angles_and_points_are_not_bounded() -> None:
    for task, count in (("obb", 1), ("keypoints", 4 * POINTS)):
        model = make(task)
        group = getattr(model.head, GROUPS[task])
        zero_but_bias(group.one_to_one, torch.full((count,), -50.0))
        found = getattr(model(draw_images()).one_to_one, GROUPS[task])
        assert torch.equal(found, torch.full_like(found, -50.0))


def test_fusion_by_hand() -> None:
    torch.manual_seed(0)
    channels = (4, 6, 5)
    fusion, levels = Fusion(channels).double(), [level.double() for level in draw_levels(channels)]
    with torch.no_grad():
        found = fusion(levels).numpy()
    expected = levels[0].numpy().copy()
    for conv, level, times in ((fusion.middle, levels[1], 2), (fusion.coarsest, levels[2], 4)):
        weight, bias = conv.weight[..., 0, 0].detach().numpy(), conv.bias.detach().numpy()
        for y in range(8):
            for x in range(8):
                expected[:, :, y, x] += level[:, :, y // times, x // times].numpy() @ weight.T + bias
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gradients_of_the_segment_head_are_right() -> None:
    torch.manual_seed(0)
    head = SegmentHead((2, 3, 2), 1, detach_one_to_one=False).double()
    generator = torch.Generator().manual_seed(0)
    levels = [torch.randn(1, c, n, n, generator=generator).double() for c, n in ((2, 4), (3, 2), (2, 1))]
    inputs = [torch.cat((level, -0.5 * level)).requires_grad_() for level in levels]  # two images: 1x1 has a variance

    def maps(*levels: Tensor) -> tuple[Tensor, ...]:
        predictions = head(levels)
        return (predictions.one_to_many.coefficients, predictions.prototypes, predictions.semantic)

    assert torch.autograd.gradcheck(maps, inputs, fast_mode=True)


def test_a_head_traces_as_one_graph_in_evaluation_too() -> None:
    model, other = make("segment").eval(), make("segment").eval()
    levels = [level.detach() for level in model.features(draw_images())]
    expected, traced = model.head(levels), torch.compile(other.head, fullgraph=True, backend="eager")(levels)
    assert type(traced) is type(expected)
    assert all(torch.equal(a, b) for a, b in zip(leaves(expected), leaves(traced), strict=True))


def launches(task: str) -> list[Counter[str]]:
    """Operations of a forward and of a backward pass; the watch refuses those that read the device."""
    model = make(task).to(memory_format=torch.channels_last)
    with Watch() as forward:
        outputs = leaves(model(draw_images()))
    gradients = [torch.ones_like(t) for t in outputs]
    with Watch() as backward:
        torch.autograd.backward(outputs, gradients)
    return [forward.launched, backward.launched]


# Six stems of five convolutions; the fusion, the prototypes and the class maps have two, five and one.
STEMS = Counter(convolution=6 * 5, native_batch_norm=6 * 4, silu=6 * 4)
MAPS = Counter(convolution=2 + 5 + 1, native_batch_norm=4, silu=4, upsample_nearest2d=3, tanh=2)


@pytest.mark.parametrize(
    ("task", "layers", "joins", "meetings"),
    [
        # Gradients meet at three levels, from two more stems each and from the fusion, and where two maps are made.
        ("segment", STEMS + MAPS, Counter(cat=2, add=2), 3 * 2 + 3 + 1),
        ("keypoints", STEMS, Counter(cat=2), 3 * 2),
        ("obb", STEMS, Counter(cat=2), 3 * 2),
    ],
)
def test_a_head_launches_its_layers_only_and_reads_nothing_back(
    task: str, layers: Counter[str], joins: Counter[str], meetings: int
) -> None:
    (forward, backward), (forward_without, backward_without) = launches(task), launches("detect")
    assert forward - forward_without == layers + joins
    expected = Counter({f"{name}_backward": number for name, number in layers.items()}) + Counter(add=meetings)
    assert backward - backward_without == expected


@pytest.mark.parametrize("task", FURTHER)
def test_state_loads_into_another_network(task: str) -> None:
    one, other = make(task), make(task, seed=1)
    one(draw_images())  # moves the running statistics
    other.load_state_dict(dict(one.state_dict()))
    mine, theirs = one.eval()(draw_images()), other.eval()(draw_images())
    assert all(torch.equal(a, b) for a, b in zip(leaves(mine), leaves(theirs), strict=True))
