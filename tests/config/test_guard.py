"""The guard finds every planted mistake, all at once, and lets correct override lists pass."""

from __future__ import annotations

import pytest

from lucid_yolo.config.compose import compose
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.guard import check_overrides
from lucid_yolo.config.loader import GroupTree

TREE = GroupTree()


def check(overrides: list[str], *, multirun: bool = False) -> None:
    check_overrides(overrides, tree=TREE, multirun=multirun)


PLANTED = {
    "lr=3": r"there is no key 'lr'\. Did you mean 'optimizer\.lr'\?",
    "++lrr=.2": r"there is no key 'lrr'\. Did you mean 'optimizer\.lr'\?",
    "+data.rooot=x": r"there is no key 'data\.rooot'\. Did you mean 'data\.root'\?",
    "~trainer.max_epoch": r"there is no key 'trainer\.max_epoch'\. Did you mean 'trainer\.max_epochs'",
    "optimzer=sgd": r"there is no key 'optimzer'\. Did you mean 'optimizer'.*Groups: cache, capture, compile, data",
    "optmizer.lr=1": r"Did you mean 'optimizer\.lr'",
    "data.imge_size=64": r"Did you mean 'data\.image_size'",
    "trainer.ema.decai=0.9": r"Did you mean 'trainer\.ema\.decay'",
    "optimizer=adam": r"optimizer has no option 'adam'\. Did you mean 'adamw'\? Options: adamw, musgd, sgd\.",
    "model=7": r"model has no option '7'",
    "experiment=null": r"experiment has no option 'null'",
    "model=null": r"model has no option 'null'",
    "model=[n,s]": r"model has no option",
    "foo/bar=x": r"there is no group 'foo/bar'",
    "optimzer/foo=x": r"there is no group 'optimzer/foo'\. Did you mean",
    "model@backbone=n": r"write model=OPTION without '@backbone'",
    "+task=detect": r"task always has an option\. Select it without '\+'",
    "++task=detect": r"task always has an option",
    "~optimizer": r"a group cannot be removed.*adamw, musgd, sgd",
    "~model=n": r"a group cannot be removed",
    "~optimizer.lr": r"a key cannot be removed",
    "+optimizer.lr=0.1": r"optimizer\.lr exists\. Set it without '\+'",
    "optimizer.lr=abc": r"'abc' is not a number",
    "optimizer.lr=null": r"null is not allowed, a number is expected",
    "optimizer.lr=true": r"True is not a number",
    "optimizer.lr=0": r"0 is out of range, it must be greater than 0",
    "optimizer.lr=nan": r"out of range",
    "trainer.max_epochs=3.5": r"3\.5 is not a whole number",
    "trainer.max_epochs=0": r"0 is out of range, it must be at least 1",
    "trainer.deterministic=2": r"2 is not true or false",
    "trainer.deterministic=yes": r"'yes' is not true or false",
    "trainer.accelerator=gpu": r"'gpu' is not one of auto, cpu, cuda, mps",
    "precision.name=fp16": r"'fp16' is not one of auto, 32-true, bf16-mixed, 16-mixed",
    "data.exif_orientation=yes": r"'yes' is not one of apply, ignore",
    "data.image_size=100": r"100 is out of range, it must be at least 32 and a multiple of 32",
    "data.augment.mosaic=1.5": r"1\.5 is out of range, it must be at least 0 and at most 1",
    "data.augment={mosaik: 1}": r"there is no key 'data\.augment\.mosaik'\. Did you mean 'data\.augment\.mosaic'",
    "data.augment={mosaic: 2}": r"2 is out of range",
    "data.augment.transforms=Blur": r"'Blur' is not a list",
    "task.loss=abc": r"'abc' is not a mapping with the keys box, cls, l1",
    "data.options.num_trian=3": r"'data\.options\.num_train'.*The options of data=shapes are: num_train, num_val",
    "+data.options.foo=3": r"The options of data=shapes are",
    "optimizer.beta1=0.9": r"It belongs to optimizer=adamw; selected is optimizer=musgd",
    "hydra.ouput_subdir=x": r"there is no key 'hydra\.ouput_subdir'\. Did you mean 'hydra\.output_subdir'",
    "+hydra.foo=x": r"there is no key 'hydra\.foo'",
    "hydra/launcher=slurm": r"hydra/launcher has no option 'slurm'.*Options: basic",
    "hydra.mode=SOMETIMES": r"'SOMETIMES' is not one of",
    "seed=0,1": r"names several values: add -m",
    "model=n,s": r"names several values: add -m",
    "seed=range(0,3)": r"names several values: add -m",
    "overrides=[a]": r"is the record of a composition",
    "seed": r"'seed' is no override: write key=value",
    "run_dir=a b(": r"cannot be read",
}


