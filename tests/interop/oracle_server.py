"""The real Hudi, in a process of its own that answers one JSON request a line with one JSON line.

It runs in the oracle's own virtual environment (PySpark 3.5, hudi-rs) and imports nothing of ours.
Rows of a table go through a Parquet file that the asker names, so that no type is lost on the way.

Requests (``op`` and its fields):

* ``read`` path, options, out: a Hudi query, snapshot by default, meta columns included;
* ``rust`` path, out: the latest snapshot as hudi-rs reads it;
* ``write`` path, sql, options, mode: the rows of a query, in their order, through Hudi's writer;
* ``sql`` sql: any statement, ``CALL`` procedures too; its rows come back as JSON;
* ``hadoop`` key, value: sets (or with null: removes) one Hadoop setting of the session.

An answer is ``{"ok": true, ...}`` or ``{"ok": false, "error": ...}``.
"""

from __future__ import annotations

import json
import os
import sys

SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # only of what is handed back to the asker: how the session *reads* old dates stays Spark's own
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


def session(jar, warehouse):
    """A Spark session with the Hudi bundle, on one core and loopback."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.jars", jar)
    builder = builder.config("spark.sql.warehouse.dir", warehouse)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def answer(spark, request):
    """The fields of one request's answer."""
    op = request["op"]
    if op == "read":
        frame = spark.read.format("hudi").options(**request["options"]).load(request["path"])
        frame.coalesce(1).write.parquet(request["out"])
        return {"schema": json.loads(frame.schema.json())}
    if op == "rust":
        return rust_rows(request["path"], request["out"])
    if op == "write":
        frame = spark.sql(request["sql"]).coalesce(1)
        frame.write.format("hudi").options(**request["options"]).mode(request["mode"]).save(request["path"])
        return {}
    if op == "sql":
        return {"rows": [json.loads(line) for line in spark.sql(request["sql"]).toJSON().collect()]}
    if op == "hadoop":
        settings = spark.sparkContext._jsc.hadoopConfiguration()
        if request["value"] is None:
            settings.unset(request["key"])
        else:
            settings.set(request["key"], request["value"])
        return {}
    raise ValueError(f"no such op: {op!r}")


def rust_rows(path, out):
    """What hudi-rs reads, into one Parquet file in a folder, like Spark's."""
    import pyarrow
    import pyarrow.parquet
    from hudi import HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(path).build()
    batches = table.read()
    os.makedirs(out)
    if batches:
        pyarrow.parquet.write_table(pyarrow.Table.from_batches(batches), os.path.join(out, "part-0.parquet"))
    return {"files": [slice_.base_file_relative_path() for slice_ in table.get_file_slices()]}


def serve(jar, warehouse):
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark and Hudi print must not mix with the answers
    spark = session(jar, warehouse)
    for line in sys.stdin:
        try:
            reply = {"ok": True, **answer(spark, json.loads(line))}
        except BaseException as error:  # a panic of hudi-rs is no Exception
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    serve(*sys.argv[1:])
