"""Apache Iceberg: MERGE on the partition and the key, copy-on-write as by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.engines.base import Engine

SAME_KEY = "target.part = source.part AND target.id = source.id"


class Iceberg(Engine):
    """Iceberg in a Hadoop catalog whose warehouse is the folder of the tables."""

    name = "iceberg"

    def settings(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.bench.type": "hadoop",
            "spark.sql.catalog.bench.warehouse": str(self.folder.parent),
        }

    def _identifier(self, table: str) -> str:
        return f"bench.{self.name}.`{table}`"

    def bulk_insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        identifier = self._identifier(table)
        if (self.folder / table).exists():
            rows.writeTo(identifier).append()
            return
        writer = rows.writeTo(identifier).using("iceberg").partitionedBy(F.col("part"))
        writer.tableProperty("write.parquet.compression-codec", "snappy").create()

    def insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        rows.writeTo(self._identifier(table)).append()

    def upsert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._merge(rows, table, "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    def delete(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._merge(rows, table, "WHEN MATCHED THEN DELETE")

    def _merge(self, rows: DataFrame, table: str, action: str) -> None:
        rows.createOrReplaceTempView("source")
        target = self._identifier(table)
        rows.sparkSession.sql(f"MERGE INTO {target} target USING source ON {SAME_KEY} {action}")

    def load(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.table(self._identifier(table))

    def data_files(self, spark: SparkSession, table: str) -> list[str]:
        files = spark.sql(f"SELECT file_path FROM {self._identifier(table)}.files")
        return sorted(row.file_path for row in files.collect())
