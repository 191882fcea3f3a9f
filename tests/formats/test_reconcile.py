"""Schema evolution on write, against what the real Hudi answered for the same rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from sparkrobust.errors import SchemaConflictError
from sparkrobust.formats.reconcile import Reconciled, reconcile
from sparkrobust.formats.schema import TableSchema
from tests.formats.spark_types import arrow_schema_of

TIMES = {"timestamp", "timestamp_ntz"}
NUMBERS = {"int", "bigint", "float", "double"}
REINTERPRETED = (
    {f"date <- {b}" for b in NUMBERS | TIMES}
    | {f"{a} <- {b}" for a in TIMES for b in (NUMBERS - {"int"}) | {"string"}}
    | {f"int <- {b}" for b in TIMES | {"date"}}
    | {f"bigint <- {b}" for b in TIMES}
)
"""Hudi takes these by how a value is stored, so that old rows change their meaning; we refuse."""

FAILED_IN_HUDI = {
    "date <- string that is no date",
    "decimal(5,2) <- bigint too large",
    "decimal(5,2) <- string bad",
    "array of struct field wider",  # Hudi takes the schema, then can't rewrite its own file
    "nested types in table",  # Hudi takes the schema, its row writer has no writer for such a map
}
"""The schemas were fine, and Hudi failed on the rows."""


def asked(case: dict[str, Any]) -> Reconciled:
    return reconcile(
        TableSchema.of_avro(case["table_avro"], path="p"),
        arrow_schema_of(case["incoming"]),
        set_null_for_missing=case["set_null_for_missing"],
        allow_column_drop=case["allow_column_drop"],
    )


def test_hudis_answer_is_ours_but_where_we_say_why_not(reference: Any) -> None:
    accepted = refused = 0
    for case in reference("hudi-evolution.json"):
        name = case["case"]
        if case["table_avro"] is None or name in FAILED_IN_HUDI:
            continue
        if case["result_avro"] is None or name in REINTERPRETED:
            with pytest.raises(SchemaConflictError):
                asked(case)
                pytest.fail(name)
            refused += 1
        else:
            assert asked(case).schema.to_json() == case["result_avro"], name
            accepted += 1
    assert accepted > 75
    assert refused > 90


def test_every_deliberate_refusal_is_one_that_hudi_would_have_taken(reference: Any) -> None:
    taken = {case["case"] for case in reference("hudi-evolution.json") if case["result_avro"]}
    assert taken >= REINTERPRETED
    assert not taken & FAILED_IN_HUDI


def test_a_schema_that_hudi_took_before_failing_on_the_rows_is_taken(reference: Any) -> None:
    cases = {case["case"]: case for case in reference("hudi-evolution.json")}
    for name in FAILED_IN_HUDI:
        asked(cases[name])


TABLE = TableSchema.of_arrow(
    pa.schema(
        [
            pa.field("id", pa.int32(), False),
            pa.field("n", pa.int64()),
            pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))])),
        ]
    ),
    "t",
)


def test_the_same_columns_need_nothing() -> None:
    found = reconcile(TABLE, TABLE.file_schema)
    assert not found.changed
    assert found.schema is TABLE
    assert not any(plan.needs_cast for plan in found.columns)
    assert all(plan.exact for plan in found.columns)


def test_all_problems_are_named_at_once_by_the_path_of_the_column() -> None:
    rows = pa.schema(
        [
            ("ID", pa.int32()),
            ("n", pa.date32()),
            ("s", pa.struct([("x", pa.bool_()), ("y", pa.list_(pa.struct([("other", pa.string())])))])),
            pa.field("new", pa.int32(), False),
        ]
    )
    with pytest.raises(SchemaConflictError) as caught:
        reconcile(TABLE, rows)
    for problem in (
        "id: the rows have 'ID', which differs in case",
        "n: date32[day] can't be written as the table's int64",
        "s.x: bool can't be written as the table's int32",
        "s.y.element.z: missing in the rows",
        "new: a new column must be nullable",
    ):
        assert problem in str(caught.value)
    assert "hoodie.write.set.null.for.missing.columns=true" in str(caught.value)


def test_every_column_of_the_result_says_where_it_comes_from() -> None:
    rows = pa.schema([("n", pa.int32()), ("added", pa.int8()), pa.field("id", pa.float64(), False)])
    found = reconcile(TABLE, rows, set_null_for_missing=True)
    assert found.changed
    assert [(p.name, p.source, p.target, p.exact) for p in found.columns] == [
        ("id", pa.float64(), pa.float64(), True),
        ("n", pa.int32(), pa.int64(), True),
        ("s", None, TABLE.arrow.field("s").type, True),
        ("added", pa.int8(), pa.int32(), True),
    ]
    assert [p.name for p in found.columns if p.needs_cast] == ["n", "s", "added"]


def test_a_cast_that_may_lose_something_says_so_also_deep_inside() -> None:
    table = TableSchema.of_arrow(
        pa.schema(
            [
                ("a", pa.decimal128(5, 2)),
                ("b", pa.list_(pa.float32())),
                ("c", pa.string()),
                ("d", pa.float64()),
            ]
        ),
        "t",
    )
    rows = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.int64())), ("c", pa.int32()), ("d", pa.int32())])
    found = reconcile(table, rows)
    assert {p.name: p.exact for p in found.columns} == {"a": False, "b": False, "c": True, "d": True}


def test_what_the_avro_of_an_untouched_column_says_more_is_kept() -> None:
    text = (
        '{"type":"record","name":"other","namespace":"x.y","fields":['
        '{"name":"e","type":["null",{"type":"enum","name":"color","symbols":["RED"]}],'
        '"doc":"a color","default":null},'
        '{"name":"n","type":["null","int"],"default":null}]}'
    )
    table = TableSchema.of_avro(text, path="p")
    found = reconcile(table, pa.schema([("e", pa.string()), ("n", pa.int64()), ("m", pa.string())]))
    fields = {f["name"]: f for f in json.loads(found.schema.to_json())["fields"]}
    assert fields["e"] == json.loads(text)["fields"][0]
    assert fields["n"]["type"] == ["null", "long"]
    assert (found.schema.avro["name"], found.schema.avro["namespace"]) == ("other", "x.y")


def test_a_table_whose_types_refer_to_each_other_can_still_grow() -> None:
    text = (
        '{"type":"record","name":"r","namespace":"n","fields":['
        '{"name":"a","type":["null",{"type":"record","name":"P","fields":[{"name":"x","type":["null","int"]}]}]},'
        '{"name":"b","type":["null","P"]}]}'
    )
    table = TableSchema.of_avro(text, path="p")
    wider = pa.struct([("x", pa.int64())])
    found = reconcile(table, pa.schema([("a", wider), ("b", table.arrow.field("b").type)]))
    again = TableSchema.of_avro(found.schema.to_json(), path="p")
    assert again.arrow.field("a").type == wider
    assert again.arrow.field("b").type == table.arrow.field("b").type
