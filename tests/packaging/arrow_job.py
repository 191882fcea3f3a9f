"""The smallest job that sends rows through Arrow; run by a test in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [2 * value.as_py() for value in batch.column(0)]})


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("sum", spark.range(100).mapInArrow(doubled, "id long").groupBy().sum("id").first()[0])
spark.stop()
