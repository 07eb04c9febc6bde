"""What users of other projects write is refused with what to write here, and that composes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lucid_yolo.config.compose import compose, to_root
from lucid_yolo.config.elsewhere import FLAGS, OPTIONS, SETTINGS
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import RootConfig

REGION_FLAGS = ("network", "loss", "gradient_norm", "orthogonalization", "updates")


def refusal(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose([line])
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "here"),
    [
        *((f"capture_{region}=true", f"capture={region}") for region in REGION_FLAGS),
        ("model.capture_segment_heads=true", "capture=heads"),
        ("compile_step=true", "compile=step"),
        ("+device_hsv=true", "hsv=device"),
        ("fused_hsv=1", "part of hsv=device; hsv=device_native goes without it"),
        ("epoch_prefetch=true", "prefetch=epoch"),
        ("data.cache_train_images=true", "cache=decoded"),
        ("cache_prepared_train_images=false", "cache=prepared"),
        ("model.capture_loss=true", "capture=loss"),
        ("epochs=5", "trainer.max_epochs"),
        ("amp=true", "precision"),
        ("device=0", "trainer.accelerator, and CUDA_VISIBLE_DEVICES chooses among several GPUs"),
        ("weights=yolo.pt", "model.init_from, with a checkpoint of this project; there are no others yet"),
    ],
)
def test_a_flag_is_answered_with_the_option(line: str, here: str) -> None:
    key = line.partition("=")[0].lstrip("+")
    assert refusal(line) == f"{line!r}: there is no key {key!r}. Here that is {here}."


def test_settings_that_are_named_exist() -> None:
    known = set(fields_of(settings()))
    assert {place.partition(",")[0] for place in SETTINGS.values()} - {"precision"} <= known
    assert not any(name in known for name in SETTINGS)


def fields_of(value: Any, above: str = "") -> Iterator[str]:
    """Dotted names of all settings."""
    for field in fields(value):
        inner = getattr(value, field.name)
        yield f"{above}{field.name}"
        if is_dataclass(inner):
            yield from fields_of(inner, f"{above}{field.name}.")


def test_a_file_is_answered_too(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ndata:\n  cache_train_images: true\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:3: there is no key .* Here that is cache=decoded\.$"):
        compose(["experiment=mine"], config_dir=str(tmp_path))


@cache  # several names mean the same option
def settings(*options: str) -> RootConfig:
    """What a run does with these options; not its directory and its record, which differ in every run."""
    return replace(to_root(compose(options)), run_dir="", overrides=[])


@pytest.fixture(scope="module")
def stock() -> RootConfig:
    found = settings()
    assert found == settings("seed=0")  # as it is without an option
    return found


@pytest.mark.parametrize("name", FLAGS)
def test_what_is_named_composes_and_changes_a_run(name: str, stock: RootConfig) -> None:
    options = re.findall(r"\w+=\w+", FLAGS[name])
    assert options
    for option in options:
        assert settings(option) != stock, option


@pytest.mark.parametrize(("group", "written"), OPTIONS)
def test_an_option_by_another_name(group: str, written: str) -> None:
    meant = OPTIONS[group, written]
    assert f"{group} has no option {written!r}. Did you mean {meant!r}?" in refusal(f"{group}={written}")
    assert settings(f"{group}={meant}")


@pytest.mark.parametrize(
    ("line", "format"),
    [
        ("data=mydata.yaml", "yolo"),
        ("data=/data/mine/data.YML", "yolo"),
        ("data=/data/mine", "FORMAT"),
        ("data=mine/instances.json", "FORMAT"),
    ],
)
def test_a_data_set_written_as_an_option(
    line: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = line.partition("=")[2]
    message = refusal(line)
    assert message.endswith("Options: coco, dota, made, rolabelimg, shapes, yolo.")
    found = re.search(r": write (data=\w+) (data\.root=\S+)\. Options", message)
    assert found is not None
    assert found[1] == f"data={format}"
    data = to_root(compose([found[1].replace("FORMAT", "coco"), found[2]])).data
    assert data.root == str(tmp_path / written)  # an absolute path stays what it is


@pytest.mark.parametrize("written", ["yolo26n.pt", "runs/2026-01-02_03-04-05", "/weights/best.ckpt"])
def test_weights_written_as_an_option(written: str) -> None:
    message = refusal(f"model={written}")
    assert "weights are named by model.init_from, with a checkpoint of this project" in message
    assert to_root(compose([f"model.init_from={written}"])).model.init_from == str(Path(written).absolute())


def test_a_wrong_name_is_no_file() -> None:
    assert refusal("data=pictures").startswith("data has no option 'pictures'. Options: coco, dota, ")
    assert "Did you mean 'sgd'?" in refusal("optimizer=sgdd")


@pytest.mark.parametrize(
    ("line", "write"),
    [
        ("capture.network=true", "To select it write capture=network."),
        ("compile.step=true", "step is an option of compile: write compile=step."),
        ("hsv.device=true", "device is an option of hsv: write hsv=device."),
        ("optimizer.adamw=1", "adamw is an option of optimizer: write optimizer=adamw."),
    ],
)
def test_an_option_written_as_a_key(line: str, write: str) -> None:
    assert refusal(line).endswith(write)
    assert settings(write.rpartition(" ")[2].rstrip("."))


def test_a_group_set_like_a_key_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\noptimizer: adamw\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: 'adamw' is not a mapping .* write optimizer=OPTION\."):
        compose(["experiment=mine"], config_dir=str(tmp_path))


def test_a_file_of_a_network_is_answered_too() -> None:
    assert "task=detect, segment, keypoints or obb its head." in refusal("model=yolo26n.yaml")


@pytest.mark.parametrize("overrides", [None, 3, {}, {"model": "s"}, [3], "model=s"], ids=repr)
def test_what_is_no_list_of_texts(overrides: Any) -> None:
    with pytest.raises(ConfigError, match="Overrides are a list of texts"):
        compose(overrides)
