"""The interface of an engine, and what a Spark session needs in all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from benchmarks.places import PEER_JARS, jar_file

COMMON_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Four tasks for each of the two cores. Spark's default of 200 would cost each engine that shuffles by its
    # own machinery more than the adaptive execution of the others, which says nothing about the formats.
    "spark.sql.shuffle.partitions": "8",
    "spark.default.parallelism": "8",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.parquet.compression.codec": "snappy",
}


Write = Callable[[DataFrame, str, Mapping[str, str]], Any]
"""Of rows, into a table, with options."""


class Engine(ABC):
    """One table format in one Spark session. Tables are named; where they lie is the engine's business.

    ``options`` of an operation are passed to the writer of those engines that know options.
    """

    name: ClassVar[str]
    #: operations that this engine has no counterpart of
    lacks: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def jars(cls) -> list[Path]:
        """The jars that the session needs."""
        return [jar_file(coordinates) for coordinates in PEER_JARS.get(cls.name, ())]

    def settings(self) -> dict[str, str]:
        """Spark settings of this engine, above ``COMMON_SETTINGS``."""
        return {}

    def path(self, table: str) -> str:
        """Where a table lies."""
        return str(self.folder / table)

    @abstractmethod
    def bulk_insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        """Make a table of these rows, or add them to it without a look at what is there."""

    def insert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        """Add rows to an existing table."""
        raise NotImplementedError

    def upsert(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        """Replace rows by key and add those whose key is new."""
        raise NotImplementedError

    def upsert_into(self, partition: str) -> Write:
        """An upsert of rows that all lie in one partition, for an engine that has to be told."""
        return self.upsert

    def delete(self, rows: DataFrame, table: str, options: Mapping[str, str]) -> Any:
        """Delete the rows with these keys."""
        raise NotImplementedError

    @abstractmethod
    def load(self, spark: SparkSession, table: str) -> DataFrame:
        """The latest snapshot."""

    def data_files(self, spark: SparkSession, table: str) -> list[str]:
        """The files that a read of the latest snapshot opens."""
        return sorted(self.load(spark, table).inputFiles())
