"""Planning a snapshot of many files: what our reader does before Spark runs, and Spark's own share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.conductor import Bench, WrongResultError
from benchmarks.parts.one_row import OURS, Writer

PLANNING = "planning"
WHOLE = "sr.read().load()"
IN_SPARK = "of it in Spark's JVM"
OWN = "of it sparkrobust's own"
SPARK_ALONE = "Spark alone: a DataFrame on the same files"
READ_MANY = "read of many small files"
TABLE = "planned"
FILES_IN_A_PARTITION = 100


def build(bench: Bench) -> Writer:
    """A table with the wanted number of files, a hundred to a partition."""
    writer = Writer(bench=bench, name=OURS, engine=OURS, table=TABLE, operations={"upsert": "upsert"})
    writer.drop()
    count = bench.workload.planned_files
    partitions = max(1, count // FILES_IN_A_PARTITION)
    # Each task gets consecutive keys, so it meets each partition once, and makes one file there.
    part = f"format_string('region-%02d', id % {partitions})"
    writer.build(keys=count, part=part, tasks=FILES_IN_A_PARTITION)
    files = writer.files()
    if files != count:
        raise WrongResultError(f"the table to plan has {files} files and must have {count}")
    return writer


def run(bench: Bench) -> None:
    """Load the snapshot several times and record our share and Spark's."""
    writer = build(bench)
    try:
        measure(bench, writer)
    finally:
        writer.drop()


def _whole_numbers(answer: Mapping[str, Any]) -> dict[str, list[int]]:
    """What two reads must agree on; sums of floating point depend on the order of the rows."""
    return {part: figures[:3] for part, figures in answer["found"].items()}


def measure(bench: Bench, writer: Writer) -> None:
    """Take turns between our reader and Spark's on the same files."""
    for number in range(-1, max(bench.rounds, 3)):
        ours = bench.worker(OURS).ask("aggregate", table=writer.table)
        sparks = bench.worker(OURS).ask("aggregate_files", table=writer.table)
        if not ours["found"] or _whole_numbers(ours) != _whole_numbers(sparks):
            raise WrongResultError("sparkrobust and Spark read different rows from the same files")
        if number < 0:
            continue
        bench.record(PLANNING, WHOLE, ours["planning"])
        bench.record(PLANNING, IN_SPARK, ours["in_spark"])
        bench.record(PLANNING, OWN, ours["planning"] - ours["in_spark"])
        bench.record(PLANNING, SPARK_ALONE, sparks["planning"])
        bench.record(READ_MANY, OURS, ours["seconds"])
        bench.record(READ_MANY, "spark on the same files", sparks["seconds"])
    bench.say(f"  planning of {bench.workload.planned_files} files done")
