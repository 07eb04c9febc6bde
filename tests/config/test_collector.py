"""The collector rests only meanwhile, and stays as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from lucid_yolo.config.collector import collector_stopped


class Knot:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_no_garbage_goes_meanwhile_and_some_afterwards() -> None:
    with collector_stopped():
        knot = weakref.ref(Knot())
        for _ in range(3 * gc.get_threshold()[0]):
            Knot()
        assert knot() is not None
    assert gc.isenabled()
    for _ in range(3 * gc.get_threshold()[0]):
        Knot()
    assert knot() is None


def test_an_error_turns_it_on_again_and_who_had_it_off_keeps_it_off() -> None:
    with pytest.raises(KeyError), collector_stopped():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    with collector_stopped():
        pass
    assert not gc.isenabled()
