"""One of many writers, as users have them: a Spark driver that calls ``sr.write`` again and again."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.spark.class_archive import settings_folder, small_jvm
from fault_injection.writers.sessions import SCHEMA, drive
from fault_injection.writers.turns import TABLE, Rows, Task

_RETRIES = {"hoodie.write.num.retries.on.conflict.failures": "1000"}
_BY_TASKS = {"hoodie.write.robust.driver.max.bytes": "0"}
"""Rows as few as these are else written by the driver itself."""
_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


class SparkWriter:
    """A driver with its session."""

    def __init__(self, task: Task, spark: SparkSession) -> None:
        self._task, self._chance, self._spark = task, task.chance(), spark

    def upsert(self, rows: Rows) -> str:
        frame = self._spark.createDataFrame(rows.tuples(), SCHEMA)
        options = {**TABLE, **self._task.options, **_RETRIES, **(self._chance.choice([_BY_TASKS, {}]))}
        result = sr.write(frame).options(**options).mode("append").save(self._task.url)
        assert result.instant is not None  # what is missing where there was nothing to write
        return result.instant


if __name__ == "__main__":
    os.environ["SPARK_CONF_DIR"] = str(settings_folder())
    drive(SparkWriter, {**_SETTINGS, "spark.driver.extraJavaOptions": f"{small_jvm()} -Duser.timezone=UTC"})
