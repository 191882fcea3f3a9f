"""One operation of sparkrobust, again and again on fresh tables, with the seconds of each step."""

from __future__ import annotations

import os
import shutil
from typing import Any

from benchmarks.conductor import Bench
from benchmarks.data import Dataset
from benchmarks.parts.one_row import INSERT, OURS, SMALL_TABLE_ROWS, UPSERT, Writer
from benchmarks.parts.table_work import STEPS

TABLE = "profiled"
ONE_ROW = {"one_row_insert": INSERT, "one_row_upsert": UPSERT}
OPERATIONS = (*(step.name for step in STEPS), *ONE_ROW)


def run(bench: Bench, dataset: Dataset, operation: str, repeat: int) -> None:
    """Print seconds by step for each repetition, and the driver's hottest calls for the last one."""
    if operation in ONE_ROW:
        _one_row(bench, ONE_ROW[operation], repeat)
    else:
        _table(bench, dataset, operation, repeat)


def _table(bench: Bench, dataset: Dataset, operation: str, repeat: int) -> None:
    step = next(step for step in STEPS if step.name == operation)
    worker = bench.worker(OURS)
    for number in range(repeat):
        shutil.rmtree(bench.tables / OURS / TABLE, ignore_errors=True)
        if step.name != "bulk":
            base = {"parquet": str(dataset.rows_of("base"))}
            _say(f"{number + 1}: bulk", worker.ask("bulk_insert", table=TABLE, rows=base))
        os.sync()
        rows = {"parquet": str(dataset.rows_of(step.rows))}
        answer = worker.ask(step.operation, table=TABLE, rows=rows, profile=number == repeat - 1)
        _say(f"{number + 1}: {operation}", answer)


def _one_row(bench: Bench, step: str, repeat: int) -> None:
    operations = {INSERT: "insert", UPSERT: "upsert"}
    writer = Writer(bench=bench, name=OURS, engine=OURS, table=TABLE, operations=operations)
    writer.build(keys=SMALL_TABLE_ROWS)
    for number in range(repeat):
        _say(f"{number + 1}: {step}", writer.commit(step, profile=number == repeat - 1))


def _say(what: str, answer: dict[str, Any]) -> None:
    steps, seconds = answer["steps"], answer["seconds"]
    print(f"{what}: {seconds:.3f} s, processor {answer['processor']:.3f} s")
    for name, value in steps.items():
        print(f"    {name:32} {value:8.3f} s  {value / seconds:6.1%}")
    if steps:
        print(f"    {'outside the steps':32} {seconds - sum(steps.values()):8.3f} s")
    if answer.get("profile"):
        print(answer["profile"])
