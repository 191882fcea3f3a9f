"""Every type of Spark SQL: in columns, in record keys, in partition paths and as ordering values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparkrobust as sr
from tests.interop.oracle import Oracle, OracleError
from tests.interop.tables import (
    OPERATION,
    URL_ENCODE,
    avro,
    completed,
    differences,
    options,
    ordered,
    query,
)

TYPES = {
    "id": "int",
    "c_bool": "boolean",
    "c_byte": "tinyint",
    "c_short": "smallint",
    "c_long": "bigint",
    "c_float": "float",
    "c_double": "double",
    "c_dec9": "decimal(9,2)",
    "c_dec18": "decimal(18,4)",
    "c_dec38": "decimal(38,10)",
    "c_str": "string",
    "c_bin": "binary",
    "c_date": "date",
    "c_ts": "timestamp",
    "c_ntz": "timestamp_ntz",
    "c_arr": "array<int>",
    "c_arrs": "array<struct<x:int,y:string>>",
    "c_arrarr": "array<array<decimal(10,3)>>",
    "c_arrts": "array<timestamp>",
    "c_map": "map<string,int>",
    "c_mapst": "map<string,struct<x:int,y:array<string>>>",
    "c_st": "struct<a:int,b:string,c:struct<d:double,e:array<date>>>",
    "C_Mixed9": "string",
}
NULLS = dict.fromkeys(TYPES, "NULL")
ORDINARY = {
    "c_bool": "true",
    "c_byte": "1",
    "c_short": "2",
    "c_long": "4",
    "c_float": "1.5",
    "c_double": "2.5",
    "c_dec9": "1234567.89",
    "c_dec18": "'12345678901234.5678'",
    "c_dec38": "'1234567890123456789012345678.0123456789'",
    "c_str": "'héllo \U0001f600 \\\\ \"q\" \\''",
    "c_bin": "x'00ff10'",
    "c_date": "'2024-02-29'",
    "c_ts": "'2024-02-29 12:34:56.123456'",
    "c_ntz": "'1969-12-31 23:59:59.999999'",
    "c_arr": "array(1, 2, 3)",
    "c_arrs": "array(named_struct('x', 1, 'y', 's'), named_struct('x', null, 'y', null))",
    "c_arrarr": "array(array(1.125, -2.5), array())",
    "c_arrts": "array(timestamp'1960-01-01 00:00:00.000001')",
    "c_map": "map('k', 1, 'n', null)",
    "c_mapst": "map('a', named_struct('x', 1, 'y', array('p', 'q')))",
    "c_st": "named_struct('a', 1, 'b', 'bb', 'c', named_struct('d', 1.25D, 'e', array(date'1969-12-31')))",
    "C_Mixed9": "'v'",
}
EXTREME = {
    "c_bool": "false",
    "c_byte": "-128",
    "c_short": "-32768",
    "c_long": "'-9223372036854775808'",
    "c_float": "'NaN'",
    "c_double": "'-Infinity'",
    "c_dec9": "-0.01",
    "c_dec18": "'-0.0001'",
    "c_dec38": "'-9999999999999999999999999999.9999999999'",
    "c_str": "''",
    "c_bin": "x''",
    "c_date": "'0001-01-01'",
    "c_ts": "'1500-01-02 00:00:00'",
    "c_ntz": "'9999-12-31 23:59:59.999999'",
    "c_arr": "array()",
    "c_arrs": "array()",
    "c_arrarr": "array()",
    "c_arrts": "array()",
    "c_map": "map()",
    "c_mapst": "map()",
    "c_st": "named_struct('a', null, 'b', null, 'c', null)",
    "C_Mixed9": "'null'",
}
WITH_NULL_ELEMENTS = {
    **ORDINARY,
    "c_arr": "array(1, null, 3)",
    "c_arrs": "array(named_struct('x', 1, 'y', 's'), null)",
    "c_mapst": "map('a', named_struct('x', 1, 'y', array('p', null)), 'b', null)",
}
"""What Hudi's own upsert can't write back unless a Hadoop setting is changed."""

CHOSEN = options(partitions="", ordering=None)
UPSERT = {**CHOSEN, OPERATION: "upsert"}
OLD_LISTS = "parquet.avro.write-old-list-structure"


def select(*rows: tuple[int, dict[str, str]], without: tuple[str, ...] = ()) -> str:
    """Rows of expressions, by id."""
    names = [name for name in TYPES if name not in without]
    return " UNION ALL ".join(
        "SELECT "
        + ", ".join(
            f"CAST({ {**NULLS, **row, 'id': str(i)}[name] } AS {TYPES[name]}) AS `{name}`" for name in names
        )
        for i, row in rows
    )


@pytest.fixture
def plain(spark: Any, tmp_path: Path) -> Any:
    """What plain Spark makes of a query: written as Parquet and read by pyarrow, no Hudi and none of ours."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    made = iter(range(100))

    def table(sql: str) -> pa.Table:
        out = tmp_path / f"plain-{next(made)}"
        spark.sql(sql).coalesce(1).write.parquet(str(out))
        return pq.read_table(out)

    yield table
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")


