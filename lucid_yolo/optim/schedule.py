"""The learning-rate schedule."""

from __future__ import annotations


def lr_factor(step: int, *, total_steps: int, warmup_steps: int, final_ratio: float) -> float:
    """Factor of the learning rate: a linear warm-up to 1, then a linear descent.

    Args:
        step: update to be made, from 0.
        total_steps: updates of the whole run; the last one and any after it get ``final_ratio`` exactly.
        warmup_steps: updates that reach 1, the first of them with 1 / warmup_steps; at most ``total_steps - 1`` are
            used.
        final_ratio: factor of the last update.
    """
    last = total_steps - 1
    warmup = min(warmup_steps, last)
    if step >= last:
        return final_ratio
    if step < warmup:
        return (step + 1) / warmup
    peak = max(warmup - 1, 0)
    progress = (step - peak) / (last - peak)
    return 1.0 + (final_ratio - 1.0) * progress
