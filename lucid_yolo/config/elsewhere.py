"""What users of other projects write, and how it is written here: names of flags, of options, and files for them."""

from __future__ import annotations

from pathlib import PurePath

from lucid_yolo.config.regions import GROUP, JOIN, OF_EVERY_TASK

FLAGS: dict[str, str] = {
    "capture_network": "capture=network",
    "capture_segment_heads": "capture=heads",
    "capture_loss": "capture=loss",
    "capture_gradient_norm": "capture=gradient_norm",
    "capture_orthogonalization": "capture=orthogonalization",
    "capture_updates": "capture=updates",
    "compile_step": "compile=step",
    "device_hsv": "hsv=device",
    "fused_hsv": "part of hsv=device; hsv=device_native goes without it",
    "epoch_prefetch": "prefetch=epoch",
    "cache_train_images": "cache=decoded",
    "cache_prepared_train_images": "cache=prepared",
}
"""Flags, whatever key they stand below, and what to write instead."""

WEIGHTS = "model.init_from, with a checkpoint of this project; there are no others yet"
SETTINGS: dict[str, str] = {
    "amp": "precision",
    "batch": "data.batch_size",
    "device": "trainer.accelerator, and CUDA_VISIBLE_DEVICES chooses among several GPUs",
    "epochs": "trainer.max_epochs",
    "half": "precision",
    "imgsz": "data.image_size",
    "lr0": "optimizer.lr",
    "pretrained": WEIGHTS,
    "weights": WEIGHTS,
    "workers": "data.num_workers",
}
"""Settings that other projects have at the top, and where they are here."""

OPTIONS: dict[tuple[str, str], str] = {
    (GROUP, "all"): JOIN.join(OF_EVERY_TASK),
    **{("model", f"yolo26{scale}"): scale for scale in "nsmlx"},
    ("task", "pose"): "keypoints",
    ("task", "seg"): "segment",
    ("hsv", "cpu"): "worker",
    ("hsv", "gpu"): "device",
    ("hsv", "cuda"): "device",
    ("precision", "32"): "32-true",
    ("precision", "fp32"): "32-true",
    ("precision", "float32"): "32-true",
    ("precision", "fp16"): "16-mixed",
    ("precision", "float16"): "16-mixed",
    ("precision", "bfloat16"): "bf16-mixed",
}
"""Options that no likeness of letters would find: (group, what is written) and the option."""

FORMATS: dict[str, str] = {".yaml": "yolo", ".yml": "yolo"}
"""Files that describe a data set, by their ending, and the option that reads them."""
WEIGHT_FILES = (".ckpt", ".onnx", ".pt", ".pth", ".safetensors")


def flag_here(key: str) -> str:
    """Say how a flag or a setting of another project is written here; empty for any other key.

    Args:
        key: dotted key, such as ``data.cache_train_images``.
    """
    written = FLAGS.get(key.rpartition(".")[2], SETTINGS.get(key))
    return "" if written is None else f" Here that is {written}."


def file_here(group: str, option: str) -> str:
    """Say how a file is named here that was written as an option; empty where it is none that a user has.

    Args:
        group: name of the group.
        option: what is written as its option, such as ``mydata.yaml``.
    """
    ending = PurePath(option).suffix.lower()
    is_path = "/" in option or "\\" in option
    if group == "data" and (is_path or ending in (*FORMATS, ".json", ".xml", ".txt")):
        written = f"data={FORMATS.get(ending, 'FORMAT')} data.root={option}"
        return f" An option names the format of your data, data.root their place: write {written}."
    if group == "model" and ending in (".yaml", ".yml"):
        return " An option names the scale of a network, and task=detect, segment, keypoints or obb its head."
    if group == "model" and (is_path or ending in WEIGHT_FILES):
        return f" An option names the scale of a network, weights are named by {WEIGHTS}."
    return ""
