"""Concurrent writers of one table, each in a partition of its own: commits per second, side by side."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.conductor import Bench, EngineError, WrongResultError, rotated
from benchmarks.data import BASE_TS
from benchmarks.parts.one_row import NO_METADATA, NO_SERVICES, OURS

WRITERS = 8
ROWS_OF_A_PARTITION, ROWS_OF_A_WRITE = 10, 3
IN_PROCESS = "in-process lock"
FILE = "lock by a file"
FILE_GOOD_CLOCKS = "lock by a file, clocks 5 ms apart"
DELTAS_OWN = "without a lock"
_FILE_PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
#: The provider, and how far clocks may be apart: Hudi's own default, and what a time service keeps to.
#: Who takes a time under a lock that others share waits for so long.
_LOCKS = {
    IN_PROCESS: ("org.apache.hudi.client.transaction.lock.InProcessLockProvider", 200),
    FILE: (_FILE_PROVIDER, 200),
    FILE_GOOD_CLOCKS: (_FILE_PROVIDER, 5),
}
#: What Hudi and sparkrobust are told alike.
_SHARED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.wait_time_ms": "120000",
    **NO_SERVICES,
}
UPSERT, APPEND = "upsert", "insert"


def step_of(lock: str) -> str:
    """What is measured with this lock: the seconds that a commit takes when all writers are at it."""
    return f"seconds for each commit of {WRITERS} writers, {lock}"


@dataclass(kw_only=True)
class Table:
    """One engine's table, which all of its writers write."""

    bench: Bench
    name: str
    engine: str
    step: str
    options: Mapping[str, str] = field(default_factory=dict)
    operation: str = UPSERT
    commits: int = 0

    @property
    def table(self) -> str:
        return f"crowd_{self.name}_{self.step}".replace(" ", "_").replace(",", "")

    def build(self) -> None:
        """A partition with a few rows for each writer."""
        shutil.rmtree(self.bench.tables / self.engine / self.table, ignore_errors=True)
        part = f"format_string('region-%02d', cast(id / {ROWS_OF_A_PARTITION} as int))"
        self._ask("bulk_insert", rows={"keys": [0, WRITERS * ROWS_OF_A_PARTITION], "part": part, "tasks": 2})

    def crowd(self, *, counts: bool) -> None:
        """All writers at once."""
        each = self.bench.workload.commits_of_a_writer
        answer = self._ask(
            "crowd",
            writers=WRITERS,
            commits=each,
            begun=self.commits,
            kind=self.operation,
            rows_of_a_partition=ROWS_OF_A_PARTITION,
            rows_of_a_write=ROWS_OF_A_WRITE,
        )
        self.commits += each
        commits = WRITERS * each
        word = "" if counts else ", which does not count"
        self.bench.say(f"  {self.name}: {commits / answer['seconds']:.2f} commits a second{word}")
        if counts:
            self.bench.record(
                self.step, self.name, answer["seconds"] / commits, answer["processor"] / commits
            )
        if answer["refused"]:
            self.bench.note(
                f"{self.step}, {self.name}: {answer['refused']} times a writer was refused, and tried "
                f"again; the last time by {answer['last_refusal']}"
            )

    def check(self) -> None:
        """Every commit's rows are in the table, and no others."""
        found = self.bench.worker(self.engine).ask("aggregate", table=self.table)["found"]
        new = ROWS_OF_A_WRITE * self.commits
        if self.operation == APPEND:
            count = ROWS_OF_A_PARTITION + new
            versions = ROWS_OF_A_WRITE * self.commits * (self.commits + 1) // 2
        else:
            count, versions = ROWS_OF_A_PARTITION, ROWS_OF_A_WRITE * self.commits
        wanted = [count, BASE_TS * count + versions]
        wrong = [part for part, figures in found.items() if [figures[0], figures[2]] != wanted]
        if wrong or len(found) != WRITERS:
            raise WrongResultError(f"{self.name}: {self.table} has not the rows of its commits in {wrong}")

    def drop(self) -> None:
        """Forget the table."""
        shutil.rmtree(self.bench.tables / self.engine / self.table, ignore_errors=True)

    def _ask(self, operation: str, **request: Any) -> dict[str, Any]:
        worker = self.bench.worker(self.engine)
        return worker.ask(operation, table=self.table, options=dict(self.options), **request)


def run(bench: Bench) -> None:
    """With each lock: rounds in which the engines take turns."""
    for lock, (provider, skew_ms) in _LOCKS.items():
        given = {
            **_SHARED,
            "hoodie.write.lock.provider": provider,
            "hoodie.time.generator.max_expected_clock_skew_ms": str(skew_ms),
        }
        tables = [
            Table(bench=bench, name=OURS, engine=OURS, step=step_of(lock), options=given),
            # The cheaper one of Hudi's two ways, and the one that can be shared with us.
            Table(
                bench=bench, name="hudi", engine="hudi", step=step_of(lock), options={**given, **NO_METADATA}
            ),
        ]
        if lock == IN_PROCESS:
            tables += [
                Table(bench=bench, name="delta", engine="delta", step=step_of(DELTAS_OWN)),
                Table(
                    bench=bench,
                    name="delta, appending",
                    engine="delta",
                    step=step_of(DELTAS_OWN),
                    operation=APPEND,
                ),
            ]
        _take_turns(bench, {one.name: one for one in tables if one.engine in bench.engines})
        bench.say(f"  {WRITERS} writers, {lock}, done")


def _take_turns(bench: Bench, tables: dict[str, Table]) -> None:
    for number in range(-bench.warm_ups - 1, bench.rounds):
        for name in rotated(list(tables), number):
            try:
                if number < -bench.warm_ups:
                    tables[name].build()
                else:
                    tables[name].crowd(counts=number >= 0)
            except EngineError as error:
                bench.give_up(f"{name}, {tables[name].step}", error)
                del tables[name]
    for table in tables.values():
        try:
            table.check()
        except (EngineError, WrongResultError) as error:
            bench.give_up(f"{table.name}, {table.step}", error)
        table.drop()
