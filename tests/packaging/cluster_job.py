"""A pipeline as a user submits it, with nothing of ours but the archive; run by a test."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import sparkrobust as sr

table, rows = sys.argv[1], int(sys.argv[2])
options = {
    "hoodie.table.name": "submitted",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
}
spark = SparkSession.builder.getOrCreate()


def some(first: int, end: int, version: int):  # type: ignore[no-untyped-def]
    return spark.range(first, end).selectExpr(
        "id", f"{version} as ts", f"id * {version} as value", "cast(id % 2 as string) as part"
    )


for first, end, version, operation in ((0, rows, 1, "bulk_insert"), (rows // 2, rows + 10, 2, "upsert")):
    write = (
        sr.write(some(first, end, version))
        .options(**options)
        .option("hoodie.datasource.write.operation", operation)
    )
    print(write.mode("append").save(table))
read = sr.read(spark).load(table).groupBy("ts").agg({"id": "count", "value": "sum"}).orderBy("ts")
print("found", [tuple(row) for row in read.collect()])
print("package", sr.__file__)
spark.stop()
