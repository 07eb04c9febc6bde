"""Settings of validate and predict are as strict as a run's configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.verbs import (
    CompareConfig,
    DecodeName,
    PredictConfig,
    ProfileConfig,
    SaveConfig,
    SplitName,
    ValidateConfig,
    make_settings,
    parse_settings,
    setting_keys,
    settings_help,
    split_arguments,
)


def test_arguments_become_typed_settings() -> None:
    config = parse_settings(
        PredictConfig,
        [
            "checkpoint=runs/a=b/best.ckpt",
            "source=photos/*[0-9] (1).jpg",
            "confidence=1e-1",
            "decode=one_to_many",
            "save.txt=true",
        ],
    )
    assert config == PredictConfig(
        checkpoint="runs/a=b/best.ckpt",
        source="photos/*[0-9] (1).jpg",
        confidence=0.1,
        decode=DecodeName.ONE_TO_MANY,
        save=SaveConfig(txt=True),
    )
    assert parse_settings(ValidateConfig, ["checkpoint=1", "split=train", "batch_size=4"]) == ValidateConfig(
        checkpoint="1", split=SplitName.TRAIN, batch_size=4
    )


def test_every_problem_is_named_at_once() -> None:
    lines = ["chekpoint=x", "confidence=2", "confidence=3", "decode=nms", "save.overlay=yes", "batch_size=1.5", "word"]
    with pytest.raises(ConfigError) as caught:
        parse_settings(PredictConfig, lines)
    text = str(caught.value)
    assert "There is no setting 'chekpoint'. Did you mean 'checkpoint'?" in text
    assert "confidence: 2 is out of range, it must be at least 0 and at most 1" in text
    assert "'confidence' is set more than once" in text
    assert "decode: 'nms' is not one of one_to_one, one_to_many" in text
    assert "save.overlay: 'yes' is not true or false" in text
    assert "batch_size: 1.5 is not a whole number" in text
    assert "'word' is no setting: write key=value" in text
    assert "checkpoint must be given" in text
    assert "source must be given" in text
    assert len(caught.value.problems) == 9


@pytest.mark.parametrize(
    ("kind", "lines", "mine"),
    [
        (ProfileConfig, ["step=3", "warmups=1", "steps=4"], True),
        (ProfileConfig, ["seed=1", "model=s", "modle=s", "lr=3", "+step=3", "experiment=bccd", "max_epochs=3"], False),
        (CompareConfig, ["block=1", "armss=a", "base=x"], True),
        (CompareConfig, ["run_dir=x", "rundir=x", "batch_size=3", "capture_loss=true"], False),
    ],
)
def test_a_misspelt_key_goes_to_the_side_of_its_nearest_name(kind: type, lines: list[str], mine: bool) -> None:
    assert split_arguments(kind, lines) == ((lines, []) if mine else ([], lines))


def test_keyword_arguments_from_python() -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    config = make_settings(
        PredictConfig, {"checkpoint": Path("a/b.ckpt"), "source": pixels, "save": {"overlay": False}, "confidence": 0}
    )
    assert config.checkpoint == "a/b.ckpt"
    assert config.source is pixels
    assert (config.save, config.confidence) == (SaveConfig(overlay=False), 0.0)
    with pytest.raises(ConfigError, match="Did you mean 'confidence'"):
        make_settings(PredictConfig, {"checkpoint": "a", "source": "b", "confidense": 0.5})
    with pytest.raises(ConfigError, match="accelerator: 'gpu' is not one of auto, cpu, cuda, mps"):
        make_settings(ValidateConfig, {"checkpoint": "a", "accelerator": "gpu"})


@pytest.mark.parametrize("kind", [ValidateConfig, PredictConfig, CompareConfig, ProfileConfig])
def test_the_help_shows_every_setting_with_its_default_and_its_meaning(kind: type) -> None:
    lines = [line.split(maxsplit=1) for line in settings_help(kind).splitlines()]
    assert [written.partition("=")[0] for written, _ in lines] == list(setting_keys(kind))
    assert all(len(meaning) > 10 for _, meaning in lines)


def test_defaults_in_the_help_are_written_as_a_user_writes_them() -> None:
    lines = dict(line.split(maxsplit=1) for line in settings_help(PredictConfig).splitlines())
    assert list(lines) == [
        "checkpoint=VALUE", "source=VALUE", "out=null", "confidence=0.25", "decode=one_to_one", "batch_size=16",
        "tile=null", "overlap=null", "save.overlay=true", "save.json=true", "save.txt=false", "accelerator=auto",
    ]  # fmt: skip
    assert lines["decode=one_to_one"].endswith("(one_to_one, one_to_many)")
    assert lines["save.txt=false"] == "one YOLO label file an image"
