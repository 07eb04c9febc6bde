"""From a configuration to an optimizer."""

from __future__ import annotations

from itertools import chain

from torch import nn

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import AdamWConfig, MuSGDConfig, OptimizerConfig, SGDConfig
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.flat import FlatOptimizer
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD


def build_optimizer(model: nn.Module, config: OptimizerConfig, loss: nn.Module | None = None) -> FlatOptimizer:
    """Make the configured optimizer over all parameters of a network and of its loss, in one group.

    Frozen parameters belong to it too: without a gradient they are left alone, and may be released later.

    Args:
        model: the network.
        config: which optimizer.
        loss: its parameters, where it has any, come after those of the network.

    Raises:
        ConfigError: for values outside their range, all together, and for a configuration that names no optimizer.
    """
    problems = [
        f"optimizer.{name}={value} is not allowed: {allowed}." for name, value, ok, allowed in _ranges(config) if not ok
    ]
    if problems:
        raise ConfigError(problems)
    parameters = chain(model.parameters(), () if loss is None else loss.parameters())
    shared = {"lr": config.lr, "weight_decay": config.weight_decay}
    match config:
        case MuSGDConfig():
            return MuSGD(
                parameters,
                **shared,
                momentum=config.momentum,
                muon_weight=config.muon_weight,
                sgd_weight=config.sgd_weight,
                newton_schulz_steps=config.newton_schulz_steps,
            )
        case SGDConfig():
            return SGD(parameters, **shared, momentum=config.momentum)
        case AdamWConfig():
            return AdamW(parameters, **shared, betas=(config.beta1, config.beta2), eps=config.eps)
    raise ConfigError([f"optimizer={config.name} is not an optimizer; allowed are musgd, sgd and adamw."])


def _ranges(config: OptimizerConfig) -> list[tuple[str, float, bool, str]]:
    """Name, value, whether it is allowed, and what is allowed, of every number."""
    at_least_zero = ("lr", "weight_decay", "muon_weight", "sgd_weight", "eps")
    below_one = ("momentum", "beta1", "beta2")
    values = vars(config)
    rows = [(n, values[n], values[n] >= 0, "it must be 0 or more") for n in at_least_zero if n in values]
    rows += [(n, values[n], 0 <= values[n] < 1, "it must be in [0, 1)") for n in below_one if n in values]
    if "newton_schulz_steps" in values:
        steps = values["newton_schulz_steps"]
        rows.append(("newton_schulz_steps", steps, steps >= 1, "it must be 1 or more"))
    return rows
