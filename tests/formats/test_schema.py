"""Schemas, against the Avro JSON that Hudi records and the types of the files that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.errors import CorruptTableError, SchemaConflictError, UnsupportedTableError
from sparkrobust.formats import properties
from sparkrobust.formats.commit_metadata import CommitMetadata
from sparkrobust.formats.schema import (
    META_COLUMNS,
    TableSchema,
    bytes_of_decimal,
    sanitise,
    with_meta_columns,
    without_meta_columns,
)
from tests.fixture_tables import data_files, timeline_files
from tests.formats.spark_types import arrow_of, arrow_schema_of


def recorded_schemas(table: Path) -> list[str]:
    """What the commits of a table carry, without the meta columns that schema-on-read leaves in."""
    metas = [
        CommitMetadata.from_bytes(file.read_bytes(), path=str(file))
        for file in timeline_files(table)
        if file.suffix == ".commit"
    ]
    return [meta.schema for meta in metas if meta.schema]


def table_folders(tables: Path) -> list[Path]:
    return sorted(path for path in tables.iterdir() if path.is_dir())


def without_nullability(kind: pa.DataType) -> str:
    """Hudi writes lists in a form that can't say that an item may be null."""
    return str(kind).replace(" not null", "")


def test_hudis_json_of_every_fixture_is_written_again_to_the_letter(hudi_tables: Path) -> None:
    seen = 0
    for table in table_folders(hudi_tables):
        for text in recorded_schemas(table):
            schema = TableSchema.of_avro(text, path=str(table))
            whole = json.loads(text)
            whole["fields"] = [f for f in whole["fields"] if f["name"] not in META_COLUMNS]
            assert schema.to_json() == json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
            name = whole["namespace"].partition(".")[2]
            assert TableSchema.of_arrow(schema.arrow, name).to_json() == schema.to_json()
            seen += 1
    assert seen > 40


def test_a_new_tables_schema_is_the_one_that_hudi_records_for_the_same_rows(reference: Any) -> None:
    seen = 0
    for case in reference("hudi-evolution.json"):
        if case["table_avro"] is not None:
            schema = TableSchema.of_arrow(arrow_schema_of(case["table"]), case["table_name"])
            assert schema.to_json() == case["table_avro"], case["case"]
            seen += 1
    assert seen > 150


def test_rows_that_hudi_refuses_for_their_types_or_names_are_refused(reference: Any) -> None:
    refused = [case for case in reference("hudi-evolution.json") if case["table_avro"] is None]
    assert {case["case"] for case in refused} >= {"map int key", "column name dot", "nested column name dash"}
    for case in refused:
        with pytest.raises(SchemaConflictError, match="columns that a Hudi table can't have"):
            TableSchema.of_arrow(arrow_schema_of(case["table"]), case["table_name"])


def test_the_files_of_every_fixture_have_the_types_that_their_schema_says(hudi_tables: Path) -> None:
    seen = set()
    for table in table_folders(hudi_tables):
        schemas = recorded_schemas(table)
        if len(set(schemas)) != 1 or table.name == "cow_drop_partition_columns":
            continue
        expected = TableSchema.of_avro(schemas[0], path=str(table))
        for file in data_files(table):
            found = TableSchema.of_arrow(pq.read_schema(file), "t").arrow
            assert found.names == expected.arrow.names, file
            for column in found:
                wanted = expected.arrow.field(column.name).type
                assert without_nullability(column.type) == without_nullability(wanted), (file, column)
            seen.add(table.name)
    assert {"cow_all_types", "cow_all_types_bulk", "v8_cow"} <= seen


def test_our_schema_is_one_that_avro_accepts(reference: Any) -> None:
    for case in reference("hudi-evolution.json"):
        if case["case"] not in ("column name umlaut",) and case["table_avro"]:
            fastavro.parse_schema(
                json.loads(TableSchema.of_arrow(arrow_schema_of(case["table"]), "t").to_json())
            )


