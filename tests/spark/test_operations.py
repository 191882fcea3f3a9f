"""What each operation does with rows of one key, and where new rows go."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.spark import plain_reader
from tests.interop.tables import avro, completed, options, pending, properties, stats
from tests.spark.tables import (
    COLUMNS,
    COMBINE_INSERT,
    COMBINE_UPSERT,
    DUPLICATES,
    MAX_FILE,
    ORDERING_MODE,
    SMALL_FILE,
    SORT_MODE,
    Subject,
    everything_in,
    frame,
    leftovers,
)

WITH_FLAG = COLUMNS + ", _hoodie_is_deleted boolean"


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table without partitions, ordered by event time."""
    return Subject(spark, table, options(partitions=""))


def test_by_event_time_late_rows_lose_and_ties_go_to_the_newcomer(subject: Subject) -> None:
    batch = [
        (4, "low", 1, ""),
        (4, "high", 9, ""),
        (4, "mid", 5, ""),
        (5, "tie 1", 5, ""),
        (5, "tie 2", 5, ""),
    ]
    subject.write("upsert", [(1, "a", 5, ""), (2, "b", 5, ""), (3, "c", 5, ""), *batch])
    assert subject.names() == {1: "a", 2: "b", 3: "c", 4: "high", 5: "tie 2"}
    before = {row["id"]: row for row in plain_reader.snapshot(subject.path)}

    late, tie, newer = (1, "late", 4, ""), (2, "tie", 5, ""), (3, "newer", 6, "")
    result = subject.write("upsert", [late, tie, newer, (3, "older", 5, ""), (6, "six", 1, "")])
    assert (result.inserted, result.updated, result.deleted) == (1, 2, 0)
    assert subject.names() == {1: "a", 2: "tie", 3: "newer", 4: "high", 5: "tie 2", 6: "six"}
    after = {row["id"]: row for row in plain_reader.snapshot(subject.path)}
    for loser in (1, 4):
        for meta in ("_hoodie_commit_time", "_hoodie_commit_seqno"):
            assert after[loser][meta] == before[loser][meta]
    assert {after[i]["_hoodie_commit_time"] for i in (2, 3, 6)} == {result.instant}


@pytest.mark.parametrize(
    ("kind", "fields", "lower", "base", "higher"),
    [
        ("double", "o", "1.25D", "1.5D", "double('NaN')"),
        ("float", "o", "1.5F", "float('NaN')", "float('NaN')"),
        ("string", "o", "'10'", "'9'", "'91'"),
        ("timestamp", "o", "timestamp'1960-01-01'", "timestamp'1969-12-31'", "timestamp'2024-01-01'"),
        ("binary", "o", "x'00ff'", "x'01'", "x'80'"),
        ("decimal(10,2)", "o", "9BD", "10BD", "10.01BD"),
        ("struct<x:int>", "o.x", "named_struct('x', 9)", "named_struct('x', 10)", "named_struct('x', 11)"),
        ("boolean", "o", "false", "true", "true"),
        ("int", "o,name", "10", "10", "11"),
    ],
)
def test_ordering_values_compare_as_in_hudi_in_a_batch_and_with_the_table(
    kind: str, fields: str, lower: str, base: str, higher: str, spark: SparkSession, table: Path
) -> None:
    """In the last case the first field is equal, and the second decides."""
    subject = Subject(spark, table, options(partitions="", ordering=fields))

    def write(*rows: tuple[int, str, str]) -> None:
        sql = (f"SELECT {i} AS id, '{name}' AS name, CAST({o} AS {kind}) AS o" for i, name, o in rows)
        subject.save("upsert", spark.sql(" UNION ALL ".join(sql)))

    write((1, "base", base), (2, "base", base), (3, "high", higher), (3, "a low", lower))
    write((1, "a late", lower), (2, "higher", higher))
    found = sr.read(spark).load(str(table)).select("id", "name").collect()
    assert sorted(map(tuple, found)) == [(1, "base"), (2, "higher"), (3, "high")]


def test_by_commit_time_the_last_row_wins_whatever_its_ordering_value(
    spark: SparkSession, table: Path
) -> None:
    by_commit = options(partitions="", **{ORDERING_MODE: "COMMIT_TIME_ORDERING"})
    subject = Subject(spark, table, by_commit)
    subject.write("upsert", [(1, "a", 5, ""), (2, "high", 9, ""), (2, "last", 1, "")])
    assert subject.names() == {1: "a", 2: "last"}
    subject.write("upsert", [(1, "late", 1, "")])
    assert subject.names() == {1: "late", 2: "last"}
    assert properties(table)["hoodie.table.ordering.fields"] == "ts"


