"""The run plan: for every flag what is requested, what is active, and why the two differ.

``resolve`` is pure and runs before anything is instantiated. The plan is printed when a run starts, saved in the run
directory, and completed at the end with what really happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rich.table import Table
from rich.text import Text

from lucid_yolo.config.errors import ConfigError
from lucid_yolo.config.schema import OnUnmet, RootConfig
from lucid_yolo.perf.flag import Flag, Value, find_flags
from lucid_yolo.perf.machine import Machine
from lucid_yolo.perf.notes import write_notes
from lucid_yolo.perf.rules import DataFacts, Facts, Kind, Rule, broken_rules
from lucid_yolo.perf.warning import warn_user

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One flag of one run.

    Attributes:
        key: name of the flag.
        requested: what the configuration asks for.
        active: what the run uses.
        reason: why, where the two differ or ``auto`` decided; else empty.
        rule_id: the rule that made it fall back; None where none did.
        outcome: what happened, filled in at the end of the run: counts, and reasons that came up on the way.
    """

    key: str
    requested: Value
    active: Value
    reason: str
    rule_id: str | None = None
    outcome: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run will do.

    Attributes:
        rows: one a flag.
        machine: the machine that it was made for.
        notes: sentences that a user should know and that change nothing.
    """

    rows: tuple[PlanRow, ...]
    machine: Machine
    notes: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> PlanRow:
        """The row of a flag; KeyError where there is none."""
        return self._by_key()[key]

    def complete(self, outcomes: Mapping[str, Mapping[str, Scalar]]) -> RunPlan:
        """A plan that also says what happened.

        Args:
            outcomes: by flag; a key that is no flag of this plan is a mistake of ours (KeyError).
        """
        if unknown := sorted(outcomes.keys() - self._by_key().keys()):
            raise KeyError(f"no such flag in the plan: {', '.join(unknown)}")
        rows = (replace(row, outcome={**row.outcome, **outcomes.get(row.key, {})}) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """The rows as plain containers, by key."""
        return {
            row.key: {
                "requested": row.requested,
                "active": row.active,
                "reason": row.reason,
                "rule_id": row.rule_id,
                "outcome": dict(row.outcome),
            }
            for row in self.rows
        }

    def to_json(self) -> str:
        """Rows, notes and machine as JSON text."""
        content = {"rows": self.as_dict(), "notes": list(self.notes), "machine": self.machine.as_dict()}
        return json.dumps(content, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of ``to_json``."""
        content = json.loads(text)
        rows = tuple(PlanRow(key=key, **values) for key, values in content["rows"].items())
        machine = Machine.from_dict(content["machine"])
        return cls(rows=rows, machine=machine, notes=tuple(content["notes"]))

    def render(self) -> Table:
        """A table for the terminal, notes below it."""
        table = Table(
            title="Run plan", title_justify="left", caption=Text("\n".join(self.notes)), caption_justify="left"
        )
        columns = ["flag", "requested", "active", "why"]
        if any(row.outcome for row in self.rows):
            columns.append("what happened")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in self.rows:
            why = f"{row.reason} [{row.rule_id}]" if row.rule_id else row.reason
            outcome = ", ".join(f"{name} {value}" for name, value in row.outcome.items())
            cells = [row.key, _show(row.requested), _show(row.active), why, outcome]
            table.add_row(*map(Text, cells[: len(columns)]), style="yellow" if row.rule_id else None)
        return table

    def warn(self, *, since: RunPlan | None = None) -> None:
        """Give one UserWarning that names every flag that fell back, none where none did. Call it once a run.

        Args:
            since: an earlier state of the plan; what fell back there is not named again.
        """
        fallen = [row for row in self.rows if row.rule_id and (since is None or not since[row.key].rule_id)]
        if not fallen:
            return
        lines = [f"  {row.key}: {row.reason} -> {_show(row.active)} [{row.rule_id}]" for row in fallen]
        warn_user("\n".join(["requested, but not active in this run:", *lines]))

    def _by_key(self) -> dict[str, PlanRow]:
        return {row.key: row for row in self.rows}


def resolve(
    config: RootConfig, machine: Machine, data: DataFacts | None, *, flags: Sequence[Flag] | None = None
) -> RunPlan:
    """Decide what a run will do. Pure: looks at nothing but its arguments.

    Args:
        config: what is asked for.
        machine: what there is.
        data: what is known about the data; None leaves out the rules that need it.
        flags: every flag of the package unless given.

    Returns:
        the plan.

    Raises:
        ConfigError: every broken rule that refuses, together; with ``on_unmet=raise`` also those that would fall back.
    """
    facts = Facts(config=config, machine=machine, data=data)
    judged = [(flag, broken_rules(flag.rules, facts)) for flag in (find_flags() if flags is None else flags)]
    stopping = set(Kind) if config.on_unmet is OnUnmet.RAISE else {Kind.REFUSE}
    problems = [explain(r, facts) for _, broken in judged for r in broken if r.kind in stopping]
    if problems:
        raise ConfigError(problems)
    return RunPlan(
        rows=tuple(_row(flag, broken, facts) for flag, broken in judged), machine=machine, notes=write_notes(facts)
    )


def explain(rule: Rule, facts: Facts) -> str:
    """The sentence about a rule that stops a run; one that is strict by request says so."""
    strict = "; on_unmet=raise stops the run for it" if rule.kind is Kind.FALLBACK else ""
    return f"{rule.explain(facts)}{strict} [{rule.id}]"


def _row(flag: Flag, broken: Sequence[Rule], facts: Facts) -> PlanRow:
    requested = flag.requested(facts)
    if broken:
        first = broken[0]
        return PlanRow(
            key=flag.key, requested=requested, active=flag.fallback, reason=first.explain(facts), rule_id=first.id
        )
    choice = flag.choose(facts)
    return PlanRow(key=flag.key, requested=requested, active=choice.value, reason=choice.reason)


def _show(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
