"""What users of other projects write, and how it is written here: names of flags, and of options."""

from __future__ import annotations

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

SETTINGS: dict[str, str] = {
    "amp": "precision",
    "batch": "data.batch_size",
    "device": "trainer.accelerator, and CUDA_VISIBLE_DEVICES chooses among several GPUs",
    "epochs": "trainer.max_epochs",
    "half": "precision",
    "imgsz": "data.image_size",
    "lr0": "optimizer.lr",
    "pretrained": "model.init_from, with a checkpoint of this project; there are no others yet",
    "weights": "model.init_from, with a checkpoint of this project; there are no others yet",
    "workers": "data.num_workers",
}
"""Settings that other projects have at the top, and where they are here."""

OPTIONS: dict[tuple[str, str], str] = {
    (GROUP, "all"): JOIN.join(OF_EVERY_TASK),
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


def flag_here(key: str) -> str:
    """Say how a flag or a setting of another project is written here; empty for any other key.

    Args:
        key: dotted key, such as ``data.cache_train_images``.
    """
    written = FLAGS.get(key.rpartition(".")[2], SETTINGS.get(key))
    return "" if written is None else f" Here that is {written}."
