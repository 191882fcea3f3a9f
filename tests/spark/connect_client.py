"""A pipeline over Spark Connect: ``connect_client.py URL TABLE``; its answer is a line of JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust.spark import gathering
from sparkrobust.spark.gathering import Gathered
from tests.interop.tables import HIVE_STYLE, OPERATION, options
from tests.moments import overtaken
from tests.spark.tables import DRIVER_BYTES

COLUMNS = "id int, name string, ts bigint, region string"
SHARED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
    "hoodie.write.num.retries.on.conflict.failures": "1",
}


def main(url: str, path: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    made = options(**{HIVE_STYLE: "true"})

    def write(
        operation: str, rows: list[tuple[object, ...]], mode: str = "append", *, by_tasks: bool = True
    ) -> sr.WriteResult:
        chosen = {**made, OPERATION: operation, **({DRIVER_BYTES: "0"} if by_tasks else {})}
        df = spark.createDataFrame(rows, COLUMNS)
        return sr.write(df).format("hudi").options(**chosen).mode(mode).save(path)

    write("bulk_insert", [(i, f"n{i}", 5, "ab"[i % 2]) for i in range(6)])
    result = write("upsert", [(1, "up", 6, "b"), (2, "late", 1, "a"), (6, "new", 1, "c")])
    write("delete", [(0, "", 0, "a")], by_tasks=False)
    try:
        write("upsert", [(None, "no key", 1, "a")])
    except sr.errors.InvalidKeyError as error:
        refused = str(error)
    found = sr.read(spark).load(path)
    answer = {
        "module": type(spark).__module__,
        "updated": result.updated,
        "inserted": result.inserted,
        "refused": refused,
        "rows": sorted([row.id, row.name, row.region] for row in found.collect()),
        "one partition": [row.id for row in found.where("region = 'c'").collect()],
        "tags": sorted(spark.getTags()),
    }
    # Many rows, for which Spark has to find the slots.
    made |= SHARED
    Gathered.rows, gathering.KEYS_CHUNKS = (lambda self: None), 0  # type: ignore[method-assign]
    with overtaken(lambda: write("upsert", [(3, "early", 7, "b"), (5, "early", 7, "b")])):
        result = write("upsert", [(3, "later", 8, "b"), (2, "later", 8, "a")])
    names = {row.id: row.name for row in sr.read(spark).load(path).collect()}
    answer["redone"] = [result.slots_redone, result.retries, names[2], names[3], names[5]]
    write("insert", [(9, "all new", 1, "z")], mode="overwrite")
    answer["overwritten"] = [[row.id, row.name] for row in sr.read(spark).load(path).collect()]
    print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