def test_rows_that_say_they_are_deleted_delete_by_the_rules_of_ordering(subject: Subject) -> None:
    rows = [(i, "kept", 5, "", None) for i in range(1, 6)]
    subject.write("bulk_insert", rows, columns=WITH_FLAG)
    batch = [
        (1, "older", 4, "", True),
        (2, "equal", 5, "", True),
        (3, "newer", 6, "", True),
        (4, "null flag", 6, "", None),
        (5, "no flag", 6, "", False),
        (6, "not there", 6, "", True),
        (7, "put", 5, "", False),
        (7, "then deleted", 6, "", True),
        (8, "deleted", 5, "", True),
        (8, "then put", 6, "", False),
    ]
    result = subject.write("upsert", batch, columns=WITH_FLAG)
    assert (result.inserted, result.updated, result.deleted) == (1, 2, 2)
    assert subject.names() == {1: "kept", 4: "null flag", 5: "no flag", 8: "then put"}
    subject.write("insert", [(9, "in", 1, "", False), (10, "not in", 1, "", True)], columns=WITH_FLAG)
    subject.write("bulk_insert", [(11, "as it comes", 1, "", True)], columns=WITH_FLAG)
    assert subject.names() == {
        1: "kept",
        4: "null flag",
        5: "no flag",
        8: "then put",
        9: "in",
        11: "as it comes",
    }


def test_a_delete_needs_only_the_fields_of_key_and_path_and_ignores_ordering(
    spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options())
    subject.write("insert", [(1, "a", 5, "eu"), (2, "b", 5, "eu"), (3, "c", 5, "us"), (4, "d", 5, "us")])
    dead = [(1, "eu"), (1, "eu"), (3, "eu"), (9, "xx")]
    assert subject.write("delete", dead, columns="id int, region string").deleted == 1
    assert subject.names() == {2: "b", 3: "c", 4: "d"}
    result = subject.write("delete", [(2, "older", 1, "eu")])
    assert result.deleted == 1
    assert subject.names() == {3: "c", 4: "d"}
    # The file that lost its last row is the newest version all the same.
    assert [stat["numWrites"] for stat in stats(table)] == [0]
    assert not (table / "xx").exists()
    subject.write("upsert", [(2, "again", 1, "eu")])
    assert subject.names() == {2: "again", 3: "c", 4: "d"}


def test_an_insert_keeps_rows_of_a_known_key_unless_told_otherwise(subject: Subject) -> None:
    subject.write("insert", [(1, "a", 5, ""), (1, "twice", 5, "")])
    subject.write("insert", [(1, "third", 5, "")])
    assert sorted(row[1] for row in subject.rows()) == ["a", "third", "twice"]

    drop = {DUPLICATES: "drop"}
    result = subject.write("insert", [(1, "dropped", 9, ""), (2, "b", 1, "")], drop)
    assert result.inserted == 1
    assert sorted(row[1] for row in subject.rows()) == ["a", "b", "third", "twice"]

    before = everything_in(subject.path)
    with pytest.raises(sr.errors.InvalidInputError, match=r"key that the table holds"):
        subject.write("insert", [(2, "fails", 9, ""), (3, "c", 1, "")], {DUPLICATES: "fail"})
    assert everything_in(subject.path) == before
    subject.write("insert", [(3, "c", 1, "")], {DUPLICATES: "fail"})
    merged = {"hoodie.merge.allow.duplicate.on.inserts": "false"}
    subject.write("insert", [(3, "merged", 5, "")], merged)
    assert sorted(row[1] for row in subject.rows()) == ["a", "b", "merged", "third", "twice"]


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_combining_before_an_insert_keeps_one_row_of_each_key(operation: str, subject: Subject) -> None:
    rows = [(1, "low", 1, ""), (1, "high", 9, ""), (2, "tie", 1, ""), (2, "later", 1, "")]
    subject.write(operation, rows)
    assert len(subject.rows()) == 4
    subject.write(operation, rows, {COMBINE_INSERT: "true"}, mode="overwrite")
    assert subject.names() == {1: "high", 2: "later"}


def test_an_upsert_that_does_not_combine_leaves_one_row_of_a_key_all_the_same(subject: Subject) -> None:
    subject.write("upsert", [(1, "a", 5, "")])
    subject.write(
        "upsert",
        [(1, "high", 9, ""), (1, "low", 6, ""), (2, "low", 1, ""), (2, "high", 2, "")],
        {COMBINE_UPSERT: "false"},
    )
    assert subject.names() == {1: "high", 2: "high"}


# -- where rows go -------------------------------------------------------------------------------------


