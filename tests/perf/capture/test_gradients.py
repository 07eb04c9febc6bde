"""Places of gradients and the recorded clipping on them, against torch's own clipping and sums by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lucid_yolo.optim.clip import clip_gradients
from lucid_yolo.perf.capture.gradients import GradientPlaces
from lucid_yolo.perf.capture.region import MAX_RECORDINGS
from lucid_yolo.perf.capture.routine import RecordedClip, RoutineRegion
from lucid_yolo.perf.capture.tape import Tape, Track
from tests.optim.helpers import Recorder, bits, make_network, set_gradients
from tests.perf.capture.tapes import CallTape, OperatorTape


class SilentTape(CallTape):
    """What is recorded takes no operator: what is left is the host's own work."""

    def record(self, function: Callable[[], list[Tensor]]) -> Track:
        return Track(super().record(function).outputs, lambda: None)


class Clipping:
    """Parameters, their places and the recorded clipping; a twin is clipped by torch."""

    def __init__(self, tape: Tape | None = None) -> None:
        networks = [make_network().to(memory_format=torch.channels_last) for _ in range(2)]
        self.network, self.twin = networks
        self.parameters, self.twins = (list(network.parameters()) for network in networks)
        self.places = GradientPlaces(self.parameters)
        self.region = RoutineRegion("gradient_norm", tape=tape or OperatorTape(), device=torch.device("cpu"), warmup=1)
        self.clip = RecordedClip(self.region, self.places)

    def set_gradients(self, seed: int, layout: str) -> None:
        """Random gradients: for each parameter, in turn, a letter says where (home, away) or that there is none (-)."""
        set_gradients(self.network, seed)
        set_gradients(self.twin, seed)
        for i, (mine, twin, place) in enumerate(zip(self.parameters, self.twins, self.places.places, strict=True)):
            match layout[i % len(layout)]:
                case "-":
                    mine.grad = twin.grad = None
                case "h":
                    mine.grad = place.copy_(mine.grad)

    def assert_as_torch(self, max_norm: float) -> None:
        """Clip both; the gradients stay where they are."""
        before = [p.grad for p in self.parameters]
        norm = self.clip(self.parameters, max_norm)
        expected = nn.utils.clip_grad_norm_(self.twins, max_norm, foreach=True)
        assert torch.equal(norm, expected)
        for p, twin, gradient in zip(self.parameters, self.twins, before, strict=True):
            assert p.grad is gradient
            if gradient is not None:
                assert torch.equal(bits(gradient), bits(twin.grad))


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
@pytest.mark.parametrize("layout", ["a", "h", "ha", "a-", "h-", "hha-a"])
def test_gradients_anywhere_are_clipped_as_torch_clips_them(max_norm: float, layout: str) -> None:
    one = Clipping()
    for seed in range(3):
        one.set_gradients(seed, layout)
        one.assert_as_torch(max_norm)
    assert (one.region.account.recordings, one.region.account.replays) == (1, 3)


def test_where_gradients_lie_may_change_without_another_recording() -> None:
    one = Clipping()
    for seed, layout in enumerate(("a", "h", "ha", "ah", "h", "aah", "a")):
        one.set_gradients(seed, layout)
        one.assert_as_torch(0.5)
    assert one.region.account.recordings == 1


def test_more_layouts_than_recordings_are_clipped_natively() -> None:
    one = Clipping()
    missing = MAX_RECORDINGS + 1
    for seed in range(missing):
        one.set_gradients(seed, "a" * seed + "-" + "a" * (len(one.parameters) - seed - 1))
        if seed < MAX_RECORDINGS:
            one.assert_as_torch(0.5)
    with pytest.warns(UserWarning, match="what it works on changed more than"):
        one.assert_as_torch(0.5)
    one.set_gradients(99, "ha")
    one.assert_as_torch(0.5)
    assert one.region.account.native_calls == 2


def test_a_gradient_that_is_another_view_of_its_place_is_scaled_once() -> None:
    one = Clipping()
    for seed in range(2):
        one.set_gradients(seed, "h")
        for parameter in one.parameters[::2]:
            parameter.grad = parameter.grad.detach()
        one.assert_as_torch(0.5)


def test_non_finite_gradients_are_clipped_as_torch_clips_them() -> None:
    one = Clipping()
    one.set_gradients(0, "a")
    for parameters in (one.parameters, one.twins):
        parameters[0].grad[0, 0, 0, 0] = float("inf")
    one.clip(one.parameters, 1.0)
    nn.utils.clip_grad_norm_(one.twins, 1.0)
    for mine, twin in zip(one.parameters, one.twins, strict=True):
        torch.testing.assert_close(mine.grad, twin.grad, rtol=0, atol=0, equal_nan=True)


