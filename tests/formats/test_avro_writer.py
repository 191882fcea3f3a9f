"""Values of Avro schemas, written by us and read, and written, by fastavro."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.formats.avro_writer import writer_of

LEAF = {
    "type": "record",
    "name": "Leaf",
    "fields": [{"name": "of", "type": ["null", "Leaf"], "default": None}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "namespace": "some.where",
    "fields": [
        {"name": "text", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "whole", "type": "int"},
        {"name": "large", "type": ["null", "long"], "default": None},
        {"name": "last", "type": ["int", "null"], "default": 1},
        {"name": "part", "type": "double"},
        {"name": "is_so", "type": ["null", "boolean"], "default": None},
        {"name": "many", "type": {"type": "array", "items": "long"}},
        {"name": "named", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "leaf", "type": LEAF},
        {"name": "again", "type": ["null", "some.where.Leaf"], "default": None},
    ],
}
LONGS, INTS = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=80)
LEAVES = st.recursive(st.just({"of": None}), lambda inner: st.fixed_dictionaries({"of": inner}), max_leaves=3)
VALUES = st.fixed_dictionaries(
    {
        "text": TEXT,
        "whole": INTS,
        "part": st.floats(allow_nan=False),
        "many": st.lists(LONGS, max_size=70),
        "named": st.dictionaries(TEXT, st.lists(TEXT, max_size=3), max_size=3),
        "leaf": LEAVES,
    },
    optional={
        "large": st.none() | LONGS,
        "last": st.none() | INTS,
        "is_so": st.none() | st.booleans(),
        "again": st.none() | LEAVES,
    },
)
PLAIN = {"text": "t", "whole": 1, "part": 0.5, "many": [], "named": {}, "leaf": {"of": None}}


def written(value: Any) -> bytes:
    out = bytearray()
    writer_of(SCHEMA)(out, value)
    return bytes(out)


@given(VALUES)
def test_what_is_written_is_what_fastavro_writes(value: dict[str, Any]) -> None:
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, fastavro.parse_schema(SCHEMA), value)
    assert written(value) == theirs.getvalue()


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": 1},
        {"text": b"t"},
        {"text": "\ud800"},
        {"whole": 1 << 31},
        {"whole": True},
        {"whole": None},
        {"large": -(1 << 63) - 1},
        {"large": "1"},
        {"part": "1"},
        {"is_so": 1},
        {"many": 1},
        {"many": [None]},
        {"named": {1: []}},
        {"leaf": None},
        {"leaf": {"of": {"on": None}}},
        {"unknown": 1},
    ],
)
def test_a_value_that_is_not_of_the_schema_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError, struct.error)):
        written({**PLAIN, **wrong})


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(ValueError, match="Everything lacks text"):
        written({name: value for name, value in PLAIN.items() if name != "text"})


def test_a_union_of_anything_but_null_and_one_other_is_no_schema_of_ours() -> None:
    with pytest.raises(ValueError, match="a union"):
        writer_of(["int", "string"])
