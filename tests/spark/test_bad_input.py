"""Bad input: a clear error, nothing written, and the next write works."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.spark import plain_reader
from sparkrobust.errors import (
    InvalidInputError,
    InvalidKeyError,
    InvalidOptionError,
    RobustWriteError,
    SchemaConflictError,
    TableNotFoundError,
    UnsafePathError,
)
from tests.interop.tables import HIVE_STYLE, OPERATION, URL_ENCODE, completed, options, pending
from tests.spark.tables import Subject, everything_in, frame, leftovers, refused

GOOD = (1, "a", 5, "eu")


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table with one row."""
    subject = Subject(spark, table, options())
    subject.write("upsert", [GOOD])
    return subject


BAD_ROWS: dict[str, tuple[tuple[object, ...], type[RobustWriteError], str]] = {
    "a null key": ((None, "b", 5, "eu"), InvalidKeyError, "record key that is null or empty"),
    "a null ordering value": ((2, "b", None, "eu"), InvalidKeyError, "ordering field"),
    "a path out of the table": ((2, "b", 5, "../../out"), UnsafePathError, r"'\.\.'"),
    "an absolute path": ((2, "b", 5, "/out"), UnsafePathError, "absolute"),
    "the table's own folder": ((2, "b", 5, ".hoodie/x"), UnsafePathError, "belongs to the table"),
    "a NUL": ((2, "b", 5, "x\0y"), UnsafePathError, "NUL"),
}


def test_rows_with_bad_keys_or_paths_are_refused_by_every_operation_that_looks_first(
    subject: Subject,
) -> None:
    for bad, kind, words in BAD_ROWS.values():
        for operation in ("upsert", "insert"):
            with refused(subject.path, kind, words):
                subject.write(operation, [(9, "x", 1, "eu"), bad])
    with refused(subject.path, UnsafePathError, words):
        subject.write("upsert", [bad], mode="overwrite")
    with refused(subject.path, InvalidKeyError, "null or empty"):
        subject.write("delete", [(None, "eu")], columns="id int, region string")
    subject.write("upsert", [(2, "b", 5, "eu")])
    assert subject.names() == {1: "a", 2: "b"}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bulk_insert_of_bad_rows_is_rolled_back(name: str, subject: Subject) -> None:
    bad, kind, words = BAD_ROWS[name]
    before = {path for path in everything_in(subject.path) if not path.startswith(".hoodie/timeline/")}
    with pytest.raises(kind, match=words):
        subject.write("bulk_insert", [*((i, "x", 1, "new") for i in range(10, 20)), bad])
    after = {path for path in everything_in(subject.path) if not path.startswith(".hoodie/timeline/")}
    assert after - before <= {".hoodie/.temp", ".hoodie/.robust", ".hoodie/.robust/.scratch"}
    assert before <= after and not leftovers(subject.path) and not pending(subject.path)
    assert len(completed(subject.path, "rollback")) == 1
    assert subject.names() == {1: "a"}
    subject.write("bulk_insert", [(2, "b", 5, "new")])
    assert subject.names() == {1: "a", 2: "b"}


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_first_write_that_fails_leaves_no_table(operation: str, spark: SparkSession, table: Path) -> None:
    subject = Subject(spark, table, options())
    for bad, kind, words in BAD_ROWS.values():
        with pytest.raises(kind, match=words):
            subject.write(operation, [bad])
        assert everything_in(table) == {}
    with pytest.raises(TableNotFoundError):
        sr.read(spark).load(str(table))
    subject.write(operation, [GOOD])
    assert subject.names() == {1: "a"}


def test_an_empty_key_is_no_key_but_part_of_a_composed_one_may_be(spark: SparkSession, table: Path) -> None:
    columns = "id string, name string, ts bigint, region string"
    simple = Subject(spark, table, options(partitions=""), columns)
    composed = Subject(spark, table.with_name("c"), options("id,name", ""), columns)
    for subject in (simple, composed):
        subject.write("upsert", [("1", "a", 1, "")])
    for empty in ("", None):
        with refused(table, InvalidKeyError, "null or empty"):
            simple.write("upsert", [(empty, "b", 1, "")])
        with refused(composed.path, InvalidKeyError, "null or empty"):
            composed.write("upsert", [(empty, empty, 1, "")])
    composed.write("upsert", [("", "x", 1, ""), (None, "x", 1, "")])
    keys = {row["_hoodie_record_key"] for row in plain_reader.snapshot(composed.path)}
    assert keys == {"id:1,name:a", "id:__empty__,name:x", "id:__null__,name:x"}


