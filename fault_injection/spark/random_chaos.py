"""Random jobs, random faults, and a look at the table after each; one number makes a run again."""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection.counted import counted
from fault_injection.servers import Unavailable
from fault_injection.spark.chaos import Chaos, FaultNeverHappenedError, Session
from fault_injection.spark.cluster import ENOUGH_CORES, Cluster
from fault_injection.spark.jobs import Expected
from fault_injection.spark.random_plans import Course, Plan, drawn
from fault_injection.spark.random_tables import Makers, RandomTable, only_traces
from fault_injection.spark.store import Store, store_beside

JOB = "fault_injection.spark.jobs:write"

_SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"spark.sql.adaptive.enabled": "false"},
    {"spark.python.worker.reuse": "false"},
    {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"},
    {"spark.locality.wait": "0s", "spark.task.maxFailures": "8"},
    {"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.3"},
)
"""What drivers are made with, in turns."""
_FAULTS_OF_A_DRIVER = 5
"""So many runs a driver has, unless it is killed before."""


@dataclass
class RandomChaos:
    """Writes one table after the other, and keeps what went wrong.

    Parameters
    ----------
    writes_of_a_table
        How many writes a table gets before the next one begins.
    """

    chaos: Chaos
    folder: Path
    seed: int
    writes_of_a_table: int = 8
    wrong: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    runs: int = 0
    traces: int = 0
    """So many writes left something that the next one took away."""
    tables: list[RandomTable] = field(default_factory=list)
    """What was written, and what it has to hold."""

    def __post_init__(self) -> None:
        self._new_tables = Makers(self.chaos.cluster, self.folder, self.chaos.store).tables(self.seed)
        self._session: Session | None = None
        self._left, self._copies = 0, False
        self._version = 0

    def step(self) -> str:
        """One write with a fault, and a look at what came of it; a line about it."""
        if self.runs % self.writes_of_a_table == 0:
            self._begin_table()
        table = self.tables[-1]
        # Of each write anew: what was drawn for the one before has no say in it.
        plan = drawn(random.Random(f"{self.seed}, write {self.runs}"), table.expected, table.perils)
        version = self._next_version()
        course = self._run(table, plan, version)
        found = list(self._judge(table, course, version))
        self.wrong += [f"run {self.runs}, {plan}: {problem}" for problem in found]
        self.runs += 1
        told = f"{self.runs:4d}  {plan}: {course.report.outcome}"
        return told + "".join(f"\n      WRONG: {one}" for one in found)

    def lines(self, seconds: float) -> Iterator[str]:
        """The summary."""
        yield f"{'writes':12s} {self.runs:>6,}  ({counted(self.outcomes)})"
        yield f"{'faults':12s} {sum(self.happened.values()):>6,}  ({counted(self.happened)})"
        yield f"{'drivers':12s} {self.drivers:>6,}"
        yield f"{'traces':12s} {self.traces:>6,}  (of writes that succeeded, until the next one)"
        uploads = sum(len(table.pardoned) for table in self.tables)
        yield f"{'uploads':12s} {uploads:>6,}  (for the bucket to expire)"
        yield f"{'wrong':12s} {len(self.wrong):>6,}"
        yield f"{'seconds':12s} {seconds:>6,.0f}"
        yield from self.wrong

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _begin_table(self) -> None:
        table = next(self._new_tables)
        self.tables.append(table)
        self._version = 0
        for problem in self._write_in_peace(table, "bulk_insert", 0, 400, [table.expected]):
            raise RuntimeError(problem)

    def _driver(self) -> Session:
        if self._session is None or not self._session.alive or not self._left:
            if self._session is not None:
                self._session.close()
            settings = _SETTINGS[self.drivers % len(_SETTINGS)]
            self._session, self._copies = self.chaos.session(settings), "spark.speculation" in settings
            self._left, self.drivers = _FAULTS_OF_A_DRIVER, self.drivers + 1
        return self._session

    def _run(self, table: RandomTable, plan: Plan, version: int) -> Course:
        session = self._driver()
        self._left -= 1
        try:
            report = self.chaos.run(
                JOB, table.path, plan.operation, plan.first, plan.end, version,
                faults=plan.faults, session=session, how=plan.how, options=plan.options,
            )  # fmt: skip
        except FaultNeverHappenedError as error:
            if not error.report.injected and not error.vain:
                raise
            report = error.report
        # Once each, however many requests it has met.
        self.happened.update({one.fault: one.deed for one in report.injected if one.deed}.values())
        return Course(plan=plan, report=report, copies=self._copies, perils=table.perils)

    def _judge(self, table: RandomTable, course: Course, version: int) -> Iterator[str]:
        outcome = course.report.outcome
        self.outcomes[outcome.error or ("killed" if outcome.killed else "committed")] += 1
        if not course.fates:
            yield f"the write failed: {outcome}"
            return
        if course.fates == (False,):
            yield from table.wrong_rows()
        possible = [table.copy_of_expected() for _ in course.fates]
        for expected, durable in zip(possible, course.fates, strict=True):
            if durable:
                course.plan.write_to(expected, version)
        committed = outcome.value is not None
        if not committed:
            yield from self._tidied(table, possible)
        table.pardon_uploads(course)
        found = self._adopted(table, possible)
        if found and committed and course.traces and only_traces(found, course.traces):
            self.traces += 1
            yield from self._tidied(table, [table.expected])
            found = table.problems()
        yield from found

    @staticmethod
    def _adopted(table: RandomTable, possible: Sequence[Expected]) -> list[str]:
        """What is wrong whichever of these the table has to hold; from now on it is the one that it holds."""
        wrong = []
        for table.expected in possible:
            wrong = table.problems()
            if not wrong:
                break
        return wrong

    def _tidied(self, table: RandomTable, possible: Sequence[Expected]) -> Iterator[str]:
        """Whoever comes next tidies up."""
        row = min(table.expected.versions, default=0)
        yield from self._write_in_peace(table, "upsert", row, row + 1, possible)

    def _write_in_peace(
        self, table: RandomTable, operation: str, first: int, end: int, possible: Sequence[Expected]
    ) -> list[str]:
        """A write without faults, which has to succeed."""
        version = self._next_version()
        report = self.chaos.run(JOB, table.path, operation, first, end, version, session=self._driver())
        if report.outcome.value is None:
            return [f"a write without faults failed: {report}"]
        for expected in possible:
            expected.write(operation, first, end, version)
        return []


