"""Plain parquet: no table format at all; what Spark itself needs to write and read the files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.engines.base import Engine


class PlainParquet(Engine):
    """``df.write.partitionBy.parquet``."""

    name = "plain"
    lacks = frozenset({"insert", "upsert", "delete"})

    def bulk_insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        rows.write.partitionBy("part").mode("append").parquet(self.path(table))

    def load(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.parquet(self.path(table))
