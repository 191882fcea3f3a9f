"""A task whose rows broke off knows that they did, on the Spark that it runs on."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkrobust.spark import whole_input
from sparkrobust.spark.whole_input import BrokenInputError, whole

WORKER: dict[str, Any] = {"__name__": "pyspark.worker", "whole": whole}
exec("def main(infile, items):\n    return list(whole(items))", WORKER)


def test_rows_after_which_nothing_comes_from_the_jvm_have_broken_off() -> None:
    assert WORKER["main"](io.BufferedReader(io.BytesIO(b"\xff")), [1, 2]) == [1, 2]
    with pytest.raises(BrokenInputError):
        WORKER["main"](io.BufferedReader(io.BytesIO(b"")), [1, 2])


def test_outside_of_a_worker_rows_end_where_they_end() -> None:
    assert list(whole([1, 2])) == [1, 2]


def _knows_its_input(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    known = whole_input._incoming() is not None
    for batch in whole(batches):
        yield pa.RecordBatch.from_pydict({"known": [known] * batch.num_rows})


def test_a_worker_of_this_spark_knows_what_it_reads_from_and_rows_that_are_whole_pass(
    spark: SparkSession,
) -> None:
    known = spark.range(0, 1000, 1, 3).mapInArrow(_knows_its_input, "known boolean").collect()
    assert len(known) == 1000 and all(row.known for row in known)
