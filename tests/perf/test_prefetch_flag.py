"""``prefetch`` in the plan: the first unmet condition is the one that is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import OnUnmet, PrefetchName
from lucid_yolo.perf.plan import resolve
from lucid_yolo.perf.rules import DataFacts
from tests.perf.machines import CACHE_BYTES, CPU, CUDA, make_config

DATA = DataFacts(num_train=205, num_val=87, num_larger=0, largest=(640, 480), cache_bytes=CACHE_BYTES, num_workers=3)


def ahead(**changes: object):
    return make_config(prefetch=PrefetchName.EPOCH, **changes)


@pytest.mark.parametrize(
    ("config", "machine", "data", "rule"),
    [
        (ahead(), CUDA, DATA, None),
        (ahead(num_workers=2), CUDA, DATA, None),
        (ahead(), CUDA, None, None),  # how many workers there will be is not known yet
        (ahead(num_workers=0, max_steps=3), CPU, DATA, "needs-cuda"),
        (ahead(num_workers=0, max_steps=3), CUDA, replace(DATA, num_workers=0), "needs-workers"),
        (ahead(max_steps=3), CUDA, replace(DATA, num_workers=0), "has-workers"),
        (ahead(max_steps=3), CUDA, DATA, "whole-epochs"),
        (ahead(max_epochs=1), CUDA, DATA, "second-epoch"),
        (ahead(max_epochs=2), CUDA, DATA, None),
    ],
)
def test_the_first_unmet_condition_is_named(config, machine, data, rule):
    row = resolve(config, machine, data)["prefetch"]
    assert row.requested == "epoch"
    assert (row.active, row.rule_id) == (("none", f"prefetch.{rule}") if rule else ("epoch", None))


@pytest.mark.parametrize("machine", [CPU, CUDA])
def test_none_is_the_default_and_breaks_no_rule(machine):
    row = resolve(make_config(num_workers=0, max_steps=3), machine, replace(DATA, num_workers=0))["prefetch"]
    assert (row.requested, row.active, row.rule_id) == ("none", "none", None)


def test_a_measured_run_names_them_all():
    with pytest.raises(ConfigError) as caught:
        resolve(ahead(num_workers=0, max_steps=3, on_unmet=OnUnmet.RAISE), CPU, DATA)
    assert [problem.rpartition("[")[2] for problem in caught.value.problems] == [
        "prefetch.needs-cuda]",
        "prefetch.needs-workers]",
        "prefetch.whole-epochs]",
    ]
