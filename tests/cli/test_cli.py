"""The command line in this process: verbs, exit codes, clean text, nothing on disk after a refusal."""

from __future__ import annotations

import gc
import importlib.abc
import os
import signal
import subprocess
import sys
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

import lucid_yolo
import lucid_yolo.engine
from lucid_yolo import cli
from lucid_yolo.config.errors import DataError, RunError
from lucid_yolo.config.schema import RootConfig
from lucid_yolo.config.verbs import PredictConfig, ValidateConfig

CHECKOUT = Path(lucid_yolo.__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Engine functions that note what they get: here only the way to them is tested."""
    calls = SimpleNamespace(got=[], result=SimpleNamespace(status="finished"))

    def note(config: Any, **settings: Any) -> Any:
        calls.got.append(config)
        if isinstance(calls.result, BaseException):
            raise calls.result
        return calls.result

    for verb in ("train", "validate", "predict", "plan"):
        module = SimpleNamespace(**{verb: note})
        monkeypatch.setitem(sys.modules, f"lucid_yolo.engine.{verb}", module)
        monkeypatch.setattr(lucid_yolo.engine, verb, module, raising=False)  # there once a test has imported it
    return calls


def test_each_verb_reaches_its_function(engine: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "seed=3"]) == 0
    assert cli.main(["seed=4"], default_verb="train") == 0
    engine.result = "the plan"
    assert cli.main(["plan", "seed=5"], default_verb="train") == 0
    assert "the plan" in capsys.readouterr().out
    assert [type(config) for config in engine.got] == [RootConfig] * 3
    assert [config.seed for config in engine.got] == [3, 4, 5]
    assert engine.got[0].overrides == ["seed=3"]
    assert cli.main(["validate", "checkpoint=a", "split=train"]) == 0
    out = engine.got[-1].out
    assert out.startswith("validations/")
    assert engine.got[-1] == ValidateConfig(checkpoint="a", split=engine.got[-1].split, out=out)
    engine.result = [SimpleNamespace(detections=[1, 2]), SimpleNamespace(detections=[])]
    assert cli.main(["predict", "checkpoint=a", "source=x.jpg"]) == 0
    assert isinstance(engine.got[-1], PredictConfig)
    assert engine.got[-1].out.startswith("predictions/")
    assert "2 objects in 2 pictures" in capsys.readouterr().out
    assert os.listdir() == []


def test_check_reads_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "data.options.num_train=4", "data.options.num_val=2"]) == 0
    assert "No problems." in capsys.readouterr().out
    Path("empty").mkdir()
    assert cli.main(["check", "data=coco", "data.root=empty"]) == cli.REFUSED == 2  # as documented for refused data


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (SimpleNamespace(status="finished"), 0),
        (SimpleNamespace(status="interrupted"), 130),
        (SimpleNamespace(status="diverged"), 1),
        (RunError("the run diverged"), 1),
        (DataError("labels.json: broken"), 2),
        (KeyboardInterrupt(), 130),
    ],
    ids=str,
)
def test_exit_codes(engine: SimpleNamespace, capsys: pytest.CaptureFixture[str], result: Any, code: int) -> None:
    engine.result = result
    assert cli.main(["train"]) == code
    text = capsys.readouterr().err
    assert "Traceback" not in text
    if isinstance(result, RunError | DataError):
        assert text == f"error: {result}\n"


def test_unexpected_errors_keep_their_traceback(engine: SimpleNamespace) -> None:
    engine.result = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        cli.main(["train"])


def test_a_refused_run_leaves_no_directory_and_touches_none(
    engine: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Path("taken/config.yaml")
    kept.parent.mkdir()
    kept.write_text("seed: 1\n")
    for arguments in (["run_dir=taken", "+lrr=3"], ["run_dir=new", "sead=3"], ["-m", "run_dir=taken", "seed=1,x"]):
        assert cli.main(["train", *arguments]) == cli.REFUSED
    text = capsys.readouterr().err
    assert "there is no key 'lrr'" in text
    assert "Traceback" not in text
    assert os.listdir() == ["taken"]
    assert os.listdir("taken") == ["config.yaml"]
    assert kept.read_text() == "seed: 1\n"
    assert engine.got == []


def test_a_sweep_does_not_take_a_used_directory(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").mkdir()
    Path("taken/summary.json").write_text("{}")
    assert cli.main(["train", "-m", "run_dir=taken", "seed=0,1"]) == cli.FAILED
    assert "exists and is not empty" in capsys.readouterr().err
    assert os.listdir("taken") == ["summary.json"]


def test_cfg_job_shows_the_composition(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--cfg", "job", "model=s", "optimizer.lr=0.5"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["model"]["variant"], shown["optimizer"]["lr"]) == ("s", 0.5)
    assert shown["trainer"]["max_epochs"] == "${data.recipe.epochs}"
    assert "hydra" not in shown
    assert cli.main(["model=s", "--cfg", "job", "-p", "trainer", "--resolve"], default_verb="train") == 0
    assert yaml.safe_load(capsys.readouterr().out)["max_epochs"] == 12
    assert cli.main(["train", "-c", "job", "-p", "seed"]) == 0
    assert capsys.readouterr().out == "0\n"
    assert cli.main(["train", "-c", "job", "-p", "sead"]) == cli.REFUSED
    assert cli.main(["plan", "-c", "hydra", "-p", "hydra.sweep"]) == 0
    assert "subdir: ${hydra.job.num}" in capsys.readouterr().out
    assert os.listdir() == []


def test_config_dir_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/experiment").mkdir(parents=True)
    Path("mine/experiment/short.yaml").write_text("# @package _global_\ntrainer:\n  max_epochs: 2\n")
    arguments = ["train", "--config-dir", "mine", "experiment=short"]
    assert cli.main([*arguments, "--cfg", "job", "-p", "trainer.max_epochs"]) == 0
    assert capsys.readouterr().out == "2\n"
    assert cli.main(["train", "--help", "--config-dir", "mine"]) == 0
    assert "experiment  bccd, overfit, short" in capsys.readouterr().out
    assert cli.main(["train", "experiment=short"]) == cli.REFUSED
    assert "experiment has no option 'short'" in capsys.readouterr().err


def test_flags_may_stand_between_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "seed=1", "--cfg", "job", "model=s", "-p", "model.variant"]) == 0
    assert capsys.readouterr().out == "s\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["trian", "seed=1"],
            r"Name a verb first: train, validate, predict, plan, check, compare, profile. Did you mean 'train'?",
        ),
        (["train", "--lr=3"], "unrecognized arguments: --lr=3"),
        (["train", "seed=0,1"], "add -m to run each of them"),
        (["train", "hydra.sweep.dir=x"], "has no effect on a single run"),
        (["train", "hydra.run.dir=x"], "use run_dir=PATH"),
        (["train", "-m", "resume=x"], "resume continues one run"),
        (["train", "resume=x"], "no run is kept there"),
        (["train", "data=coco"], "data.root must be given"),
        (["predict", "source=x"], "checkpoint must be given"),
        (["predict", "conf=0.5"], "There is no setting 'conf'. Did you mean 'confidence'?"),
        (["compare", "block=1"], "There is no setting 'block'. Did you mean 'blocks'?"),
        (["profile", "step=3"], "There is no setting 'step'. Did you mean 'steps'?"),
        (["profile", "sead=3"], "there is no key 'sead'. Did you mean 'seed'"),
        (["profile", "compile_step=true"], "Here that is compile=step."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_refusals(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) in (cli.REFUSED, cli.FAILED)
    assert message in capsys.readouterr().err
    assert os.listdir() == []


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name:<10}{verb.purpose}\n" in text for name, verb in cli.VERBS.items())
    assert cli.main([]) == 0
    assert capsys.readouterr().out == text
    assert cli.main(["train", "-h"]) == 0
    text = capsys.readouterr().out
    assert "optimizer   adamw, musgd, sgd" in text
    assert "lucid_schema" not in text
    assert cli.main(["predict", "-h"]) == 0
    assert "\n  save.overlay=true  pictures with boxes drawn\n" in capsys.readouterr().out
    for verb, setting in (("compare", "blocks=null"), ("profile", "warmup=20")):  # settings, and overrides of a run
        assert cli.main([verb, "-h"]) == 0
        text = capsys.readouterr().out
        assert f"\n  {setting}  " in text
        assert "optimizer   adamw, musgd, sgd" in text
        assert "Overrides of a run, its groups and keys, stand beside the settings" in text
    assert cli.main(["check", "-h"]) == 0
    shown = capsys.readouterr().out.partition("(group=option):\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in shown.splitlines()] == ["data", "experiment", "task"]
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"lucid-yolo {lucid_yolo.__version__}\n"


def test_info(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    assert cli.main(["train", "--info", "defaults"]) == 0
    assert "optimizer/musgd" in capsys.readouterr().out + caplog.text


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["train", "--cfg", "job"], ["check", "data.options.num_train=4", "data.options.num_val=2"]],
    ids=lambda arguments: arguments[0],
)
def test_a_reader_that_leaves_ends_the_command_in_silence(arguments: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "lucid_yolo", *arguments]
    done = subprocess.run(command, check=False, stdout=writing, stderr=subprocess.PIPE, text=True, env=env)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_another_pipe_that_breaks_keeps_its_traceback(engine: SimpleNamespace) -> None:
    engine.result = BrokenPipeError("of a worker")
    with pytest.raises(BrokenPipeError, match="of a worker"):
        cli.main(["train"])


@pytest.mark.filterwarnings("ignore:requested, but not active")
def test_a_table_in_a_pipe_breaks_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["capture=gradient_norm+orthogonalization", "kernels=fused", "trainer.accelerator=cpu"]
    assert cli.main(["plan", *options]) == 0
    text = capsys.readouterr().out
    for rule in ("capture.gradient_norm.needs-cuda", "capture.orthogonalization.needs-cuda", "kernels.needs-cuda"):
        assert f"[{rule}]" in text


def test_warnings_are_sentences_without_code(engine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def show(config: Any) -> str:  # pytest keeps the warnings themselves to itself
        return warnings.formatwarning(UserWarning("a.jpg is empty"), UserWarning, "loader.py", 7, "warnings.warn(...)")

    shown: list[str] = []
    monkeypatch.setitem(sys.modules, "lucid_yolo.engine.plan", SimpleNamespace(plan=show))
    monkeypatch.setattr(cli, "_print", shown.append)
    before = warnings.formatwarning
    assert cli.main(["plan"]) == 0
    assert shown == ["warning: a.jpg is empty\n"]
    assert warnings.formatwarning is before


class Watched(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for a module: notes whether the garbage collector was on while it was imported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.collecting: list[bool] = []

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        self.collecting.append(gc.isenabled())
        raise DataError("far enough")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("engine.train", ["train"]),
        ("engine.validate", ["validate", "checkpoint=a"]),
        ("engine.predict", ["predict", "checkpoint=a", "source=x.jpg"]),
        ("engine.plan", ["plan"]),
        ("data.check", ["check"]),
        ("bench.compare", ["compare", "workload=tiny"]),
        ("engine.profile", ["profile"]),
    ],
)
def test_no_garbage_is_collected_while_a_verb_imports(
    monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str]
) -> None:
    watched = Watched(f"lucid_yolo.{module}")
    monkeypatch.delitem(sys.modules, watched.name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [watched, *sys.meta_path])
    gc.enable()
    assert cli.main(arguments) == cli.REFUSED
    assert (watched.collecting, gc.isenabled()) == ([False], True)


LIGHT = """
import os, sys
import lucid_yolo
assert not {"torch", "hydra", "omegaconf", "numpy"} & set(sys.modules), "importing the package"
from lucid_yolo.cli import main
assert main(["train", "--cfg", "job", "model=s"]) == 0
os.environ["COMP_LINE"] = "lucid-yolo train optimizer="
assert main(["-sc", "query=bash"]) == 0
assert main(["train", "sead=1"]) == 2
heavy = sorted({"torch", "lightning", "cv2", "matplotlib", "albumentations"} & set(sys.modules))
assert not heavy, heavy
"""


def test_looking_imports_no_torch() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})


def test_train_py_from_another_directory() -> None:
    command = [sys.executable, str(CHECKOUT / "train.py"), "seed=7", "--cfg", "job", "-p", "seed"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "7\n"
    command = [sys.executable, str(CHECKOUT / "train.py"), "plan", "sead=7"]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: 'sead=7': there is no key 'sead'. Did you mean 'seed'")
    assert "@hydra.main" in (CHECKOUT / "train.py").read_text()
    assert os.listdir() == []


def test_public_names() -> None:
    cfg = lucid_yolo.compose(["model=s"])
    assert cfg.model.variant == "s"
    for name in ("compose", "plan", "train", "validate", "predict"):
        assert getattr(lucid_yolo, name).__doc__


def test_only_public_names_are_listed() -> None:
    verbs = ["compare", "compose", "plan", "predict", "profile", "train", "validate"]
    assert dir(lucid_yolo) == ["__version__", *verbs]


def test_functions_reach_the_engine(engine: SimpleNamespace) -> None:
    cfg = lucid_yolo.compose(["model=s"])
    cfg.trainer.max_epochs = 2
    assert lucid_yolo.train(cfg) is engine.result
    assert engine.got[-1].overrides == ["model=s", "trainer.max_epochs=2"]
    assert lucid_yolo.plan(cfg) is engine.result
    lucid_yolo.validate(Path("a.ckpt"), split="train")
    assert engine.got[-1].checkpoint == "a.ckpt"
    lucid_yolo.predict("a.ckpt", "photo.jpg", confidence=0.5)
    assert (engine.got[-1].source, engine.got[-1].confidence, engine.got[-1].out) == ("photo.jpg", 0.5, None)