@pytest.fixture
def new_lists(hudi: Oracle) -> Iterator[None]:
    """Hudi's writer with three-level lists, which can hold null elements."""
    hudi.hadoop(OLD_LISTS, "false")
    yield
    hudi.hadoop(OLD_LISTS, None)


@pytest.mark.parametrize("operation", ["bulk_insert", "insert", "upsert"])
def test_hudi_reads_every_type_as_plain_spark_does(
    operation: str, hudi: Oracle, ours: Any, plain: Any, table: Path
) -> None:
    sql = select((1, WITH_NULL_ELEMENTS), (2, {}), (3, EXTREME))
    ours.write(table, sql, {**CHOSEN, OPERATION: operation})
    if operation == "upsert":  # the rows of the first file go through our merge too
        ours.write(table, select((4, ORDINARY), (2, ORDINARY)), UPSERT)
        sql = select((1, WITH_NULL_ELEMENTS), (2, ORDINARY), (3, EXTREME), (4, ORDINARY))
    assert differences(hudi.table(table).to_pylist(), plain(sql).to_pylist()) == []
    types = hudi.schema(table)
    assert list(types) == list(TYPES)
    assert types["c_byte"] == types["c_short"] == "integer", "Avro has no smaller one; Hudi does the same"
    assert {name: types[name] for name in ("c_dec38", "c_ts", "c_ntz", "c_bin")} == {
        "c_dec38": "decimal(38,10)",
        "c_ts": "timestamp",
        "c_ntz": "timestamp_ntz",
        "c_bin": "binary",
    }


def test_our_commit_describes_every_type_as_hudi_does(hudi: Oracle, ours: Any, tmp_path: Path) -> None:
    sql = select((1, ORDINARY))
    ours.write(tmp_path / "ours", sql, UPSERT)
    hudi.write(tmp_path / "hudis", sql, UPSERT)
    described = [
        json.loads(avro(completed(tmp_path / who)[0].file)["extraMetadata"]["schema"])
        for who in ("ours", "hudis")
    ]
    assert described[0] == described[1]


def test_hudi_upserts_over_every_type_and_we_write_on(
    hudi: Oracle, ours: Any, plain: Any, spark: Any, table: Path
) -> None:
    ours.write(table, select((1, ORDINARY), (2, {}), (3, {**ORDINARY, "c_bool": "false"})), UPSERT)
    hudi.write(table, select((2, ORDINARY)), UPSERT)
    after_hudi = select((1, ORDINARY), (2, ORDINARY), (3, {**ORDINARY, "c_bool": "false"}))
    assert differences(hudi.table(table).to_pylist(), plain(after_hudi).to_pylist()) == []
    back = table.parent / "read-by-us"
    sr.read(spark).load(str(table)).coalesce(1).write.parquet(str(back))
    assert differences(pq.read_table(back).to_pylist(), plain(after_hudi).to_pylist()) == []
    # a file with Hudi's two-level lists goes through our merge
    ours.write(table, select((3, WITH_NULL_ELEMENTS), (4, EXTREME)), UPSERT)
    expected = select((1, ORDINARY), (2, ORDINARY), (3, WITH_NULL_ELEMENTS), (4, EXTREME))
    assert differences(hudi.table(table).to_pylist(), plain(expected).to_pylist()) == []


def test_hudi_refuses_null_elements_of_lists_until_its_setting_allows_them(
    hudi: Oracle, ours: Any, plain: Any, table: Path
) -> None:
    """Hudi's limit, not the file's: its own row writer makes such files too."""
    ours.write(table, select((1, WITH_NULL_ELEMENTS)), UPSERT)
    with pytest.raises(OracleError, match=r"null element|Failed to write to Hudi"):
        hudi.write(table, select((2, ORDINARY)), UPSERT)
    assert (
        differences(hudi.table(table).to_pylist(), plain(select((1, WITH_NULL_ELEMENTS))).to_pylist()) == []
    )