@pytest.mark.parametrize(("override", "message"), PLANTED.items(), ids=list(PLANTED))
def test_each_planted_mistake_is_found(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check([override])


def test_all_of_them_are_reported_at_once() -> None:
    single = [line for line in PLANTED if line.count("=") <= 1]
    with pytest.raises(ConfigError) as caught:
        check(single)
    text = str(caught.value)
    assert len(caught.value.problems) >= len(single) * 0.8  # some share one sentence, some are one key set twice
    assert text.startswith(f"{len(caught.value.problems)} problems in the configuration:\n  1. ")
    for line in ("lr=3", "+task=detect", "seed=0,1", "optimizer=adam", "hydra.ouput_subdir=x"):
        assert line.partition("=")[0].lstrip("+") in text


def test_values_in_a_list_have_the_type_of_the_list() -> None:
    with pytest.raises(ConfigError, match=r"\[0, 1.5\] is not a list of whole numbers\.$"):
        check(["task=keypoints", "task.keypoints.flip=[0,1.5]"])
    with pytest.raises(ConfigError, match=r"\['a'\] is not a list of numbers"):
        check(["task=keypoints", "task.keypoints.sigmas=[a]"])
    check(["task=keypoints", "task.keypoints.sigmas=[1,0.5]", "task.keypoints.skeleton=[[0,1]]"])


def test_duplicates_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'model' is set 2 times \(model=n, model=s\): keep one of them"):
        check(["model=n", "model=s"])
    with pytest.raises(ConfigError, match=r"'seed' is set 2 times"):
        check(["seed=1", "++seed=2"])


def test_keys_of_an_unselected_optimizer_name_the_one_that_has_them() -> None:
    with pytest.raises(ConfigError) as caught:
        check(["optimizer.muon_weight=1", "optimizer=adamw"])
    assert "Did you mean 'optimizer." in str(caught.value)
    assert "It belongs to optimizer=musgd; selected is optimizer=adamw." in str(caught.value)


GOOD = [
    [],
    ["model=s", "optimizer=adamw", "optimizer.beta1=0.8"],
    ["++seed=3"],
    ["trainer.clip_norm=null"],
    ["trainer.clip_norm=0"],
    ["data.augment={mosaic: 0.5, flip_lr: 0}"],
    ["data.augment.transforms=[{_target_: albumentations.Blur, p: 0.1}]"],
    ["logger.extra=[{_target_: some.Logger}]"],
    ["trainer.max_epochs=${data.recipe.epochs}"],
    ["optimizer.lr=1e-3", "optimizer.weight_decay=0"],
    ["optimizer.lr=1"],
    ["run_dir='with space=1/x'"],
    ["hydra.mode=RUN"],
    ["data.options.num_train=8"],
]


@pytest.mark.parametrize("overrides", GOOD, ids=str)
def test_correct_overrides_pass(overrides: list[str]) -> None:
    check(overrides)


def test_what_passes_the_guard_composes() -> None:
    latest = {line.partition("=")[0].lstrip("+"): line for overrides in GOOD for line in overrides}
    cfg = compose(list(latest.values()))
    assert (cfg.seed, cfg.optimizer.beta1, cfg.trainer.clip_norm, cfg.data.options.num_train) == (3, 0.8, 0, 8)


def test_sweeps_are_checked_value_by_value() -> None:
    check(["seed=0,1", "optimizer=musgd,sgd", "model=glob(*)", "optimizer.lr=0.1,0.2"], multirun=True)
    with pytest.raises(ConfigError) as caught:
        check(["seed=0,-1", "optimizer=musgd,adan", "data.batch_size=2,0.5", "run_dir=a,b"], multirun=True)
    text = str(caught.value)
    assert "'seed=0,-1': -1 is out of range" in text
    assert "optimizer has no option 'adan'. Did you mean 'adamw'?" in text
    assert "'data.batch_size=2,0.5': 0.5 is not a whole number" in text
    assert "run_dir cannot be swept" in text


def test_a_key_must_exist_for_every_swept_option() -> None:
    with pytest.raises(ConfigError, match=r"selected is optimizer=adamw"):
        check(["optimizer=musgd,adamw", "optimizer.muon_weight=1"], multirun=True)
    with pytest.raises(ConfigError, match=r"model=glob\(z\*\).*selects nothing"):
        check(["model=glob(z*)"], multirun=True)


def test_a_missing_config_folder_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        GroupTree([tmp_path / "nowhere"])
