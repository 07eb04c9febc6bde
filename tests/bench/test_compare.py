"""Comparisons for real, on a processor, and the running of blocks with made-up runs."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lucid_yolo as ly
from lucid_yolo import cli
from lucid_yolo.bench import arms, compare
from lucid_yolo.bench.arms import explain, read_run, run_child, setup_seconds, summary_error
from lucid_yolo.bench.compare import rotated, run_comparison
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.bench.ledger import read_ledger
from lucid_yolo.bench.record import versions
from lucid_yolo.config.compose import compose as compose_config
from lucid_yolo.config.compose import to_root
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.regions import REGIONS
from lucid_yolo.config.tasks import TaskName
from lucid_yolo.config.workloads import MeasureName, Workload, make_workload, read_workload, workload_names

ROW = {"requested": "on", "active": "on", "reason": "", "rule_id": None, "outcome": {}}


def make_summary(**changes: Any) -> dict[str, Any]:
    timing = {"total_seconds": 4.0, "step_ms_median": 2.0, "images_per_second": 10.0}
    return {
        "status": "finished", "error": None, "metrics": {"primary": 0.5}, "timing": timing, "memory": {}, "seed": 0,
        "plan": {"magic": ROW}, "data": {"train_images": 4}, "device": "cpu", "driver": None,
        "versions": versions(), "commit": "abc", "cores": 2, **changes,
    }  # fmt: skip


@functools.cache
def composed_once(overrides: tuple[str, ...]) -> None:
    """Compose, which takes a second, once in all tests."""
    to_root(compose_config(overrides))


class ComposedOnce:
    """Stands in for the composition, of which a comparison only wants to know whether it fails."""

    compose = staticmethod(tuple[str, ...])
    to_root = staticmethod(composed_once)


class Launched:
    """Stands in for the child processes: notes them, and writes the summaries of runs that succeed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: Sequence[str] = ()) -> None:
        self.commands: list[list[str]] = []
        self.fails = list(fails)
        for module in (arms, compare):
            monkeypatch.setattr(module, "run_child", self)
        monkeypatch.setattr(compare, "composing", ComposedOnce)
        monkeypatch.setenv("LUCID_YOLO_COMMIT", "abc")

    def __call__(self, arguments: Sequence[str], *, log: Path, timeout: float | None = None) -> int:
        self.commands.append(list(arguments))
        log.write_text("\nerror: it is not\npossible\n")
        if log.stem in self.fails:
            return 2
        if arguments[0] == "train":
            run_dir = Path(arguments[-1].partition("=")[2].strip("'"))
            (run_dir / "checkpoints").mkdir(parents=True)
            (run_dir / "summary.json").write_text(json.dumps(make_summary()))
        return 0

    @property
    def order(self) -> list[str]:
        """Of the runs that are measured."""
        places = [Path(line[-1].strip("'")) for line in self.commands if line[0] == "train"]
        return [f"{place.parent.name} {place.name}" for place in places if place.name != "run"]


def three_arms(blocks: int = 3) -> Workload:
    return make_workload({"a": [], "b": ["seed=1"], "c": ["seed=2"]}, common=["model=s"], blocks=blocks)


def test_rotation_gives_each_arm_each_place_once() -> None:
    assert [rotated("abc", block) for block in range(4)] == [tuple("abc"), tuple("bca"), tuple("cab"), tuple("abc")]


def test_blocks_rotate_and_each_arm_has_its_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch)
    report = run_comparison(three_arms(), tmp_path / "out", say=lambda line: None)
    once = launched.commands[0]
    assert once[:-1] == ["train", "model=s", "on_unmet=raise", "trainer.max_steps=1"]
    place = Path(once[-1].removeprefix("run_dir='").removesuffix("'"))
    assert tmp_path not in place.parents
    assert not place.exists()
    assert launched.order == [
        *("block_1 a", "block_1 b", "block_1 c"),
        *("block_2 b", "block_2 c", "block_2 a"),
        *("block_3 c", "block_3 a", "block_3 b"),
    ]
    place = tmp_path / "out" / "block_1" / "b"
    assert launched.commands[2] == ["train", "model=s", "seed=1", "on_unmet=raise", f"run_dir='{place}'"]
    assert sorted(path.name for path in place.iterdir()) == ["summary.json"]  # the weights are gone
    assert [len(arm.ratios[MeasureName.COMPLETE_FIT].ratios) for arm in report.arms[1:]] == [3, 3]
    assert Comparison.from_dict(json.loads((tmp_path / "out" / "report.json").read_text())) == report


