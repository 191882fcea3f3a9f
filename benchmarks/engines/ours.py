"""sparkrobust, with the very options that Hudi gets."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparkrobust as sr
from benchmarks.bare import switched_off
from benchmarks.engines.base import Engine
from benchmarks.engines.hudi import PIPELINE_OPTIONS

ROBUST = "benchmark.robust"
"""``off``: the write is a bare one.  Nobody but the benchmark knows this option."""


class SparkRobust(Engine):
    """sparkrobust through its public surface."""

    name = "sparkrobust"

    def bulk_insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        return self._write(rows, table, "bulk_insert", options)

    def insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        return self._write(rows, table, "insert", options)

    def upsert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        return self._write(rows, table, "upsert", options)

    def delete(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        return self._write(rows, table, "delete", options)

    def _write(self, rows: DataFrame, table: str, operation: str, options: Mapping[str, str]) -> Any:
        settings = {**PIPELINE_OPTIONS, "hoodie.datasource.write.operation": operation, **options}
        bare = settings.pop(ROBUST, "on") == "off"
        with switched_off() if bare else contextlib.nullcontext():
            return sr.write(rows).options(**settings).mode("append").save(self.path(table))

    def path(self, table: str) -> str:
        # One that says itself where it lies is not among the benchmark's tables.
        return table if "://" in table else super().path(table)

    def load(self, spark: SparkSession, table: str) -> DataFrame:
        return sr.read(spark).load(self.path(table))
