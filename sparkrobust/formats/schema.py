"""A table's schema: the Avro JSON that commits carry, and the Arrow schema that files are written in.

Hudi keeps the schema of a table, without its five meta columns, as an Avro record in the extra
metadata of each commit.  Names inside it follow Hudi's scheme to the letter, since Avro resolves
records by name: the record ``<table>_record`` in the namespace ``hoodie.<table>``, a nested record
named after its column, in a namespace that grows by the names around it.

The Arrow side is always derived from the Avro side, so two schemas that mean the same are equal
there, and a column has one Arrow type whatever Spark happened to send: small integers are ``int``,
instants are microseconds in UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from sparkrobust.errors import CorruptTableError, SchemaConflictError, UnsupportedTableError

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
META_FIELDS = tuple(pa.field(name, pa.string()) for name in META_COLUMNS)

MAX_JSON_CHARS = 16 << 20
MAX_DEPTH = 64

_MAX_FIXED_BYTES = 1 << 16
_MASK = "__"

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def sanitise(name: str) -> str:
    """A table's name as Avro allows it: Hudi masks every other character with two underscores."""
    masked = re.sub(r"\A[^A-Za-z_]", _MASK, name)
    return re.sub(r"[^A-Za-z0-9_]", _MASK, masked)


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The schema without Hudi's five columns, wherever they stand."""
    return pa.schema([column for column in schema if column.name not in META_COLUMNS])


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """The schema of a base file: Hudi's five columns first."""
    return pa.schema([*META_FIELDS, *without_meta_columns(schema)])


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """A table's columns, without the meta columns; immutable, the Avro side too.

    Build one with :meth:`of_avro` or :meth:`of_arrow`.
    """

    arrow: pa.Schema
    avro: Mapping[str, Any] = field(repr=False, compare=False)
    has_references: bool = field(default=False, repr=False, compare=False)
    """Whether the Avro JSON names a type that it defined before; then its columns can't be parted."""

    @classmethod
    def of_avro(cls, text: str, *, path: str) -> TableSchema:
        """Read the JSON of a commit or of ``hoodie.table.create.schema``.

        Raises
        ------
        CorruptTableError
            The text is no Avro schema of a record.
        UnsupportedTableError
            It is one, of types that a Spark table can't have.
        """
        parser = _Parser(path)
        record = parser.load(text)
        record["fields"] = [column for column in record["fields"] if column.get("name") not in META_COLUMNS]
        arrow = parser.schema(record)
        return cls(arrow=arrow, avro=record, has_references=parser.has_references)

    @classmethod
    def of_arrow(cls, schema: pa.Schema, table_name: str) -> TableSchema:
        """The schema that Hudi would record for rows of this type.

        Raises
        ------
        SchemaConflictError
            Columns that a Hudi table can't have; all are named.
        """
        name = sanitise(table_name)
        return cls.of_columns(without_meta_columns(schema), name=f"{name}_record", namespace=f"hoodie.{name}")

    @classmethod
    def of_columns(
        cls,
        columns: Iterable[pa.Field],
        *,
        name: str,
        namespace: str | None,
        known: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> TableSchema:
        """A record of these columns; ``known`` has the Avro of those that are to stay as they are."""
        columns = list(columns)
        writer = _Writer()
        writer.check_names([column.name for column in columns], "")
        scope = f"{namespace}.{name}" if namespace else name
        record: dict[str, Any] = {"type": "record", "name": name}
        if namespace:
            record["namespace"] = namespace
        record["fields"] = [
            (known or {}).get(column.name) or writer.column(column, scope, column.name) for column in columns
        ]
        if writer.problems:
            raise SchemaConflictError(
                "the rows have columns that a Hudi table can't have: " + "; ".join(writer.problems)
            )
        return cls(arrow=_Parser("the schema of the rows").schema(record), avro=record)

    @property
    def file_schema(self) -> pa.Schema:
        """What a base file holds: the meta columns, then these."""
        return with_meta_columns(self.arrow)

    def to_json(self) -> str:
        """The JSON for a commit's extra metadata, spelled as Hudi spells it."""
        return json.dumps(self.avro, separators=(",", ":"), ensure_ascii=False)

    def same_as(self, other: TableSchema) -> bool:
        """Whether both mean the same columns; names of records, docs, order of unions don't count."""
        return bool(self.arrow.equals(other.arrow, check_metadata=False))

    def avro_fields(self) -> dict[str, Mapping[str, Any]]:
        """The Avro of each column."""
        return {column["name"]: column for column in self.avro["fields"]}


# -- from Avro ---------------------------------------------------------------------------------------------


class _Parser:
    """Reads one Avro schema; knows the named types that it met."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.named: dict[str, pa.DataType | None] = {}
        self.has_references = False

    def wrong(self, expected: str, where: str = "") -> NoReturn:
        place = f" at {where}" if where else ""
        raise CorruptTableError(f"{self.path}: expected {expected} in the Avro schema{place}", path=self.path)

    def unsupported(self, what: str, where: str) -> NoReturn:
        raise UnsupportedTableError(
            f"{self.path}: column {where} is {what}, which this library does not write", path=self.path
        )

    def load(self, text: str) -> dict[str, Any]:
        if len(text) > MAX_JSON_CHARS:
            self.wrong(f"at most {MAX_JSON_CHARS} characters")
        try:
            record = json.loads(text)
            text.encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise CorruptTableError(
                f"{self.path}: expected the JSON of an Avro schema ({str(error)[:100]})", path=self.path
            ) from error
        if not isinstance(record, dict) or record.get("type") != "record":
            self.wrong("a record")
        if not isinstance(record.get("fields"), list) or not all(
            isinstance(column, dict) for column in record["fields"]
        ):
            self.wrong("a list of fields")
        return record

    def schema(self, record: Mapping[str, Any]) -> pa.Schema:
        name, namespace = self.name_of(record, "", "the record")
        self.named[f"{namespace}.{name}" if namespace else name] = None
        return pa.schema(self.fields(record, namespace, "", 0))

    def name_of(self, node: Mapping[str, Any], enclosing: str, where: str) -> tuple[str, str]:
        """Name and namespace, which a dot in the name overrides and the record around it lends."""
        name, namespace = node.get("name"), node.get("namespace", enclosing)
        if not isinstance(name, str) or not name or not isinstance(namespace or "", str):
            self.wrong("a name", where)
        if "." in name:
            namespace, _, name = name.rpartition(".")
        return name, namespace or ""

    def fields(self, record: Mapping[str, Any], namespace: str, where: str, depth: int) -> list[pa.Field]:
        columns = record.get("fields")
        if not isinstance(columns, list):
            self.wrong("a list of fields", where)
        found: dict[str, pa.Field] = {}
        for column in columns:
            if not isinstance(column, dict) or "type" not in column:
                self.wrong("a field with a type", where)
            name = column.get("name")
            if not isinstance(name, str) or not name or name in found or not _encodable(name):
                self.wrong("a field name that is new", where)
            path = f"{where}.{name}" if where else name
            kind, nullable = self.type_of(column["type"], namespace, path, depth + 1)
            found[name] = pa.field(name, kind, nullable)
        return list(found.values())

    def type_of(self, node: Any, namespace: str, where: str, depth: int) -> tuple[pa.DataType, bool]:
        """The Arrow type of a node, and whether it may be null."""
        if depth > MAX_DEPTH:
            self.wrong(f"at most {MAX_DEPTH} levels", where[:80])
        if isinstance(node, str):
            return self.by_name(node, namespace, where), False
        if isinstance(node, list):
            return self.union(node, namespace, where, depth)
        if not isinstance(node, dict) or "type" not in node:
            self.wrong("a type", where)
        kind = node["type"]
        if not isinstance(kind, str):  # a type in brackets of its own
            return self.type_of(kind, namespace, where, depth + 1)
        if kind == "record":
            return self.record(node, namespace, where, depth), False
        if kind == "array":
            item, nullable = self.type_of(node.get("items"), namespace, f"{where}.element", depth + 1)
            return pa.list_(pa.field("element", item, nullable)), False
        if kind == "map":
            value, nullable = self.type_of(node.get("values"), namespace, f"{where}.value", depth + 1)
            return pa.map_(pa.string(), pa.field("value", value, nullable)), False
        if kind in ("fixed", "enum"):
            return self.named_leaf(node, kind, namespace, where), False
        return self.leaf(node, kind, namespace, where), False

    def union(self, node: list[Any], namespace: str, where: str, depth: int) -> tuple[pa.DataType, bool]:
        branches = [branch for branch in node if branch != "null"]
        if len(node) - len(branches) > 1 or not branches:
            self.wrong("a union of null and one type", where)
        if len(branches) > 1:
            self.unsupported("a union of several types", where)
        if isinstance(branches[0], list):
            self.wrong("no union in a union", where)
        kind, _ = self.type_of(branches[0], namespace, where, depth + 1)
        return kind, len(node) > 1

    def by_name(self, name: str, namespace: str, where: str) -> pa.DataType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if name == "null":
            self.unsupported("always null", where)
        if full not in self.named:
            self.wrong(f"a known type, not {name[:60]!r},", where)
        self.has_references = True
        kind = self.named[full]
        if kind is None:
            self.unsupported("a record inside itself", where)
        return kind

    def record(self, node: Mapping[str, Any], enclosing: str, where: str, depth: int) -> pa.DataType:
        name, namespace = self.name_of(node, enclosing, where)
        full = f"{namespace}.{name}" if namespace else name
        self.named[full] = None
        columns = self.fields(node, namespace, where, depth)
        if not columns:
            self.unsupported("a record without fields", where)
        self.named[full] = pa.struct(columns)
        return self.named[full]

    def named_leaf(self, node: Mapping[str, Any], kind: str, enclosing: str, where: str) -> pa.DataType:
        name, namespace = self.name_of(node, enclosing, where)
        if kind == "enum":
            found = pa.string()
        else:
            size = node.get("size")
            if type(size) is not int or not 0 < size <= _MAX_FIXED_BYTES:
                self.wrong("a size", where)
            decimal = node.get("logicalType") == "decimal"
            found = self.decimal(node, where, size) if decimal else pa.binary(size)
        self.named[f"{namespace}.{name}" if namespace else name] = found
        return found

    def leaf(self, node: Mapping[str, Any], kind: str, namespace: str, where: str) -> pa.DataType:
        logical = node.get("logicalType")
        if kind == "bytes" and logical == "decimal":
            return self.decimal(node, where, None)
        if isinstance(logical, str) and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        return self.by_name(kind, namespace, where)

    def decimal(self, node: Mapping[str, Any], where: str, size: int | None) -> pa.DataType:
        precision, scale = node.get("precision"), node.get("scale", 0)
        if (
            type(precision) is not int
            or type(scale) is not int
            or not 0 <= scale <= precision
            or not precision
        ):
            self.wrong("a precision and a scale", where)
        if precision > 38:
            self.unsupported(f"a decimal of {precision} digits", where)
        if size is not None and size < bytes_of_decimal(precision):
            self.wrong(f"bytes enough for {precision} digits", where)
        return pa.decimal128(precision, scale)


def _encodable(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


# -- to Avro -------------------------------------------------------------------------------------------------


def bytes_of_decimal(precision: int) -> int:
    """How many bytes hold every decimal of so many digits, in two's complement."""
    return (int(10**precision - 1).bit_length() + 8) // 8


class _Writer:
    """Spells Arrow types as Hudi spells Spark's; collects what can't be spelled."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def check_names(self, names: Sequence[str], where: str) -> None:
        """Refuse what Avro, and so Hudi, does not take as a name."""
        seen: dict[str, str] = {}
        for name in names:
            path = f"{where}.{name}" if where else name
            if not re.fullmatch(r"[^\W\d]\w*", name):
                self.problems.append(
                    f"{path!r} is no Avro name (letters, digits, underscores; no digit first)"
                )
            elif name.lower() in seen:
                self.problems.append(f"{path!r} stands twice, but for case")
            seen[name.lower()] = name

    def column(self, column: pa.Field, scope: str, where: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": column.name, "type": self.value(column, column.name, scope, where)}
        if column.nullable:
            found["default"] = None
        return found

    def value(self, column: pa.Field, name: str, scope: str, where: str) -> Any:
        kind = self.kind(column.type, name, scope, where)
        return ["null", kind] if column.nullable else kind

    def kind(self, kind: pa.DataType, name: str, scope: str, where: str) -> Any:
        types = pa.types
        if types.is_dictionary(kind):
            return self.kind(kind.value_type, name, scope, where)
        if types.is_struct(kind):
            if not kind.num_fields:
                return self.refused("a struct without fields", where)
            parts = [kind.field(i) for i in range(kind.num_fields)]
            self.check_names([part.name for part in parts], where)
            inner = f"{scope}.{name}"
            columns = [self.column(part, inner, f"{where}.{part.name}") for part in parts]
            return {"type": "record", "name": name, "namespace": scope, "fields": columns}
        if types.is_map(kind):
            if not _is_text(kind.key_type):
                return self.refused(f"a map with keys of {kind.key_type}", where)
            values = self.value(kind.item_field, name, scope, f"{where}.value")
            return {"type": "map", "values": values}
        if _is_list(kind):
            items = self.value(kind.value_field, name, scope, f"{where}.element")
            return {"type": "array", "items": items}
        if types.is_decimal(kind):
            return self.decimal(kind, f"{scope}.{name}", where)
        if types.is_fixed_size_binary(kind):
            namespace = f"{scope}.{name}"
            return {"type": "fixed", "name": "fixed", "namespace": namespace, "size": kind.byte_width}
        return self.leaf(kind, where)

    def decimal(self, kind: pa.DataType, namespace: str, where: str) -> Any:
        if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
            return self.refused(str(kind), where)
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": namespace,
            "size": bytes_of_decimal(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }

    def leaf(self, kind: pa.DataType, where: str) -> Any:
        types = pa.types
        if _is_text(kind):
            return "string"
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
            return "bytes"
        if types.is_boolean(kind):
            return "boolean"
        if types.is_int8(kind) or types.is_int16(kind) or types.is_int32(kind):
            return "int"
        for (base, logical), arrow in _LOGICAL.items():
            if _stored(kind).equals(arrow):
                return {"type": base, "logicalType": logical}
        for name in ("long", "float", "double"):
            if kind.equals(_PRIMITIVES[name]):
                return name
        if types.is_null(kind):
            return self.refused("always null (void); cast it to a type", where)
        return self.refused(str(kind), where)

    def refused(self, what: str, where: str) -> str:
        self.problems.append(f"{where!r} is {what}")
        return "string"


def _stored(kind: pa.DataType) -> pa.DataType:
    """Spark's instants are microseconds, in any zone's clothes; milliseconds stay what they are."""
    if not pa.types.is_timestamp(kind):
        return kind
    return pa.timestamp("ms" if kind.unit == "ms" else "us", "UTC" if kind.tz else None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
