"""A training that starts from a checkpoint: what is loaded, what is said about it, what is refused, how it goes on."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from PIL import Image
from torch import Tensor

import lucid_yolo as ly
from lucid_yolo.config.errors import ConfigError, RunError
from tests.engine.tiny import learn, resumed, tiny_config, tiny_overrides

Compose = Callable[..., DictConfig]
ONE_STEP = ("trainer.max_epochs=1", "trainer.max_steps=1")
STEPS_AN_EPOCH = 2
SHAPES = ("ellipse", "rectangle", "triangle", "star")
OWN = ("ring", "triangle", "ellipse")  # two of the drawn set in another order, and one of their own
LEVELS, BRANCHES = 3, ("one_to_many", "one_to_one")
LAST = tuple(f"head.{b}.cls.{level}.4.{w}" for b in BRANCHES for level in range(LEVELS) for w in ("weight", "bias"))


class Look(L.Callback):
    """Copies the weights before the first step."""

    def on_train_start(self, trainer: L.Trainer, module: Any) -> None:
        self.step = trainer.global_step
        self.model = {name: tensor.clone() for name, tensor in module.model.state_dict().items()}
        self.average = {name: tensor.clone() for name, tensor in module.ema.module.state_dict().items()}
        self.updates = int(module.ema.updates)
        self.optimizer_state = len(module.optimizer.state)


def averaged(path: Path) -> dict[str, Tensor]:
    """The averaged weights of a checkpoint file."""
    state = torch.load(path, weights_only=True)["state_dict"]
    return {name.removeprefix("ema.module."): t for name, t in state.items() if name.startswith("ema.module.")}


def write_own_set(root: Path) -> Path:
    """A COCO data set of four pictures a split with the classes ``OWN``."""
    for split in ("train", "val"):
        (root / "images" / split).mkdir(parents=True)
        images, annotations = [], []
        for i in range(4):
            Image.fromarray(np.full((64, 64, 3), 60 * i, np.uint8)).save(root / "images" / split / f"{i}.png")
            images.append({"id": i, "file_name": f"{i}.png", "width": 64, "height": 64})
            box = {"bbox": [8, 8, 30, 30], "area": 900.0, "iscrowd": 0}
            annotations.append({"id": i + 1, "image_id": i, "category_id": i % len(OWN), **box})
        (root / "annotations").mkdir(exist_ok=True)
        categories = [{"id": i, "name": name} for i, name in enumerate(OWN)]
        document = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))
    return root


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on the drawn set."""
    short = ("data.options.num_train=6", "trainer.max_epochs=1", "trainer.ema.ramp=2")
    return learn(tiny_config(tmp_path_factory.mktemp("first") / "run", *short)).run_dir


def test_same_classes_start_from_the_average_bit_for_bit(tiny: Compose, first: Path) -> None:
    look = Look()
    result = learn(tiny(*ONE_STEP, f"model.init_from='{first}'", "seed=5"), [look])
    expected = averaged(first / "checkpoints" / "best.ckpt")
    assert result.status == "finished"
    assert look.model.keys() == look.average.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(look.model[name], tensor), name
        assert torch.equal(look.average[name], tensor), name
    assert (look.step, look.updates, look.optimizer_state) == (0, 0, 0)
    count = len(expected)
    summary = json.loads((result.run_dir / "summary.json").read_text())
    assert summary["initial_weights"] == {
        "path": str(first), "loaded": count, "class_outputs": 0, "fresh": [],
        "classes_loaded": list(SHAPES), "classes_fresh": [],
    }  # fmt: skip
    sentence = f"Starts from the averaged weights of {first}: all {count} tensors are loaded."
    assert sentence in json.loads((result.run_dir / "plan.json").read_text())["notes"]


def test_classes_of_the_same_name_keep_their_rows(tmp_path: Path, first: Path) -> None:
    changes = [line for line in tiny_overrides(*ONE_STEP) if not line.startswith(("data.options", "data=shapes"))]
    own = write_own_set(tmp_path / "own")
    run = [*changes, "data=coco", f"data.root='{own}'", "seed=5"]
    drawn, look = Look(), Look()
    learn(ly.compose([*run, f"run_dir='{tmp_path / 'drawn'}'"]), [drawn])
    result = learn(
        ly.compose([*run, f"run_dir='{tmp_path / 'tuned'}'", f"model.init_from='{first / 'checkpoints/last.ckpt'}'"]),
        [look],
    )
    expected = averaged(first / "checkpoints" / "last.ckpt")
    for name, tensor in look.model.items():
        assert torch.equal(tensor, look.average[name]), name
        if name not in LAST:
            assert torch.equal(tensor, expected[name]), name
            continue
        assert tensor.shape[0] == len(OWN)
        assert torch.equal(tensor[1], expected[name][2]), name  # triangle
        assert torch.equal(tensor[2], expected[name][0]), name  # ellipse
        assert torch.equal(tensor[0], drawn.model[name][0]), name
        if name.endswith("bias"):
            assert float(tensor[0]) == pytest.approx(-math.log(99), rel=1e-6)  # states a probability of 0.01
    record = json.loads((result.run_dir / "summary.json").read_text())["initial_weights"]
    assert record["loaded"] == len(expected) - len(LAST)
    assert record["class_outputs"] == len(LAST) == 12
    assert (record["classes_loaded"], record["classes_fresh"]) == (["triangle", "ellipse"], ["ring"])
    (sentence,) = [note for note in result.plan.notes if note.startswith("Starts from")]
    assert sentence.endswith(
        "; 12 class outputs are loaded for the classes of the same name (triangle, ellipse); "
        "12 class outputs start fresh for ring."
    )


