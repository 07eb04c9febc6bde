"""Key points through the whole run: the flow is trained, saved and resumed, and what is unknown is refused early."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.verbs import ValidateConfig
from lucid_yolo.engine.checkpoint import load_model
from lucid_yolo.engine.train import train
from lucid_yolo.engine.validate import validate
from tests.data.disk import write_picture
from tests.engine.signals import PressCtrlC
from tests.engine.test_train import assert_equal
from tests.engine.tiny import SHORT, STEPS_AN_EPOCH, THREE_EPOCHS, learn, read_state, resumed, tiny_config

Compose = Callable[..., DictConfig]
FLOW = "loss.flow."
RUN = (*THREE_EPOCHS, "task=keypoints", "data.augment.flip_ud=0.5")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs that nothing stopped."""
    result = train(tiny_config(tmp_path_factory.mktemp("whole") / "run", *RUN))
    assert result.status == "finished"
    assert {"primary", "oks_ap", "oks_ap50", "box_ap", "box_ap50", "oks_ap_nms"} <= set(result.metrics)
    return result.run_dir


def test_the_flow_is_trained_and_saved_and_not_part_of_the_model(whole: Path) -> None:
    state = read_state(whole)
    flow = {name: value for name, value in state["state_dict"].items() if name.startswith(FLOW)}
    assert len(flow) == 36
    last = flow[f"{FLOW}couplings.0.net.4.weight"]
    assert last.abs().sum() > 0  # it starts at zero
    networks = [name for name in state["state_dict"] if name.startswith("model.")]
    parameters = len(state["optimizer_states"][0]["state"])
    trained = load_model(whole / "checkpoints" / "last.ckpt", device=torch.device("cpu"))
    assert parameters == len(list(trained.model.parameters())) + 36
    assert len(networks) == len(trained.model.state_dict())
    spec = trained.info.spec.keypoints
    assert spec is not None
    assert (spec.names, spec.flip, spec.sigmas) == (("center", "head", "tail"), (0, 1, 2), (0.072,) * 3)
    assert {"train/points", "train/oks", "val/oks_ap"} <= set(
        (whole / "metrics.csv").read_text().split("\n")[0].split(",")
    )


def test_a_run_continued_after_an_epoch_equals_the_uninterrupted_one(whole: Path, tiny: Compose) -> None:
    stopped = learn(tiny(*RUN), [PressCtrlC(2 * STEPS_AN_EPOCH)])
    assert stopped.status == "interrupted"
    assert learn(resumed(stopped.run_dir)).status == "finished"
    expected, found = read_state(whole), read_state(stopped.run_dir)
    assert_equal(expected["state_dict"], found["state_dict"], "state_dict")
    assert_equal(expected["optimizer_states"], found["optimizer_states"], "optimizer")


def test_detection_has_nothing_new_in_its_state(plain_run: Callable[..., Path]) -> None:
    state = read_state(plain_run())
    assert not any(name.startswith("loss.") for name in state["state_dict"])


def test_settings_reach_the_checkpoint_and_the_validation(tiny: Compose) -> None:
    settings = ["task.keypoints.sigmas=[0.5,0.6,0.7]", "task.keypoints.flip=[0,2,1]", "task.loss.density=laplace"]
    result = learn(tiny("task=keypoints", *settings, *SHORT))
    last = result.run_dir / "checkpoints" / "last.ckpt"
    spec = load_model(last, device=torch.device("cpu")).info.spec.keypoints
    assert spec is not None
    assert (spec.sigmas, spec.flip) == ((0.5, 0.6, 0.7), (0, 2, 1))
    assert not any(name.startswith("loss.") for name in read_state(result.run_dir)["state_dict"])
    report = validate(ValidateConfig(checkpoint=str(last), accelerator="cpu"))
    assert set(report.metrics) >= {"oks_ap", "box_ap"}


def coco(root: Path, names: list[str]) -> Path:
    """Two pictures a split with one object each."""
    for split in ("train", "val"):
        points = [value for i in range(len(names)) for value in (10 + 9 * i, 12 + 5 * i, 2)]
        annotation = {"category_id": 1, "bbox": [4, 5, 40, 30], "area": 900, "keypoints": points}
        document: dict[str, Any] = {
            "images": [{"id": i, "file_name": f"{i}.jpg", "width": 64, "height": 48} for i in (1, 2)],
            "annotations": [{"id": i, "image_id": i, **annotation} for i in (1, 2)],
            "categories": [{"id": 1, "name": "thing", "keypoints": names}],
        }
        file = root / "annotations" / f"instances_{split}2017.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))
        for i in (1, 2):
            write_picture(root / f"{split}2017" / f"{i}.jpg")
    return root


def overrides(root: Path, *others: str) -> list[str]:
    return ["task=keypoints", "data=coco", f"data.root='{root}'", "trainer.accelerator=cpu", *others]


def test_what_is_unknown_is_refused_before_a_run(tmp_path: Path) -> None:
    root = coco(tmp_path, ["left", "left", "right"])  # whose partner the right one is cannot be told
    with pytest.raises(ConfigError, match=r"data\.augment\.flip_lr=0\.5 mirrors.*set task\.keypoints\.flip=\[\.\.\.\]"):
        ly.plan(ly.compose(overrides(root)))
    with pytest.raises(ConfigError, match=r"flip=\[0\]: it has 1 positions for 3 points"):
        ly.plan(ly.compose(overrides(root, "task.keypoints.flip=[0]")))
    ly.plan(ly.compose(overrides(root, "data.augment.flip_lr=0")))
    ly.plan(ly.compose(overrides(root, "task.keypoints.flip=[2,1,0]")))


def test_validation_needs_the_points_of_the_training(tmp_path: Path) -> None:
    root, other = coco(tmp_path / "one", ["head", "tail"]), coco(tmp_path / "other", ["tail", "head"])
    small = [
        "data.image_size=64",
        "data.batch_size=2",
        "data.num_workers=0",
        "trainer.max_epochs=1",
        "model.variant=tiny",
    ]
    quiet = ["model.width=0.0625", "logger.pictures=false", "logger.tensorboard=false", f"run_dir='{tmp_path / 'run'}'"]
    checkpoint = str(learn(ly.compose(overrides(root, *small, *quiet))).run_dir / "checkpoints" / "last.ckpt")
    validate(ValidateConfig(checkpoint=checkpoint, accelerator="cpu"))
    with pytest.raises(RunError, match=r"knows the key points \['head', 'tail'\], but .* has \['tail', 'head'\]"):
        validate(ValidateConfig(checkpoint=checkpoint, root=str(other), accelerator="cpu"))