def test_inserts_fill_small_files_first_and_leave_them_alone_when_told_so(subject: Subject) -> None:
    subject.write("insert", [(1, "a", 5, "")])
    result = subject.write("insert", [(2, "b", 5, "")])
    assert (result.files_created, result.files_rewritten) == (0, 1)
    (stat,) = stats(subject.path)
    (first, second) = completed(subject.path, "commit")
    assert (stat["numWrites"], stat["numInserts"], stat["numUpdateWrites"]) == (2, 1, 0)
    assert stat["prevCommit"] == first.requested
    assert stat["prevBaseFile"].endswith(f"_{first.requested}.parquet")
    workload = avro(subject.path / ".hoodie" / "timeline" / f"{second.requested}.inflight")
    assert list(workload["partitionToWriteStats"]) == [""]

    result = subject.write("upsert", [(3, "c", 5, "")], {SMALL_FILE: "0"})
    assert (result.files_created, result.files_rewritten) == (1, 0)
    result = subject.write("bulk_insert", [(4, "d", 5, "")])
    assert (result.files_created, result.files_rewritten) == (1, 0)
    assert subject.names() == {1: "a", 2: "b", 3: "c", 4: "d"}
    assert len(subject.files()) == 3


def noise(spark: SparkSession, rows: int, first: int = 0) -> object:
    """Rows that no codec makes smaller."""
    return spark.range(first, first + rows, 1, 2).selectExpr(
        "CAST(id AS int) AS id",
        "concat(sha2(CAST(id AS string), 512), sha2(CAST(-id AS string), 512)) AS name",
        "id AS ts",
        "'' AS region",
    )


def test_a_bulk_insert_begins_another_file_when_one_has_reached_its_size(subject: Subject) -> None:
    size = 100_000
    result = subject.save("bulk_insert", noise(subject.spark, 4000), {MAX_FILE: str(size)})
    assert result.files_created >= 6
    assert len(subject.rows()) == 4000
    sizes = [stat["fileSizeInBytes"] for stat in stats(subject.path)]
    assert max(sizes) < 2 * size
    groups: dict[str, set[int]] = {}
    for stat in stats(subject.path):
        prefix, _, number = stat["fileId"].rpartition("-")
        groups.setdefault(prefix, set()).add(int(number))
        assert (subject.path / stat["path"]).stat().st_size == stat["fileSizeInBytes"]
    assert len(groups) == 2
    assert all(numbers == set(range(len(numbers))) for numbers in groups.values())


def test_an_insert_is_spread_over_files_by_the_size_of_earlier_rows(subject: Subject) -> None:
    limits = {MAX_FILE: "300000", SMALL_FILE: "0", "hoodie.copyonwrite.record.size.estimate": "300"}
    result = subject.save("insert", noise(subject.spark, 4000), limits)
    assert result.files_created == 4
    rows = sorted(stat["numWrites"] for stat in stats(subject.path))
    assert sum(rows) == 4000 and rows[0] > 900
    # The first commit was large enough to learn from: a row takes about its 256 random digits.
    result = subject.save("upsert", noise(subject.spark, 3000, 3000), limits)
    assert (result.inserted, result.updated) == (2000, 1000)
    assert result.files_rewritten == 1, "rows that came together lie together"
    assert {row[0] for row in subject.rows()} == set(range(6000))


SORT_MODES = ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION",
              "PARTITION_PATH_REPARTITION_AND_SORT")  # fmt: skip


@pytest.mark.parametrize("mode", SORT_MODES)
def test_a_bulk_insert_lays_its_rows_out_as_its_sort_mode_says(
    mode: str, spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options(ordering=None))
    numbers = [(i * 7919) % 200 for i in range(200)]
    rows = [(i, f"{i:04}", i, "abcd"[i % 4]) for i in numbers]
    more = {SORT_MODE: mode, "hoodie.bulkinsert.shuffle.parallelism": "3"}
    result = subject.write("bulk_insert", rows, more)
    assert sorted(row[0] for row in subject.rows()) == list(range(200))
    assert result.inserted == 200 and result.partitions == 4
    if mode.startswith("PARTITION_PATH"):
        assert result.files_created == 4
    if mode == "GLOBAL_SORT":
        assert result.files_created <= 4 + 3
    if mode.endswith("SORT"):
        for file in plain_reader.snapshot_files(table):
            keys = [row["_hoodie_record_key"] for row in plain_reader.rows_of(file)]
            assert keys == sorted(keys)


# -- nothing to write ------------------------------------------------------------------------------------


def test_an_empty_frame_makes_an_empty_commit_with_the_schema(subject: Subject) -> None:
    for number, operation in enumerate(("bulk_insert", "insert", "upsert", "delete"), 1):
        result = subject.write(operation, [])
        assert (result.inserted, result.updated, result.deleted, result.files_created) == (0, 0, 0, 0)
        commit = avro(completed(subject.path, "commit")[-1].file)
        assert len(completed(subject.path, "commit")) == number
        assert commit["partitionToWriteStats"] == {} and '"region"' in commit["extraMetadata"]["schema"]
        assert commit["operationType"] == operation.upper()
    found = sr.read(subject.spark).load(str(subject.path))
    assert found.columns[5:] == ["id", "name", "ts", "region"] and found.count() == 0

    subject.write("upsert", [(1, "a", 5, "")])
    for operation in ("bulk_insert", "insert", "upsert", "delete"):
        subject.write(operation, [])
    assert subject.names() == {1: "a"}
    assert not pending(subject.path) and not leftovers(subject.path)
    assert frame(subject.spark, [], COLUMNS).count() == 0


