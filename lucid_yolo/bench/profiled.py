"""Two profiles of a step that tell the share of an arm, and whether they are of that arm and of its workload."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lucid_yolo.bench.ledger import Share
from lucid_yolo.bench.step_profile import StepProfile
from lucid_yolo.config import record
from lucid_yolo.config.errors import RunError
from lucid_yolo.config.regions import AUTO, GROUP, JOIN, OPTIONS, in_order
from lucid_yolo.config.workloads import Workload

REGION_ROWS = {option: f"{GROUP}.{option}" for option in OPTIONS}  # of the plan, by option
RECORDED: Mapping[str, tuple[str, ...]] = {
    "network": ("network", "forward", "backward"),
    "heads": ("heads", "forward", "backward"),
    "loss": ("loss",),
    "gradient_norm": ("gradient_norm", "clip"),
    "orthogonalization": ("orthogonalization",),
    "updates": ("updates",),
}
"""Parts of a profile that a region records, or that it lies in. What else an arm may switch on has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What two profiles say about an arm.

    Attributes:
        share: of the part that it records.
        eager: profile without its flags.
        flagged: profile with them.
        eager_file: where it was read.
        flagged_file: where it was read.
    """

    share: Share
    eager: StepProfile
    flagged: StepProfile
    eager_file: str
    flagged_file: str

    @classmethod
    def read(cls, part: str, eager_file: str, flagged_file: str) -> Self:
        """Read both profiles and compare a part in them.

        Raises:
            RunError: one cannot be read, or they do not tell the share of the part.
        """
        eager, flagged = read_profile(eager_file), read_profile(flagged_file)
        try:
            share = Share.of(part, eager, flagged)
        except RunError as error:
            raise RunError(f"{eager_file} and {flagged_file}: {error}") from None
        return cls(share=share, eager=eager, flagged=flagged, eager_file=eager_file, flagged_file=flagged_file)

    def check(self, workload: Workload, arm: str) -> None:
        """Make sure that the profiles are of an arm and of the baseline, with the workload's common overrides.

        Both may have further flags that the workload does not name: clipping is compared with the network recorded on
        both sides.

        Raises:
            RunError: they are not.
        """
        if arm == workload.baseline:
            raise RunError(f"{arm} is the baseline of {workload.name}; a share belongs to one of its other arms.")
        if not self.flagged.environment["commit"]:
            raise RunError(
                f"{self.flagged_file} names no commit, so its share would be of nothing known: profile a checkout, or "
                "set LUCID_YOLO_COMMIT."
            )
        self._check_part(workload, arm)
        eager, flagged = _rows(self.eager), _rows(self.flagged)
        known = {*eager, *flagged, *REGION_ROWS.values()}
        without, with_it = (
            {row: value for row, value in _asked(workload.overrides(name)).items() if row in known}
            for name in (workload.baseline, arm)
        )
        option = _named(workload, arm)
        lacking = _lacking(flagged, with_it)
        if lacking and not _lacking(eager, with_it):
            raise RunError(
                f"{self.eager_file} has the flags of {option}, and {self.flagged_file} has not: name the profile "
                "without them first."
            )
        switched = {row for row, _ in without.items() ^ with_it.items()}
        differing = {row for row in {*eager, *flagged} if eager.get(row) != flagged.get(row)}
        problems = [f"{self.flagged_file} has {row} {flagged.get(row)}, {option} {with_it[row]}" for row in lacking]
        problems += [
            f"{self.eager_file} has {row} {eager.get(row)}, baseline {workload.baseline} {without[row]}"
            for row in _lacking(eager, without)
        ]
        problems += [
            f"{self.eager_file} has {row} {eager.get(row)} already"
            for row in sorted(switched - differing)
            if row not in lacking
        ]
        problems += [
            f"{self.eager_file} has {row} {eager.get(row)}, {self.flagged_file} {flagged.get(row)}"
            for row in sorted(differing - switched)
        ]
        if problems:
            raise RunError(
                f"{'; '.join(problems)}. The profiles of {option} have the workload's common overrides, and differ in "
                f"{', '.join(sorted(switched)) or 'nothing'} alone."
            )

    def _check_part(self, workload: Workload, arm: str) -> None:
        """Refuse the share of a part that stays what it was, where all that the arm switches on are regions."""
        before, after = (_asked(workload.overrides(name)).items() for name in (workload.baseline, arm))
        rows = {REGION_ROWS[region]: parts for region, parts in RECORDED.items()}
        switched = [row for row, _ in after - before]
        if not switched or any(row not in rows for row in switched):
            return
        timed = [part for row in switched for part in rows[row] if part in self.eager.host_times]
        if others := [part for part in self.share.part.split(JOIN) if part not in timed]:
            raise RunError(
                f"{_named(workload, arm)} does not record {', '.join(others)}. Of the parts of {self.eager_file} it "
                f"records {', '.join(sorted(timed)) or 'none'}: name one of these, or several joined by '{JOIN}'."
            )


def read_profiled(shares: Iterable[Sequence[str]]) -> dict[str, Profiled]:
    """Read profiles of arms, by arm.

    Args:
        shares: of each arm its name, the part, the profile without its flags and the profile with them.

    Raises:
        RunError: profiles cannot be used, or an arm has two shares.
    """
    found: dict[str, Profiled] = {}
    for arm, part, eager, flagged in shares:
        if arm in found:
            raise RunError(f"Arm {arm} has two shares; a row has one: join parts by '+', or leave one of them out.")
        found[arm] = Profiled.read(part, eager, flagged)
    return found


def read_profile(path: str | Path) -> StepProfile:
    """Read what the verb ``profile`` wrote.

    Raises:
        RunError: there is none, or it is damaged.
    """
    try:
        return StepProfile.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is no profile of a step: {type(error).__name__}: {error}") from None
    except RunError as error:
        raise RunError(f"{path} is no profile of a step: {error}. Make it again with the verb profile.") from None


def _named(workload: Workload, arm: str) -> str:
    """An arm with its overrides, for a sentence."""
    return f"arm {arm} of {workload.name} ({' '.join(workload.arms[arm])})"


def _rows(profile: StepProfile) -> dict[str, str]:
    """Flags and sizes of a profile as texts, by the key that an override has."""
    sizes = {f"data.{name}": value for name, value in profile.data.items()}
    return {row: str(value).lower() for row, value in {**profile.flags, **sizes}.items()}


def _asked(overrides: Iterable[str]) -> dict[str, str]:
    """What overrides ask for, by row; what they leave to a run to find out is left out."""
    rows: dict[str, str] = {}
    for line in map(in_order, overrides):
        key, value = record.key_of(line), line.partition("=")[2].strip("'\"").lower()
        if key == GROUP:
            rows |= {REGION_ROWS[option]: "true" for option in value.split(JOIN) if option in REGION_ROWS}
        elif value != AUTO:
            rows[key] = value
    return rows


def _lacking(rows: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """What was asked for and is not there."""
    return [row for row, value in asked.items() if rows.get(row) != value]
