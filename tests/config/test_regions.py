"""Recorded regions combine with ``+`` or as a list wherever options are selected, and no setting selects one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from lucid_yolo import cli
from lucid_yolo.config import sweep
from lucid_yolo.config.compose import compose, compose_with_hydra, overrides_of, read_request, to_root
from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.loader import GroupTree
from lucid_yolo.config.regions import OPTIONS, REGIONS, in_order, option_of
from lucid_yolo.config.schema import CompileName, RootConfig

ORDER = ("network", "heads", "loss", "gradient_norm", "orthogonalization", "updates")
ALL = (*ORDER, "step", "auto")
NAMES = ["+".join(chosen) for size in range(2, 7) for chosen in itertools.combinations(ORDER, size)]
LISTED = f"none, {', '.join(ALL)}, and combinations such as network+loss"
SWEEP = "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      capture: "


def selected(root: RootConfig) -> tuple[str, ...]:
    return tuple(name for name in ALL if getattr(root.capture, name).selected)


def composed(overrides: list[str], folder: Path | None = None) -> tuple[str, ...]:
    return selected(to_root(compose(overrides, config_dir=None if folder is None else str(folder))))


def test_every_combination_is_an_option_in_one_order() -> None:
    assert REGIONS == ORDER
    assert OPTIONS == ALL
    assert len(NAMES) == 2**6 - 1 - 6
    assert sorted(GroupTree().options("capture")) == sorted(["none", *ALL, *NAMES])


@pytest.mark.parametrize("name", ["none", *ALL, *NAMES[::5], NAMES[-1]])
def test_an_option_selects_what_its_name_says(name: str) -> None:
    assert composed([f"capture={name}"]) == tuple(part for part in name.split("+") if part != "none")


@pytest.mark.parametrize(
    "written",
    ["network+loss", "loss+network", "[loss,network]", "[network, loss]", "['loss','network']", "network+loss+network"],
)
def test_any_order_and_a_list_select_the_same(written: str) -> None:
    cfg = compose([f"capture={written}"])
    assert selected(to_root(cfg)) == ("network", "loss")
    assert cfg.overrides == ["capture=network+loss"]


@pytest.mark.parametrize("written", ["[]", "[ ]"])
def test_an_empty_list_selects_none(written: str, tmp_path: Path) -> None:
    cfg = compose([f"capture={written}"])
    assert (selected(to_root(cfg)), cfg.overrides) == ((), ["capture=none"])
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - override /capture: {written}\n"
    )
    assert composed(["experiment=mine"], tmp_path) == ()


def test_one_region_in_a_list() -> None:
    assert composed(["capture=[updates]"]) == ("updates",)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("capture=none,loss+network", "capture=none,network+loss"),
        ("capture=none,[updates,loss],network", "capture=none,loss+updates,network"),
        ("capture=network,[]", "capture=network,none"),
        ("capture=choice(none,loss+network)", "capture=choice(none,network+loss)"),
        ("capture=glob(*+updates)", "capture=glob(*+updates)"),
        ("capture=loss+netwrok", "capture=loss+netwrok"),
        ("capture.network.warmup=7", "capture.network.warmup=7"),
        ("data.root=loss+network", "data.root=loss+network"),
        ("logger.extra=[loss,network]", "logger.extra=[loss,network]"),
    ],
)
def test_only_capture_is_put_in_order(line: str, written: str) -> None:
    assert in_order(line) == written


def test_unknown_names_keep_their_place() -> None:
    assert option_of(["updates", "stem", "loss"]) == "updates+stem+loss"


MISTAKES = {
    "netwrok+loss": "has no option 'netwrok+loss'. Did you mean 'network+loss'?",
    "loss+netwrok": "has no option 'loss+netwrok'. Did you mean 'network+loss'?",
    "[orthogonalisation,loss]": "Did you mean 'loss+orthogonalization'?",
    "netwrk": "Did you mean 'network'",
    "[none,network]": "has no option 'none+network'. Did you mean 'network'?",
    "stpe": "Did you mean 'step'",
    "head": "has no option 'head'. Did you mean 'heads'?",
    "step+network": "has no option 'network+step'. step goes alone: it records everything that the others would.",
    "[auto,loss]": "auto goes alone: it finds out which of the others to select.",
    "heads+netwrok": "has no option 'heads+netwrok'. Did you mean 'network+heads'?",
    "all": "Did you mean 'network+loss+gradient_norm+orthogonalization+updates'?",
    "grad": "Did you mean 'gradient_norm'",
    "null": "has no option 'null'.",
}


@pytest.mark.parametrize("written", MISTAKES)
def test_an_unknown_option_is_refused_with_what_there_is(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([f"capture={written}"])
    assert MISTAKES[written] in str(caught.value)
    assert str(caught.value).endswith(f"Options: {LISTED}.")


class Jobs:
    """Records what the jobs of a sweep would run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captures: list[str] = []
        monkeypatch.setattr(sweep, "_child", self)

    def __call__(self, arguments: list[str], *, cwd: str) -> int:
        line = next(argument for argument in arguments if argument.startswith("capture="))
        compose([line])  # the job composes by itself
        self.captures.append(line.removeprefix("capture="))
        return 0


