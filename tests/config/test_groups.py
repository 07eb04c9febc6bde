"""Every option of every group composes, and every option file says when to use it."""

from __future__ import annotations

import re
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.loader import SCHEMA, GroupTree
from lucid_yolo.config.paths import conf_dir
from lucid_yolo.config.schema import (
    OPTIMIZERS,
    AdamWConfig,
    CacheConfig,
    CacheName,
    CachePlace,
    MuSGDConfig,
    PrecisionName,
    RootConfig,
)
from lucid_yolo.config.tasks import TaskName

FILES = sorted(path for path in conf_dir().rglob("*.yaml") if path.parent != conf_dir())
OPTIONS = [f"{path.parent.relative_to(conf_dir())}={path.stem}" for path in FILES]


def test_the_list_of_options_is_complete() -> None:
    tree = GroupTree()
    listed = [f"{group}={option}" for group in tree.own_groups for option in tree.options(group)]
    assert sorted(option for option in listed if "+" not in option) == sorted(OPTIONS)
    assert len(OPTIONS) == 53


def test_each_option_composes_to_a_valid_run() -> None:
    """One option of every group at a time, until all have been selected."""
    columns = [[option for option in OPTIONS if option.startswith(f"{group}=")] for group in GroupTree().own_groups]
    seen = set()
    for row in zip_longest(*columns):
        selected = [option for option in row if option is not None]
        cfg = compose([*selected, "data.root=some_folder"])
        assert to_root(cfg).data.image_size % 32 == 0
        assert set(selected) < set(cfg.overrides)
        seen.update(selected)
    assert len(seen) == 53


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_first_words_of_each_option_file_say_when_to_use_it(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    assert re.match(r"# Use .+[.]$|# Use .+[A-Z_]$", lines[0]), lines[0]
    assert len(lines) <= 30


def test_defaults() -> None:
    root = to_root(compose())
    assert (root.task.name, root.data.format, root.model.variant) == (TaskName.DETECT, "shapes", "n")
    assert (root.trainer.max_epochs, root.trainer.val_every) == (12, 4)
    assert isinstance(root.optimizer, MuSGDConfig)
    assert root.precision.name is PrecisionName.AUTO


@pytest.mark.parametrize(
    ("variant", "depth", "width", "max_channels"),
    [("n", 0.5, 0.25, 1024), ("s", 0.5, 0.5, 1024), ("m", 0.5, 1.0, 512), ("l", 1.0, 1.0, 512), ("x", 1.0, 1.5, 512)],
)
def test_the_scale_table_of_the_paper(variant: str, depth: float, width: float, max_channels: int) -> None:
    model = to_root(compose([f"model={variant}"])).model
    assert (model.variant, model.depth, model.width, model.max_channels) == (variant, depth, width, max_channels)


def test_choices_are_written_and_shown_as_users_know_them() -> None:
    cfg = compose(["precision=32-true", "data.exif_orientation=ignore"])
    assert cfg.precision.name == "32-true"
    shown = yaml.safe_load(OmegaConf.to_yaml(cfg))
    assert (shown["precision"]["name"], shown["data"]["exif_orientation"]) == ("32-true", "ignore")


@pytest.mark.parametrize("overrides", [["cache.place=disk"], ["cache=none", "cache.place=disk"]])
def test_a_setting_of_a_cache_does_not_switch_it_on(overrides: list[str]) -> None:
    assert to_root(compose(overrides)).cache == CacheConfig(CacheName.NONE, CachePlace.DISK)


def test_a_setting_of_an_experiment_does_not_switch_a_cache_on(tmp_path: Path) -> None:
    """The eager arm of a sweep over an experiment stays eager, and the other arm gets the setting."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /cache: prepared\ncache:\n  place: disk\n"
    )
    for option, selected in (([], "prepared"), (["cache=none"], "none"), (["cache=decoded"], "decoded")):
        cache = to_root(compose(["experiment=mine", *option], config_dir=str(tmp_path))).cache
        assert (cache.selected, cache.place) == (selected, CachePlace.DISK)


def test_trainer_follows_the_recipe_of_the_data_until_it_is_set() -> None:
    assert compose(["data.recipe.epochs=7"]).trainer.max_epochs == 7
    assert compose(["data.recipe.epochs=7", "trainer.max_epochs=3"]).trainer.max_epochs == 3


@cache
def of_task(task: TaskName) -> RootConfig:
    """A run in which nothing but the task is selected."""
    return to_root(compose([f"task={task}"]))


def test_a_recipe_may_depend_on_the_task() -> None:
    def epochs(*overrides: str) -> int:
        return to_root(compose(overrides)).trainer.max_epochs

    assert [of_task(task).trainer.max_epochs for task in TaskName] == [12, 12, 24, 8]
    assert [epochs(f"task={task}", "experiment=overfit", "data.root=x") for task in TaskName] == [300, 300, 600, 300]
    assert (epochs("task=obb", "data=coco", "data.root=x"), epochs("task=obb", "data.recipe.epochs=3")) == (100, 3)


def test_the_drawn_set_has_more_pictures_for_oriented_boxes_and_as_many_steps() -> None:
    """32 epochs of 512 pictures, 3 of them warm-up, are 8 and 0.75 of 2048."""
    for task in TaskName:
        root = of_task(task)
        pictures, warmup = root.data.options["num_train"], root.optimizer.warmup_epochs
        assert (pictures, warmup) == ((2048, 0.75) if task is TaskName.OBB else (512, 3.0))
    assert root.task.name is TaskName.OBB
    assert (pictures * root.trainer.max_epochs, pictures * warmup) == (32 * 512, 3 * 512)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_set_by_hand_is_kept_whatever_the_task(optimizer: str) -> None:
    mine = ["data.options.num_train=64", "trainer.max_epochs=5", "optimizer.warmup_epochs=2"]
    root = to_root(compose(["task=obb", f"optimizer={optimizer}", *mine]))
    assert (root.data.options["num_train"], root.trainer.max_epochs, root.optimizer.warmup_epochs) == (64, 5, 2.0)
    root = to_root(compose(["task=obb", f"optimizer={optimizer}", mine[0]]))
    assert (root.data.options["num_train"], root.trainer.max_epochs, root.optimizer.warmup_epochs) == (64, 8, 0.75)
    other = to_root(compose(["task=obb", f"optimizer={optimizer}", "data=made"]))
    assert (other.data.options["num_train"], other.optimizer.warmup_epochs) == (480, 3.0)


def test_experiment_sets_groups_and_the_command_line_wins() -> None:
    cfg = compose(["experiment=bccd", "data.root=blood", "model=s", "trainer.max_epochs=2"])
    assert (cfg.data.format, cfg.model.variant, cfg.data.image_size, cfg.data.batch_size) == ("coco", "s", 640, 16)
    assert (cfg.data.recipe.epochs, cfg.trainer.max_epochs) == (100, 2)


def test_an_optimizer_has_only_its_own_keys() -> None:
    root = to_root(compose(["optimizer=adamw", "optimizer.beta1=0.8"]))
    assert root.optimizer == AdamWConfig(name="adamw", lr=0.001, weight_decay=0.01, beta1=0.8)
    assert "muon_weight" not in compose(["optimizer=adamw"]).optimizer


def test_helper_schemas_are_in_no_listing() -> None:
    tree = GroupTree()
    names = [*tree.groups(), *(option for group in tree.own_groups for option in tree.options(group))]
    assert not [name for name in names if SCHEMA in name]
    assert set(tree.options("optimizer")) == set(OPTIMIZERS)
