from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lucid_yolo.nn.heads.stems import class_width, flatten_levels, hidden_width
from lucid_yolo.nn.model import Detector, Scale
from tests.nn.scales import SCALES, TINY


def make(*, seed: int = 0, num_classes: int = 3, **settings: bool) -> Detector:
    torch.manual_seed(seed)
    return Detector(TINY, num_classes, **settings)


# Channels of the neck's outputs, from the scale table of arXiv 2602.14582.
NECK = {
    "n": (64, 128, 256),
    "s": (128, 256, 512),
    "m": (256, 512, 512),
    "l": (256, 512, 512),
    "x": (384, 768, 768),
}


@pytest.mark.parametrize("variant", SCALES)
def test_levels(variant: str) -> None:
    with torch.device("meta"):
        model = Detector(SCALES[variant], 80)
        features = model.features(torch.empty(1, 3, 640, 640))
        predictions = model(torch.empty(2, 3, 640, 640))
    assert tuple(f.shape[1] for f in features) == NECK[variant]
    assert tuple(640 // f.shape[2] for f in features) == model.strides == (8, 16, 32)
    for branch in predictions:
        assert branch.distances.shape == (2, 8400, 4)  # 80^2 + 40^2 + 20^2
        assert branch.logits.shape == (2, 8400, 80)


def test_parameters_of_the_nano_model() -> None:
    with torch.device("meta"):
        model = Detector(SCALES["n"], 80)
    assert sum(p.ndim >= 2 for p in model.parameters()) == 127
    assert not [name for name in model.state_dict() if "num_batches_tracked" in name]


def test_classes_start_at_the_prior() -> None:
    model = make()
    finals = [stem[-1] for branch in (model.head.one_to_many, model.head.one_to_one) for stem in branch.cls]
    assert len(finals) == 6
    for final in finals:
        torch.testing.assert_close(final.bias.sigmoid(), torch.full((3,), 0.01))


def test_stem_width() -> None:
    channels = (16, 64, 128, 256, 768)
    assert [hidden_width(c) for c in channels] == [16, 16, 40, 80, 256]
    assert [class_width(c) for c in channels] == [16, 24, 40, 88, 256]


def test_anchors_are_level_major_and_row_major() -> None:
    levels = [torch.arange(2 * 3 * n * n).view(2, 3, n, n).float() for n in (4, 2, 1)]
    flat = flatten_levels([torch.nn.Identity()] * 3, levels)
    assert flat.shape == (2, 21, 3)
    assert torch.equal(flat[1, 6], levels[0][1, :, 1, 2])
    assert torch.equal(flat[0, 16 + 1], levels[1][0, :, 0, 1])
    assert torch.equal(flat[1, 20], levels[2][1, :, 0, 0])


def test_a_channels_last_map_is_flattened_without_a_copy() -> None:
    level = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert level.permute(0, 2, 3, 1).reshape(2, -1, 3).data_ptr() == level.data_ptr()
    model = make().to(memory_format=torch.channels_last)
    images = torch.rand(1, 3, 64, 64).to(memory_format=torch.channels_last)
    assert all(f.is_contiguous(memory_format=torch.channels_last) for f in model.features(images))


@pytest.mark.parametrize("detach", [False, True])
def test_one_to_one_gradient_reaches_the_trunk_unless_detached(detach: bool) -> None:
    model = make(detach_one_to_one=detach)
    branch = model(torch.rand(2, 3, 64, 64)).one_to_one
    (branch.distances.sum() + branch.logits.sum()).backward()
    reached = [p.grad is not None for p in (*model.backbone.parameters(), *model.neck.parameters())]
    assert all(reached) if not detach else not any(reached)
    assert all(p.grad is not None for p in model.head.one_to_one.parameters())
    assert all(p.grad is None for p in model.head.one_to_many.parameters())


def test_detaching_changes_no_value_and_no_weight() -> None:
    images = torch.rand(2, 3, 64, 64)
    one, other = make(), make(detach_one_to_one=True)
    for a, b in zip(one(images), other(images), strict=True):
        assert torch.equal(a.distances, b.distances)
        assert torch.equal(a.logits, b.logits)


def test_deployed_view_is_the_one_to_one_branch() -> None:
    model = make().eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        both, deployed = model(images), model.one_to_one_forward(images)
    assert torch.equal(both.one_to_one.distances, deployed.distances)
    assert torch.equal(both.one_to_one.logits, deployed.logits)


def test_a_seed_fixes_the_weights() -> None:
    one, other = make(num_classes=3).state_dict(), make(num_classes=3).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(not torch.equal(one[name], value) for name, value in make(seed=1).state_dict().items())


def test_state_loads_into_another_model() -> None:
    one, other = make(), make(seed=1)
    one(torch.rand(2, 3, 64, 64))  # moves the running statistics
    other.load_state_dict(dict(one.state_dict()))
    images = torch.rand(1, 3, 64, 64)
    assert torch.equal(one.eval()(images).one_to_one.logits, other.eval()(images).one_to_one.logits)


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_a_pass_reads_nothing_back_and_allocates_no_counter() -> None:
    model, images = make(), torch.rand(2, 3, 64, 64)
    with Recorder() as recorder:
        predictions = model(images)
        sum(t.sum() for branch in predictions for t in branch).backward()
    assert not {"_local_scalar_dense", "nonzero", "is_nonzero", "silu_"} & set(recorder.names)
    norms = sum(name == "native_batch_norm_backward" for name in recorder.names)
    assert norms == 115  # every one of them once


def test_scale() -> None:
    scale = Scale("x", 1.0, 1.5, 512)
    assert (scale.channels(64), scale.channels(1024), scale.repeats) == (96, 768, 2)
    assert Scale("tiny", 0.1, 0.25, 1024).repeats == 1
