"""Small moves with DataFrames that several steps share; nothing here knows about tables."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkrobust.handles.packing import pack
from sparkrobust.spark.schema import to_arrow, to_spark
from sparkrobust.spark.tasks import CHUNK, UnpackRows


def as_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """An Arrow table as a DataFrame, on every Spark.

    It travels as data: inside of a function it would be broadcast, and PySpark would leave a file with
    it on the driver's disk until the application ends.
    """
    packed = spark.createDataFrame([(pack(table),)], CHUNK).coalesce(1)
    return packed.mapInArrow(UnpackRows(), to_spark(table.schema))


def numbers(spark: SparkSession, count: int, tasks: int, *, first: int = 0) -> DataFrame:
    """So many numbers from the first one on, spread over tasks."""
    return spark.range(first, first + count, 1, max(1, min(count, tasks)))


def collect_arrow(frame: DataFrame) -> pa.Table:
    """All rows, as Arrow: large values come a good deal cheaper than as rows of Python objects."""
    collecting: Any = frame  # the two Sparks' types don't agree on what it has
    if hasattr(collecting, "toArrow"):
        return collecting.toArrow()
    # Spark 3.5 has it too, under another name.
    batches = collecting._collect_as_arrow()
    return pa.Table.from_batches(batches, None if batches else to_arrow(frame.schema))


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, where plans are looked at later and elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class Frames:
    """The session of a write, and the DataFrames that it keeps for a while."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._kept: list[DataFrame] = []

    def persist(self, frame: DataFrame) -> DataFrame:
        """Keep what is computed twice: it costs less, and the second time gives the same rows."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def release(self) -> None:
        """Keep none of them any longer."""
        for frame in self._kept:
            with suppress(Exception):  # Spark is away, and what it kept with it; how the write ended stays
                frame.unpersist()
        self._kept = []