def test_a_failing_arm_says_why_and_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch, fails=["b"])
    lines: list[str] = []
    report = run_comparison(three_arms(2), tmp_path, say=lines.append)
    assert len(launched.order) == 6
    assert report.arms[1].errors == ("it is not possible",) * 2
    assert report.arms[2].runs == 2
    assert lines[1] == "block 1 of 2, b: failed: it is not possible"
    assert not report.ok


def test_a_comparison_goes_on_and_repeats_only_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch, fails=["b"])
    run_comparison(three_arms(1), tmp_path, say=lambda line: None)
    launched.fails.clear()
    launched.commands.clear()
    report = run_comparison(three_arms(2), tmp_path, say=lambda line: None)
    assert launched.order == ["block_1 b", "block_2 b", "block_2 c", "block_2 a"]
    assert report.ok
    launched.commands.clear()
    assert run_comparison(three_arms(2), tmp_path, say=lambda line: None).runs == report.runs
    assert launched.commands == []


def test_kept_runs_are_named_and_not_mixed_with_those_of_another_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    run_comparison(three_arms(1), tmp_path, say=lambda line: None)
    monkeypatch.setenv("LUCID_YOLO_COMMIT", "def")
    launched.commands.clear()
    lines: list[str] = []
    assert run_comparison(three_arms(1), tmp_path, say=lines.append).environment["commit"] == "abc"
    assert lines[0] == "block 1 of 1, a: kept, of commit abc: 4.0 s, 2.0 ms a step"
    with pytest.raises(RunError, match="keeps runs of commit abc, this is def"):
        run_comparison(three_arms(2), tmp_path, say=lambda line: None)
    assert launched.commands == []


def test_a_comparison_that_is_cut_short_has_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch)

    def stop(line: str) -> None:
        if len(launched.order) == 5:  # in the middle of the second block, which starts with b
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_comparison(three_arms(), tmp_path, say=stop)
    report = Comparison.from_dict(json.loads((tmp_path / "report.json").read_text()))
    assert [arm.runs for arm in report.arms] == [1, 2, 1]
    assert [len(arm.ratios[MeasureName.COMPLETE_FIT].ratios) for arm in report.arms[1:]] == [1, 1]


def test_a_kept_run_that_is_damaged_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch)
    run_comparison(three_arms(1), tmp_path, say=lambda line: None)
    launched.commands.clear()
    (tmp_path / "block_1" / "b.json").write_text('{"arm": "b", "pa')
    (tmp_path / "block_1" / "c.json").write_text('{"other": 1}')
    assert run_comparison(three_arms(1), tmp_path, say=lambda line: None).ok
    assert launched.order == ["block_1 b", "block_1 c"]


def test_a_report_bears_the_day_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Launched(monkeypatch)
    run_comparison(three_arms(1), tmp_path, say=lambda line: None)
    for arm in "abc":
        file = tmp_path / "block_1" / f"{arm}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "date": "2001-02-03"}))
    assert run_comparison(three_arms(1), tmp_path, say=lambda line: None).date == "2001-02-03"


