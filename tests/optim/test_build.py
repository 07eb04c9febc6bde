from __future__ import annotations

import pytest
from torch import nn

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import AdamWConfig, MuSGDConfig, OptimizerConfig, SGDConfig
from lucid_yolo.optim.adamw import AdamW
from lucid_yolo.optim.build import build_optimizer
from lucid_yolo.optim.musgd import MuSGD
from lucid_yolo.optim.sgd import SGD
from tests.optim.helpers import make_network


def test_every_setting_arrives() -> None:
    network = make_network()
    musgd = build_optimizer(network, MuSGDConfig("musgd", 0.1, 0.2, 3.0, 0.01, 0.3, 0.4, 0.6, 7))
    assert isinstance(musgd, MuSGD)
    assert musgd.defaults == {
        "lr": 0.1,
        "weight_decay": 0.2,
        "momentum": 0.3,
        "muon_weight": 0.4,
        "sgd_weight": 0.6,
        "newton_schulz_steps": 7,
    }
    sgd = build_optimizer(network, SGDConfig("sgd", 0.1, 0.2, momentum=0.3))
    assert isinstance(sgd, SGD)
    assert sgd.defaults == {"lr": 0.1, "weight_decay": 0.2, "momentum": 0.3}
    adamw = build_optimizer(network, AdamWConfig("adamw", 0.1, 0.2, beta1=0.3, beta2=0.4, eps=0.5))
    assert isinstance(adamw, AdamW)
    assert adamw.defaults == {"lr": 0.1, "weight_decay": 0.2, "betas": (0.3, 0.4), "eps": 0.5}


def test_all_parameters_are_in_one_group_also_frozen_ones() -> None:
    network = make_network()
    network[0].weight.requires_grad_(False)
    (group,) = build_optimizer(network, SGDConfig("sgd", 0.1)).param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in network.parameters()]


def test_parameters_of_the_loss_come_last() -> None:
    network, loss = make_network(), nn.Linear(2, 3)
    (group,) = build_optimizer(network, SGDConfig("sgd", 0.1), loss).param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in (*network.parameters(), loss.weight, loss.bias)]
    (group,) = build_optimizer(network, SGDConfig("sgd", 0.1), nn.ReLU()).param_groups
    assert len(group["params"]) == len(list(network.parameters()))


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        build_optimizer(make_network(), MuSGDConfig("musgd", -1.0, momentum=1.0, newton_schulz_steps=0))
    assert len(caught.value.problems) == 3
    assert "optimizer.lr=-1.0 is not allowed: it must be 0 or more." in caught.value.problems


def test_an_unknown_optimizer() -> None:
    with pytest.raises(ConfigError, match="optimizer=lion is not an optimizer; allowed are musgd, sgd and adamw"):
        build_optimizer(make_network(), OptimizerConfig("lion", 0.1))