def test_the_create_schema_of_a_sql_table_means_the_same_though_null_comes_last(hudi_tables: Path) -> None:
    seen = 0
    for table in table_folders(hudi_tables):
        file = table / ".hoodie" / "hoodie.properties"
        values = properties.parse(file.read_bytes(), path=str(file))
        created = values.get("hoodie.table.create.schema")
        recorded = recorded_schemas(table)
        if created and len(set(recorded)) == 1:
            first = TableSchema.of_avro(created, path=str(file))
            assert first.same_as(TableSchema.of_avro(recorded[0], path=str(table))), table
            assert first == TableSchema.of_avro(recorded[0], path=str(table))
            seen += 1
    assert seen > 10


def test_the_meta_columns_come_first_and_go_without_a_trace() -> None:
    rows = pa.schema([("a", pa.int32()), ("_hoodie_record_key", pa.string()), ("b", pa.string())])
    assert without_meta_columns(rows).names == ["a", "b"]
    assert with_meta_columns(rows).names == [*META_COLUMNS, "a", "b"]
    assert TableSchema.of_arrow(rows, "t").file_schema.names == [*META_COLUMNS, "a", "b"]


def test_names_are_masked_as_hudi_masks_them() -> None:
    assert sanitise("1my-tab.le é𝒜_$") == "__my__tab__le_________"
    assert sanitise("9") == "__"
    assert sanitise("plain_Name9") == "plain_Name9"


def test_a_decimal_takes_the_bytes_that_spark_gives_it() -> None:
    assert [bytes_of_decimal(p) for p in (1, 2, 3, 4, 5, 9, 10, 18, 19, 20, 38)] == [
        1,
        1,
        2,
        2,
        3,
        4,
        5,
        8,
        9,
        9,
        16,
    ]


def test_every_problem_of_the_rows_is_named_at_once() -> None:
    rows = pa.schema(
        [
            ("void", pa.null()),
            ("gap", pa.duration("us")),
            ("a b", pa.int32()),
            ("x", pa.struct([("y", pa.list_(pa.map_(pa.int32(), pa.string())))])),
            ("k", pa.int32()),
            ("K", pa.int32()),
        ]
    )
    with pytest.raises(SchemaConflictError) as caught:
        TableSchema.of_arrow(rows, "t")
    for path in ("'void'", "'gap'", "'a b'", "'x.y.element'", "'K' stands twice"):
        assert path in str(caught.value)


def test_the_same_rows_have_the_same_schema_whatever_arrow_types_carry_them() -> None:
    plain = pa.schema(
        [("s", pa.string()), ("b", pa.binary()), ("i", pa.int32()), ("t", pa.timestamp("us", "UTC"))]
    )
    other = pa.schema(
        [
            ("s", pa.dictionary(pa.int32(), pa.large_string())),
            ("b", pa.large_binary()),
            ("i", pa.int8()),
            ("t", pa.timestamp("ns", "America/New_York")),
        ]
    )
    assert TableSchema.of_arrow(plain, "t").same_as(TableSchema.of_arrow(other, "t"))
    assert TableSchema.of_arrow(plain, "t").arrow.types == plain.types


def field_of(kind: Any) -> Any:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": kind}]})
    return TableSchema.of_avro(text, path="p").arrow.field("c")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "int", "logicalType": "no-such"}, pa.int32()),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}, pa.decimal128(5, 1)),
        ({"type": "fixed", "name": "f", "size": 3}, pa.binary(3)),
        ({"type": {"type": "int", "logicalType": "date"}}, pa.date32()),
        (["long"], pa.int64()),
    ],
)
def test_types_that_other_writers_use_are_understood(kind: Any, expected: pa.DataType) -> None:
    assert field_of(kind).type == expected
    assert not field_of(kind).nullable