def test_hudi_keeps_null_elements_of_our_lists_with_its_setting(
    hudi: Oracle, ours: Any, plain: Any, table: Path, new_lists: None
) -> None:
    ours.write(table, select((1, WITH_NULL_ELEMENTS)), UPSERT)
    hudi.write(table, select((2, ORDINARY)), UPSERT)
    ours.write(table, select((3, ORDINARY)), UPSERT)
    expected = select((1, WITH_NULL_ELEMENTS), (2, ORDINARY), (3, ORDINARY))
    assert differences(hudi.table(table).to_pylist(), plain(expected).to_pylist()) == []


def test_hudi_rs_reads_every_type_but_timestamp_ntz(
    hudi: Oracle, ours: Any, plain: Any, tmp_path: Path
) -> None:
    rows = (1, WITH_NULL_ELEMENTS), (2, {}), (3, EXTREME)
    sql = select(*rows, without=("c_ntz",))
    ours.write(tmp_path / "t", sql, UPSERT)
    assert differences(hudi.rust(tmp_path / "t"), plain(sql).to_pylist()) == []
    ours.write(tmp_path / "ntz", select(*rows), UPSERT)
    with pytest.raises(OracleError, match="PanicException"):
        hudi.rust(tmp_path / "ntz")


def test_a_map_whose_keys_are_no_text_is_refused_by_hudi_and_by_us(
    hudi: Oracle, ours: Any, tmp_path: Path
) -> None:
    sql = "SELECT 1 AS id, map(1, 'a') AS m"
    with pytest.raises(OracleError):
        hudi.write(tmp_path / "hudis", sql, UPSERT)
    with pytest.raises(sr.errors.InvalidInputError, match="m"):
        ours.write(tmp_path / "ours", sql, UPSERT)
    assert not (tmp_path / "ours").exists()


def test_a_column_name_that_avro_does_not_take_is_refused_by_hudi_and_by_us(
    hudi: Oracle, ours: Any, tmp_path: Path
) -> None:
    sql = "SELECT 1 AS id, 2 AS `two words`"
    with pytest.raises(OracleError, match="Illegal character in: two words"):
        hudi.write(tmp_path / "hudis", sql, UPSERT)
    with pytest.raises(sr.errors.InvalidInputError, match="two words"):
        ours.write(tmp_path / "ours", sql, UPSERT)
    assert not (tmp_path / "ours").exists()


# -- values as text ------------------------------------------------------------------------------------

KEY_TYPES = {
    "k_bool": ("boolean", ["true", "false", "true", "NULL"]),
    "k_byte": ("tinyint", ["-5", "127", "NULL", "0"]),
    "k_short": ("smallint", ["300", "-1", "0", "7"]),
    "k_long": ("bigint", ["'-9223372036854775808'", "0", "'9223372036854775807'", "1"]),
    "k_float": ("float", ["1", "1e10", "1.1", "'NaN'"]),
    "k_float2": ("float", ["1e-5", "123456.789", "3.4e38", "'-Infinity'"]),
    "k_double": ("double", ["1", "9999999", "1e7", "'NaN'"]),
    "k_double2": ("double", ["1e-3", "9.99e-4", "123456789.123", "'-0.0'"]),
    "k_double3": ("double", ["1e21", "4.9e-324", "2e-3", "1.7976931348623157e308"]),
    "k_dec": ("decimal(20,4)", ["1.5", "-0.0001", "'1234567890123456.7891'", "0"]),
    "k_dec2": ("decimal(38,10)", ["'0.0000000001'", "'-12.3'", "0", "'0.0000123456'"]),
    "k_date": ("date", ["'2024-01-02'", "'1969-12-31'", "'1900-01-01'", "'9999-12-31'"]),
    "k_ts": (
        "timestamp",
        ["'2024-01-02 03:04:05.6789'", "'1969-12-31 23:59:59.999999'", "NULL", "'1970-01-01'"],
    ),
    "k_ntz": (
        "timestamp_ntz",
        ["'2024-01-02 03:04:05.6789'", "'1969-12-31 23:59:59.999999'", "NULL", "'1970-01-01'"],
    ),
    "k_str": ("string", ["'a b'", "''", "'__null__'", "'é/%,:'"]),
    "k_bin": ("binary", ["x'616200ff'", "x'00'", "x'ff'", "x'10'"]),
}


