"""Small Spark sessions of the writers that have one.  Nothing here needs more than PySpark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from fault_injection.writers.turns import Rows, Task

SCHEMA = "id string, ts long, part string"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Driver(Protocol):
    """A driver with its session."""

    def upsert(self, rows: Rows) -> str:
        """One write; its instant, as far as it is told."""


def drive(make: Callable[[Task, SparkSession], Driver], settings: Mapping[str, str]) -> None:
    """Do the task that the command line tells, in a session with these settings."""
    task = Task.of_json(sys.argv[1])
    session = _session(task, settings)
    task.run(make(task, session).upsert)
    session.stop()


def _session(task: Task, settings: Mapping[str, str]) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName(task.name)
    warehouse = {"spark.sql.warehouse.dir": Path(task.log).with_suffix(".warehouse").as_uri()}
    for name, value in {**_SETTINGS, **settings, **warehouse}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
