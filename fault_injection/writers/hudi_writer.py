"""One of many writers, of the other kind: Hudi, in Spark with the jar that ``SPARKROBUST_ORACLE_JAR`` names.

It runs in a Python of its own, in which there is PySpark and nothing that sparkrobust needs.
"""

from __future__ import annotations

import os

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fault_injection.writers.sessions import SCHEMA, drive
from fault_injection.writers.turns import TABLE, Rows, Task
from sparkrobust.errors import ConflictError

JAR = "SPARKROBUST_ORACLE_JAR"
_CONSIDERATE = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.num.retries.on.conflict.failures": "10",
    "hoodie.metadata.enable": "false",
    # What the check looks at is to stay: every file, and every instant.
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
_PACKAGE = "org.apache.hudi.client.transaction.lock."
_PROVIDER = "hoodie.write.lock.provider"
_SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC",
    "spark.driver.memory": "1g",
}


class HudiWriter:
    """A driver with its session."""

    def __init__(self, task: Task, spark: SparkSession) -> None:
        self._task, self._spark = task, spark

    def upsert(self, rows: Rows) -> str:
        options = {**TABLE, **self._task.options, **_CONSIDERATE}
        options[_PROVIDER] = _PACKAGE + options[_PROVIDER]
        frame = self._spark.createDataFrame(rows.tuples(), SCHEMA).coalesce(1)
        try:
            frame.write.format("hudi").options(**options).mode("append").save(self._task.url)
        except Py4JJavaError as error:
            if "HoodieWriteConflictException" not in str(error):
                raise
            raise ConflictError("Hudi's write was refused") from error
        return ""


if __name__ == "__main__":
    drive(HudiWriter, {**_SETTINGS, "spark.jars": os.environ[JAR]})
