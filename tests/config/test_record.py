"""Values written as overrides come back unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from lucid_yolo.config.compose import compose, compose_resume, overrides_of, to_root
from lucid_yolo.config.record import as_override, differences, is_frozen, key_of, replace
from lucid_yolo.config.schema import PrecisionName

PARSER = OverridesParser.create()
TEXTS = st.text(st.characters(exclude_categories=("C",)), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(
                lambda name: name not in ("null", "true", "false", "nan", "inf")
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_round_trip(value: Any) -> None:
    assert PARSER.parse_override(as_override("some.key", value)).value() == value


def test_enums_are_written_by_value() -> None:
    assert as_override("precision.name", PrecisionName.FP32) == "precision.name='32-true'"


def test_replace_keeps_one_override_a_key() -> None:
    assert replace(["a=1", "+b=2", "c=3"], ["b=4", "a=5"]) == ["c=3", "b=4", "a=5"]
    assert (key_of("++a.b='x=y'"), key_of("~c")) == ("a.b", "c")


def test_differences_leave_places_out() -> None:
    old = {"run_dir": "a", "seed": 1, "data.options.x": 1}
    assert differences(old, {"run_dir": "b", "seed": 2, "trainer.devices": 1}) == {
        "seed": (1, 2),
        "data.options.x": (1, None),
        "trainer.devices": (None, 1),
    }


def test_frozen_keys_are_whole_names() -> None:
    assert is_frozen("model.width")
    assert is_frozen("data.train")
    assert not is_frozen("data.val")
    assert not is_frozen("trainer.max_epochs")
    assert not is_frozen("seeds")


def test_a_run_that_is_older_than_a_key_can_be_continued(tmp_path: Path) -> None:
    cfg = compose(["model=s", "data.batch_size=3"])
    written = OmegaConf.to_container(OmegaConf.structured(to_root(cfg)), enum_to_str=True)
    assert isinstance(written, dict)
    del written["cache"]
    OmegaConf.save(OmegaConf.create(written), tmp_path / "config.yaml")
    OmegaConf.save(OmegaConf.create(overrides_of(cfg)), tmp_path / "overrides.yaml")
    again = compose_resume(tmp_path)
    assert (again.cache.selected, again.model.variant, again.data.batch_size) == ("none", "s", 3)
