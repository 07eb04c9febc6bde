from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.blocks import BatchNorm2d, Bottleneck, C3k2
from lucid_yolo.nn.complexity import count
from lucid_yolo.nn.model import Detector
from tests.nn.scales import SCALES

# 80 classes, 640 pixels: (parameters in M, GFLOPs) of the paper (arXiv 2606.03748, table 7), then of an independent
# implementation, whose counter adds two multiply-accumulates an element of normalisation and one of upsampling.
PAPER = {"n": (2.4, 5.4), "s": (9.5, 20.7), "m": (20.4, 68.2), "l": (24.8, 86.4), "x": (55.7, 193.9)}
INDEPENDENT = {
    "n": (2_437_552, 5.4270),
    "s": (9_609_632, 21.0023),
    "m": (20_132_032, 67.8884),
    "l": (24_363_712, 90.0504),
    "x": (54_672_216, 201.6605),
}


def on_meta(variant: str) -> Detector:
    with torch.device("meta"):
        return Detector(SCALES[variant], 80)


@pytest.mark.parametrize("variant", SCALES)
def test_size_is_that_of_the_paper(variant: str) -> None:
    size = count(on_meta(variant), 640)
    parameters, gflops = PAPER[variant]
    assert size.parameters / 1e6 == pytest.approx(parameters, rel=0.03)
    assert size.flops / 1e9 == pytest.approx(gflops, rel=0.05)


@pytest.mark.parametrize("variant", SCALES)
def test_size_equals_an_independent_implementation(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = on_meta(variant).eval()
    size = count(model, 640)
    others = 0

    def add_norm(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        nonlocal others
        others += 2 * output.numel()

    def interpolate(*args: object, **settings: object) -> Tensor:
        nonlocal others
        output = resize(*args, **settings)
        others += output.numel()
        return output

    resize = F.interpolate
    monkeypatch.setattr(F, "interpolate", interpolate)
    for module in model.modules():
        if isinstance(module, BatchNorm2d):
            module.register_forward_hook(add_norm)
    with torch.no_grad():
        model.one_to_one_forward(torch.empty(1, 3, 640, 640, device="meta"))
    parameters, gflops = INDEPENDENT[variant]
    assert size.parameters == parameters
    assert (size.flops + 2 * others) / 1e9 == pytest.approx(gflops, abs=5.1e-5)


class OneBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = C3k2(3, 64, 1, Bottleneck, expansion=0.25)

    def one_to_one_forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.block(images)
        return output


def test_block_counted_by_hand() -> None:
    # 3 -> 32 by 1x1, a bottleneck of two 3x3 16 -> 16, 3 * 16 -> 64 by 1x1; two numbers a channel of normalisation.
    weights = 3 * 32 + 2 * (9 * 16 * 16) + 48 * 64
    normalisation = 2 * (32 + 16 + 16 + 64)
    model = OneBlock()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    size = count(model, 10)
    assert size.parameters == weights + normalisation
    assert size.flops == 2 * weights * 10 * 10
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_both_branches_count_as_parameters_and_one_as_flops() -> None:
    model = on_meta("n")
    head = model.head
    extra = sum(p.numel() for p in head.one_to_many.parameters())
    assert extra == sum(p.numel() for p in head.one_to_one.parameters())
    size = count(model, 64)
    with torch.no_grad(), torch.utils.flop_counter.FlopCounterMode(display=False) as both:
        model(torch.empty(1, 3, 64, 64, device="meta"))
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert 0 < size.flops < both.get_total_flops()
