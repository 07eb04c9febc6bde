from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lucid_yolo.nn.blocks import BatchNorm2d, Bottleneck, C3k2
from lucid_yolo.nn.complexity import Complexity, count
from lucid_yolo.nn.heads import detect, segment
from lucid_yolo.nn.heads.keypoints import point_widths
from lucid_yolo.nn.model import KeypointDetector, Network
from tests.checkout import ROOT
from tests.nn.networks import make_network
from tests.nn.scales import SCALES

GIVEN = {"detect": (80, 640), "segment": (80, 640), "keypoints": (1, 640), "obb": (15, 1024)}
"""Classes and pixels of the tables below."""

# (parameters in M, GFLOPs) of the paper (arXiv 2606.03748, tables 7, S9, S10, S11). Of S11 three cells are known, from
# the deviations that the independent implementation below states.
PAPER = {
    "detect": {"n": (2.4, 5.4), "s": (9.5, 20.7), "m": (20.4, 68.2), "l": (24.8, 86.4), "x": (55.7, 193.9)},
    "segment": {"n": (2.7, 9.1), "s": (10.4, 34.2), "m": (23.6, 121.5), "l": (28.0, 139.8), "x": (62.8, 313.5)},
    "keypoints": {"n": (2.9, 7.5), "s": (10.4, 23.9), "m": (21.5, 73.1), "l": (25.9, 91.3), "x": (57.6, 201.7)},
    "obb": {"n": (None, 14.0), "s": (9.8, None), "x": (57.6, None)},
}
TOLERANCES = {"detect": (0.03, 0.05), "segment": (0.03, 0.05), "keypoints": (0.03, 0.03), "obb": (0.035, 0.035)}

# (parameters, GFLOPs) of an independent implementation, whose counter adds two multiply-accumulates an element of
# normalisation and one of upsampling. Its point stems are others, and the width of its stems is a third as it comes.
INDEPENDENT = {
    "detect": {
        "n": (2_437_552, 5.4270),
        "s": (9_609_632, 21.0023),
        "m": (20_132_032, 67.8884),
        "l": (24_363_712, 90.0504),
        "x": (54_672_216, 201.6605),
    },
    "segment": {
        "n": (2_717_284, 8.9974),
        "s": (10_665_440, 34.9670),
        "m": (23_374_848, 122.7223),
        "l": (27_606_528, 144.8843),
        "x": (61_899_656, 324.5766),
    },
    "obb": {
        "n": (2_563_976, 14.6771),
        "s": (10_120_782, 55.9375),
        "m": (21_009_774, 178.3644),
        "l": (25_241_454, 235.5899),
        "x": (56_652_248, 526.5584),
    },
}


@cache
def on_meta(task: str, variant: str) -> Network[Any, Any]:
    with torch.device("meta"):
        if task == "keypoints":
            return KeypointDetector(SCALES[variant], 1, 17).eval()
        return make_network(task, SCALES[variant], GIVEN[task][0]).eval()


@cache
def size_of(task: str, variant: str) -> Complexity:
    return count(on_meta(task, variant), GIVEN[task][1])


@pytest.mark.parametrize(("task", "variant"), [(task, variant) for task, cells in PAPER.items() for variant in cells])
def test_size_is_that_of_the_paper(task: str, variant: str) -> None:
    size = size_of(task, variant)
    for found, expected, tolerance in zip(
        (size.parameters / 1e6, size.flops / 1e9), PAPER[task][variant], TOLERANCES[task], strict=True
    ):
        assert expected is None or found == pytest.approx(expected, rel=tolerance)


def test_the_documented_sizes_of_the_point_stems_are_the_counted_ones() -> None:
    lines = [line for line in (point_widths.__doc__ or "").splitlines() if line.strip()[:1] == "|"]
    table = [[float(cell.strip(" %")) for cell in line.split("|")[2:-1]] for line in lines[2:]]
    sizes = [size_of("keypoints", variant) for variant in SCALES]
    counted = [[size.parameters / 1e6 for size in sizes], [size.flops / 1e9 for size in sizes]]
    for i, row in enumerate(counted):
        paper = [cells[i] for cells in PAPER["keypoints"].values()]
        deviations = [round(100 * (found / given - 1), 1) for found, given in zip(row, paper, strict=True)]
        assert table[3 * i : 3 * i + 3] == [[round(found, 2) for found in row], paper, deviations]


def test_the_sizes_of_the_readme_are_the_counted_ones() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| `model=` |"))
    names, _, parameters, gflops = (
        [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[start : start + 4]
    )
    sizes = [size_of("detect", variant) for variant in SCALES]
    assert names == list(SCALES)
    assert parameters == [f"{size.parameters / 1e6:.2f}" for size in sizes]
    assert gflops == [f"{size.flops / 1e9:.1f}" for size in sizes]


@pytest.mark.parametrize(
    ("task", "variant"), [(task, variant) for task, cells in INDEPENDENT.items() for variant in cells]
)
def test_size_equals_an_independent_implementation(task: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for head, width in ((detect, "hidden_width"), (detect, "class_width"), (segment, "hidden_width")):
        monkeypatch.setattr(head, width, lambda channels: max(16, channels // 3))
    with torch.device("meta"):
        model = make_network(task, SCALES[variant], GIVEN[task][0]).eval()
    size = count(model, GIVEN[task][1])
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
    hooks = [m.register_forward_hook(add_norm) for m in model.modules() if isinstance(m, BatchNorm2d)]
    with torch.no_grad():
        model.one_to_one_forward(torch.empty(1, 3, GIVEN[task][1], GIVEN[task][1], device="meta"))
    for hook in hooks:
        hook.remove()
    if task == "segment":  # it enlarges the coarsest level to the size of the finest in one step, 4 times as large
        others += model.neck.channels[0] * (80**2 - 40**2)
    parameters, gflops = INDEPENDENT[task][variant]
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


@pytest.mark.parametrize("task", GIVEN)
def test_both_branches_count_as_parameters_and_one_as_flops(task: str) -> None:
    model = on_meta(task, "n")
    head = model.head
    extra = sum(p.numel() for p in head.one_to_many.parameters())
    assert extra == sum(p.numel() for p in head.one_to_one.parameters())
    size = count(model, 64)
    with torch.no_grad(), torch.utils.flop_counter.FlopCounterMode(display=False) as both:
        model(torch.empty(1, 3, 64, 64, device="meta"))
    assert size.parameters == sum(p.numel() for p in model.parameters())
    assert 0 < size.flops < both.get_total_flops()


def test_class_maps_count_as_parameters_only() -> None:
    model = on_meta("segment", "n")
    before = count(model, 64)
    model.head.semantic, semantic = nn.Identity(), model.head.semantic
    after = count(model, 64)
    model.head.semantic = semantic
    assert before.parameters - after.parameters == 64 * 80 + 80
    assert before.flops == after.flops
