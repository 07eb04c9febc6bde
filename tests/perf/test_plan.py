"""The plan: problems together, one warning a run, plain containers, what happened at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from rich.console import Console

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import CacheName, OnUnmet, PrecisionName
from lucid_yolo.data.index import SplitIndex
from lucid_yolo.perf.flag import Choice, Flag
from lucid_yolo.perf.plan import RunPlan, resolve
from lucid_yolo.perf.rules import DataFacts, Kind, Rule, Stage, data_facts
from tests.perf.machines import CACHE_BYTES, CPU, CUDA, MPS, OLD_CUDA, make_config

BF16_ON_CPU = make_config(precision=PrecisionName.BF16)


def make_split(sizes: list[tuple[int, int]], *, name: str = "train", notes: tuple[str, ...] = ()) -> SplitIndex:
    return SplitIndex(
        name=name,
        source="made up",
        class_names=("a",),
        category_ids=(1,),
        paths=tuple(f"{i}.jpg" for i in range(len(sizes))),
        image_ids=np.arange(len(sizes)),
        sizes=np.array(sizes, dtype=np.int32),
        offsets=np.zeros(len(sizes) + 1, dtype=np.int64),
        boxes=np.zeros((0, 4), dtype=np.float32),
        classes=np.zeros(0, dtype=np.int64),
        crowd=np.zeros(0, dtype=np.bool_),
        areas=np.zeros(0, dtype=np.float32),
        notes=notes,
    )


def render(plan: RunPlan) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(plan.render())
    return console.export_text()


def test_all_refusals_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        resolve(make_config(accelerator="cuda", devices=2), CPU, None)
    assert len(caught.value.problems) == 2
    assert "[accelerator.present]" in caught.value.problems[0]
    assert "[devices.one]" in caught.value.problems[1]


@pytest.mark.parametrize("machine", [CPU, CUDA, OLD_CUDA, MPS])
def test_a_refusal_of_stage_config_holds_on_every_machine(machine):
    with pytest.raises(ConfigError, match=r"trainer\.devices=2"):
        resolve(make_config(devices=2), machine, None)


def test_on_unmet_raise_turns_a_fallback_into_an_error():
    with pytest.raises(ConfigError, match=r"needs a CUDA device.*\[precision\.mixed-needs-cuda\]"):
        resolve(make_config(precision=PrecisionName.BF16, on_unmet=OnUnmet.RAISE), CPU, None)


def test_on_unmet_raise_leaves_auto_and_determinism_on_mps_alone():
    plan = resolve(make_config(on_unmet=OnUnmet.RAISE), MPS, None)
    assert [row.rule_id for row in plan.rows] == [None] * len(plan.rows)


def test_the_first_unmet_condition_is_the_one_that_is_named():
    row = resolve(BF16_ON_CPU, CPU, None)["precision"]
    assert row.rule_id == "precision.mixed-needs-cuda"
    assert row.reason.startswith("precision=bf16-mixed needs a CUDA device, this run computes on cpu")


@pytest.mark.parametrize("action", ["default", "once", "module", "always"])
def test_one_warning_a_run_also_where_runs_share_a_process(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        for _ in range(3):
            resolve(BF16_ON_CPU, CPU, None).warn()
    assert [w.category for w in caught] == [UserWarning] * (3 if action != "once" else len(caught))
    assert caught


def test_one_warning_names_every_flag_that_fell_back():
    planted = Flag(
        key="planted",
        option="planted=true",
        summary="",
        requested=lambda facts: True,
        choose=lambda facts: Choice(value=True),
        fallback=False,
        rules=(
            Rule(
                id="planted.never",
                stage=Stage.CONFIG,
                kind=Kind.FALLBACK,
                applies=lambda facts: True,
                sentence="no machine has it",
            ),
        ),
    )
    other = Flag(**{name: getattr(planted, name) for name in Flag.__slots__} | {"key": "other"})
    plan = resolve(make_config(), CPU, None, flags=[planted, other])
    with pytest.warns(UserWarning, match="planted: no machine has it") as caught:
        plan.warn()
    assert len(caught) == 1
    assert "other: no machine has it -> false [planted.never]" in str(caught[0].message)


def test_no_warning_without_a_fallback():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve(make_config(), CPU, None).warn()


def test_rules_that_need_data_or_a_live_model_wait_for_it():
    def flag(stage: Stage) -> Flag:
        rule = Rule(id="x.y", stage=stage, kind=Kind.REFUSE, applies=lambda facts: True, sentence="broken")
        return Flag(
            key="x",
            option="",
            summary="",
            requested=lambda facts: True,
            choose=lambda facts: Choice(value=True),
            fallback=False,
            rules=(rule,),
        )

    data = DataFacts(num_train=1, num_val=1, num_larger=0, largest=(1, 1), cache_bytes=CACHE_BYTES)
    for stage in (Stage.SETUP, Stage.STEP):
        assert resolve(make_config(), CPU, data, flags=[flag(stage)])["x"].active is True
    assert resolve(make_config(), CPU, None, flags=[flag(Stage.DATA)])["x"].active is True
    for stage in (Stage.CONFIG, Stage.MACHINE, Stage.DATA):
        with pytest.raises(ConfigError, match="broken"):
            resolve(make_config(), CPU, data, flags=[flag(stage)])


def test_json_gives_the_same_plan_back():
    plan = resolve(
        BF16_ON_CPU,
        CUDA,
        DataFacts(num_train=3, num_val=2, num_larger=1, largest=(4000, 3000), cache_bytes=CACHE_BYTES),
    )
    plan = plan.complete({"precision": {"skipped_updates": 2}})
    assert RunPlan.from_json(plan.to_json()) == plan


def test_as_dict_holds_plain_containers_by_key():
    rows = resolve(BF16_ON_CPU, CPU, None).complete({"precision": {"steps": 7}}).as_dict()
    assert json.loads(json.dumps(rows)) == rows
    assert rows["devices"] == {"requested": 1, "active": 1, "reason": "cpu", "rule_id": None, "outcome": {}}
    assert rows["precision"]["outcome"] == {"steps": 7}


def test_completing_adds_to_what_is_known_and_refuses_an_unknown_flag():
    plan = resolve(make_config(), CPU, None)
    done = plan.complete({"precision": {"steps": 7}}).complete({"precision": {"skipped_updates": 1}})
    assert done["precision"].outcome == {"steps": 7, "skipped_updates": 1}
    assert plan["precision"].outcome == {}
    with pytest.raises(KeyError, match="captur"):
        plan.complete({"captur": {"replays": 1}})


def test_table_shows_the_reason_the_rule_and_the_outcome():
    plan = resolve(
        BF16_ON_CPU, CPU, DataFacts(num_train=3, num_val=2, num_larger=0, largest=(64, 64), cache_bytes=CACHE_BYTES)
    )
    assert "what happened" not in render(plan)
    text = render(plan.complete({"precision": {"steps": 7}}))
    assert "[precision.mixed-needs-cuda]" in text
    assert "steps 7" in text
    assert "3 training and 2 validation pictures." in text


def test_a_note_says_when_mosaic_never_happens():
    config = make_config()
    data = DataFacts(num_train=1, num_val=1, num_larger=0, largest=(1, 1), cache_bytes=CACHE_BYTES)
    assert not any("Mosaic" in note for note in resolve(config, CPU, data).notes)
    config.trainer.max_epochs = config.data.augment.close_mosaic
    (note,) = (note for note in resolve(config, CPU, data).notes if "Mosaic" in note)
    assert "data.augment.close_mosaic=10" in note
    assert "trainer.max_epochs=10" in note


def test_notes_name_large_pictures_and_a_batch_larger_than_the_data():
    train = make_split([(640, 480), (4000, 3000), (100, 641)], notes=("2 backgrounds.",))
    facts = data_facts(train, make_split([(64, 64)], name="val", notes=("2 backgrounds.",)), image_size=640)
    decoded = 3 * (640 * 480 + 4000 * 3000 + 100 * 641)
    prepared = 3 * (640 * 480 + 640 * 480 + 100 * 640)
    assert facts == DataFacts(
        num_train=3,
        num_val=1,
        num_larger=2,
        largest=(4000, 3000),
        cache_bytes={CacheName.NONE: 0, CacheName.DECODED: decoded, CacheName.PREPARED: prepared},
        notes=("2 backgrounds.",),
    )
    notes = resolve(make_config(), CPU, facts).notes
    assert notes[0] == "3 training and 1 validation pictures."
    assert "2 training pictures are larger than the 640 px canvas (up to 4000 x 3000)" in notes[1]
    assert "data.batch_size=16 is larger than the 3 training pictures" in notes[2]
    assert notes[3] == "2 backgrounds."


def test_planning_imports_no_torch():
    code = (
        "import sys; from lucid_yolo.perf.plan import resolve; from lucid_yolo.perf.machine import describe_machine;"
        "from lucid_yolo.config.schema import RootConfig; c = RootConfig(); c.trainer.accelerator = 'cpu';"
        "describe_machine(c); sys.exit(any(name in sys.modules for name in ('torch', 'lightning', 'triton')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
