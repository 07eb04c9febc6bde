from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucid_yolo.optim.schedule import lr_factor


def factors(**settings: float) -> list[float]:
    return [lr_factor(step, **settings) for step in range(settings["total_steps"])]


def test_by_hand() -> None:
    assert factors(total_steps=8, warmup_steps=4, final_ratio=0.2) == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, 0.8, 0.6, 0.4, 0.2]
    )
    assert factors(total_steps=5, warmup_steps=0, final_ratio=0.0) == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])
    assert factors(total_steps=3, warmup_steps=100, final_ratio=0.1) == pytest.approx([0.5, 1.0, 0.1])


@given(
    total=st.integers(1, 300),
    warmup=st.integers(0, 400),
    final=st.floats(0, 1),
    beyond=st.integers(0, 5),
)
def test_ends_exactly_and_never_leaves_its_range(total: int, warmup: int, final: float, beyond: int) -> None:
    assert lr_factor(total - 1 + beyond, total_steps=total, warmup_steps=warmup, final_ratio=final) == final
    values = factors(total_steps=total, warmup_steps=warmup, final_ratio=final)
    assert all(0 <= value <= 1 for value in values)
    if total > 1:
        assert max(values) == 1.0
        peak = values.index(1.0)
        assert values[:peak] == sorted(values[:peak])
        assert values[peak:] == sorted(values[peak:], reverse=True)


def test_constant() -> None:
    assert factors(total_steps=4, warmup_steps=0, final_ratio=1.0) == [1.0] * 4
