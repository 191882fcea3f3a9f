"""Runs the tries, engine by engine: a few sessions for the faults, a fresh one to look at what they left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_injection.spark.chaos import Chaos, FaultNeverHappenedError, Session
from fault_injection.spark.comparison.faults import Compared
from fault_injection.spark.comparison.files import unnamed
from fault_injection.spark.comparison.outcomes import outcome
from fault_injection.spark.comparison.subjects import Subject, settings_of
from fault_injection.spark.report import Outcome, Report

_JOBS = "fault_injection.spark.comparison.jobs"
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One try."""

    subject: Subject
    fault: Compared
    number: int

    @property
    def name(self) -> str:
        """Of its table."""
        return "".join(
            letter if letter.isalnum() else "_"
            for letter in f"{self.subject.name} {self.fault.name} {self.number}"
        )


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One try that is over."""

    plan: Plan
    outcome: dict[str, str | int] = field(default_factory=dict)
    no_effect: str = ""
    """Why it does not count."""


class FamilyRun:
    """The tries of the subjects that share their jars."""

    def __init__(self, chaos: Chaos, family: str, jars: Path, tables: Path, say: Say) -> None:
        self._chaos, self._say = chaos, say
        self._folder = tables / family
        self._folder.mkdir(parents=True)
        self._settings = settings_of(family, jars, tables)
        self._open: Session | None = None
        self._speculates = False
        self._ended: list[tuple[Plan, Outcome]] = []
        """Tries whose tables nobody has looked at yet."""
        self._seeds: dict[str, Path] = {}

    def run(self, plans: list[Plan]) -> Iterator[Tried]:
        """All of them; each new driver first looks at what was written by those before it."""
        for plan in sorted(plans, key=lambda plan: (plan.fault.kills_driver, plan.fault.speculation)):
            if self._open is None or not self._open.alive or self._speculates != plan.fault.speculation:
                self._close()
                self._speculates = plan.fault.speculation
                yield from self._look_at_all()
            report, problem = self._try(plan)
            if report is None or problem:
                yield Tried(plan=plan, no_effect=problem)
            else:
                self._ended.append((plan, report.outcome))
        self._close()
        yield from self._look_at_all()
        self._close()

    def _look_at_all(self) -> Iterator[Tried]:
        while self._ended:
            yield self._look(*self._ended.pop(0))

    def _try(self, plan: Plan) -> tuple[Report | None, str]:
        began = time.monotonic()
        report, problem = None, ""
        try:
            table = self._table(plan)
            fault = plan.fault.of(plan.subject, str(table))
            assert fault is not None
            report = self._chaos.run(
                f"{_JOBS}:load", plan.subject.name, str(table), plan.fault.how,
                faults=[fault], session=self._session(),
            )  # fmt: skip
            if not plan.fault.took_effect(report):
                problem = "it changed nothing"
        except FaultNeverHappenedError as error:
            problem, report = str(error).splitlines()[0], error.report
        except Exception as error:  # whatever it is, the other tries are not to be lost with it
            problem = f"{type(error).__name__}: {error}"
            self._close()
        self._say(f"{plan.name}: {problem or 'ended'} after {time.monotonic() - began:.0f} s\n{report or ''}")
        return report, problem

    def _look(self, plan: Plan, how: Outcome) -> Tried:
        table = self._folder / plan.name
        report = self._ask("look", plan.subject.name, str(table))
        found: dict[str, Any] = report.outcome.value
        orphans = unnamed(plan.subject, table)
        tried = Tried(plan=plan, outcome=outcome(plan.subject, how, found, len(orphans)))
        self._say(f"{plan.name}: {tried.outcome} {found} {orphans}")
        shutil.rmtree(table)
        return tried

    # -- sessions and tables -----------------------------------------------------------------------------

    def _session(self) -> Session:
        """The one that is open, if it lives."""
        if self._open is None or not self._open.alive:
            self._close()
            more = _SPECULATION if self._speculates else {}
            self._open = self._chaos.session({**self._settings, **more})
        return self._open

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def _ask(self, job: str, *arguments: str) -> Report:
        """Something that nothing happens to."""
        report = self._chaos.run(f"{_JOBS}:{job}", *arguments, session=self._session())
        if report.outcome.error:
            raise RuntimeError(f"{job} {arguments}: {report.outcome}")
        return report

    def _table(self, plan: Plan) -> Path:
        """One with some rows."""
        table, subject = self._folder / plan.name, plan.subject
        if subject.family == "iceberg":
            # Its files name each other by their whole paths.
            self._seed(subject, table)
            return table
        if subject.name not in self._seeds:
            self._seeds[subject.name] = self._folder / f"seed-{len(self._seeds)}"
            self._seed(subject, self._seeds[subject.name])
        shutil.copytree(self._seeds[subject.name], table)
        return table

    def _seed(self, subject: Subject, table: Path) -> None:
        self._ask("seed", subject.name, str(table))
