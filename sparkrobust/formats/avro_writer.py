"""Writing values of an Avro schema: the part of Avro that Hudi's timeline needs, and quick at it.

A commit of very many files is one record of very many small ones, whose fields are nearly all "null
or a number".  So a schema is turned into functions once, and what is optional costs one comparison.
An array is taken from anything that has a length and gives its items one after the other, so that
its items need not all be there at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

Write = Callable[[bytearray, Any], None]
"""Appends a value, or raises ``TypeError`` or ``ValueError`` for one that is not of the schema."""

_LIMITS = {"int": 1 << 31, "long": 1 << 63}
_MISSING = object()


def writer_of(schema: Any) -> Write:
    """The writer of a schema's values."""
    return _writer(schema, {})


def write_long(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def write_bytes(out: bytearray, value: bytes) -> None:
    write_long(out, len(value))
    out += value


def _writer(schema: Any, named: dict[str, Write]) -> Write:
    if isinstance(schema, list):
        return _optional(schema, named)
    if isinstance(schema, str):
        return _SIMPLE[schema] if schema in _SIMPLE else _by_name(schema, named)
    kind = schema["type"]
    if kind == "record":
        return _record(schema, named)
    if kind == "array":
        return _array(_writer(schema["items"], named))
    if kind == "map":
        return _map(_writer(schema["values"], named))
    return _writer(kind, named)


def _optional(branches: list[Any], named: dict[str, Write]) -> Write:
    """Null or something: the only unions that there are."""
    if len(branches) != 2 or "null" not in branches:
        raise ValueError(f"a union that is not of null and one other: {branches}")
    null = branches.index("null")
    of_null, of_other = b"\0\2" if null == 0 else b"\2\0"
    write = _writer(branches[1 - null], named)

    def optional(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(of_null)
        else:
            out.append(of_other)
            write(out, value)

    return optional


def _by_name(name: str, named: dict[str, Write]) -> Write:
    # Asked for when it is used: a record may have itself in a field.
    return lambda out, value: named[name.rpartition(".")[2]](out, value)


def _record(schema: Any, named: dict[str, Write]) -> Write:
    name = schema["name"]
    fields = [
        (field["name"], field.get("default", _MISSING), _writer(field["type"], named))
        for field in schema["fields"]
    ]
    names = frozenset(field["name"] for field in schema["fields"])

    def record(out: bytearray, value: Any) -> None:
        if not value.keys() <= names:
            raise ValueError(f"{name} has no {', '.join(sorted(value.keys() - names))}")
        for field, default, write in fields:
            found = value.get(field, default)
            if found is _MISSING:
                raise ValueError(f"{name} lacks {field}")
            write(out, found)

    named[name] = record
    return record


def _array(write: Write) -> Write:
    def array(out: bytearray, value: Any) -> None:
        count = len(value)
        if count:
            write_long(out, count)
            for item in value:
                write(out, item)
        out.append(0)

    return array


def _map(write: Write) -> Write:
    def mapping(out: bytearray, value: Any) -> None:
        if value:
            write_long(out, len(value))
            for key, item in value.items():
                _text(out, key)
                write(out, item)
        out.append(0)

    return mapping


def _text(out: bytearray, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r:.100}")
    data = value.encode()
    write_long(out, len(data))
    out += data


def _number(kind: str) -> Write:
    limit = _LIMITS[kind]

    def number(out: bytearray, value: Any) -> None:
        if type(value) is not int or not -limit <= value < limit:
            raise ValueError(f"not an Avro {kind}: {value!r:.100}")
        if 0 <= value < 64:
            out.append(value << 1)
        else:
            write_long(out, value)

    return number


def _boolean(out: bytearray, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"not true or false: {value!r:.100}")
    out.append(value)


def _double(out: bytearray, value: Any) -> None:
    out += struct.pack("<d", value)


_SIMPLE: dict[str, Write] = {
    "string": _text,
    "int": _number("int"),
    "long": _number("long"),
    "boolean": _boolean,
    "double": _double,
}