def test_a_ledger_that_cannot_be_used_is_refused_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"entries": [')
    for book, words in ((damaged, "is no ledger"), (tmp_path / "none" / "ledger.json", "does not exist")):
        with pytest.raises(RunError, match=words):
            ly.compare({"a": [], "b": ["seed=1"]}, blocks=1, out=tmp_path / "out", book=book)
    assert launched.commands == []


@pytest.mark.parametrize("change", [{"plan": None}, {"timing": 3, "metrics": []}])
def test_a_summary_of_another_form_is_a_run_that_does_not_count(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(make_summary(**change)))
    assert "no summary.json that can be read" in str(read_run(tmp_path, arm="a", pair=1).error)


def test_another_comparison_needs_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Launched(monkeypatch)
    run_comparison(three_arms(1), tmp_path / "out", say=lambda line: None)
    other = three_arms(1).narrowed(arms=["a", "c"])
    with pytest.raises(RunError, match="holds a comparison of other arms"):
        run_comparison(other, tmp_path / "out", say=lambda line: None)
    with pytest.raises(RunError, match="other arms or overrides"):
        run_comparison(three_arms(1).narrowed(more=["seed=7"]), tmp_path / "out", say=lambda line: None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(RunError, match="holds no comparison"):
        run_comparison(other, tmp_path / "full", say=lambda line: None)


def test_one_step_stands_for_no_prefetch_so_that_the_baseline_is_planned_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    run_comparison(make_workload({"a": ["prefetch=epoch"], "b": []}, blocks=1), tmp_path, say=lambda line: None)
    assert launched.commands[0] == ["plan", "prefetch=epoch", "on_unmet=raise"]
    assert launched.commands[1][:-1] == ["train", "prefetch=none", "on_unmet=raise", "trainer.max_steps=1"]


@pytest.mark.parametrize("content", ['{"my": "own"}', "[1]", '{"arms": [', ""])
def test_a_directory_of_a_user_is_left_alone(tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch)
    kept = {"comparison.json": content, "preparation.log": "notes"}
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match="holds no comparison"):
        run_comparison(three_arms(1), tmp_path, say=lambda line: None)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == kept
    assert launched.commands == []


def test_what_names_no_arms() -> None:
    with pytest.raises(ConfigError, match="Name the arms"):
        ly.compare(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="arm b must be a list of overrides"):
        ly.compare({"a": [], "b": "seed=1"})


def test_a_baseline_that_is_refused_leaves_the_directory_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch, fails=["preparation"])
    with pytest.raises(ConfigError, match="'a' cannot run, so there is nothing to compare with: it is not possible"):
        run_comparison(three_arms(1), tmp_path, say=lambda line: None)
    launched.fails.clear()
    assert run_comparison(three_arms(1).narrowed(arms=["a", "c"]), tmp_path, say=lambda line: None).ok


def test_overrides_that_do_not_compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = Launched(monkeypatch)
    workload = make_workload({"a": [], "b": ["modle=s"], "c": ["seed=2"]}, blocks=1)
    report = run_comparison(workload, tmp_path / "out", say=lambda line: None)
    assert launched.order == ["block_1 a", "block_1 c"]
    assert "'modle=s': there is no key 'modle'" in report.arms[1].errors[0]
    with pytest.raises(ConfigError, match="modle"):
        run_comparison(make_workload({"a": ["modle=s"], "b": []}), tmp_path / "other", say=lambda line: None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, None),
        ({"outcome": {"replays": 4, "native_calls": 1, "retired": ""}}, None),
        (
            {"outcome": {"replays": 1, "native_calls": 3, "native_reason": "inputs of another shape"}},
            "magic was replayed in 1 calls, 3 did without it, the last of them because of: inputs of another shape",
        ),
        ({"outcome": {"replays": 0, "native_calls": 0}}, "magic was replayed in 0 calls, 0 did without it"),
        (
            {"outcome": {"replays": 1, "native_calls": 3, "retired": "a hook was added"}},
            "magic was retired: a hook was added",
        ),
        ({"rule_id": "magic.rule", "reason": "no magic here"}, "magic=on was not active: no magic here [magic.rule]"),
        ({"outcome": {"retired": "a hook was added"}}, "magic was retired: a hook was added"),
        ({"outcome": {"inactive": "it was too slow"}}, "magic was inactive: it was too slow"),
    ],
)
def test_a_flag_that_did_not_stay_active_fails_the_arm(row: dict[str, Any], words: str | None) -> None:
    assert summary_error(make_summary(plan={"magic": {**ROW, **row}})) == words