def test_record_keys_of_every_type_have_hudis_text(hudi: Oracle, ours: Any, tmp_path: Path) -> None:
    sql = " UNION ALL ".join(
        "SELECT "
        + ", ".join(f"CAST({values[i]} AS {kind}) AS {name}" for name, (kind, values) in KEY_TYPES.items())
        + f", {i} AS v"
        for i in range(4)
    )
    chosen = {**options(",".join(KEY_TYPES), "", None), OPERATION: "upsert"}
    hudi.write(tmp_path / "hudis", sql, chosen)
    ours.write(tmp_path / "ours", sql, chosen)

    def keys(who: str) -> dict[int, str]:
        return {row["v"]: row["_hoodie_record_key"] for row in hudi.read(tmp_path / who)}

    assert keys("ours") == keys("hudis")
    # so an upsert by either finds the other's rows
    ours.write(tmp_path / "hudis", sql, chosen)
    hudi.write(tmp_path / "ours", sql, chosen)
    assert len(hudi.read(tmp_path / "hudis")) == len(hudi.read(tmp_path / "ours")) == 4


PARTITION_TYPES = {
    "p_int": ("int", ["5", "-5", "NULL"]),
    "p_long": ("bigint", ["'9223372036854775807'", "0", "NULL"]),
    "p_bool": ("boolean", ["true", "false", "NULL"]),
    "p_date": ("date", ["'2024-01-02'", "'1969-12-31'", "NULL"]),
    "p_dec": ("decimal(10,2)", ["1.5", "-0.01", "NULL"]),
    "p_double": ("double", ["1e10", "0.5", "NULL"]),
    "p_float": ("float", ["1.5", "-2", "NULL"]),
    "p_str": ("string", ["'a b'", "'x/y=%'", "NULL"]),
}


def test_partition_columns_of_every_type_have_hudis_path_and_come_back_typed(
    hudi: Oracle, ours: Any, tmp_path: Path
) -> None:
    sql = " UNION ALL ".join(
        f"SELECT {i} AS id, "
        + ", ".join(
            f"CAST({values[i]} AS {kind}) AS {name}" for name, (kind, values) in PARTITION_TYPES.items()
        )
        for i in range(3)
    )
    chosen = {**options("id", ",".join(PARTITION_TYPES), None, **{URL_ENCODE: "true"}), OPERATION: "upsert"}
    hudi.write(tmp_path / "hudis", sql, chosen)
    ours.write(tmp_path / "ours", sql, chosen)

    def seen(who: str) -> list[dict[str, Any]]:
        rows = hudi.read(tmp_path / who)
        return sorted(
            ({"path": row["_hoodie_partition_path"], **ordered([row])[0]} for row in rows),
            key=lambda row: row["id"],
        )

    assert seen("ours") == seen("hudis")
    assert hudi.schema(tmp_path / "ours") == hudi.schema(tmp_path / "hudis")
    for who in ("ours", "hudis"):
        assert ordered(ours.read(tmp_path / who)) == ordered(hudi.read(tmp_path / who))


ORDERING = {
    "string": ("string", ["10"], ["095", "9", "10"]),
    "double": ("double", [1.5], [1.25, math.nan, 1.5]),
    "timestamp": (
        "timestamp",
        ["2024-01-02 00:00:00"],
        ["2024-01-01 00:00:00", "2024-01-03 00:00:00", "2024-01-02"],
    ),
}


@pytest.mark.parametrize("kind", ORDERING)
def test_late_rows_lose_and_ties_go_to_the_newcomer_as_in_hudi(
    kind: str, hudi: Oracle, ours: Any, tmp_path: Path
) -> None:
    of, (base,), (lower, higher, equal) = ORDERING[kind]
    columns = {"id": "int", "name": "string", "ts": of}

    def sql(*rows: tuple[int, str, Any]) -> str:
        made = [dict(zip(columns, row, strict=True)) for row in rows]
        return query(made, columns)

    chosen = {**options(partitions=""), OPERATION: "upsert"}
    for who, writer in (("ours", ours), ("hudis", hudi)):
        path = tmp_path / who
        batch = [(9, "b", base), (9, "h", higher), (9, "l", lower), (8, "1", base), (8, "2", equal)]
        writer.write(path, sql((1, "base", base), (2, "base", base), (3, "base", base), *batch), chosen)
        writer.write(path, sql((1, "low", lower), (2, "high", higher), (3, "tie", equal)), chosen)
    assert ordered(hudi.read(tmp_path / "ours")) == ordered(hudi.read(tmp_path / "hudis"))
    assert {row["id"]: row["name"] for row in hudi.read(tmp_path / "ours")} == {
        1: "base",
        2: "high",
        3: "tie",
        8: "2",
        9: "h",
    }
