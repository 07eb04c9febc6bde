"""The compiled objective: one graph for every batch, the eager run's bits, and a way out where graphs run out."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.config.errors import RunError
from lucid_yolo.data.batch import Targets
from lucid_yolo.losses.detection import DetectionLoss, DetectionLosses
from lucid_yolo.nn import max_pool
from lucid_yolo.nn.max_pool import GatherMaxPool
from lucid_yolo.nn.model import Detector
from lucid_yolo.perf.compiled import CompiledLoss, CompiledObjective
from lucid_yolo.perf.objective import Objective
from tests.nn.networks import GROUPS
from tests.perf.capture.rig import Rig, assert_equal
from tests.perf.objectives import make_batch, make_objective

SIZE = 64
# images, objects, target rows
BATCHES = [(4, 5, 8), (4, 0, 8), (4, 1, 8), (4, 5, 16), (2, 5, 8), (2, 0, 16)]


def run(
    objective: Callable[[Tensor, Targets], DetectionLosses],
    network: Detector,
    shape: tuple[int, int, int],
    *,
    bf16: bool,
) -> list[Tensor]:
    """Losses, gradients and the state afterwards, from the state before."""
    before = {name: value.clone() for name, value in network.state_dict().items()}
    batch, objects, rows = shape
    images, targets = make_batch(SIZE, batch=batch, objects=objects, rows=rows)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        losses = objective(images, targets)
    losses.total.backward()
    found = [losses.total.detach(), losses.parts, *(p.grad.clone() for p in network.parameters())]
    found += [value.clone() for value in network.state_dict().values()]
    network.zero_grad()
    network.load_state_dict(before)
    return found


def pool_as_on_cuda(x: Tensor, window: int) -> Tensor:
    result: Tensor = GatherMaxPool.apply(x, window)
    return result


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
def test_one_graph_gives_the_bits_of_the_eager_run(bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_pool, "max_pool", pool_as_on_cuda)
    network, loss = make_objective(SIZE)
    compiled = CompiledObjective(network, loss, backend="eager")
    totals = []
    for shape in BATCHES:
        eager = run(lambda images, targets: loss(network(images), targets), network, shape, bf16=bf16)
        found = run(compiled, network, shape, bf16=bf16)
        assert len(eager) == len(found) > 300
        assert all(torch.equal(a, b) for a, b in zip(eager, found, strict=True))
        totals.append(float(found[0]))
    assert len(set(totals)) >= 4  # a graph with the values of one batch in it would repeat them
    # What changes between steps reaches the graph.
    loss.set_epoch(9, 10)
    network.head.one_to_one.box[0][-1].bias.data.add_(0.5)
    eager = run(lambda images, targets: loss(network(images), targets), network, BATCHES[0], bf16=bf16)
    found = run(compiled, network, BATCHES[0], bf16=bf16)
    assert all(torch.equal(a, b) for a, b in zip(eager, found, strict=True))
    assert float(found[0]) not in totals
    outcome = compiled.outcome()
    assert (outcome["graphs"], outcome["recompiles"]) == (1, 0)
    assert float(outcome["setup_seconds"]) > 0
    assert "inactive" not in outcome
    # The modules are what they were.
    assert list(network.state_dict()) == list(make_objective(SIZE)[0].state_dict())
    assert (type(network), type(loss)) == (Detector, DetectionLoss)
    parts = (*network.modules(), *loss.modules())
    assert not any("forward" in vars(part) or part._compiled_call_impl is not None for part in parts)


@pytest.mark.parametrize("task", sorted(GROUPS))
def test_head_and_losses_of_every_task_are_one_graph(task: str) -> None:
    eager, rig = (Rig(overrides=[f"task={task}"]) for _ in range(2))
    rig.objective = compiled = CompiledObjective(rig.model, rig.loss, backend="eager")
    for seed, (count, rows) in enumerate([(5, 8), (0, 8), (1, 8), (5, 16), (0, 16)]):
        totals = [one.gradients(seed, one.targets(seed, count, rows)) for one in (rig, eager)]
        assert torch.equal(*totals)
        assert torch.equal(rig.update(), eager.update())
    assert_equal(rig.state(), eager.state())
    assert torch.equal(*(one.objective(one.images(9), one.targets(9)).parts for one in (rig, eager)))
    assert (compiled.outcome()["graphs"], compiled.outcome()["recompiles"]) == (1, 0)


@pytest.mark.parametrize("task", sorted(GROUPS))
def test_the_losses_of_every_task_are_one_graph(task: str) -> None:
    eager, rig = (Rig(overrides=[f"task={task}"]) for _ in range(2))
    compiled = CompiledLoss(rig.loss, backend="eager")
    rig.objective = Objective(rig.model, compiled)
    for seed, (count, rows) in enumerate([(5, 8), (0, 8), (1, 8), (5, 16)]):
        totals = [one.gradients(seed, one.targets(seed, count, rows)) for one in (rig, eager)]
        assert torch.equal(*totals)
        assert torch.equal(rig.update(), eager.update())
    assert_equal(rig.state(), eager.state())
    assert (compiled.outcome()["graphs"], compiled.outcome()["recompiles"]) == (1, 0)


def test_a_compiled_loss_is_copied_as_the_loss_and_names_its_option() -> None:
    compiled = CompiledLoss(loss_of, backend="eager")
    images, targets = make_batch(32, batch=2, objects=3, rows=4)
    predicted = Mean()(images)
    other = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(compiled(predicted, targets), other(predicted, targets))
    assert (compiled.outcome()["graphs"], other.outcome()["graphs"]) == (1, 1)
    with pytest.raises(RunError, match=r"compile=loss failed: .*Set compile=none"):
        CompiledLoss(reading, backend="eager")(predicted, targets)


def reading(predicted: Tensor, targets: Targets) -> Tensor:
    """A loss that waits for the device."""
    return predicted.sum() * (2 if bool(targets.valid.any()) else 1)


def test_a_batch_of_one_image_has_a_graph_of_its_own() -> None:
    network, loss = make_objective(SIZE, short=True)
    compiled = CompiledObjective(network, loss, backend="eager")
    network.eval()
    for objects in (1, 0):
        images, targets = make_batch(SIZE, batch=1, objects=objects, rows=8)
        assert torch.equal(compiled(images, targets).total, loss(network(images), targets).total)
    assert compiled.outcome()["graphs"] == 1
    compiled = CompiledObjective(Mean(), loss_of, backend="eager")
    for batch, objects in ((4, 5), (1, 1), (1, 0), (3, 5)):
        images, targets = make_batch(32, batch=batch, objects=objects, rows=8)
        assert compiled(images, targets).item() == pytest.approx(expected(images, targets))
    assert compiled.outcome()["graphs"] == 2


class Mean(nn.Module):
    """A network that is quick to trace."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3)) * self.weight


