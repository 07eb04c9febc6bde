"""The command line: ``lucid-yolo VERB key=value ...`` and ``python train.py key=value ...``.

Imports torch only inside a verb: tab completion and ``--cfg job`` run this module too.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from lucid_yolo import __version__
from lucid_yolo.config import compose as composing
from lucid_yolo.config.collector import collector_stopped
from lucid_yolo.config.completion import run_completion
from lucid_yolo.config.errors import ConfigError, LucidError, RunError
from lucid_yolo.config.names import did_you_mean
from lucid_yolo.config.show import groups_help, show_hydra_config, show_hydra_info
from lucid_yolo.config.sweep import run_sweep
from lucid_yolo.config.tasks import KeypointTaskConfig
from lucid_yolo.config.terminal import discard_output, open_console, reader_left
from lucid_yolo.config.verbs import (
    CompareConfig,
    PredictConfig,
    ProfileConfig,
    ValidateConfig,
    Verb,
    parse_settings,
    settings_help,
    split_arguments,
)

STARTED = time.perf_counter()
REFUSED, FAILED, INTERRUPTED = 2, 1, 130
READER_LEFT = 141  # as a shell tells it of a program that SIGPIPE ended

VERBS: dict[str, Verb] = {
    "train": Verb("train a model into a run directory", overrides=True),
    "validate": Verb("score a checkpoint on a data set", ValidateConfig),
    "predict": Verb("find objects in images", PredictConfig),
    "plan": Verb("show what a training would do and what would be active, without running it", overrides=True),
    "check": Verb(
        "read every label and image of a data set and report on it",
        overrides=True,
        groups=("task", "data", "experiment"),
    ),
    "compare": Verb("time arms against a baseline in pairs, each run in a process of its own", CompareConfig, True),
    "profile": Verb("show where the time of a training step goes", ProfileConfig, True),
}
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def main(argv: Sequence[str] | None = None, *, default_verb: str | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments after the program's name; those of the process unless given.
        default_verb: verb when the arguments name none.

    Returns:
        exit code: 0; 1 for a run that failed, 2 for a refusal, 130 for an interruption, 141 where nobody reads the pipe
        it prints into.
    """
    as_text = warnings.formatwarning
    warnings.formatwarning = _as_sentence
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv), default_verb)
        print(end="", flush=True)  # here, where it can be told, and not at the exit of Python
        return code
    except LucidError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED if isinstance(error, RunError) else REFUSED
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # once is understood
            print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not reader_left():  # some other pipe
            raise
        discard_output()
        return READER_LEFT
    finally:
        warnings.formatwarning = as_text


