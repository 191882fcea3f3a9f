"""A pipeline that is killed in the middle of a write: ``dying_driver.py TABLE FIFO``.

Its one task waits for a fifo that nobody opens, and outlives the driver.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import sparkrobust as sr
from tests.interop.tables import OPERATION, options
from tests.spark.conftest import small_session
from tests.spark.failing_driver import ROWS, StuckInTheMiddle, rows, say


@dataclass(frozen=True)
class HardToKill(StuckInTheMiddle):
    """Says who it is, and does not go with its driver."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        Path(f"{self.fifo}.pid").write_text(str(os.getpid()))
        yield from super().__call__(batches)


def main(table: str, fifo: str) -> None:
    spark = small_session()
    gateway = getattr(spark.sparkContext._gateway, "proc", None)
    say(about="started", java=gateway.pid if gateway else None)
    df = rows(spark, 100, ROWS)
    stuck = df.mapInArrow(HardToKill(fifo), df.schema)
    say(about="writing")
    sr.write(stuck).options(**options(), **{OPERATION: "bulk_insert"}).mode("append").save(table)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
