"""Memory: a worker that merges a base file of one gigabyte, and the driver of a table of many files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from benchmarks.conductor import Bench, Worker, WrongResultError
from benchmarks.parts import planning
from benchmarks.parts.one_row import ONE_PARTITION, OURS
from benchmarks.processes import DRIVER, JVM, TASK, PeakMemory

BIG_TABLE = "big_file"
BIG_FILE_OPTIONS = {"hoodie.parquet.max.file.size": str(4 * 2**30), "hoodie.parquet.small.file.limit": "0"}
MERGE_WORKER = "worker that merges one big base file"
ABOVE_SPARK = "driver's Python above Spark's own"
JVM_ABOVE_SPARK = "JVM of the driver above Spark's own, live after a collection"


def run(bench: Bench) -> None:
    """Both measurements, each in processes that did nothing before."""
    _merge(bench)
    _driver(bench)


def _merge(bench: Bench) -> None:
    rows = bench.workload.big_file_rows
    shutil.rmtree(bench.tables / OURS / BIG_TABLE, ignore_errors=True)
    bench.worker(OURS).ask(
        "bulk_insert",
        table=BIG_TABLE,
        rows={"keys": [0, rows], "part": ONE_PARTITION},
        options=BIG_FILE_OPTIONS,
    )
    files = list((bench.tables / OURS / BIG_TABLE).glob("region-00/*.parquet"))
    if len(files) != 1:
        raise WrongResultError(f"the big table has {len(files)} files and must have one")
    bench.megabytes["the big base file"] = files[0].stat().st_size / 2**20
    worker = bench.fresh_worker(OURS)
    try:
        changed = {"keys": [0, rows // 100], "part": ONE_PARTITION, "version": 1}
        with PeakMemory(worker.pid) as memory:
            answer = worker.ask("upsert", table=BIG_TABLE, rows=changed, options=BIG_FILE_OPTIONS)
        found = worker.ask("aggregate", table=BIG_TABLE)["found"]
    finally:
        worker.close()
        shutil.rmtree(bench.tables / OURS / BIG_TABLE, ignore_errors=True)
    if found["region-00"][0] != rows:
        raise WrongResultError(f"the big table holds {found['region-00'][0]} rows and must hold {rows}")
    bench.record("merge of one big base file", OURS, answer["seconds"], answer["processor"])
    bench.megabytes[MERGE_WORKER] = memory.peaks[TASK]


def _driver(bench: Bench) -> None:
    """The same read by our reader and by Spark alone, each in a fresh process; then our one-row upsert."""
    writer = planning.build(bench)
    files = bench.worker(OURS).ask("files", table=writer.table)["files"]
    row = {"keys": [0, 1], "part": "'region-00'", "version": 1}
    uses: dict[str, Callable[[Worker], Any]] = {
        "read by Spark alone": lambda worker: worker.ask("read_files", files=files),
        "read by sparkrobust": lambda worker: worker.ask("aggregate", table=writer.table),
        "upsert of one row": lambda worker: worker.ask("upsert", table=writer.table, rows=row, options={}),
    }
    live: dict[str, float] = {}
    for name, use in uses.items():
        worker = bench.fresh_worker(OURS)
        try:
            with PeakMemory(worker.pid) as memory:
                use(worker)
            live[name] = worker.ask("live_heap")["megabytes"]
        finally:
            worker.close()
        for role in (DRIVER, JVM):
            bench.megabytes[f"{role}, {name}"] = memory.peaks[role]
        bench.megabytes[f"JVM live after a collection, {name}"] = live[name]
    writer.drop()
    alone = "read by Spark alone"
    for name in ("read by sparkrobust", "upsert of one row"):
        above = bench.megabytes[f"{DRIVER}, {name}"] - bench.megabytes[f"{DRIVER}, {alone}"]
        bench.megabytes[f"{ABOVE_SPARK}, {name}"] = above
        bench.megabytes[f"{JVM_ABOVE_SPARK}, {name}"] = live[name] - live[alone]