def _as_sentence(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Show a warning as the errors are shown: whoever gave a command has no use for a line of our code."""
    return f"warning: {message}\n"


def _run(arguments: list[str], default_verb: str | None) -> int:
    named = arguments[0] if arguments and arguments[0] in VERBS else None
    verb = named or default_verb
    options = _parser(verb).parse_intermixed_args(arguments[1:] if named else arguments)
    if options.version:
        print(f"lucid-yolo {__version__}")
        return 0
    if options.shell_completion:
        flags = [name for action in _parser(None)._actions for name in action.option_strings if name.startswith("--")]
        run_completion(options.overrides, verbs=VERBS, flags=flags, default_verb=default_verb)
        return 0
    if options.help or (verb is None and not arguments):
        print(_help(verb, options))
        return 0
    if verb is None:
        raise ConfigError([f"Name a verb first: {', '.join(VERBS)}.{did_you_mean(arguments[0], VERBS)}"])
    if VERBS[verb].settings is None:
        return _run_configuration(verb, options)
    return {"validate": _validate, "predict": _predict, "compare": _compare, "profile": _profile}[verb](options)


def _run_configuration(verb: str, options: argparse.Namespace) -> int:
    """The verbs that take the configuration of a run: compose it, then show it, sweep over it or run it."""
    request = composing.read_request(options.overrides, config_dirs=options.config_dir)
    if options.info is not None:
        show_hydra_info(options.info, request)
        return 0
    if request.resume is not None:
        if options.multirun or options.cfg in ("hydra", "all"):
            raise ConfigError(["resume continues one run: it goes with neither -m nor --cfg hydra."])
        config = composing.compose_request(request)
    else:
        composed = composing.compose_with_hydra(request, multirun=options.multirun)
        if options.cfg in ("hydra", "all"):
            show_hydra_config(options.cfg, request, package=options.package, resolve=options.resolve)
            return 0
        sweeps = options.multirun or str(composed.hydra.mode).endswith("MULTIRUN")
        if sweeps and options.cfg is None:
            run_sweep(verb, request, composed)
            return 0
        _refuse_idle_settings(request)
        config = composing.finish(composed, request)
    if options.cfg is not None:
        print(_as_yaml(config, options), end="")
        return 0
    return {"train": _train, "plan": _plan, "check": _check}[verb](config)


def _train(config: DictConfig) -> int:
    root = composing.to_root(config)  # refuses before torch is imported
    engine, timing = _late("engine.train"), _late("engine.timing")
    result = engine.train(root, began=timing.Beginning(process=STARTED, work=time.perf_counter()))
    return {"finished": 0, "interrupted": INTERRUPTED}.get(result.status, FAILED)


def _plan(config: DictConfig) -> int:
    root = composing.to_root(config)
    _print(_late("engine.plan").plan(root))
    return 0


def _check(config: DictConfig) -> int:
    root = composing.to_root(config)
    keypoints = root.task.keypoints if isinstance(root.task, KeypointTaskConfig) else None
    labels = _late("tasks").get_task(root.task.name).labels
    report = _late("data.check").check_data(root.data, labels, keypoints)
    _print(report.render())
    return 0 if report.ok else REFUSED


def _compare(options: argparse.Namespace) -> int:
    _refuse_flags("compare", options)
    mine, overrides = split_arguments(CompareConfig, options.overrides)
    config = parse_settings(CompareConfig, mine)
    report = _late("bench.compare").compare(config, overrides)
    _print(report)
    return 0 if report.ok else FAILED


def _profile(options: argparse.Namespace) -> int:
    _refuse_flags("profile", options)
    mine, overrides = split_arguments(ProfileConfig, options.overrides)
    settings, root = parse_settings(ProfileConfig, mine), composing.to_root(composing.compose(overrides))
    _print(_late("engine.profile").profile(root, settings))
    return 0


def _validate(options: argparse.Namespace) -> int:
    config = parse_settings(ValidateConfig, options.overrides)
    if config.out is None:
        config.out = time.strftime("validations/%Y-%m-%d_%H-%M-%S")
    _print(_late("engine.validate").validate(config))
    return 0


def _predict(options: argparse.Namespace) -> int:
    config = parse_settings(PredictConfig, options.overrides)
    if config.out is None:
        config.out = time.strftime("predictions/%Y-%m-%d_%H-%M-%S")
    found = _late("engine.predict").predict(config)
    objects = sum(len(one.detections) for one in found)
    pictures = "1 picture" if len(found) == 1 else f"{len(found)} pictures"
    less = f"; confidence={config.confidence / 2:g} would show what is less certain" if not objects else ""
    _print(f"{objects} objects in {pictures}, written to {config.out}{less}")
    return 0


def _late(module: str) -> ModuleType:
    """Import a module of the package that a verb needs; torch comes with most of them.

    These imports take seconds, a fifth of it for the garbage collector, which would search all that modules make, and
    which stays, again and again.
    """
    with collector_stopped():
        return import_module(f"lucid_yolo.{module}")


def _refuse_flags(verb: str, options: argparse.Namespace) -> None:
    """A verb that takes settings beside a configuration is no sweep and shows no configuration."""
    given = {"-m": options.multirun, "--cfg": options.cfg, "--info": options.info, "--config-dir": options.config_dir}
    idle = [name for name, value in given.items() if value]
    if idle:
        raise ConfigError([f"{verb} goes without {', '.join(idle)}."])


def _refuse_idle_settings(request: composing.Request) -> None:
    """Hydra's own settings matter to a sweep only: one run does not go through Hydra's launchers."""
    idle = [line for line in request.overrides if line.lstrip("+~").startswith(("hydra.", "hydra/"))]
    idle = [line for line in idle if not line.startswith("hydra.mode=")]
    if idle:
        raise ConfigError(
            [
                f"{line!r} has no effect on a single run: add -m for a sweep, or use run_dir=PATH for its place."
                for line in idle
            ]
        )


def _as_yaml(config: DictConfig, options: argparse.Namespace) -> str:
    node = config if options.package is None else OmegaConf.select(config, options.package)
    if node is None:
        raise ConfigError([f"--package {options.package}: there is no such key."])
    return str(OmegaConf.to_yaml(node, resolve=options.resolve)) if OmegaConf.is_config(node) else f"{node}\n"


def _print(what: Any) -> None:
    open_console().print(what)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError([f"{message}. See lucid-yolo --help."])


def _parser(verb: str | None) -> argparse.ArgumentParser:
    parser = _Parser(prog="lucid-yolo" if verb is None else f"lucid-yolo {verb}", add_help=False, allow_abbrev=False)
    add: Callable[..., Any] = parser.add_argument
    add("overrides", nargs="*", metavar="key=value")
    add("-h", "--help", action="store_true", help="show this text")
    add("--version", action="store_true", help="show the version")
    add("-m", "--multirun", action="store_true", help="run a sweep: key=a,b runs both, each in a process of its own")
    add("-c", "--cfg", choices=("job", "hydra", "all"), help="show the composed configuration instead of running")
    add("-p", "--package", metavar="KEY", help="with --cfg: show only this part")
    add("--resolve", action="store_true", help="with --cfg: resolve interpolations")
    add(
        "-cd", "--config-dir", action="append", default=[], metavar="FOLDER", help="a folder with your own option files"
    )
    add(
        "-i",
        "--info",
        nargs="?",
        const="all",
        choices=INFO,
        metavar="WHAT",
        help="show what Hydra knows about the composition",
    )
    add("-sc", "--shell-completion", action="store_true", help="install=bash, install=zsh or install=fish")
    return parser


def _help(verb: str | None, options: argparse.Namespace) -> str:
    usage = f"usage: lucid-yolo {verb or 'VERB'} [key=value ...] [flags]"
    parser = _parser(verb)
    flags = parser.format_help().partition("options:")[2].rstrip()
    if verb is None:
        verbs = "\n".join(f"  {name:<10}{one.purpose}" for name, one in VERBS.items())
        return f"{usage}\n\nverbs:\n{verbs}\n\nflags:{flags}\n\n'lucid-yolo VERB --help' says more."
    parts = [usage, VERBS[verb].purpose]
    settings = VERBS[verb].settings
    if settings is not None:
        parts.append(f"settings, each with its default (VALUE: must be given):\n{settings_help(settings)}")
    if VERBS[verb].overrides:
        folders = composing.read_request([], config_dirs=options.config_dir).folders
        groups = groups_help(folders, VERBS[verb].groups)
        parts.append(f"groups, each with its options (group=option):\n{groups}")
    if settings is None:
        parts.append(f"flags:{flags}")
        parts.append("'--cfg job' shows every key with its value; any of them can be set as key=value.")
    elif VERBS[verb].overrides:
        parts.append(
            "Overrides of a run, its groups and keys, stand beside the settings: data=coco trainer.max_epochs=5.\n"
            "'lucid-yolo plan --cfg job' shows every key of a run with its value."
        )
    return "\n\n".join(parts)
