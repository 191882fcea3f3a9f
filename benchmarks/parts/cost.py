"""The cost of robustness: the same writes with the protocol and without it, in turns in one Spark session.

Each round begins with another one of the two.  After each write both tables must hold the same rows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from benchmarks.conductor import Bench, WrongResultError
from benchmarks.data import Dataset
from benchmarks.engines.ours import ROBUST
from benchmarks.parts.one_row import OURS

ON, OFF = "robust", "bare"
BULK, UPSERT, SMALL_FILES = "robustness, bulk", "robustness, upsert", "robustness, many small files"

_LEAST_ROUNDS, _LEAST_WARM_UPS = 15, 6
"""A difference of a few percent needs more of them than the peers do, and a Spark that gets no faster."""
_ROWS_OF_A_SMALL_FILE = 100
_TASKS = 8


def run(bench: Bench, dataset: Dataset) -> None:
    """All three writes, some rounds for warmth first."""
    rounds = max(bench.rounds, _LEAST_ROUNDS)
    for number in range(-max(bench.warm_ups, _LEAST_WARM_UPS), rounds):
        _table(bench, dataset, number)
    small_rounds = range(-1, rounds)
    for number in small_rounds:
        _small_files(bench, number)
    # No earlier: for some minutes ext4 looks at every inode that was deleted before it takes another one.
    for number in small_rounds:
        _forget(bench, f"_{number}")


def _table(bench: Bench, dataset: Dataset, number: int) -> None:
    """A bulk insert into an empty table, then an upsert that rewrites every file of it."""
    for step, operation, rows in ((BULK, "bulk_insert", "base"), (UPSERT, "upsert", "spread")):
        _both(bench, step, operation, {"parquet": str(dataset.rows_of(rows))}, number)
    _forget(bench)


def _small_files(bench: Bench, number: int) -> None:
    count = bench.workload.small_files
    part = f"format_string('region-%05d', cast(id / {_ROWS_OF_A_SMALL_FILE} as int))"
    rows = {"keys": [0, count * _ROWS_OF_A_SMALL_FILE], "part": part, "tasks": _TASKS}
    _both(bench, SMALL_FILES, "bulk_insert", rows, number, f"_{number}")
    files = bench.worker(OURS).ask("files", table=_name(ON, f"_{number}"))["files"]
    if len(files) != count:
        raise WrongResultError(f"the write of {count} small files made {len(files)}")


def _both(
    bench: Bench, step: str, operation: str, rows: Mapping[str, Any], number: int, tables: str = ""
) -> None:
    worker, held = bench.worker(OURS), {}
    for mode in (ON, OFF) if number % 2 else (OFF, ON):
        os.sync()
        options = {ROBUST: "on" if mode == ON else "off"}
        answer = worker.ask(operation, table=_name(mode, tables), rows=rows, options=options)
        bench.say(
            f"  {step:30} {mode:8} {answer['seconds']:8.3f} s {answer['processor']:8.2f} s of processor"
        )
        if number >= 0:
            bench.record(step, mode, answer["seconds"], answer["processor"])
            bench.steps.setdefault(f"{step}, {mode}", []).append(answer["steps"])
    for mode in (ON, OFF):
        answer = worker.ask("all_rows", table=_name(mode, tables))
        held[mode] = (answer["rows"], answer["sum"])
    if held[ON] != held[OFF] or not held[ON][0]:
        raise WrongResultError(f"{step}: the robust writer's table and the bare one's differ: {held}")


def _name(mode: str, tables: str) -> str:
    return f"cost_{mode}{tables}"


def _forget(bench: Bench, tables: str = "") -> None:
    for mode in (ON, OFF):
        shutil.rmtree(bench.tables / OURS / _name(mode, tables), ignore_errors=True)
