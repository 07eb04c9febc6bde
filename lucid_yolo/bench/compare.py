"""The verb ``compare``: rotating blocks of arms, each run a process of its own, and one report about all of them."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lucid_yolo.bench.arms import ArmRun, explain, kept_run, run_arm, run_child
from lucid_yolo.bench.book import book_reports, check_ledger
from lucid_yolo.bench.comparison import Comparison
from lucid_yolo.bench.finished import compare_runs
from lucid_yolo.bench.ledger import Parity
from lucid_yolo.bench.record import commit, versions, write_record
from lucid_yolo.config import compose as composing
from lucid_yolo.config import record
from lucid_yolo.config.errors import ConfigError, RunError
from lucid_yolo.config.names import did_you_mean
from lucid_yolo.config.paths import resolve_user_path
from lucid_yolo.config.verbs import CompareConfig
from lucid_yolo.config.workloads import MeasureName, Workload, make_workload, read_workload, workload_names

try:
    import fcntl
except ImportError:  # no such locks on this platform
    fcntl = None  # type: ignore[assignment]

RECIPE = "comparison.json"
REPORT = "report.json"
MARKDOWN = "report.md"
PREPARATION = "preparation.log"
BLOCKS = "block_*"
REFUSED = 2  # what a process ends with whose configuration or data are refused


def compare(
    config: CompareConfig,
    overrides: Sequence[str] = (),
    *,
    arms: Mapping[str, Sequence[str]] | None = None,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Do what the settings of the verb ask for.

    Args:
        config: the settings.
        overrides: of all arms.
        arms: arms that are in no file, by name; the first is the baseline.
        say: takes a line about each run.

    Raises:
        ConfigError: the settings contradict each other, or the workload is wrong.
        RunError: the baseline cannot run, or the directory cannot be used.
    """
    if config.book is not None:  # before hours of runs
        check_ledger(resolve_user_path(config.book))
    report, out = _existing(config, overrides) if config.runs is not None else _run(config, overrides, arms, say)
    if out is not None:
        write_report(report, out)
    if config.book is not None:
        parity = Parity(config.parity, config.parity_test)
        book_reports(resolve_user_path(config.book), [report], parity=parity)
    return report


def _existing(config: CompareConfig, overrides: Sequence[str]) -> tuple[Comparison, Path | None]:
    assert config.runs is not None
    idle = [name for name in ("workload", "arms", "blocks", "timeout") if getattr(config, name) is not None]
    idle += [line.partition("=")[0] for line in overrides]
    if idle:
        raise ConfigError([f"runs={config.runs} reads runs that exist: leave out {', '.join(idle)}."])
    compares = config.compares or MeasureName.COMPLETE_FIT
    report = compare_runs(resolve_user_path(config.runs), baseline=config.baseline, compares=compares)
    return report, None if config.out is None else resolve_user_path(config.out)


def _run(
    config: CompareConfig,
    overrides: Sequence[str],
    arms: Mapping[str, Sequence[str]] | None,
    say: Callable[[str], None],
) -> tuple[Comparison, Path]:
    out = resolve_user_path(config.out or time.strftime("comparisons/%Y-%m-%d_%H-%M-%S"))
    workload = workload_of(config, overrides, arms)
    try:
        report = run_comparison(
            workload, out, timeout=config.timeout, keep_checkpoints=config.keep_checkpoints, say=say
        )
    except KeyboardInterrupt:
        say(f"Stopped on request; finished runs are kept. The same comparison goes on with out={shlex.quote(str(out))}")
        raise
    say(f"Report, runs and what they printed: {out}")
    return report, out