def test_without_any_gradient_nothing_is_recorded() -> None:
    one = Clipping()
    one.set_gradients(0, "-")
    assert one.clip(one.parameters, 1.0).item() == 0.0
    assert (one.region.account.recordings, one.region.account.native_calls) == (0, 1)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [("a", {"_foreach_copy_": 2, "clone": 1}), ("h", {"clone": 1}), ("ha-", {"_foreach_copy_": 2, "clone": 1})],
)
def test_beside_the_replay_there_are_two_copies_at_most(layout: str, expected: dict[str, int]) -> None:
    one = Clipping(SilentTape())
    for seed in range(2):
        one.set_gradients(seed, layout)
        with Recorder() as recorder:
            one.clip(one.parameters, 1.0)
    assert recorder.counts == expected


def test_the_eager_clipping_equals_torch_bit_for_bit() -> None:
    one = Clipping()
    for seed, max_norm in enumerate((0.1, 3.0, 1e6)):
        one.set_gradients(seed, "a-a")
        norm = clip_gradients(one.parameters, max_norm)
        assert torch.equal(norm, nn.utils.clip_grad_norm_(one.twins, max_norm, foreach=True))
        for mine, twin in zip(one.parameters, one.twins, strict=True):
            assert mine.grad is None or torch.equal(bits(mine.grad), bits(twin.grad))


def test_places_take_the_strides_of_gradients_in_the_same_memory() -> None:
    # a depthwise kernel in channels_last, strides (9, 1, 3, 1), with a contiguous gradient: (9, 9, 3, 1)
    depthwise = torch.zeros(4, 1, 3, 3).as_strided((4, 1, 3, 3), (9, 1, 3, 1)).requires_grad_()
    dense = torch.zeros(4, 2, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    places = GradientPlaces([depthwise, dense])
    depthwise.grad, dense.grad = torch.randn(4, 1, 3, 3), torch.randn(4, 2, 3, 3)
    gathered = places.gather()
    assert [p.stride() for p in gathered.copies] == [(9, 9, 3, 1), dense.stride()]
    assert [p.stride() for p in places.places] == [(9, 9, 3, 1), dense.stride()]
    for place, parameter in zip(places.places, (depthwise, dense), strict=True):
        assert torch.equal(place, parameter.grad)
    assert torch.equal(places.flat[:36], depthwise.grad.flatten())
    assert torch.equal(places.flat[64:136], dense.grad.permute(0, 2, 3, 1).flatten())
    places.flat.mul_(2)
    twice = [2 * depthwise.grad, 2 * dense.grad]
    gathered.give_back()
    assert torch.equal(depthwise.grad, twice[0])
    assert torch.equal(dense.grad, twice[1])


def test_what_was_accumulated_is_added_where_something_is_written() -> None:
    parameters = [torch.zeros(2, requires_grad=True) for _ in range(4)]
    places = GradientPlaces(parameters)
    home, away, new, unwritten = parameters
    assert places.set_aside((0, 1, 2)) is None
    for _ in range(2):  # the second time in memory that is there
        home.grad = places.places[0].fill_(1.0)
        away.grad, new.grad, unwritten.grad = torch.full((2,), 2.0), None, torch.full((2,), 3.0)
        kept = unwritten.grad
        before = places.set_aside((0, 1, 2))
        for i, place in enumerate(places.places[:3]):
            place.fill_(10.0 * (i + 1))
        places.hand_out((0, 1, 2), before)
        assert [p.grad[0].item() for p in parameters] == [11.0, 22.0, 30.0, 3.0]
        assert all(p.grad is place for p, place in zip(parameters[:3], places.places, strict=False))
        assert unwritten.grad is kept


def test_written_places_without_an_earlier_gradient_are_handed_out_as_they_are() -> None:
    parameters = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    places = GradientPlaces(parameters)
    parameters[1].grad = torch.ones(2)
    before = places.set_aside((0,))
    assert before is None
    places.places[0].fill_(5.0)
    places.hand_out((0,), before)
    assert [p.grad[0].item() for p in parameters] == [5.0, 1.0]


def test_parts_that_write_in_turn_leave_what_others_wrote() -> None:
    parameters = [torch.zeros(2, requires_grad=True) for _ in range(5)]
    places = GradientPlaces(parameters)
    native = parameters[3]  # lies between those of a part, and is computed without a recording
    native.grad = torch.full((2,), 7.0)
    kept = native.grad
    for times in (1, 2):
        for written, value in (((2, 4), 1.0), ((1,), 10.0), ((0,), 100.0)):
            before = places.set_aside(written)
            assert (before is None) == (times == 1)
            for i in written:
                places.places[i].fill_(value)
            places.hand_out(written, before)
        assert [p.grad[0].item() for p in parameters] == [100.0 * times, 10.0 * times, times, 7.0, times]
        assert native.grad is kept