# -- save modes ------------------------------------------------------------------------------------------


def test_modes_append_ignore_and_errorifexists_do_what_sparks_do(subject: Subject) -> None:
    subject.write("upsert", [(1, "a", 5, "")], mode="errorifexists")
    before = everything_in(subject.path)
    result = subject.write("upsert", [(1, "b", 9, "")], mode="ignore")
    assert result.instant is None and "ignored" in str(result)
    for refused in ("errorifexists", "error"):
        with pytest.raises(sr.errors.InvalidInputError, match="already") as raised:
            subject.write("upsert", [(1, "b", 9, "")], mode=refused)
        assert raised.value.kind == "table-exists"
    with pytest.raises(sr.errors.InvalidInputError, match="append"):
        subject.write("delete", [(1, "b", 9, "")], mode="overwrite")
    assert everything_in(subject.path) == before
    subject.write("upsert", [(2, "b", 9, "")])
    assert subject.names() == {1: "a", 2: "b"}


def test_a_first_write_that_another_one_overtakes_goes_by_its_mode(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(spark, table, options())
    subject.write("upsert", [(1, "a", 5, "eu")])
    # It looked before there was a table.
    monkeypatch.setattr("sparkrobust.spark.writer.is_made", lambda storage: False)
    with pytest.raises(sr.errors.InvalidInputError, match="there is a Hudi table"):
        subject.write("upsert", [(2, "b", 5, "eu")], mode="errorifexists")
    assert subject.write("upsert", [(2, "b", 5, "eu")], mode="ignore").instant is None
    assert subject.names() == {1: "a"}
    subject.write("upsert", [(2, "b", 5, "eu")], mode="append")
    assert subject.names() == {1: "a", 2: "b"}
    subject.write("upsert", [(3, "c", 5, "eu")], mode="overwrite")
    assert subject.names() == {3: "c"}


def test_what_is_left_of_a_table_that_never_came_to_be_does_not_stop_the_next_write(
    spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options())
    for folder in ("timeline", ".robust/20240101000000000-00000000000000aa", ".heartbeat"):
        (table / ".hoodie" / folder).mkdir(parents=True)
    (table / ".hoodie/.heartbeat/20240101000000000").touch()
    subject.write("upsert", [(1, "a", 5, "eu")])
    assert subject.names() == {1: "a"} and not leftovers(table)


def test_the_first_write_of_a_table_with_a_shared_lock_leaves_an_empty_one_if_it_fails(
    spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options(hoodie__write__lock__provider="FileSystemBasedLockProvider"))
    with pytest.raises(sr.errors.InvalidKeyError):
        subject.write("upsert", [(None, "a", 5, "eu")])
    assert properties(table)["hoodie.table.name"] == "t" and not pending(table) and not leftovers(table)
    subject.write("upsert", [(1, "a", 5, "eu")])
    assert subject.names() == {1: "a"}


def test_a_foreign_folder_may_become_a_table_and_its_files_stay(subject: Subject) -> None:
    for mode in ("append", "overwrite", "ignore", "errorifexists"):
        subject.path = subject.path.with_name(mode)
        subject.path.mkdir()
        (subject.path / "a.txt").write_text("mine")
        subject.write("bulk_insert", [(1, "a", 5, "")], mode=mode)
        assert subject.names() == {1: "a"}
        assert (subject.path / "a.txt").read_text() == "mine"


def test_the_spelling_of_sparks_own_writer_works_unchanged(spark: SparkSession, table: Path) -> None:
    df = frame(spark, [(1, "a", 5, "eu")])
    made = options(partitions="")
    df_write = sr.write(df).format("hudi").options(**made).partitionBy("region").mode("append")
    df_write.save(path=str(table), mode="errorifexists")
    result = sr.write(df).format("hudi").option("hoodie.table.name", "t").mode("append").save(str(table))
    assert str(result.instant) in str(result) and "upsert" in result._repr_html_()
    assert properties(table)["hoodie.table.partition.fields"] == "region"
    opened = sr.Table(str(table))
    assert opened.name == "t" and [f.partition for f in opened.files()] == ["eu"]
    assert opened.schema.names == ["id", "name", "ts", "region"]
    assert [instant.pending for instant in opened.timeline()] == [False, False]
    for call in ("saveAsTable", "insertInto"):
        with pytest.raises(sr.errors.InvalidInputError, match=r"save\(path\)"):
            getattr(sr.write(df), call)("t")
