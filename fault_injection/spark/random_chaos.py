"""Random jobs, random faults, and a look at the table after each; one number makes a run again.

A write has up to three faults.  The first is one that every write meets; what else is planned may find
that its moment does not come, above all where the driver was killed.
"""

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
from fault_injection.spark import faults as f
from fault_injection.spark.chaos import Chaos, FaultNeverHappenedError, Session
from fault_injection.spark.cluster import ENOUGH_CORES, Cluster
from fault_injection.spark.faults import Fault, at
from fault_injection.spark.jobs import Expected
from fault_injection.spark.report import Report
from fault_injection.spark.verify import problems

JOB = "fault_injection.spark.jobs:write"

_IN_TASKS = ("gate seen", "file begun", "files staged", "slot done")
_OF_DRIVERS = (
    "requested",
    "inflight",
    "stage ended",
    "gate closed",
    "markers read",
    "commit staged",
    "decided",
    "data published",
    "commit published",
    "cleaned up",
)
_DECIDED = _OF_DRIVERS[_OF_DRIVERS.index("decided") :]
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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One write, and what is to happen to it."""

    operation: str
    first: int
    end: int
    how: str
    options: dict[str, str]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        faults = ", ".join(f"{fault.name} ({_moment(fault)})" for fault in self.faults)
        return f"{self.operation} of [{self.first}, {self.end}), {self.how}: {faults}"


def _moment(fault: Fault) -> str:
    when = fault.when
    text = f"at {when.point!r} {when.nth}" if isinstance(when, f.At) else str(when)
    return text if isinstance(fault.until, f.JobEnds) else f"{text} until {fault.until}"


def drawn(chance: random.Random, table: Expected, *, partitions: bool) -> Plan:
    """A write that fits the table as it is, and faults that will meet it."""
    there = sorted(table.versions)
    operation = chance.choice(["upsert", "upsert", "upsert", "bulk_insert", "insert", "delete"])
    if operation in ("bulk_insert", "insert") or not there:
        operation = "insert" if operation == "delete" else operation
        first = there[-1] + 1 if there else 0
    else:
        first = chance.choice(there)
    end = first + chance.choice([40, 300, 1500])
    options = {
        "hoodie.parquet.small.file.limit": chance.choice(["0", "104857600"]),
        "hoodie.parquet.max.file.size": chance.choice(["20000", "125829120"]),
        "hoodie.write.robust.on.finalized": chance.choice(["reuse", "fail"]),
    }
    how = chance.choice(["plain", "shuffled", "cached", "source"])
    return Plan(
        operation=operation, first=first, end=end, how=how, options=options,
        faults=_faults(chance, partitions=partitions),
    )  # fmt: skip


def _faults(chance: random.Random, *, partitions: bool) -> tuple[Fault, ...]:
    """Some, of which no two have one name: no driver dies twice, and one host is always within reach."""
    first = _fault(chance, 1, partitions=partitions)
    found = {first.name: first}
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        more = _fault(chance, chance.choice([1, 1, 2, 3]), partitions=partitions)
        found.setdefault(more.name, more)
    return tuple(found.values())


def _fault(chance: random.Random, nth: int, *, partitions: bool) -> Fault:
    """One that every write meets, if it is the first task that is hit: each has at least one file."""
    in_task = at(chance.choice(_IN_TASKS), "task", nth)
    over = at(chance.choice(_OF_DRIVERS[3:]), "driver")
    kinds = [
        Fault("raises", in_task, f.Raise()),
        Fault("exits", in_task, f.ExitWorker()),
        Fault("executor", in_task, f.KillExecutor()),
        Fault("executor", at(chance.choice(_OF_DRIVERS), "driver"), f.KillExecutor()),
        Fault("shuffle", in_task, f.LoseShuffle()),
        Fault("outlives", in_task, f.Outlive(), until=over),
        Fault("again", at(chance.choice(_OF_DRIVERS[3:]), "driver"), f.RunAgain()),
        Fault("driver", in_task, f.KillDriver()),
        Fault("driver", at(chance.choice(_OF_DRIVERS), "driver"), f.KillDriver()),
    ]
    if partitions:
        kinds += [Fault("zombie", in_task, f.Partition(), until=over)] * 2
    return chance.choice(kinds)


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
    tables: dict[Path, Expected] = field(default_factory=dict)
    """What was written, and what it has to hold."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._session: Session | None = None
        self._left = 0
        self._table, self._expected, self._version = Path(), Expected(), 0

    def step(self) -> str:
        """One write with a fault, and a look at what came of it; a line about it."""
        if self.runs % self.writes_of_a_table == 0:
            self._begin_table()
        self._version += 1
        plan = drawn(self._chance, self._expected, partitions=self.chaos.cluster.places.partitions)
        report = self._run(plan)
        found = list(self._judge(plan, report))
        self.wrong += [f"run {self.runs}, {plan}: {problem}" for problem in found]
        self.runs += 1
        return f"{self.runs:4d}  {plan}: {report.outcome}" + "".join(f"\n      WRONG: {one}" for one in found)

    def lines(self, seconds: float) -> Iterator[str]:
        """The summary."""
        yield f"{'writes':12s} {self.runs:>6,}  ({counted(self.outcomes)})"
        yield f"{'faults':12s} {sum(self.happened.values()):>6,}  ({counted(self.happened)})"
        yield f"{'drivers':12s} {self.drivers:>6,}"
        yield f"{'wrong':12s} {len(self.wrong):>6,}"
        yield f"{'seconds':12s} {seconds:>6,.0f}"
        yield from self.wrong

    def _begin_table(self) -> None:
        self._table = self.folder / f"table-{self.runs}"
        self._expected, self._version = Expected(), 1
        self.tables[self._table] = self._expected
        report = self.chaos.run(JOB, str(self._table), "bulk_insert", 0, 400, 1, session=self._driver())
        if report.outcome.value is None:
            raise RuntimeError(f"a write without faults failed: {report}")
        self._expected.write("bulk_insert", 0, 400, 1)

    def _driver(self) -> Session:
        if self._session is None or not self._session.alive or not self._left:
            if self._session is not None:
                self._session.close()
            settings = _SETTINGS[self.drivers % len(_SETTINGS)]
            self._session = self.chaos.session(settings)
            self._left, self.drivers = _FAULTS_OF_A_DRIVER, self.drivers + 1
        return self._session

    def _run(self, plan: Plan) -> Report:
        session = self._driver()
        self._left -= 1
        try:
            report = self.chaos.run(
                JOB, str(self._table), plan.operation, plan.first, plan.end, self._version,
                faults=plan.faults, session=session, how=plan.how, options=plan.options,
            )  # fmt: skip
        except FaultNeverHappenedError as error:
            if not error.report.injected and not error.vain:
                raise
            report = error.report
        self.happened.update(report.deeds)
        return report

    def _judge(self, plan: Plan, report: Report) -> Iterator[str]:
        outcome = report.outcome
        self.outcomes[outcome.error or ("killed" if outcome.killed else "committed")] += 1
        if outcome.error:
            yield f"the write failed: {outcome}"
            return
        if outcome.killed:
            if _died_decided(plan.faults):
                self._expected.write(plan.operation, plan.first, plan.end, self._version)
            # Whoever comes next tidies up.
            self._version += 1
            cleaner = self.chaos.run(
                JOB, str(self._table), "upsert", 0, 1, self._version, session=self._driver()
            )
            if cleaner.outcome.value is None:
                yield f"the next write failed: {cleaner.outcome}"
                return
            self._expected.write("upsert", 0, 1, self._version)
        else:
            self._expected.write(plan.operation, plan.first, plan.end, self._version)
        yield from problems(self._table, self._expected)


def _died_decided(faults: Sequence[Fault]) -> bool:
    return any(
        isinstance(fault.deed, f.KillDriver) and isinstance(fault.when, f.At) and fault.when.point in _DECIDED
        for fault in faults
    )


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
        chaos = stack.enter_context(Chaos(cluster))
        return _all(RandomChaos(chaos, folder, given.seed), runs, given.minutes)


def _all(random_chaos: RandomChaos, runs: int | None, minutes: float | None) -> int:
    started = time.monotonic()
    while (runs is None or random_chaos.runs < runs) and (
        minutes is None or time.monotonic() < started + 60 * minutes
    ):
        print(random_chaos.step(), flush=True)
    for line in random_chaos.lines(time.monotonic() - started):
        print(line)
    return 1 if random_chaos.wrong else 0