def loss_of(predicted: Tensor, targets: Targets) -> Tensor:
    return predicted.sum() + targets.boxes.sum()


def expected(images: Tensor, targets: Targets) -> float:
    return 2 * float(images.mean((1, 2, 3)).sum()) + float(targets.boxes.sum())


def loss_of_all(predicted: Tensor, targets: Targets) -> Tensor:
    fields = (targets.masks, targets.keypoints, targets.rotated)
    return predicted.sum() + sum(field.float().sum() for field in fields if field is not None)


@pytest.mark.parametrize("learned", [("masks",), ("keypoints",), ("rotated",), ("masks", "keypoints", "rotated")])
def test_rows_of_every_kind_of_label_may_change(learned: tuple[str, ...]) -> None:
    compiled = CompiledObjective(Mean(), loss_of_all, backend="eager")
    for rows in (4, 8, 16):
        images, targets = make_batch(32, batch=2, objects=3, rows=rows)
        made = {"masks": torch.ones(rows, 8, 1), "keypoints": torch.ones(rows, 5, 3), "rotated": torch.ones(rows, 5)}
        targets = replace(targets, **{name: made[name] for name in learned})
        total = 2 * float(images.mean((1, 2, 3)).sum()) + sum(made[name].numel() for name in learned)
        assert compiled(images, targets).item() == pytest.approx(total)
    assert compiled.outcome()["graphs"] == 1


def test_at_the_limit_the_run_goes_on_without_it_and_says_so_once() -> None:
    network = Mean()
    compiled = CompiledObjective(network, loss_of, backend="eager")
    images, targets = make_batch(32, batch=2, objects=3, rows=4)
    double, small = images.double(), images[..., :16, :]
    with torch._dynamo.config.patch(recompile_limit=2):
        for fine in (images, double, images):
            assert compiled(fine, targets).item() == pytest.approx(expected(fine, targets))
        with pytest.warns(UserWarning, match=r"compile=step is not active any more.*limit of 2 graphs") as caught:
            total = compiled(small, targets)
    assert len(caught) == 1
    assert total.item() == pytest.approx(expected(small, targets))
    assert compiled.outcome()["inactive"] == "torch.compile reached its limit of 2 graphs for one function"
    assert (compiled.outcome()["graphs"], compiled.outcome()["recompiles"]) == (2, 1)
    heard: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(images, targets, heard.append).item() == pytest.approx(expected(images, targets))
    assert heard == ["forward"]
    assert compiled.outcome()["graphs"] == 2


def test_a_pickled_objective_is_compiled_anew() -> None:
    network = Mean()
    network.weight.data.fill_(3.0)
    compiled = CompiledObjective(network, loss_of, backend="eager")
    batch = make_batch(32, batch=2, objects=3, rows=8)
    total = compiled(*batch)
    other = pickle.loads(pickle.dumps(compiled))
    assert other.outcome()["graphs"] == 0
    assert torch.equal(other(*batch), total)
    assert other.outcome()["graphs"] == 1


def test_fits_of_one_process_do_not_share_the_limit() -> None:
    images, targets = make_batch(32, batch=2, objects=3, rows=4)
    with torch._dynamo.config.patch(recompile_limit=1):
        fits = [CompiledObjective(Mean(), loss_of, backend="eager") for _ in range(3)]
        for compiled in fits:
            compiled(images, targets)
    assert [compiled.outcome()["graphs"] for compiled in fits] == [1, 1, 1]
    assert not any("inactive" in compiled.outcome() for compiled in fits)


def test_a_copy_computes_with_the_copied_network_and_is_compiled_anew() -> None:
    network = Mean()
    compiled = CompiledObjective(network, loss_of, backend="eager")
    images, targets = make_batch(32, batch=2, objects=3, rows=4)
    compiled(images, targets)
    copied_network, copied = copy.deepcopy((network, compiled))
    with torch.no_grad():
        copied_network.weight.fill_(0)
    assert copied.outcome()["graphs"] == 0
    assert copied(images, targets).item() == pytest.approx(float(targets.boxes.sum()))
    assert compiled(images, targets).item() == pytest.approx(expected(images, targets))


def test_a_step_that_reads_the_device_is_an_error_that_names_the_flag() -> None:
    compiled = CompiledObjective(Mean(), reading, backend="eager")
    with pytest.raises(RunError, match=r"compile=step failed: .*Set compile=none"):
        compiled(*make_batch(32, batch=2, objects=3, rows=4))