def test_a_run_that_did_not_finish_does_not_count() -> None:
    assert summary_error(make_summary(status="interrupted")) == "the run is interrupted"
    assert summary_error(make_summary(status="failed", error="X: y")) == "the run is failed: X: y"


def test_setup_is_the_sum_over_the_flags() -> None:
    plan = {"a": {"outcome": {"setup_seconds": 1.5}}, "b": {"outcome": {}}, "c": {"outcome": {"setup_seconds": 2.0}}}
    assert setup_seconds(plan) == 3.5
    assert setup_seconds({"b": plan["b"]}) is None


def test_why_a_process_failed() -> None:
    assert explain(2, "a\nerror: first\nerror: 2 problems\n  1. x\n  2. y\n") == "2 problems 1. x 2. y"
    assert explain(1, "Traceback\n  ...\nValueError: z\n\n") == "ValueError: z"
    assert explain(-9, "half a line") == "it was ended by SIGKILL; last it printed: half a line"
    assert explain(None, "step 3\n") == "it ran out of time; last it printed: step 3"
    assert explain(3, "") == "it ended with exit code 3 and no words"


def test_a_child_that_runs_out_of_time_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = tmp_path / "sleeper"
    sleeper.write_text(f"#!{sys.executable}\nimport time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(sleeper))
    assert run_child(["train"], log=tmp_path / "log", timeout=2.0) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="locks of POSIX")
