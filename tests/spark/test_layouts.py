"""Every operation in every layout of a table: partitions, key fields, folder styles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fault_injection.spark import plain_reader
from tests.interop.tables import HIVE_STYLE, META, URL_ENCODE, avro, completed, options, pending
from tests.spark.tables import Row, Subject, leftovers, names_of


@dataclass(frozen=True)
class Layout:
    """Options of a table, where its rows go, what their keys are."""

    options: dict[str, str]
    folder: Callable[[Row], str]
    key: Callable[[Row], str]
    key_columns: str
    regions: tuple[str, str, str] = ("eu", "us", "asia")


def plain_key(row: Row) -> str:
    return str(row[0])


LAYOUTS = {
    "one partition field": Layout(
        options(), lambda row: row[3], plain_key, "id int, region string", ("eu", "a/b", "é x")
    ),
    "hive style": Layout(
        options(**{HIVE_STYLE: "true"}),
        lambda row: f"region={row[3]}",
        plain_key,
        "id int, region string",
        ("eu", "50%", "*"),
    ),
    "url encoded": Layout(
        options(**{URL_ENCODE: "true"}),
        lambda row: row[3].replace("%", "%25").replace("/", "%2F").replace(":", "%3A"),
        plain_key,
        "id int, region string",
        ("a/../b", "50%2F", "x:y"),
    ),
    "hive style and url encoded": Layout(
        options(**{HIVE_STYLE: "true", URL_ENCODE: "true"}),
        lambda row: "region=" + row[3].replace("%", "%25").replace("/", "%2F"),
        plain_key,
        "id int, region string",
        ("..", "/abs", "%"),
    ),
    "two partition fields, one key": Layout(
        options(partitions="region,ts", ordering=None, **{HIVE_STYLE: "true"}),
        lambda row: f"region={row[3]}/ts={row[2]}",
        lambda row: f"id:{row[0]}",
        "id int, region string, ts bigint",
    ),
    "two keys": Layout(
        options("id,region", "ts", None),
        lambda row: str(row[2]),
        lambda row: f"id:{row[0]},region:{row[3]}",
        "id int, region string, ts bigint",
        ("a,b", "c:d", "e"),
    ),
    "no partitions": Layout(options(partitions=""), lambda row: "", plain_key, "id int"),
    "no partitions, two keys": Layout(
        options("id,region", ""),
        lambda row: "",
        lambda row: f"id:{row[0]},region:{row[3]}",
        "id int, region string",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_operation_leaves_exactly_the_rows_that_it_should(
    name: str, spark: SparkSession, table: Path
) -> None:
    layout = LAYOUTS[name]
    subject = Subject(spark, table, layout.options)
    one, two, three = layout.regions
    first = [(1, "a", 5, one), (2, "b", 5, two), (3, "c", 5, two), (4, "d", 5, one)]
    result = subject.write("bulk_insert", first)
    assert (result.inserted, result.updated, result.deleted) == (4, 0, 0)

    result = subject.write("upsert", [(2, "b2", 5, two), (5, "e", 5, three), (6, "f", 5, one)])
    assert (result.inserted, result.updated, result.deleted) == (2, 1, 0)

    result = subject.write("insert", [(7, "g", 5, two)])
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 0)

    keys = names_of(layout.key_columns)
    dead = [(3, "c", 5, two), (4, "d", 5, one), (99, "none", 5, one)]
    picked = {"id": 0, "ts": 2, "region": 3}
    result = subject.write(
        "delete", [tuple(row[picked[key]] for key in keys) for row in dead], columns=layout.key_columns
    )
    assert (result.inserted, result.updated, result.deleted) == (0, 0, 2)

    wanted = [(1, "a", 5, one), (2, "b2", 5, two), (5, "e", 5, three), (6, "f", 5, one), (7, "g", 5, two)]
    assert subject.rows() == sorted(wanted, key=repr)

    by_id = {row[0]: row for row in wanted}
    instants = {done.requested for done in completed(table, "commit")}
    numbers = set()
    for row in plain_reader.snapshot(table):
        time, number, key, partition, file = (row[meta] for meta in META)
        expected = by_id[row["id"]]
        assert partition == layout.folder(expected)
        assert key == layout.key(expected)
        assert (table / partition / file).is_file()
        assert time in instants and number.startswith(time + "_")
        numbers.add(number)
    assert len(numbers) == len(wanted)
    assert len(instants) == 4 and not pending(table)
    kinds = [avro(done.file)["operationType"] for done in completed(table, "commit")]
    assert kinds == ["BULK_INSERT", "UPSERT", "INSERT", "DELETE"]
    assert not leftovers(table)
