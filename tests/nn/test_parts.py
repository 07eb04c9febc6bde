"""The parts of the networks: what each holds, and that calling them one by one is the network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.nn.cast import CastOnce
from lucid_yolo.nn.layout import with_gradient_alike
from lucid_yolo.nn.model import Network
from lucid_yolo.nn.parts import Part, Span, directly
from tests.nn.networks import NETWORKS, leaves, make_network
from tests.nn.scales import TINY

PARTS = {
    "detect": ["trunk", "boxes"],
    "segment": ["trunk", "boxes", "coefficients", "fusion", "prototypes", "semantic"],
    "keypoints": ["trunk", "boxes", "points"],
    "obb": ["trunk", "boxes", "angles"],
}


def make(task: str) -> Network[Any, Any]:
    torch.manual_seed(0)
    return make_network(task, TINY, 3).to(memory_format=torch.channels_last).train()


def draw_images() -> Tensor:
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    return images.contiguous(memory_format=torch.channels_last)


class Collector:
    """Calls parts through spans and keeps what went in and out."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.calls: list[tuple[Span, list[Tensor], list[Tensor]]] = []

    def __call__(self, part: Part, *inputs: Any) -> Any:
        self.parts.append(part)
        span = Span(part)
        outputs = span(*inputs)
        self.calls.append((span, leaves(inputs), leaves(outputs)))
        return outputs


class CutOff(Collector):
    """The same with a graph of its own for each part."""

    def __call__(self, part: Part, *inputs: Any) -> Any:
        return super().__call__(part, *map(cut, inputs))


def cut(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else [*map(cut, value)]


def names_of(tensors: Iterable[tuple[str, Tensor]]) -> dict[int, str]:
    return {id(tensor): name for name, tensor in tensors}


@pytest.mark.parametrize("task", NETWORKS)
def test_every_parameter_and_buffer_is_in_one_part(task: str) -> None:
    network, call = make(task), Collector()
    network.compute(draw_images(), call)
    assert [part.name for part in call.parts] == PARTS[task]
    spans = [span for span, _, _ in call.calls]
    for name in ("named_parameters", "named_buffers"):
        whole = names_of(getattr(network, name)())
        held = [whole[id(tensor)] for span in spans for _, tensor in getattr(span, name)()]
        assert sorted(held) == sorted(whole.values())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("task", NETWORKS)
def test_part_by_part_is_the_network(task: str, training: bool) -> None:
    network, other = make(task).train(training), make(task).train(training)
    found, expected = network.compute(draw_images(), Collector()), other(draw_images())
    assert type(found) is type(expected)
    assert len(leaves(found)) == len(leaves(expected))
    assert all(torch.equal(a, b) for a, b in zip(leaves(found), leaves(expected), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(network.buffers(), other.buffers(), strict=True))


@pytest.mark.parametrize("task", NETWORKS)
def test_gradients_are_those_of_backward_passes_part_by_part(task: str) -> None:
    network, other, call = make(task), make(task), CutOff()
    outputs, expected = leaves(network.compute(draw_images(), call)), leaves(other(draw_images()))
    generator = torch.Generator().manual_seed(2)
    given = [torch.randn(output.shape, generator=generator) for output in outputs]
    torch.autograd.backward(expected, given)
    # By hand, last part first: each output receives what the loss and later parts have for it, in that order.
    received = {output.data_ptr(): gradient for output, gradient in zip(outputs, given, strict=True)}
    for _, inputs, results in reversed(call.calls):
        torch.autograd.backward(results, [received[result.data_ptr()] for result in results])
        for tensor in inputs:
            if tensor.grad is not None:
                before = received.get(tensor.data_ptr())
                received[tensor.data_ptr()] = tensor.grad if before is None else before + tensor.grad
    for (name, mine), theirs in zip(network.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad), name


def test_hooks_of_network_and_head_are_called() -> None:
    network, called = make("segment"), []
    for module in (network, network.backbone, network.neck, network.head):
        module.register_forward_hook(lambda module, *_: called.append(type(module).__name__))
    network(draw_images())
    assert called == ["Backbone", "Neck", "SegmentHead", "Segmenter"]


class Twice(nn.Module):
    """Uses its inputs twice each."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)
        self.seen: tuple[Any, ...] = ()

    def forward(self, *inputs: Any) -> Tensor:
        self.seen = inputs
        return sum(tensor * tensor for tensor in leaves(inputs))


def test_inputs_of_a_part_are_the_same_memory() -> None:
    module = Twice()
    trained, image = torch.ones(2, requires_grad=True), torch.ones(2)
    directly(Part("twice", (module,), module), image, [trained, image])
    plain, (view, other) = module.seen
    assert plain is image
    assert other is image
    assert view is not trained
    assert (view.data_ptr(), view._base) == (trained.data_ptr(), trained)


def test_a_span_is_in_the_mode_of_its_modules_and_holds_nothing_else() -> None:
    module = Twice()
    span = Span(Part("twice", (module,), module))
    assert span.training
    span.train(False)
    assert not module.training
    module.train()
    assert span.training
    assert "training" not in vars(span)
    assert [name for name, _ in span.named_modules()] == ["", "parts", "parts.0", "parts.0.inner"]
    assert span(torch.full((1,), 3.0)).item() == 9.0


def test_weights_of_a_span_are_cast_together() -> None:
    network, other = make("keypoints"), make("keypoints")
    levels, theirs = (one.features(draw_images()) for one in (network, other))
    dtypes = []
    layer = network.head.points.one_to_many[0][-1]
    forward = layer._conv_forward
    layer._conv_forward = lambda x, weight, bias: (dtypes.append(weight.dtype), forward(x, weight, bias))[1]
    span = Span(Part("points", (network.head.points,), network.head.points))
    with torch.autocast("cpu", torch.bfloat16):
        mine, expected = CastOnce(span)(levels), other.head.points(theirs)
    assert dtypes == [torch.bfloat16]
    assert layer.weight.dtype == torch.float32
    for a, b in zip(mine, expected, strict=True):
        assert a.dtype == b.dtype == torch.bfloat16
        assert torch.equal(a, b)


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("arrives", [torch.channels_last, torch.contiguous_format])
def test_a_gradient_takes_the_memory_order_of_its_maps(
    memory_format: torch.memory_format, arrives: torch.memory_format
) -> None:
    source = torch.randn(2, 3, 4, 5).contiguous(memory_format=memory_format).requires_grad_()
    doubled, seen = source * 2, []
    doubled.register_hook(seen.append)
    maps = with_gradient_alike(doubled)
    gradient = torch.randn(2, 3, 4, 5).contiguous(memory_format=arrives)
    maps.backward(gradient)
    assert maps.data_ptr() == doubled.data_ptr()
    assert torch.equal(seen[0], gradient)
    assert seen[0].stride() == maps.stride() == doubled.stride()
    if memory_format is arrives:
        assert seen[0].data_ptr() == gradient.data_ptr()
    plain = doubled.detach()
    assert with_gradient_alike(plain) is plain