def main(arguments: Sequence[str]) -> int:
    """``python -m fault_injection spark``."""
    parser = argparse.ArgumentParser(prog="python -m fault_injection spark", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same writes and faults")
    parser.add_argument("--minutes", type=float, help="no new write after so long")
    parser.add_argument("--runs", type=int, help="so many writes; 30, if --minutes does not say when to end")
    parser.add_argument("--plain", action="store_true", help="no namespaces: hosts are not cut off")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave tables and logs there")
    given = parser.parse_args(arguments)
    runs = given.runs if given.runs or given.minutes else 30
    with contextlib.ExitStack() as stack:
        kept = given.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkrobust-chaos-"))
        folder = Path(kept).resolve()
        isolated = False if given.plain else None
        cluster = stack.enter_context(Cluster(folder / "cluster", cores=ENOUGH_CORES, isolated=isolated))
        chaos = stack.enter_context(Chaos(cluster, store=_store(cluster)))
        return _all(RandomChaos(chaos, folder, given.seed), runs, given.minutes)


def _store(cluster: Cluster) -> Store | None:
    """An S3 server, where this machine can have one."""
    try:
        return store_beside(cluster)
    except Unavailable as reason:
        print(reason)
        return None


def _all(random_chaos: RandomChaos, runs: int | None, minutes: float | None) -> int:
    started = time.monotonic()
    while (runs is None or random_chaos.runs < runs) and (
        minutes is None or time.monotonic() < started + 60 * minutes
    ):
        print(random_chaos.step(), flush=True)
    for line in random_chaos.lines(time.monotonic() - started):
        print(line)
    return 1 if random_chaos.wrong else 0
