"""The work on a whole table: bulk insert, upserts, delete and read, each round on fresh tables.

Within a round every step is done by all engines, one after the other, before the next step starts, so the
noise of the machine meets all of them alike. After each step each table is read and compared with what it
must hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

from benchmarks.conductor import Bench, EngineError, WrongResultError, rotated
from benchmarks.data import Dataset
from benchmarks.floor import Floor


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """An engine with the options of one variant of it."""

    name: str
    engine: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One timed step: an operation with one set of rows."""

    name: str
    operation: str
    rows: str


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant(name="plain", engine="plain"),
        Contestant(name="hudi", engine="hudi"),
        Contestant(
            name="hudi without metadata table", engine="hudi", options={"hoodie.metadata.enable": "false"}
        ),
        Contestant(name="delta", engine="delta"),
        Contestant(name="iceberg", engine="iceberg"),
        Contestant(name="sparkrobust", engine="sparkrobust"),
    )
}
FLOOR = "floor"
SAME_FILES = "spark on the same files"
SAME_FILES_INFERRED = "spark on the same files, schema inferred"

STEPS = (
    Step(name="bulk", operation="bulk_insert", rows="base"),
    Step(name="upsert", operation="upsert", rows="spread"),
    Step(name="one_partition", operation="upsert", rows="one_partition"),
    Step(name="delete", operation="delete", rows="deleted"),
)
READ = "read"
NAMES = (*(step.name for step in STEPS), READ)
CAN_CHANGE_ROWS = frozenset({"hudi", "delta", "iceberg", "sparkrobust"})


class TableWork:
    """Rounds of the steps; ``done`` is the sequence that has been applied to the tables of this round."""

    def __init__(self, bench: Bench, dataset: Dataset, wanted: Collection[str], floor: Floor) -> None:
        self.bench, self.dataset, self.floor = bench, dataset, floor
        self.ledger = dataset.ledger()
        self.steps = [step for step in STEPS if step.name in wanted or step.name == "bulk"]
        self.reads = READ in wanted
        self.contestants = [name for name, c in CONTESTANTS.items() if c.engine in bench.engines]
        self.with_floor = FLOOR in bench.engines
        self.counts = False
        self.table = ""
        self.done: list[str] = []

    def run(self) -> None:
        """All rounds, the warm-up first, whose times are thrown away."""
        for number in range(-self.bench.warm_ups, self.bench.rounds):
            self.counts, self.table, self.done = number >= 0, f"work_{number + self.bench.warm_ups}", []
            self.bench.say(f"round {number + 1}" if self.counts else "warm-up")
            for step in self.steps:
                self._step(step, number)
            if self.reads:
                self._all(self.contestants, self._read, number)
                self._all(self.contestants, self._read_same_files, number)
            for contestant in CONTESTANTS.values():
                self._forget(contestant)

    def _step(self, step: Step, number: int) -> None:
        bulk = step.operation == "bulk_insert"
        able = [c for c in self.contestants if bulk or CONTESTANTS[c].engine in CAN_CHANGE_ROWS]
        if step.name == "upsert" and self.with_floor:
            able = [*able, FLOOR]
        before = {c: self._files(c) for c in able if c != FLOOR} if step.name == "upsert" else {}
        self._all(able, lambda c: self._write(c, step), number)
        self.done.append(step.rows)
        able = [c for c in able if c in self.contestants]
        self._all(able, self._check, number)
        for contestant in able:
            if contestant in before and (same := before[contestant] & self._files(contestant)):
                raise WrongResultError(f"{contestant}: {len(same)} files were not touched by the upsert")

    def _all(self, contestants: list[str], act: Callable[[str], None], number: int) -> None:
        for contestant in rotated(contestants, number):
            try:
                act(contestant)
            except (EngineError, WrongResultError) as error:
                self.bench.give_up(contestant, error)
                if contestant in self.contestants:
                    self.contestants.remove(contestant)

    def _table(self, contestant: str) -> str:
        return f"{self.table}_{contestant.replace(' ', '_')}"

    def _write(self, name: str, step: Step) -> None:
        if name == FLOOR:
            self._floor()
            return
        contestant = CONTESTANTS[name]
        os.sync()  # the pages that another engine left dirty aren't to be written on this one's time
        answer = self.bench.worker(contestant.engine).ask(
            step.operation,
            table=self._table(name),
            rows={"parquet": str(self.dataset.rows_of(step.rows))},
            options=dict(contestant.options),
        )
        self._record(step.name, name, answer)
        if answer["steps"] and self.counts:
            self.bench.steps.setdefault(step.name, []).append(answer["steps"])

    def _floor(self) -> None:
        """Rewrite our own files where there are some (they carry the meta columns), else the plain ones."""
        source = next((c for c in ("sparkrobust", "plain") if c in self.contestants), None)
        if source is None:
            raise EngineError("there is no table whose files the floor could rewrite")
        files = [Path(unquote(urlparse(file).path)) for file in sorted(self._files(source))]
        os.sync()
        into = self.bench.tables / FLOOR
        answer, rows = self.floor.rewrite(files, into)
        if rows < self.bench.workload.rows:
            raise WrongResultError(f"the floor copied {rows} rows")
        self._record("upsert", FLOOR, answer)
        shutil.rmtree(into)

    def _files(self, name: str) -> set[str]:
        answer = self.bench.worker(CONTESTANTS[name].engine).ask("files", table=self._table(name))
        return set(answer["files"])

    def _check(self, name: str) -> None:
        answer = self.bench.worker(CONTESTANTS[name].engine).ask("aggregate", table=self._table(name))
        self._compare(name, answer["found"])

    def _compare(self, name: str, found: Mapping[str, list[object]]) -> None:
        # A contestant without updates (plain parquet) holds the first step's rows for ever.
        done = self.done if CONTESTANTS[name].engine in CAN_CHANGE_ROWS else self.done[:1]
        expected = self.ledger.after(*done)
        seen = {part: tuple(figures[:3]) for part, figures in found.items()}
        if seen != expected:
            raise WrongResultError(f"{name} holds {seen} after {done}, and must hold {expected}")

    def _read(self, name: str) -> None:
        answer = self.bench.worker(CONTESTANTS[name].engine).ask("aggregate", table=self._table(name))
        self._compare(name, answer["found"])
        self._record(READ, name, answer)

    def _read_same_files(self, name: str) -> None:
        if name != "sparkrobust":
            return
        for label, schema in ((SAME_FILES, True), (SAME_FILES_INFERRED, False)):
            worker = self.bench.worker(CONTESTANTS[name].engine)
            answer = worker.ask("aggregate_files", table=self._table(name), schema=schema)
            self._compare(name, answer["found"])
            self._record(READ, label, answer)

    def _record(self, step: str, name: str, answer: Mapping[str, float]) -> None:
        seconds, processor = answer["seconds"], answer["processor"]
        self.bench.say(f"  {step:14} {name:40} {seconds:8.2f} s {processor:8.2f} s of processor")
        if self.counts:
            self.bench.record(step, name, seconds, processor)

    def _forget(self, contestant: Contestant) -> None:
        shutil.rmtree(
            self.bench.tables / contestant.engine / self._table(contestant.name), ignore_errors=True
        )


def run(bench: Bench, dataset: Dataset, wanted: Collection[str]) -> None:
    """Run the steps named in ``wanted`` (a bulk insert comes first in any case)."""
    with Floor() as floor:
        TableWork(bench, dataset, wanted, floor).run()