def workload_of(
    config: CompareConfig, overrides: Sequence[str] = (), arms: Mapping[str, Sequence[str]] | None = None
) -> Workload:
    """The workload that the settings of the verb name.

    Raises:
        ConfigError: there is none, or it is wrong.
    """
    if config.baseline is not None:
        raise ConfigError(["baseline= belongs to runs=FOLDER; of a workload the first arm is the baseline: arms=A,B."])
    if arms is None and config.workload is None:
        near = [did_you_mean(record.key_of(line), ("workload", "runs")) for line in overrides]
        raise ConfigError(
            [
                f"Say what to compare: workload=NAME ({', '.join(workload_names())}, or a file PATH.yaml), or "
                f"runs=FOLDER for runs that exist.{''.join(near)}"
            ]
        )
    workload = read_workload(str(config.workload)) if arms is None else make_workload(arms)
    if config.compares is not None:
        workload = replace(workload, compares=config.compares)
    kept = None if config.arms is None else [name.strip() for name in config.arms.split(",")]
    return workload.narrowed(arms=kept, blocks=config.blocks, more=overrides)


def run_comparison(
    workload: Workload,
    out: Path,
    *,
    timeout: float | None = None,
    keep_checkpoints: bool = False,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Run what is still missing of a comparison, and report on all of it.

    The report is written after every run, so that a comparison that was cut short has one too.

    Args:
        workload: what to compare.
        out: its directory: new, empty, or that of the same comparison, which then goes on where it stopped.
        timeout: seconds a run may take; None: no limit.
        keep_checkpoints: whether the weights of the runs stay.
        say: takes a line about each run.

    Raises:
        ConfigError: the baseline does not compose, or is refused on this machine.
        RunError: the directory holds something else, or is in use.
    """
    refused = _refused_arms(workload)
    with _claim(out, workload):
        kept = _kept(workload, out)
        if any(arm not in refused for _, arm in kept.keys() ^ _all_runs(workload)):
            _refuse_mixing(kept.values(), out)
            _prepare(workload, out, timeout)
        runs: list[ArmRun] = []
        report = Comparison.of(workload, runs)
        for block in range(1, workload.blocks + 1):
            folder = out / f"block_{block}"
            for arm in rotated(tuple(workload.arms), block - 1):
                if arm in refused:
                    run = ArmRun(arm=arm, pair=block, error=refused[arm])
                else:
                    run = run_arm(
                        folder,
                        arm,
                        workload.overrides(arm),
                        pair=block,
                        timeout=timeout,
                        keep_checkpoints=keep_checkpoints,
                    )
                runs.append(run)
                before = f"kept, of commit {run.environment.get('commit')}: " if (block, arm) in kept else ""
                say(f"block {block} of {workload.blocks}, {arm}: {before}{_in_words(run)}")
                report = Comparison.of(workload, runs)
                write_report(report, out)
    return report


def rotated(arms: Sequence[str], block: int) -> tuple[str, ...]:
    """Order of the arms in a block, counted from 0: each starts one arm later, so that no arm is always the first."""
    start = block % len(arms)
    return (*arms[start:], *arms[:start])


def write_report(report: Comparison, out: Path) -> None:
    """Write a report as JSON and as Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    write_record(out / REPORT, report.as_dict())
    (out / MARKDOWN).write_text(report.to_markdown(), encoding="utf-8")


def _all_runs(workload: Workload) -> set[tuple[int, str]]:
    """Block and arm of every run."""
    return {(block, arm) for block in range(1, workload.blocks + 1) for arm in workload.arms}


def _kept(workload: Workload, out: Path) -> dict[tuple[int, str], ArmRun]:
    """Runs of an interrupted comparison that count, by block and arm."""
    found = {key: kept_run(out / f"block_{key[0]}", key[1]) for key in _all_runs(workload)}
    return {key: run for key, run in found.items() if run is not None}


def _refuse_mixing(kept: Iterable[ArmRun], out: Path) -> None:
    """Refuse to add runs to those of another program: hours later the report could only say that they differ.

    Raises:
        RunError: they were made by another commit or other versions.
    """
    now = {"commit": commit(), "versions": versions()}
    for run in kept:
        for key, value in now.items():
            if run.environment.get(key) != value:
                raise RunError(
                    f"out={out} keeps runs of {key} {run.environment.get(key)}, this is {value}: their times would not "
                    "compare. Choose a new directory, or go on with the program that made them."
                )


def _refused_arms(workload: Workload) -> dict[str, str]:
    """Arms whose overrides do not compose, with the reason; nothing at all can be compared without the baseline."""
    refused = {}
    for arm in workload.arms:
        try:
            composing.to_root(composing.compose([*workload.overrides(arm), "on_unmet=raise"]))
        except ConfigError as error:
            if arm == workload.baseline:
                raise
            refused[arm] = " ".join(error.problems)
    return refused


def _prepare(workload: Workload, out: Path, timeout: float | None) -> None:
    """Train the baseline for one step: that draws, builds and loads what later runs find ready, whatever their flags.

    Raises:
        ConfigError: it is refused.
        RunError: it cannot run.
    """
    overrides = workload.overrides(workload.baseline)
    log = out / PREPARATION
    with TemporaryDirectory(prefix="lucid-yolo-") as scratch:
        run_dir = record.as_override("run_dir", str(Path(scratch) / "run"))
        single = ["on_unmet=raise", "trainer.max_steps=1", run_dir]
        commands = [["train", *record.replace(overrides, single)]]
        if any(record.key_of(line) == "prefetch" for line in overrides):  # one step has no next epoch to prefetch for
            commands = [
                ["plan", *overrides, "on_unmet=raise"],
                ["train", *record.replace(overrides, ["prefetch=none", *single])],
            ]
        for command in commands:
            code = run_child(command, log=log, timeout=timeout)
            if code != 0:
                reason = explain(code, log.read_text(encoding="utf-8", errors="replace"))
                words = f"The baseline {workload.baseline!r} cannot run, so there is nothing to compare with: {reason}"
                raise ConfigError([words]) if code == REFUSED else RunError(words)


def _in_words(run: ArmRun) -> str:
    if run.error is not None:
        return f"failed: {run.error}"
    seconds, step = run.timing["total_seconds"], run.timing["step_ms_median"]
    return f"{seconds:.1f} s" + (f", {step:.1f} ms a step" if step is not None else "")


@contextmanager
def _claim(out: Path, workload: Workload) -> Iterator[None]:
    """Take a directory for a comparison, or go on with the same one; other processes are kept out meanwhile.

    More blocks may be asked for than before; anything else would put different runs into one report.
    """
    recipe = {key: value for key, value in asdict(workload).items() if key in ("name", "common", "arms")}
    recipe = json.loads(json.dumps(recipe))
    file = out / RECIPE
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not _is_ours(out):
            raise RunError(f"out={out} exists and holds no comparison. Choose a new or an empty directory.")
        if not file.exists():
            with file.open("x", encoding="utf-8") as fresh:
                json.dump(recipe, fresh, indent=2)
        marker = file.open("r+", encoding="utf-8")
    except FileExistsError:
        raise RunError(f"out={out} was taken by another comparison just now (or is a file).") from None
    except OSError as error:
        raise RunError(f"out={out} cannot be written: {error.strerror}. Choose another directory.") from None
    with marker:
        if fcntl is not None:
            try:
                # Inherited by the runs: one that outlives a killed comparison would disturb the next one's times.
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.set_inheritable(marker.fileno(), True)
            except OSError:
                raise RunError(
                    f"out={out} is in use: another process runs this comparison at the moment, or a run of it that was "
                    "killed has not ended yet."
                ) from None
        if not any(out.glob(BLOCKS)):  # refused before its first run
            file.write_text(json.dumps(recipe, indent=2), encoding="utf-8")
        if list(recipe["arms"]) != list(_read(file)["arms"]) or recipe != _read(file):
            raise RunError(
                f"out={out} holds a comparison of other arms or overrides ({os.fspath(file)}). "
                "Choose a new directory, or repeat that command to go on with it."
            )
        yield


def _is_ours(out: Path) -> bool:
    """Whether a directory is empty, or holds a comparison and nothing that a user has put there instead of one."""
    files = list(out.iterdir())
    recipe = out / RECIPE
    if files == [recipe] and recipe.stat().st_size == 0:  # a comparison that was killed while it was written
        return True
    return not files or (recipe in files and bool(_read(recipe)["arms"]))


def _read(file: Path) -> dict[str, dict[str, list[str]]]:
    try:
        content: dict[str, dict[str, list[str]]] = json.loads(file.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) and isinstance(content.get("arms"), dict) else {"arms": {}}
    except ValueError:
        return {"arms": {}}