@pytest.mark.parametrize(
    ("axis", "jobs"),
    [
        ("none,network+loss", ["none", "network+loss"]),
        ("none,[loss,network],updates+loss", ["none", "network+loss", "loss+updates"]),
        (
            "glob(network+heads+loss+*+updates)",
            [f"network+heads+loss+{between}+updates" for between in (*ORDER[3:5], "+".join(ORDER[3:5]))],
        ),
    ],
)
def test_sweeps(axis: str, jobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Jobs(monkeypatch)
    request = read_request([f"capture={axis}", "run_dir=out"])
    sweep.run_sweep("train", request, compose_with_hydra(request, multirun=True))
    assert sorted(found.captures) == sorted(jobs)
    assert len(jobs) > 1


def test_a_sweep_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Jobs(monkeypatch)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    file = tmp_path / "conf" / "experiment" / "arms.yaml"
    file.write_text(f"{SWEEP}none,network+loss\n")
    request = read_request(["experiment=arms", "run_dir=out"], config_dirs=["conf"])
    sweep.run_sweep("train", request, compose_with_hydra(request, multirun=True))
    assert found.captures == ["none", "network+loss"]
    file.write_text(f"{SWEEP}none,loss+network\n")  # Hydra itself looks these names up
    with pytest.raises(ConfigError, match=r"arms\.yaml.*'loss\+network'\. Did you mean 'network\+loss'"):
        compose_with_hydra(request, multirun=True)


@pytest.mark.parametrize("written", ["network+loss", "[loss, network]", "[network, loss]"])
def test_an_experiment_selects_and_the_command_line_wins(tmp_path: Path, written: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - override /capture: {written}\n"
        "capture:\n  network:\n    warmup: 7\n  updates:\n    warmup: 5\n"
    )
    for option, expected in (
        ([], ("network", "loss")),
        (["capture=none"], ()),
        (["capture=updates"], ("updates",)),
        (["capture=[loss,updates]"], ("loss", "updates")),
    ):
        root = to_root(compose(["experiment=mine", *option], config_dir=str(tmp_path)))
        assert selected(root) == expected
        assert (root.capture.network.warmup, root.capture.updates.warmup, root.capture.loss.warmup) == (7, 5, 3)


@pytest.mark.parametrize("written", ["netwrok+loss", "loss+network", "[netwrok, loss]"])
def test_a_wrong_name_in_an_experiment_is_ours_to_explain(tmp_path: Path, written: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        f"# @package _global_\ndefaults:\n  - override /capture: {written}\n"
    )
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: capture has no option .* Did you mean 'network\+loss'\?"):
        compose(["experiment=mine"], config_dir=str(tmp_path))


@pytest.mark.parametrize("overrides", [[], ["capture=none"]])
def test_a_setting_switches_nothing_on(overrides: list[str]) -> None:
    root = to_root(compose([*overrides, "capture.network.warmup=11"]))
    assert (selected(root), root.capture.network.warmup) == ((), 11)


def test_a_setting_stays_beside_every_option() -> None:
    root = to_root(compose(["capture=network+updates", "capture.network.warmup=11"]))
    assert (selected(root), root.capture.network.warmup, root.capture.updates.warmup) == (("network", "updates"), 11, 3)


def test_selected_is_a_key_like_any_other() -> None:
    assert composed(["capture.loss.selected=true"]) == ("loss",)
    assert composed(["capture=network+loss", "capture.loss.selected=false"]) == ("network",)


def test_keys_and_values_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'capture\.network\.warmup'"):
        compose(["capture.network.warmpu=3"])
    with pytest.raises(ConfigError, match="0 is out of range, it must be at least 1"):
        compose(["capture.updates.warmup=0"])


def test_the_shown_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "capture=[updates,loss]", "--cfg", "job", "--package", "capture"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert {name for name, settings in shown.items() if settings["selected"]} == {"loss", "updates"}
    assert list(shown) == list(ALL)


def test_resume_keeps_or_changes_regions(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    cfg = compose(["capture=[loss,network]", "capture.loss.warmup=4"])
    OmegaConf.save(OmegaConf.structured(to_root(cfg)), tmp_path / "config.yaml")
    OmegaConf.save(OmegaConf.create(overrides_of(cfg)), tmp_path / "overrides.yaml")
    assert composed([f"resume={tmp_path}"]) == ("network", "loss")
    assert composed([f"resume={tmp_path}", "capture=none"]) == ()
    assert composed([f"resume={tmp_path}", "capture=[updates,loss]"]) == ("loss", "updates")


def test_help_does_not_list_combinations(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--help"]) == 0
    assert LISTED in capsys.readouterr().out


def test_compile() -> None:
    assert to_root(compose()).compile.selected is CompileName.NONE
    for name in ("loss", "step"):
        assert to_root(compose([f"compile={name}"])).compile.selected is CompileName(name)
    with pytest.raises(
        ConfigError, match=r"compile has no option 'steps'\. Did you mean 'step'\? Options: none, loss, step"
    ):
        compose(["compile=steps"])
