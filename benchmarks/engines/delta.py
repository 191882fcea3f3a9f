"""Delta Lake: MERGE on the partition and the key."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.engines.base import Engine, Write

SAME_KEY = "target.part = source.part AND target.id = source.id"


class Delta(Engine):
    """Delta through its Spark data source and SQL."""

    name = "delta"

    def settings(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def bulk_insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        rows.write.format("delta").partitionBy("part").mode("append").save(self.path(table))

    def insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        rows.write.format("delta").mode("append").save(self.path(table))

    def upsert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._merge(rows, table, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    def upsert_into(self, partition: str) -> Write:
        # Without the name it takes a merge for one that has read all partitions, and refuses those beside it.
        only = f"target.part = '{partition}' AND {SAME_KEY}"

        def upsert(rows: DataFrame, table: str, options: Mapping[str, str]) -> None:
            action = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            self._merge(rows, table, action, only)

        return upsert

    def delete(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._merge(rows, table, "WHEN MATCHED THEN DELETE")

    def _merge(self, rows: DataFrame, table: str, action: str, same: str = SAME_KEY) -> None:
        view = f"source_{threading.get_ident()}"
        rows.createOrReplaceTempView(view)
        target = f"delta.`{self.path(table)}`"
        rows.sparkSession.sql(f"MERGE INTO {target} target USING {view} source ON {same} {action}")

    def load(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.format("delta").load(self.path(table))
