"""Composition outside of Hydra's application: paths, clock, edits, records, resumption."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ValidationError

from lucid_yolo.config.compose import compose, compose_resume, overrides_of, read_request, to_root
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.schema import RootConfig


def stock() -> DictConfig:
    """A run without overrides to edit: composed once, whatever is made of it."""
    return copy.deepcopy(_stock())


@cache
def _stock() -> DictConfig:
    return compose()


def record_run(cfg: DictConfig, folder: Path) -> Path:
    """Write what a run writes before it trains."""
    folder.mkdir()
    OmegaConf.save(OmegaConf.structured(to_root(cfg)), folder / "config.yaml")
    OmegaConf.save(OmegaConf.create(overrides_of(cfg)), folder / "overrides.yaml")
    return folder


def test_nothing_global_and_nothing_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = compose(["seed=3"])
    assert not GlobalHydra.instance().is_initialized()
    assert "hydra" not in cfg
    assert os.listdir(tmp_path) == []
    OmegaConf.to_container(cfg, resolve=True)  # no value needs Hydra


def test_each_composition_has_a_directory_of_its_own() -> None:
    assert compose().run_dir != compose().run_dir
    cfg = compose()
    assert cfg.run_dir == cfg.run_dir == to_root(cfg).run_dir


def test_relative_paths_mean_the_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = compose(["data=coco", "data.root=sets/blood", "run_dir=out/a", "model.init_from=runs/old"])
    monkeypatch.chdir("/")
    root = to_root(cfg)
    assert root.data.root == str(tmp_path / "sets" / "blood")
    assert root.run_dir == str(tmp_path / "out" / "a")
    assert root.model.init_from == str(tmp_path / "runs" / "old")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compose(["data=coco", "data.root=~/x"]).data.root == str(tmp_path / "x")


def test_the_result_is_typed_and_closed() -> None:
    cfg = stock()
    with pytest.raises(ConfigAttributeError):
        cfg.trainer.max_epoch = 3
    with pytest.raises(ValidationError):
        cfg.trainer.max_epochs = "many"
    assert OmegaConf.get_type(cfg) is RootConfig


def test_edits_are_checked_and_recorded() -> None:
    cfg = compose(["model=s"])
    cfg.trainer.max_epochs = 5
    cfg.data.augment.mosaic = 0.25
    assert overrides_of(cfg) == ["model=s", "data.augment.mosaic=0.25", "trainer.max_epochs=5"]
    assert overrides_of(copy.deepcopy(cfg)) == overrides_of(cfg) == overrides_of(to_root(cfg))
    cfg.data.image_size = 100
    cfg.optimizer.lr = -1
    with pytest.raises(ConfigError, match=r"(?s)2 problems.*data\.image_size: 100 is out.*optimizer\.lr: -1\.0 is out"):
        to_root(cfg)


def test_forced_keys_and_missing_values_are_found() -> None:
    cfg = compose(["data=coco"])
    with pytest.raises(ConfigError, match=r"data\.root must be given"):
        to_root(cfg)
    cfg = stock()
    OmegaConf.update(cfg, "trainer.max_epoch", 3, force_add=True)
    with pytest.raises(ConfigError, match=r"There is no key 'trainer\.max_epoch'"):
        to_root(cfg)
    with pytest.raises(ConfigError, match=r"NO_SUCH_VARIABLE"):
        compose(["data.root=${oc.env:NO_SUCH_VARIABLE}"])


def test_edits_from_python_are_refused_in_our_words() -> None:
    cfg = stock()
    OmegaConf.update(cfg, "trainer.max_epoch", 3, force_add=True)
    OmegaConf.update(cfg, "capture_network", True, force_add=True)
    with pytest.raises(ConfigError) as caught:
        to_root(cfg)
    first, second = sorted(caught.value.problems)
    assert first == "There is no key 'capture_network'. Here that is capture=network."
    assert second.startswith("There is no key 'trainer.max_epoch'. Did you mean 'trainer.max_epochs'")
    cfg = stock()
    cfg.trainer.max_epochs = "${data.recipe.epoch}"
    for use in (to_root, overrides_of):
        with pytest.raises(ConfigError) as caught:
            use(cfg)
        assert str(caught.value) == (
            "trainer.max_epochs: '${data.recipe.epoch}' refers to the key 'data.recipe.epoch', which does not exist. "
            "Did you mean 'data.recipe.epochs'?"
        )
    cfg.trainer.max_epochs = "${model.variant}"
    with pytest.raises(
        ConfigError, match=r"^trainer\.max_epochs: '\$\{model\.variant\}' is 'n', a whole number is exp"
    ):
        to_root(cfg)
    cfg = stock()
    del cfg.model.width
    with pytest.raises(ConfigError, match=r"^model\.width must be given: model\.width=VALUE\.$"):
        to_root(cfg)


WRONG = {
    "model.width": ("abc", "model.width: 'abc' is not a number."),
    "model.widht": (1.0, "There is no key 'model.widht'. Did you mean 'model.width'?"),
    "precision.name": ("bf17", "precision.name: 'bf17' is not one of auto, 32-true, bf16-mixed, 16-mixed."),
    "seed": (None, "seed: null is not allowed, a whole number is expected."),
    "trainer.deterministic": ("maybe", "trainer.deterministic: 'maybe' is not true or false."),
    "optimizer": ("sgd", "optimizer: 'sgd' is not a mapping with the keys "),
    "cache.selected": (["decoded"], "cache.selected: ['decoded'] is not one of none, decoded, prepared."),
}


def set_field(settings: Any, key: str, value: Any) -> None:
    """Set a dotted key of nested dataclasses."""
    stem, _, leaf = key.rpartition(".")
    setattr(reduce(getattr, filter(None, stem.split(".")), settings), leaf, value)


def test_edits_of_the_dataclasses_are_refused_in_our_words() -> None:
    root = to_root(stock())
    for key, (value, _) in WRONG.items():
        set_field(root, key, value)
    with pytest.raises(ConfigError) as caught:
        to_root(root)
    left = [sentence for _, sentence in WRONG.values()]
    assert len(caught.value.problems) == len(left)
    for problem in caught.value.problems:
        left = [sentence for sentence in left if not problem.startswith(sentence)]
    assert left == []


def test_what_a_dataclass_holds_is_what_the_command_line_would_make_of_it() -> None:
    root = to_root(compose(["seed=3"]))
    edits = {
        "precision.name": "bf16-mixed",
        "trainer.max_epochs": "5",
        "optimizer.lr": 1,
        "data.root": Path("/data/mine"),
    }
    for key, value in edits.items():
        set_field(root, key, value)
    written = to_root(compose(["seed=3", *(f"{key}={value}" for key, value in edits.items())]))
    edited = to_root(root)
    assert replace(edited, overrides=[], run_dir="") == replace(written, overrides=[], run_dir="")
    assert type(edited.precision.name) is type(written.precision.name)


@pytest.mark.parametrize("key", WRONG)
def test_a_mapping_without_types_is_refused_in_our_words(key: str) -> None:
    value, sentence = WRONG[key]
    mapping = reduce(lambda inner, name: {name: inner}, reversed(key.split(".")), value)
    with pytest.raises(ConfigError) as caught:
        to_root(OmegaConf.create(mapping))
    assert caught.value.problems[0].startswith(sentence)


def test_contradictions_are_found() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.name is 'adamw' while the settings are those of MuSGDConfig"):
        to_root(compose(["optimizer.name=adamw"]))
    with pytest.raises(ConfigError, match="are both 0"):
        to_root(compose(["optimizer.muon_weight=0", "optimizer.sgd_weight=0"]))
    with pytest.raises(ConfigError, match=r"small_reference \(8\) is smaller than"):
        to_root(compose(["task.assigner.small_side=12", "task.assigner.small_reference=8"]))
    cfg = stock()
    cfg.model.variant = "s"  # the name alone
    scale = (
        r"model\.variant is 's', whose scale is model\.depth=0\.5, model\.width=0\.5, model\.max_channels=1024; "
        r"found model\.depth=0\.5, model\.width=0\.25, .*select the scale with model=s, or call"
    )
    with pytest.raises(ConfigError, match=scale):
        to_root(cfg)
    with pytest.raises(ConfigError, match=r"model\.variant is 'n'.*found .*model\.width=0\.3"):
        to_root(compose(["model.width=0.3"]))
    assert to_root(compose(["model.width=0.3", "model.variant=mine"])).model.width == 0.3
    cfg = stock()
    cfg.resume = "runs/old"
    with pytest.raises(ConfigError, match="a resumed run keeps its directory"):
        to_root(cfg)


def test_a_saved_configuration_gets_its_types_back(tmp_path: Path) -> None:
    root = to_root(compose(["optimizer=adamw", "precision=bf16-mixed"]))
    OmegaConf.save(OmegaConf.structured(root), tmp_path / "config.yaml")
    loaded = OmegaConf.load(tmp_path / "config.yaml")
    assert isinstance(loaded, DictConfig)
    assert to_root(loaded) == root


def test_resume_takes_the_record_and_new_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = compose(["data=coco", "data.root=sets", "optimizer=adamw", "run_dir=first", "seed=3"])
    cfg.data.augment.mosaic = 0.5
    run = record_run(cfg, tmp_path / "first")
    monkeypatch.chdir("/")
    again = compose([f"resume={run}", "trainer.max_epochs=200", "logger=none"])
    assert (again.run_dir, again.resume) == (str(run), str(run))
    assert (again.seed, again.optimizer.name, again.data.augment.mosaic) == (3, "adamw", 0.5)
    assert again.data.root == str(tmp_path / "sets")  # not below the new working directory
    assert (again.trainer.max_epochs, again.logger.csv) == (200, False)
    assert to_root(again).resume == str(run)
    assert not [line for line in again.overrides if line.startswith(("resume=", "run_dir="))]
    assert OmegaConf.to_container(compose_resume(run, ["trainer.max_epochs=200", "logger=none"])) == (
        OmegaConf.to_container(again)
    )


def test_resume_keeps_values_whose_defaults_have_changed_since(tmp_path: Path) -> None:
    run = record_run(compose(["seed=3"]), tmp_path / "run")
    text = (run / "config.yaml").read_text()
    assert "\n  momentum: 0.95\n" in text
    (run / "config.yaml").write_text(text.replace("\n  momentum: 0.95\n", "\n  momentum: 0.9\n"))
    assert compose_resume(run).optimizer.momentum == 0.9
    assert compose_resume(run, ["optimizer.momentum=0.8"]).optimizer.momentum == 0.8


FROZEN = {
    "model=s": "model.width from 0.25 to 0.5",
    "model.init_from=/elsewhere": "model.init_from from None to '/elsewhere'",
    "data.image_size=320": "data.image_size from 160 to 320",
    "data.batch_size=4": "data.batch_size from 16 to 4",
    "data.format=coco": "data.format from 'shapes' to 'coco'",
    "data.root=/elsewhere": "data.root from None to '/elsewhere'",
    "data.options.num_train=4": "data.options.num_train from 512 to 4",
    "seed=1": "seed from 0 to 1",
    "optimizer=sgd": "optimizer.name from 'musgd' to 'sgd'",
    "trainer.accumulate=2": "trainer.accumulate from 1 to 2",
    "run_dir=/elsewhere": "run_dir, a resumed run keeps its directory",
}


def test_resume_names_every_change_that_it_refuses(tmp_path: Path) -> None:
    run = record_run(stock(), tmp_path / "run")
    with pytest.raises(ConfigError, match="a resumed run cannot change") as caught:
        compose_resume(run, [*FROZEN, "trainer.max_epochs=99"])
    for message in FROZEN.values():
        assert message in str(caught.value)
    assert "max_epochs" not in str(caught.value)
    for override in ("seed=1", "run_dir=/elsewhere"):
        with pytest.raises(ConfigError, match="a resumed run cannot change"):
            compose_resume(run, [override])


def test_resume_checks_new_overrides_and_the_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nothing_here: no run is kept there"):
        compose([f"resume={tmp_path / 'nothing_here'}"])
    run = record_run(stock(), tmp_path / "run")
    with pytest.raises(ConfigError, match="Did you mean 'seed'"):
        compose_resume(run, ["sead=1"])
    with pytest.raises(ConfigError, match="belongs to task=keypoints; selected is task=detect"):
        compose_resume(run, ["task.keypoints.sigmas=[1]"])
    points = record_run(compose(["task=keypoints"]), tmp_path / "points")
    assert compose_resume(points, ["task.keypoints.sigmas=[1]"]).task.keypoints.sigmas == [1.0]
    with pytest.raises(ConfigError, match="resume is set 2 times"):
        compose(["resume=a", "resume=b"])
    (run / "overrides.yaml").write_text("a: 1\n")
    with pytest.raises(RunError, match="is damaged"):
        compose_resume(run)


@pytest.mark.parametrize("name", ["a[1]", "a=b", "a(b)", "accents-\u00fc", "a{b}", "a#b", "it's"])
def test_paths_need_no_second_quotes(tmp_path: Path, name: str) -> None:
    config = compose([f"{key}={tmp_path / name}" for key in ("run_dir", "data.root", "model.init_from")])
    assert config.run_dir == config.data.root == config.model.init_from == str(tmp_path / name)


def test_a_printed_resume_command_is_read_back(tmp_path: Path) -> None:
    for name in ("a, b", "a[1]", "a=b"):
        assert read_request([f"resume={tmp_path / name}"]).resume == tmp_path / name


def test_a_comma_in_a_path_still_asks_for_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="add -m"):
        compose([f"data.root={tmp_path}/a,{tmp_path}/b"])


@pytest.mark.parametrize("content", [b"", b"{", b"- a list", b"\xff\xfe\x00"])
def test_a_damaged_record_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "overrides.yaml").write_text("[]")
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(RunError, match=r"config\.yaml is damaged"):
        compose_resume(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "config_dir", "words"),
    [
        (["run_dir="], None, "run_dir must name a directory"),
        (["resume="], None, "resume must name the directory of a run"),
        (["data.root=${oc.env:NOT_SET_HERE}"], None, "needs the environment variable NOT_SET_HERE, which is not set"),
        ([], 5, "config_dir must be a folder, found 5"),
        ([], __file__, "is a file"),
    ],
)
def test_what_names_no_place(overrides: list[str], config_dir: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compose(overrides, config_dir=config_dir)
