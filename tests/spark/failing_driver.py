"""A pipeline whose writes are stopped from outside: ``failing_driver.py TABLE FIFO``.

It says what it is about on stdout, a line of JSON each.  Its writes wait, in the middle of their one
task, for a fifo that nobody opens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import sparkrobust as sr
from tests.interop.tables import OPERATION, options
from tests.spark.conftest import small_session

ROWS = 200_000
"""More than a handle, and the pipes before it, wait for before a file begins."""


@dataclass(frozen=True)
class StuckInTheMiddle:
    """Passes rows on, then waits for somebody to open the fifo."""

    fifo: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        with open(self.fifo, "rb"):
            pass


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, 1, 1).selectExpr(
        "CAST(id AS int) AS id", "id AS ts", "'new' AS region"
    )


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(table: Path, fifo: str) -> None:
    spark = small_session(spark__python__worker__reuse="false")
    gateway = getattr(spark.sparkContext._gateway, "proc", None)
    say(about="started", java=gateway.pid if gateway else None)

    def write(df: DataFrame, operation: str) -> sr.WriteResult:
        return sr.write(df).options(**options(), **{OPERATION: operation}).mode("append").save(str(table))

    write(rows(spark, 0, 3), "upsert")
    for number in (1, 2, 3):
        df = rows(spark, 100 * number, ROWS)
        stuck = df.mapInArrow(StuckInTheMiddle(fifo), df.schema)
        say(about="writing")
        try:
            write(stuck, "bulk_insert")
        except sr.errors.OperationCancelled as error:
            while spark.sparkContext.statusTracker().getActiveJobsIds():
                pass  # being cancelled; the test's patience ends it otherwise
            say(about="cancelled", message=str(error))
        result = write(rows(spark, number, 3), "upsert")
        say(about="written", rolled_back=result.rolled_back)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
