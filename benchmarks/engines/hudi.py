"""Apache Hudi with its defaults, but for the codec, which is the same for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.engines.base import Engine

#: What a pipeline says to Hudi, and says unchanged to sparkrobust.
PIPELINE_OPTIONS = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.parquet.compression.codec": "snappy",
}


class Hudi(Engine):
    """Hudi through its Spark data source."""

    name = "hudi"

    def settings(self) -> dict[str, str]:
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def bulk_insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._write(rows, table, "bulk_insert", options)

    def insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._write(rows, table, "insert", options)

    def upsert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._write(rows, table, "upsert", options)

    def delete(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        self._write(rows, table, "delete", options)

    def _write(self, rows: DataFrame, table: str, operation: str, options: Mapping[str, str]) -> None:
        settings = {**PIPELINE_OPTIONS, "hoodie.datasource.write.operation": operation, **options}
        rows.write.format("hudi").options(**settings).mode("append").save(self.path(table))

    def load(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.format("hudi").load(self.path(table))
