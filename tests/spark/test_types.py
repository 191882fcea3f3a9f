"""Every Spark SQL type comes back as it went in, and schemas change by Hudi's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

import sparkrobust as sr
from tests.interop.tables import META, options
from tests.spark.tables import COLUMNS, NULL_FOR_MISSING, Subject

TYPES: dict[str, tuple[str, str, str]] = {
    # type: an ordinary value, an extreme one
    "b": ("boolean", "true", "false"),
    "i8": ("tinyint", "1Y", "-128Y"),
    "i16": ("smallint", "2S", "32767S"),
    "i32": ("int", "3", "-2147483648"),
    "i64": ("bigint", "4L", "9223372036854775807L"),
    "f32": ("float", "1.5F", "float('-Infinity')"),
    "f64": ("double", "2.5D", "double('NaN')"),
    "d9": ("decimal(9,2)", "12.34BD", "-9999999.99BD"),
    "d38": ("decimal(38,10)", "0.0000000001BD", "-9999999999999999999999999999.9999999999BD"),
    "s": ("string", "'héllo'", "''"),
    "raw": ("binary", "x'00ff10'", "x''"),
    "day": ("date", "date'2024-02-29'", "date'0001-01-01'"),
    "time": ("timestamp", "timestamp'2024-02-29 12:34:56.123456'", "timestamp'1900-01-02 00:00:00.000001'"),
    "ntz": (
        "timestamp_ntz",
        "timestamp_ntz'1969-12-31 23:59:59.999999'",
        "timestamp_ntz'9999-12-31 23:59:59'",
    ),
    "l": ("array<int>", "array(1, null, 3)", "array()"),
    "ll": ("array<array<decimal(10,3)>>", "array(array(1.125BD, null), null)", "array(array())"),
    "ls": ("array<struct<x:int,y:string>>", "array(named_struct('x', 1, 'y', null), null)", "array()"),
    "m": ("map<string,int>", "map('k', 1, 'n', null)", "map()"),
    "ms": (
        "map<string,struct<x:int,y:array<timestamp>>>",
        "map('a', named_struct('x', 1, 'y', array(timestamp'1960-01-01 00:00:00', null)), 'b', null)",
        "map()",
    ),
    "st": (
        "struct<a:int,b:struct<c:double,d:array<date>>>",
        "named_struct('a', 1, 'b', named_struct('c', 1.25D, 'd', array(date'1969-12-31')))",
        "named_struct('a', null, 'b', null)",
    ),
}


def typed(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    """One row an id, its cells ordinary, extreme or null."""
    place = {"ordinary": 1, "extreme": 2}

    def cell(name: str, which: str) -> str:
        value = TYPES[name][place[which]] if which in place else "null"
        return f"CAST({value} AS {TYPES[name][0]}) AS {name}"

    lines = [f"SELECT {key} AS id, " + ", ".join(cell(name, which) for name in TYPES) for key, which in rows]
    return spark.sql(" UNION ALL ".join(lines))


def cells(df: DataFrame) -> list[str]:
    """Comparable rows: floats by their spelling, so that a NaN equals itself."""
    return sorted(repr(sorted(row.asDict(recursive=True).items())) for row in df.collect())


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_every_type_comes_back_as_spark_itself_has_it(
    operation: str, spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options(partitions="", ordering=None))
    subject.save(operation, typed(spark, (1, "ordinary"), (2, "null"), (3, "extreme"), (4, "extreme")))
    # A merge: rows that are carried over, replaced, and new.
    subject.save("upsert", typed(spark, (2, "ordinary"), (4, "null"), (5, "extreme")))
    found = sr.read(spark).load(str(table)).drop(*META)
    wanted = typed(
        spark, (1, "ordinary"), (2, "ordinary"), (3, "extreme"), (4, "null"), (5, "extreme")
    )  # fmt: skip
    assert cells(found) == cells(wanted)
    widened = {"i8": t.IntegerType(), "i16": t.IntegerType()}
    for field in wanted.schema:
        assert found.schema[field.name].dataType == widened.get(field.name, field.dataType)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS id, map(1, 'a') AS bad",
        "SELECT 1 AS id, INTERVAL 1 DAY AS bad",
        "SELECT 1 AS id, null AS bad",
        "SELECT 1 AS id, 2 AS `two bad words`",
        "SELECT 1 AS id, array(map(1, 2)) AS bad",
        "SELECT 1 AS id, 1 AS bad, 2 AS BAD",
        "SELECT 1 AS id, 2 AS __sr_bad",
    ],
)
def test_what_no_hudi_table_can_hold_is_named_and_no_table_is_made(
    sql: str, spark: SparkSession, table: Path
) -> None:
    with pytest.raises(sr.errors.SchemaConflictError, match="bad"):
        sr.write(spark.sql(sql)).options(**options(partitions="", ordering=None)).save(str(table))
    assert not table.exists()


# -- schemas that change -------------------------------------------------------------------------------


def names_and_types(subject: Subject) -> dict[str, str]:
    schema = sr.read(subject.spark).load(str(subject.path)).drop(*META).schema
    return {field.name: field.dataType.simpleString() for field in schema}


def test_a_schema_grows_and_widens_and_old_files_are_read_in_it(spark: SparkSession, table: Path) -> None:
    subject = Subject(spark, table, options(ordering=None))
    narrow = "id int, name string, n int, region string"
    subject.write("upsert", [(1, "a", 5, "eu"), (2, "b", 5, "us")], columns=narrow)
    wider = COLUMNS.replace("ts", "n") + ", extra double"
    subject.write("upsert", [(1, "a2", 1 << 40, "eu", 0.5), (3, "c", 7, "eu", None)], columns=wider)
    assert names_and_types(subject) == {
        "id": "int", "name": "string", "n": "bigint", "region": "string", "extra": "double",
    }  # fmt: skip
    found = sr.read(spark).load(str(table)).drop(*META)
    # One file was rewritten, the other is as it was: both are read.
    assert sorted(map(tuple, found.collect())) == [
        (1, "a2", 1 << 40, "eu", 0.5), (2, "b", 5, "us", None), (3, "c", 7, "eu", None),
    ]  # fmt: skip
    assert sorted(map(tuple, found.where("n > 6").select("id").collect())) == [(1,), (3,)]

    fewer = "id int, name string, region string"
    with pytest.raises(sr.errors.SchemaConflictError, match=r"extra: missing.*set\.null"):
        subject.write("upsert", [(2, "b2", "us")], columns=fewer)
    subject.write("upsert", [(2, "b2", "us")], {NULL_FOR_MISSING: "true"}, columns=fewer)
    # Narrower rows go into the wider table, columns in any order.
    subject.write(
        "upsert", [("us", 9, 4, 1.5, "d")], columns="region string, n int, id int, extra float, name string"
    )
    names = dict(sr.read(spark).load(str(table)).select("id", "name").collect())
    assert names == {1: "a2", 2: "b2", 3: "c", 4: "d"}
    with pytest.raises(sr.errors.SchemaConflictError, match="n: bool can't be written as"):
        other = "id int, name string, region string, extra double, n boolean"
        subject.write("upsert", [(5, "e", "eu", 0.1, True)], columns=other)


def test_nested_fields_are_added_and_a_column_is_dropped_only_if_allowed(
    spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options(partitions="", ordering=None))
    subject.save("upsert", spark.sql("SELECT 1 AS id, named_struct('x', 1) AS st, 'gone' AS name"))
    more = spark.sql("SELECT 2 AS id, named_struct('x', 2, 'y', nullif('y', '')) AS st, 'n' AS name")
    subject.save("upsert", more)
    found = sr.read(spark).load(str(table))
    assert {row.id: row.st.asDict() for row in found.collect()} == {
        1: {"x": 1, "y": None}, 2: {"x": 2, "y": "y"},
    }  # fmt: skip
    drop = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
    subject.save("upsert", more.drop("name").withColumn("id", F.lit(3)), drop)
    assert list(names_and_types(subject)) == ["id", "st"]
    with pytest.raises(sr.errors.SchemaConflictError, match=r"st\.x"):
        subject.save(
            "upsert", spark.sql("SELECT 1 AS id, named_struct('x', true, 'y', nullif('y', '')) AS st")
        )


def ids(rows: list[Any]) -> list[int]:
    return sorted(row.id for row in rows)


@pytest.mark.parametrize("hive_style", ["true", "false"])
def test_partition_columns_of_every_type_come_back_with_their_type_and_prune(
    hive_style: str, spark: SparkSession, table: Path
) -> None:
    kinds = "i32", "i64", "b", "day", "d9", "f64", "s", "time", "raw"
    made = options("id", ",".join(f"p_{kind}" for kind in kinds), None,
                   hoodie__datasource__write__partitionpath__urlencode="true",
                   hoodie__datasource__write__hive_style_partitioning=hive_style)  # fmt: skip
    subject = Subject(spark, table, made)

    def row(key: int, place: int | None) -> str:
        texts = {kind: "null" if place is None else TYPES[kind][place] for kind in kinds}
        return f"SELECT {key} AS id, " + ", ".join(
            f"CAST({text} AS {TYPES[kind][0]}) AS p_{kind}" for kind, text in texts.items()
        )

    df = spark.sql(f"{row(1, 1)} UNION ALL {row(2, None)}")
    subject.save("upsert", df)
    subject.save("upsert", df)
    found = sr.read(spark).load(str(table))
    assert cells(found.drop(*META)) == cells(df)
    assert {f.name: f.dataType for f in found.drop(*META).schema} == {f.name: f.dataType for f in df.schema}
    for condition in ("p_i32 = 3", "p_day = date'2024-02-29'", "p_s = 'héllo'", "p_d9 > 12"):
        assert ids(found.where(condition).collect()) == [1]
    assert ids(found.where("p_i64 IS NULL").collect()) == [2]


def test_a_filter_on_partitions_keeps_spark_from_the_other_files(spark: SparkSession, table: Path) -> None:
    hive = options(**{"hoodie.datasource.write.hive_style_partitioning": "true"})
    subject = Subject(spark, table, hive)
    subject.write("bulk_insert", [(i, "n", 1, f"r{i}") for i in range(4)])
    spoilt = next(table.glob("region=r3/*.parquet"))
    spoilt.write_bytes(b"not parquet")
    found = sr.read(spark).load(str(table))
    assert ids(found.where("region = 'r1'").collect()) == [1]
    assert ids(found.where("region < 'r3'").collect()) == [0, 1, 2]
    with pytest.raises(Exception, match=spoilt.name):
        found.collect()
