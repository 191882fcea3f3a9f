"""One-row commits: on a small table beside the peers, and how ours grow with the timeline and the files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.conductor import Bench, EngineError, WrongResultError, rotated

INSERT, UPSERT = "one-row insert", "one-row upsert"
OURS = "sparkrobust"
SMALL_TABLE_ROWS = 1_000
ONE_PARTITION = "'region-00'"
NO_SERVICES = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
NO_METADATA = {"hoodie.metadata.enable": "false"}
#: The files of a table lie in many partitions, or all in the one that the row goes to.
SPREAD, TOGETHER = "files in many partitions", "files in one partition"


@dataclass(kw_only=True)
class Writer:
    """One engine committing single rows to one table, and how many rows that table must hold by now."""

    bench: Bench
    name: str
    engine: str
    table: str
    operations: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    watched: bool = False
    """Whether it is told for how long a commit holds the lock."""
    rows: int = 0

    def build(self, *, keys: int, part: str = ONE_PARTITION, tasks: int = 1) -> None:
        """Add rows by a bulk insert, which makes the table when there is none."""
        self._ask("bulk_insert", keys=[self.rows, self.rows + keys], part=part, tasks=tasks)
        self.rows += keys

    def commit(self, step: str, part: str = ONE_PARTITION, *, profile: bool = False) -> dict[str, Any]:
        """Commit one row: a new key when inserting, the first key of the table when upserting."""
        new = step != UPSERT
        key = self.rows if new else 0
        keys, operation = [key, key + 1], self.operations[step]
        answer = self._ask(
            operation, keys=keys, part=part, profile=profile, watched=self.watched, version=self.rows
        )
        self.rows += new
        return answer

    def check(self) -> None:
        """The table holds each row once."""
        found = self.bench.worker(self.engine).ask("aggregate", table=self.table)["found"]
        count = sum(figures[0] for figures in found.values())
        if count != self.rows:
            raise WrongResultError(f"{self.name}: {self.table} holds {count} rows and must hold {self.rows}")

    def files(self) -> int:
        """How many data files the latest snapshot has."""
        return len(self.bench.worker(self.engine).ask("files", table=self.table)["files"])

    def drop(self) -> None:
        """Forget the table."""
        shutil.rmtree(self.bench.tables / self.engine / self.table, ignore_errors=True)

    def _ask(
        self, operation: str, *, profile: bool = False, watched: bool = False, **rows: Any
    ) -> dict[str, Any]:
        worker, options = self.bench.worker(self.engine), dict(self.options)
        asked = {"options": options, "profile": profile, "watched": watched}
        return worker.ask(operation, table=self.table, rows=rows, **asked)


def run_small(bench: Bench) -> None:
    """One-row commits on a small table, the engines taking turns commit by commit."""
    appends, both = {INSERT: "insert"}, {INSERT: "insert", UPSERT: "upsert"}
    possible = [
        Writer(bench=bench, name="hudi", engine="hudi", table="one_hudi", operations=both),
        Writer(
            bench=bench,
            name="hudi without metadata table",
            engine="hudi",
            table="one_hudi_plain",
            operations=both,
            options=NO_METADATA,
        ),
        Writer(bench=bench, name="delta", engine="delta", table="one_delta", operations=appends),
        Writer(bench=bench, name="iceberg", engine="iceberg", table="one_iceberg", operations=appends),
        Writer(bench=bench, name=OURS, engine=OURS, table="one_ours", operations=both),
    ]
    writers = {writer.name: writer for writer in possible if writer.engine in bench.engines}
    for name in list(writers):
        try:
            writers[name].drop()
            writers[name].build(keys=SMALL_TABLE_ROWS)
        except EngineError as error:
            bench.give_up(name, error)
            del writers[name]
    _take_turns(bench, writers, (INSERT, UPSERT))


def _take_turns(bench: Bench, writers: dict[str, Writer], steps: tuple[str, ...], suffix: str = "") -> None:
    """Let the writers commit in turns, a few for warmth and then those that count; then check and drop."""
    commits = bench.workload.one_row_commits
    for number in range(-3, commits):
        for step in steps:
            able = [name for name, writer in writers.items() if step in writer.operations]
            for name in rotated(able, number):
                answer = writers[name].commit(step)
                if number >= 0:
                    bench.record(step + suffix, name, answer["seconds"], answer["processor"])
                    if answer["steps"]:
                        bench.steps.setdefault(f"{step}{suffix} {name}".strip(), []).append(answer["steps"])
    for writer in writers.values():
        writer.check()
        writer.drop()
    bench.say(f"  one-row commits{suffix} done")


def run_growth(bench: Bench) -> None:
    """Ours alone: few and many instants, few and many files, always in turns."""
    size = bench.workload
    for kind, few, many in (
        ("instants", size.few_instants, size.many_instants),
        (SPREAD, size.few_files, size.many_files),
        (TOGETHER, size.few_files, size.many_files),
    ):
        writers = {}
        try:
            for count in (few, many):
                writers[f"{count}"] = _grown(bench, kind, count)
            _take_turns(bench, writers, (INSERT, UPSERT), suffix=f", {kind}")
        except (EngineError, WrongResultError) as error:
            bench.give_up(f"{OURS}, growth with {kind}", error)


def _grown(bench: Bench, kind: str, count: int) -> Writer:
    both = {INSERT: "insert", UPSERT: "upsert"}
    table = f"grown_{kind.replace(' ', '_')}_{count}"
    writer = Writer(bench=bench, name=OURS, engine=OURS, table=table, operations=both, options=NO_SERVICES)
    writer.drop()
    if kind == "instants":
        writer.build(keys=10)
        for _ in range(count - 1):
            writer.commit(INSERT)
    elif kind == SPREAD:
        writer.build(keys=count, part="format_string('region-%02d', id)")
    else:
        build_files(writer, count)
    bench.say(f"  a table with {count} {kind} stands")
    return writer


def build_files(writer: Writer, count: int) -> None:
    """Make a table of ``count`` files in one partition: one for each task of a bulk insert."""
    writer.build(keys=count, tasks=count)
    files = writer.files()
    if files < count:
        writer.bench.note(f"{writer.table}: a bulk insert of {count} tasks made {files} files")
