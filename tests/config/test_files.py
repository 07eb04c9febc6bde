"""The user's own option files: they work, and their mistakes are named by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.errors import ConfigError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(folder: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(overrides, config_dir=str(folder))
    return str(caught.value)


EXPERIMENT = """# @package _global_
defaults:
  - override /model: s
  - override /optimizer: adamw

optimizer:
  beta1: 0.8
trainer:
  max_epochs: 3
data:
  options:
    num_train: 4
"""


def test_an_experiment_of_the_user(tmp_path: Path) -> None:
    write(tmp_path, "experiment/mine.yaml", EXPERIMENT)
    cfg = compose(["experiment=mine", "seed=4"], config_dir=str(tmp_path))
    assert (cfg.model.variant, cfg.optimizer.name, cfg.optimizer.beta1) == ("s", "adamw", 0.8)
    assert (cfg.trainer.max_epochs, cfg.data.options.num_train, cfg.seed) == (3, 4, 4)


def test_the_folder_is_looked_up_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "my/model/tiny.yaml", "variant: tiny\ndepth: 0.3\nwidth: 0.2\nmax_channels: 256\n")
    monkeypatch.chdir(tmp_path)
    assert to_root(compose(["model=tiny"], config_dir="my")).model.width == 0.2


def test_the_record_composes_again_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "my/experiment/mine.yaml", EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    cfg = compose(["experiment=mine"], config_dir="my")
    monkeypatch.chdir("/")
    assert compose(list(cfg.overrides)).optimizer.beta1 == 0.8


def test_a_data_file_declares_the_options_of_its_reader(tmp_path: Path) -> None:
    write(tmp_path, "data/own.yaml", "format: own\nroot: x\noptions:\n  stride: 3\n")
    assert to_root(compose(["data=own", "data.options.stride=4"], config_dir=str(tmp_path))).data.options == {
        "stride": 4
    }
    assert "The options of data=own are: stride" in problems(tmp_path, "data=own", "data.options.strid=4")


def test_an_optimizer_file_builds_on_one_of_ours(tmp_path: Path) -> None:
    write(tmp_path, "optimizer/slow.yaml", "defaults:\n  - musgd\n  - _self_\nlr: 0.001\nmuon_weight: 0.2\n")
    optimizer = to_root(compose(["optimizer=slow"], config_dir=str(tmp_path))).optimizer
    assert (optimizer.name, optimizer.lr, optimizer.muon_weight) == ("musgd", 0.001, 0.2)


def test_unknown_keys_and_wrong_values_are_named_by_file_and_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "experiment/bad.yaml",
        "# @package _global_\ntrainer:\n  max_epoch: 3\n  devices: 1.5\noptimizer:\n  lr: -1\nlearning_rate: 3\n",
    )
    text = problems(tmp_path, "experiment=bad", "sead=1")
    assert f"{path}:3: there is no key 'trainer.max_epoch'. Did you mean 'trainer.max_epochs'" in text
    assert f"{path}:4: 1.5 is not a whole number" in text
    assert f"{path}:6: -1 is out of range, it must be greater than 0" in text
    assert f"{path}:7: there is no key 'learning_rate'" in text
    assert "'sead=1': there is no key 'sead'. Did you mean 'seed'" in text


def test_a_forgotten_package_line_is_explained(tmp_path: Path) -> None:
    write(tmp_path, "experiment/bad.yaml", "trainer:\n  max_epochs: 3\n")
    assert "its first line must be '# @package _global_'" in problems(tmp_path, "experiment=bad")


def test_mistakes_in_a_defaults_list(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "experiment/bad.yaml",
        "# @package _global_\ndefaults:\n"
        "  - override /modell: s\n  - override /optimizer: adan\n  - override data: coco\n",
    )
    text = problems(tmp_path, "experiment=bad")
    assert f"{path}:2: 'override /modell: s': there is no group 'modell'. Did you mean 'model'?" in text
    assert f"{path}:2: optimizer has no option 'adan'. Did you mean 'adamw'?" in text
    assert "write 'override /data: coco'" in text


def test_a_name_that_the_package_has_would_silently_lose(tmp_path: Path) -> None:
    write(tmp_path, "model/s.yaml", "variant: mine\ndepth: 1\nwidth: 1\nmax_channels: 64\n")
    assert "has the name of an option of the package" in problems(tmp_path, "model=s")


@pytest.mark.parametrize("text", ["a: [1\n", "- a\n- b\n"], ids=["syntax", "list"])
def test_files_that_are_no_mapping(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "experiment/bad.yaml", text)
    assert str(path) in problems(tmp_path, "experiment=bad")


def test_a_group_of_the_user_is_added_with_plus(tmp_path: Path) -> None:
    write(tmp_path, "sweep/long.yaml", "# @package _global_\ntrainer:\n  max_epochs: 9\n")
    assert compose(["+sweep=long"], config_dir=str(tmp_path)).trainer.max_epochs == 9
    assert "Add it with +sweep=OPTION" in problems(tmp_path, "sweep=long")


def test_axes_of_a_sweep_file_are_checked(tmp_path: Path) -> None:
    write(
        tmp_path,
        "experiment/axes.yaml",
        "# @package _global_\nhydra:\n  sweeper:\n    params:\n"
        "      seed: 0,1\n      optimizer.lrr: 1,2\n      model: n,q\n",
    )
    text = problems(tmp_path, "experiment=axes")
    assert "there is no key 'optimizer.lrr'" in text
    assert "model has no option 'q'" in text
    assert "'seed" not in text


def test_a_search_path_must_be_folders() -> None:
    with pytest.raises(ConfigError, match="must be a list of folders"):
        compose(["hydra.searchpath=[pkg://some.module]"])