def test_a_run_that_outlives_its_comparison_keeps_the_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sleeper = tmp_path / "sleeper"
    sleeper.write_text(f"#!{sys.executable}\nimport time, os\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    sleeper.chmod(0o755)
    program = f"""
import sys
from pathlib import Path
from lucid_yolo.bench import arms, compare
from tests.bench.test_compare import three_arms
sys.executable = {str(sleeper)!r}
with compare._claim(Path({str(out)!r}), three_arms()):
    arms.run_child(["train"], log=Path({str(tmp_path / "log")!r}))
"""
    comparison = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    run = int(wait_for_line(tmp_path / "log"))
    comparison.kill()
    comparison.wait()
    try:
        with pytest.raises(RunError, match="is in use"), compare._claim(out, three_arms()):
            pass
    finally:
        os.kill(run, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with compare._claim(out, three_arms()):
                return
        except RunError:
            time.sleep(0.05)
    pytest.fail("the lock outlived the run")


def wait_for_line(file: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if file.exists() and (text := file.read_text()).endswith("\n"):
            return text
        time.sleep(0.05)
    pytest.fail(f"nothing was written to {file}")


def test_workloads_of_the_package_are_read() -> None:
    names = [f"{task}_b{batch}" for task in TaskName for batch in (4, 16, 64)]
    of_detect = [f"detect_b{batch}_{what}" for batch in (4, 16, 64) for what in ("any_order", "crowded")]
    of_detect += ["detect_b16_s", "detect_b16_m", "fit_b4", "fit_b16", "fit_b64"]
    assert {*names, *of_detect, "segment_b4_heads", "tiny", "loader", "start"} == set(workload_names())
    for name in workload_names():
        workload = read_workload(name)
        assert workload.question.endswith("?")
        assert name == "segment_b4_heads" or workload.arms[workload.baseline] == ()
    for name in names:
        assert name.startswith(read_workload(name).task)
    tiny = read_workload("tiny")
    assert tiny.mark is None
    narrow = tiny.narrowed(arms=["eager", "decoded"], blocks=1)
    assert (narrow.name, list(narrow.arms), narrow.blocks) == ("tiny", ["eager", "decoded"], 1)


@pytest.mark.parametrize("task", TaskName)
def test_each_task_has_a_workload_with_all_of_its_flags(task: TaskName) -> None:
    workload = read_workload(f"{task}_b4")
    regions = [name for name in REGIONS if name != "heads" or task is TaskName.SEGMENT]
    assert [f"capture={name}" for name in regions] == [workload.arms[name][0] for name in regions]
    assert workload.arms["all"] == (f"capture={'+'.join(regions)}",)
    root = to_root(compose_config(workload.overrides("all")))
    assert (root.task.name, root.data.batch_size) == (task, 4)
    assert root.data.image_size == (1024 if task is TaskName.OBB else 640)


def test_a_workload_takes_over_what_its_base_says(tmp_path: Path) -> None:
    (tmp_path / "low.yaml").write_text(
        "question: Why?\ncompares: step\nblocks: 7\ncommon: [seed=1, model=n]\narms: {a: [], b: [seed=2]}\n"
    )
    (tmp_path / "middle.yaml").write_text("base: low.yaml\nblocks: 2\ncommon: [model=s]\n")
    (tmp_path / "high.yaml").write_text(f"base: {tmp_path / 'middle.yaml'}\narms: {{a: [], c: [seed=3]}}\n")
    high = read_workload(str(tmp_path / "high.yaml"))
    assert (high.name, high.question, high.compares, high.blocks) == ("high", "Why?", "step", 2)
    assert (high.common, high.arms) == (("seed=1", "model=s"), {"a": (), "c": ("seed=3",)})
    (tmp_path / "low.yaml").write_text("base: high.yaml\n")
    with pytest.raises(ConfigError, match=r"based on itself: high\.yaml -> middle\.yaml -> low\.yaml -> high\.yaml"):
        read_workload(str(tmp_path / "high.yaml"))
    for base, words in (("dettect_b4", "Did you mean 'detect_b4'"), ("gone.yaml", "cannot be read"), ("3", "found 3")):
        (tmp_path / "mine.yaml").write_text(f"base: {base}\n")
        with pytest.raises(ConfigError, match=words):
            read_workload(str(tmp_path / "mine.yaml"))


def test_a_changed_workload_is_another_one() -> None:
    workload = read_workload("detect_b4")
    assert workload.narrowed(arms=["eager", "loss"]).mark == "gain"
    other = workload.narrowed(arms=["network", "loss"], more=["model=s"])
    assert (other.name, other.mark) == ("detect_b4 against network model=s", None)
    assert "model=n" not in other.common


def test_what_is_wrong_with_a_workload(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no workload 'tinny'\. Did you mean 'tiny'\?"):
        read_workload("tinny")
    file = tmp_path / "mine.yaml"
    file.write_text("blokcs: 2\nblocks: 0\ncompares: luck\ncommon: [run_dir=x]\narms: {a/b: [], c: seed=1}\n")
    with pytest.raises(ConfigError) as caught:
        read_workload(str(file))
    assert len(caught.value.problems) == 6
    for words in ("Did you mean 'blocks'", "found 0", "found 'luck'", "'a/b' is no name", "arm c must be", "run_dir=x"):
        assert words in str(caught.value)
    file.write_text("arms:\n  usual: []\n  high: [seed=1]\n  high: [seed=2]\n")
    with pytest.raises(ConfigError, match="the key 'high' stands twice"):
        read_workload(str(file))
    with pytest.raises(ConfigError, match="found None"):
        make_workload({"usual": None, "high": ["seed=1"]})
    with pytest.raises(ConfigError, match="needs two arms"):
        read_workload("tiny").narrowed(arms=["eager"])
    with pytest.raises(ConfigError, match=r"no arm 'eagre'.*Did you mean 'eager'"):
        read_workload("tiny").narrowed(arms=["eagre", "decoded"])


def test_settings_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "compare model=s": "Say what to compare",
        "compare runs=x blocks=2 model=s": "leave out blocks, model",
        "compare workload=tiny baseline=eager": "baseline= belongs to runs=FOLDER",
        "compare workload=tiny -m": "compare goes without -m",
        "compare workload=tiny blocks=0": "blocks",
    }
    for line, words in cases.items():
        assert cli.main(line.split()) == cli.REFUSED
        assert words in capsys.readouterr().err, line


def write_run(folder: Path, *overrides: str, seed: int, seconds: float, **changes: Any) -> None:
    folder.mkdir(parents=True)
    timing = {"total_seconds": seconds, "step_ms_median": 1.0, "images_per_second": 1.0}
    (folder / "summary.json").write_text(json.dumps(make_summary(seed=seed, timing=timing, **changes)))
    lines = [*overrides, f"seed={seed}", f"run_dir={folder}"]
    (folder / "overrides.yaml").write_text("".join(f"- {line}\n" for line in lines))


def test_runs_of_a_sweep_are_paired_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {("none", 0): 10.0, ("none", 1): 20.0, ("decoded", 1): 18.0, ("decoded", 0): 8.0}
    for job, ((cache, seed), seconds) in enumerate(times.items()):
        write_run(tmp_path / "sweep" / str(job), f"cache={cache}", "model=s", seed=seed, seconds=seconds)
    plan = {"magic": {**ROW, "rule_id": "x", "reason": "no"}}
    write_run(tmp_path / "sweep" / "4", "cache=prepared", "model=s", seed=0, seconds=1.0, plan=plan)
    report = ly.compare(runs=tmp_path / "sweep", out=tmp_path / "out")
    assert [arm.name for arm in report.arms] == ["cache=none", "cache=decoded", "cache=prepared"]
    assert report.arms[1].ratios[MeasureName.COMPLETE_FIT].ratios == pytest.approx((0.8, 0.9))
    assert report.arms[2].errors == ("magic=on was not active: no [x]",)
    verdicts = [row[6] for row in report.ratio_rows()[1]]
    assert verdicts == ["baseline", "undecided", "failed, fell back: magic"]
    assert report.workload.common == ("model=s",)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["arms"][0]["runs"] == 2
    assert cli.main(["compare", f"runs={tmp_path / 'sweep'}", "baseline=cache=decoded"]) == cli.FAILED  # one arm failed
    assert "1.1" in capsys.readouterr().out  # 20 / 18
    with pytest.raises(ConfigError, match="Did you mean 'cache=none'"):
        ly.compare(runs=tmp_path / "sweep", baseline="cache=nome")
    write_run(tmp_path / "sweep" / "5", "cache=none", "model=s", seed=1, seconds=1.0)
    with pytest.raises(RunError, match="two runs of cache=none have seed 1"):
        ly.compare(runs=tmp_path / "sweep")
    with pytest.raises(RunError, match="there are no runs below it"):
        ly.compare(runs=tmp_path / "out")


@pytest.mark.slow
def test_a_tiny_comparison_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger, out = tmp_path / "ledger.json", tmp_path / "out"
    command = ["compare", "workload=tiny", "blocks=1", f"out={out}", f"book={ledger}", "data.options.num_train=8"]
    command += ["model.variant=tiny", "model.width=0.0625"]
    assert cli.main(command) == cli.FAILED  # there is nothing to record on a processor
    report = json.loads((out / "report.json").read_text())
    base, decoded, network = report["arms"]
    assert (base["runs"], decoded["runs"], network["runs"]) == (1, 1, 0)
    assert "capture=network" in network["errors"][0]
    assert (base["flags"]["cache"], decoded["flags"]["cache"]) == ("none", "decoded")
    runs = {run["arm"]: run for run in report["runs"]}
    for arm in ("eager", "decoded"):
        summary = json.loads((out / "block_1" / arm / "summary.json").read_text())
        assert runs[arm]["timing"] == summary["timing"]
        assert runs[arm]["wall_seconds"] > summary["timing"]["total_seconds"]
    assert runs["eager"]["primary"] == runs["decoded"]["primary"]
    totals = [runs[arm]["timing"]["total_seconds"] for arm in ("decoded", "eager")]
    assert decoded["ratios"]["complete_fit"]["pairs"] == [totals[0] / totals[1]]
    assert decoded["medians"]["setup"] > 0
    (row,) = read_ledger(ledger)
    assert (row.entry.option, row.entry.pairs) == ("cache=decoded", (totals[0] / totals[1],))
    printed = capsys.readouterr().out
    assert "block 1 of 1, network: failed: capture=network" in printed
    assert "undecided" in printed