def test_classes_without_a_namesake_start_fresh(tiny: Compose, tmp_path: Path, first: Path) -> None:
    content = torch.load(first / "checkpoints" / "best.ckpt", weights_only=True)
    content["lucid_yolo"]["class_names"] = ["a", "b", "c", "d"]  # as many, and others
    torch.save(content, tmp_path / "other.ckpt")
    drawn, look = Look(), Look()
    learn(tiny(*ONE_STEP, run="drawn"), [drawn])
    result = learn(tiny(*ONE_STEP, f"model.init_from='{tmp_path / 'other.ckpt'}'"), [look])
    assert all(torch.equal(look.model[name], drawn.model[name]) for name in LAST)
    inner = "head.one_to_one.cls.0.3.conv.weight"
    assert not torch.equal(look.model[inner], drawn.model[inner])
    record = json.loads((result.run_dir / "summary.json").read_text())["initial_weights"]
    assert (record["class_outputs"], record["classes_loaded"]) == (12, [])
    assert record["classes_fresh"] == list(SHAPES)


def test_a_resumed_run_goes_on_with_its_own_weights(tiny: Compose, tmp_path: Path, first: Path) -> None:
    donor = tmp_path / "donor.ckpt"
    shutil.copy(first / "checkpoints" / "best.ckpt", donor)
    two = ("data.options.num_train=6", "trainer.max_epochs=2", f"model.init_from='{donor}'")
    whole = learn(tiny(*two, run="whole"))
    stopped = learn(tiny(*two, f"trainer.max_steps={STEPS_AN_EPOCH}"))
    before = json.loads((stopped.run_dir / "summary.json").read_text())["initial_weights"]
    donor.unlink()
    with pytest.raises(ConfigError, match=r"cannot change model\.init_from from '.*donor\.ckpt' to '.*best\.ckpt'"):
        ly.compose([f"resume='{stopped.run_dir}'", f"model.init_from='{first / 'checkpoints/best.ckpt'}'"])
    look = Look()
    learn(resumed(stopped.run_dir, max_steps=None), [look])
    assert look.step == STEPS_AN_EPOCH
    expected, found = (averaged(r.run_dir / "checkpoints" / "last.ckpt") for r in (whole, stopped))
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    assert json.loads((stopped.run_dir / "summary.json").read_text())["initial_weights"] == before
    assert before["path"] == str(donor)


def test_the_scale_of_a_user_is_suggested_by_its_values(tiny: Compose, first: Path) -> None:
    donor = f"model.init_from='{first}'"
    with pytest.raises(RunError, match="holds a model of scale 'tiny'") as caught:
        ly.plan(tiny(donor, "model.variant=wide", "model.width=0.125"))
    found = re.search(r"Select the scale of the checkpoint \((.*)\), or", str(caught.value))
    assert found is not None
    assert found[1] == "model.variant='tiny' model.depth=0.5 model.width=0.0625 model.max_channels=1024"
    plan = ly.plan(
        ly.compose([*(line for line in tiny(donor).overrides if "model." not in line), donor, *found[1].split()])
    )
    assert any(note.startswith("Starts from the averaged weights") for note in plan.plan.notes)


def test_what_cannot_be_used_is_refused_before_a_directory_is_claimed(
    tiny: Compose, tmp_path: Path, first: Path
) -> None:
    def starting_from(path: Path, *changes: str) -> DictConfig:
        config = tiny(*changes)
        config.model.init_from = str(path)
        return config

    torn = tmp_path / "torn.ckpt"
    torn.write_bytes(b"PK\x03\x04 torn")
    refused = {
        tmp_path / "none.ckpt": r"model\.init_from=.*none\.ckpt: no such file",
        tmp_path: r"model\.init_from=.*best\.ckpt: no such file",
        torn: r"model\.init_from=.*torn\.ckpt cannot be read as a checkpoint of this project",
    }
    for path, words in refused.items():
        with pytest.raises(RunError, match=words):
            ly.train(starting_from(path))
    scales = (
        r"holds a model of scale 'n' \(depth 0\.5, width 0\.25, at most 1024 channels\), this run trains 's' "
        r"\(depth 0\.5, width 0\.5, .*Select the scale of the checkpoint \(model=n\)"
    )
    content = torch.load(first / "checkpoints" / "best.ckpt", weights_only=True)
    content["lucid_yolo"] |= {"variant": "n", "width": 0.25}
    torch.save(content, tmp_path / "n.ckpt")
    with pytest.raises(RunError, match=scales):
        ly.train(starting_from(tmp_path / "n.ckpt", "model.variant=s", "model.width=0.5"))
    torch.save(content | {"lucid_yolo": content["lucid_yolo"] | {"format": 1}}, tmp_path / "old.ckpt")
    with pytest.raises(RunError, match=r"old\.ckpt has format 1, and this version reads format 2: .* train anew"):
        ly.train(starting_from(tmp_path / "old.ckpt"))
    content["lucid_yolo"] |= {"variant": "tiny", "width": 0.0625, "task": "segment"}
    torch.save(content, tmp_path / "other.ckpt")
    with pytest.raises(RunError, match="trained for task=segment, this run is for task=detect"):
        ly.plan(starting_from(tmp_path / "other.ckpt"))
    assert not (tmp_path / "run").exists()
