"""One process with the real Hudi and one Spark session of ours, shared by every test of the folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import sparkrobust as sr
from tests.fixture_tables import hudi_tables
from tests.interop.oracle import Oracle, hudi

__all__ = ["hudi", "hudi_tables"]


@pytest.fixture(scope="session")
def spark(hudi: Oracle) -> Iterator[Any]:
    """Our side: plain Spark without any Hudi in it.  Asked for after the oracle, so both start at once."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config(
            "spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"
        )
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


class Ours:
    """Our writer and reader, asked as the oracle is."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def write(self, path: Path, sql: str, options: Mapping[str, str], mode: str = "append") -> Any:
        """``sr.write`` over the rows of a query."""
        return sr.write(self.spark.sql(sql)).format("hudi").options(**options).mode(mode).save(str(path))

    def read(self, path: Path) -> list[dict[str, Any]]:
        """The rows that ``sr.read`` gives."""
        return [row.asDict(recursive=True) for row in sr.read(self.spark).load(str(path)).collect()]


@pytest.fixture(scope="session")
def ours(spark: Any) -> Ours:
    """Our writer and reader."""
    return Ours(spark)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Where the table of a test goes."""
    return tmp_path / "t"


@pytest.fixture
def copy_of(hudi_tables: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a table that the real Hudi made, to be written on."""
    import shutil

    def copy(name: str) -> Path:
        return Path(shutil.copytree(hudi_tables / name, tmp_path / name))

    return copy