CONTRADICTIONS = {
    "hoodie.datasource.write.recordkey.field": ("name", "'name'.*'id'"),
    "hoodie.datasource.write.partitionpath.field": ("name", "'name'.*'region'"),
    "hoodie.datasource.write.precombine.field": ("id", "'id'.*'ts'"),
    "hoodie.table.name": ("other", "'other'.*'t'"),
    HIVE_STYLE: ("true", "'True'.*'False'"),
    URL_ENCODE: ("true", "'True'.*'False'"),
    "hoodie.write.record.merge.mode": ("COMMIT_TIME_ORDERING", "COMMIT_TIME.*EVENT_TIME"),
}
BAD_OPTIONS = {
    OPERATION: ("upsrt", "did you mean upsert"),
    "hoodie.table.type": ("MERGE_ON_READ", "not supported"),
    "hoodie.parquet.max.filesize": ("1", r"did you mean hoodie\.parquet\.max\.file\.size"),
    "hoodie.parquet.max.file.size": ("1MB", "whole number"),
}


def test_bad_options_are_named_before_anything_is_written(subject: Subject) -> None:
    df = frame(subject.spark, [(2, "b", 5, "eu")])
    for key, (value, words) in {**CONTRADICTIONS, **BAD_OPTIONS}.items():
        writer = sr.write(df).options(**{**subject.options, OPERATION: "upsert", key: value}).mode("append")
        with refused(subject.path, InvalidOptionError, f"(?s){key}.*{words}"):
            writer.save(str(subject.path))
    every = {key: value for key, (value, _) in CONTRADICTIONS.items()}
    with refused(subject.path, InvalidOptionError, "contradict") as error:
        sr.write(df).options(**every).mode("append").save(str(subject.path))
    assert all(key in str(error.value) for key in every)
    with pytest.raises(InvalidOptionError, match="mode"):
        sr.write(df).mode("appendd")
    # What the table knows need not be said.
    sr.write(df).mode("append").save(str(subject.path))
    assert subject.names() == {1: "a", 2: "b"}


def test_a_new_table_needs_a_name_and_a_key_and_fields_that_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = frame(spark, [GOOD])
    path = tmp_path / "t"
    cases: list[tuple[dict[str, str], type[RobustWriteError], str]] = [
        ({}, InvalidOptionError, r"hoodie\.table\.name must be set.*recordkey"),
        ({"hoodie.table.name": "t"}, InvalidOptionError, "recordkey"),
        (options(keys="nope"), InvalidKeyError, "record key field 'nope'.*id, name, ts, region"),
        (options(partitions="nope"), InvalidKeyError, "partition field 'nope'"),
        (options(ordering="nope"), InvalidKeyError, "ordering field 'nope'"),
        (options(keys="ID"), InvalidKeyError, "record key field 'ID' is not in the rows"),
        (options(ordering="TS"), InvalidKeyError, "ordering field 'TS' is not in the rows"),
        (options(partitions="id,ts", hoodie__datasource__write__keygenerator__type="SIMPLE"),
         InvalidOptionError, "SIMPLE"),
    ]  # fmt: skip
    for given, kind, words in cases:
        with refused(tmp_path, kind, words):
            sr.write(df).options(**given).save(str(path))
    with pytest.raises(InvalidOptionError, match="path"):
        sr.write(df).options(**options()).save()
    with pytest.raises(InvalidInputError, match="DataFrame"):
        sr.write([GOOD]).options(**options()).save(str(path))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="streaming"):
        stream = spark.readStream.format("rate").load()
        sr.write(stream).options(**options()).save(str(path))
    assert everything_in(tmp_path) == {}


def test_rows_that_do_not_fit_the_schema_are_refused(subject: Subject) -> None:
    cases = {
        "id int, ts bigint, region string": "name: missing in the rows",
        "id int, NAME string, ts bigint, region string": "differs in case",
        "id int, name boolean, ts bigint, region string": "name: bool",
        "id int, name string, ts date, region string": "ts: date",
    }
    for columns, words in cases.items():
        empty = frame(subject.spark, [], columns)
        with refused(subject.path, SchemaConflictError, words):
            subject.save("upsert", empty)
    required = subject.spark.sql("SELECT 2 AS id, 'b' AS name, 5L AS ts, 'eu' AS region, 1 AS extra")
    with refused(subject.path, SchemaConflictError, "extra: a new column must be nullable"):
        subject.save("upsert", required)
    subject.save("upsert", required.drop("extra"))
    assert subject.names() == {1: "a", 2: "b"}