def test_a_type_may_be_named_where_it_was_defined_before() -> None:
    point = {"type": "record", "name": "P", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}
    text = json.dumps(
        {
            "type": "record",
            "name": "r",
            "namespace": "n",
            "fields": [
                {"name": "a", "type": point},
                {"name": "b", "type": ["n.P", "null"]},
                {"name": "c", "type": "P"},
            ],
        }
    )
    schema = TableSchema.of_avro(text, path="p")
    assert schema.arrow.types == [pa.struct([pa.field("x", pa.int32(), False)])] * 3
    assert schema.has_references


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "int", "string"],
        "null",
        {"type": "record", "name": "e", "fields": []},
        {"type": "record", "name": "s", "fields": [{"name": "s", "type": ["null", "s"]}]},
        {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1},
    ],
)
def test_a_type_that_a_spark_table_can_not_have_is_unsupported_and_names_its_column(kind: Any) -> None:
    with pytest.raises(UnsupportedTableError, match=r"p: column c"):
        field_of(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "no.such",
        3,
        None,
        {},
        {"type": "array"},
        {"type": "map", "values": "x"},
        ["null", "null"],
        [],
        [["null", "int"]],
        {"type": "fixed", "name": "f", "size": -1},
        {"type": "fixed", "name": "f", "size": True},
        {"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal", "precision": 9},
        {"type": "bytes", "logicalType": "decimal", "precision": 0},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {
            "type": "record",
            "name": "s",
            "fields": [{"name": "x", "type": "int"}, {"name": "x", "type": "int"}],
        },
        {"type": "record", "name": 3, "fields": []},
    ],
)
def test_a_broken_schema_is_corrupt_and_named(kind: Any) -> None:
    with pytest.raises(CorruptTableError, match=r"^p: expected"):
        field_of(kind)


def test_a_schema_nested_beyond_reason_is_corrupt() -> None:
    for depth in (100, 50_000):
        text = (
            '{"type":"record","name":"r","fields":[{"name":"c","type":' + '{"type":"array","items":' * depth
        )
        with pytest.raises(CorruptTableError):
            TableSchema.of_avro(text + '"int"' + "}" * depth + "}]}", path="p")


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
LEAVES = st.sampled_from(
    [
        *("integer", "long", "float", "double", "string", "binary", "boolean", "date"),
        *("timestamp", "timestamp_ntz", "byte", "short", "decimal(9,2)", "decimal(38,10)"),
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "elementType": inner, "containsNull": st.booleans()})
        | st.fixed_dictionaries(
            {
                "type": st.just("map"),
                "keyType": st.just("string"),
                "valueType": inner,
                "valueContainsNull": st.booleans(),
            }
        )
        | st.lists(
            st.fixed_dictionaries({"name": NAMES, "type": inner, "nullable": st.booleans()}),
            min_size=1,
            max_size=3,
            unique_by=lambda f: f["name"],
        ).map(lambda fields: {"type": "struct", "fields": fields})
    ),
    max_leaves=8,
)


@given(TYPES, st.booleans())
def test_every_spark_type_goes_to_avro_and_back(kind: Any, nullable: bool) -> None:
    rows = pa.schema([pa.field("c", arrow_of(kind), nullable)])
    schema = TableSchema.of_arrow(rows, "t")
    again = TableSchema.of_avro(schema.to_json(), path="p")
    assert again == schema
    assert again.to_json() == schema.to_json()
    assert TableSchema.of_arrow(again.arrow, "t").to_json() == schema.to_json()
    assert again.arrow.field("c").nullable is nullable
    fastavro.parse_schema(json.loads(schema.to_json()))


WORDS = ["record", "array", "map", "fixed", "enum", "int", "bytes", "null", "decimal", "r", "c", ""]
NODES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70_000) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "namespace",
                    "fields",
                    "items",
                    "values",
                    "size",
                    "logicalType",
                    "precision",
                    "scale",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=15,
)


@given(NODES)
def test_any_json_is_a_schema_corrupt_or_unsupported(node: Any) -> None:
    for text in (
        json.dumps(node),
        json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": node}]}),
    ):
        try:
            TableSchema.of_avro(text, path="some/file")
        except (CorruptTableError, UnsupportedTableError) as error:
            assert error.path == "some/file"


@given(st.text(max_size=40))
def test_any_text_is_a_schema_or_corrupt(text: str) -> None:
    with pytest.raises(CorruptTableError):
        TableSchema.of_avro(text, path="p")
