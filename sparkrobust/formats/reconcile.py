"""What becomes of a table's schema when rows of another schema are written.

Hudi's rules, found out by asking it (the answers are among the tests' data): columns are matched by
name, at every level; the table's order stays and new columns go to the end; a column may be null if
it may be in the table or in the rows.  A column that the rows lack is an error unless the writer
says that it is to be null, a new one must be nullable.  Types widen along int, long, float, double,
string; text and bytes stand for each other; a decimal takes numbers, and grows within its bytes.

One thing Hudi does is refused here: where it looks only at how a value is stored, it makes days of
a table's integers, or integers of its instants, and the old rows change their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkrobust.errors import SchemaConflictError
from sparkrobust.formats.schema import TableSchema, bytes_of_decimal, without_meta_columns

_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
_EXACT = frozenset((("int32", "int64"), ("int32", "double"), ("float", "double")))


@dataclass(frozen=True, kw_only=True)
class ColumnPlan:
    """How one column of the result comes about."""

    name: str
    source: pa.DataType | None
    """The type that the rows have; ``None`` if they lack the column, which is then all null."""
    target: pa.DataType
    exact: bool
    """Whether the cast keeps every value; else one may be rounded, or not fit, which is an error."""

    @property
    def needs_cast(self) -> bool:
        """Whether the rows' column is not already what is written."""
        return self.source is None or not self.source.equals(self.target)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """The schema that a write records, and how its rows get there; columns in the schema's order."""

    schema: TableSchema
    columns: tuple[ColumnPlan, ...]
    changed: bool
    """Whether the schema means something else than the table's did."""


def reconcile(
    table: TableSchema,
    incoming: pa.Schema,
    *,
    set_null_for_missing: bool = False,
    allow_column_drop: bool = False,
) -> Reconciled:
    """Find the schema of a write, or say everything that is in its way.

    Parameters
    ----------
    table
        The table's schema before the write.
    incoming
        The rows' columns; meta columns among them are ignored.
    set_null_for_missing
        ``hoodie.write.set.null.for.missing.columns``.
    allow_column_drop
        ``hoodie.datasource.write.schema.allow.auto.evolution.column.drop``: a top-level column that
        the rows lack leaves the table.

    Raises
    ------
    SchemaConflictError
        All problems in one message, by the path of the column.
    """
    name, namespace = table.avro["name"], table.avro.get("namespace")
    rows = TableSchema.of_columns(without_meta_columns(incoming), name=name, namespace=namespace).arrow
    merge = _Merge(set_null_for_missing)
    before = [column for column in table.arrow if not allow_column_drop or column.name in rows.names]
    columns = merge.fields(before, list(rows), "")
    if merge.problems:
        raise SchemaConflictError(
            "the rows don't fit the table's schema: " + "; ".join(merge.problems),
            hint="hoodie.write.set.null.for.missing.columns=true writes nulls into columns that are missing"
            if merge.missing
            else None,
        )
    kept = {} if table.has_references else table.avro_fields()
    known = {c.name: kept[c.name] for c in columns if c.name in kept and _unchanged(table.arrow, c)}
    schema = TableSchema.of_columns(columns, name=name, namespace=namespace, known=known)
    changed = not schema.same_as(table)
    plans = tuple(
        ColumnPlan(
            name=column.name,
            source=incoming.field(column.name).type if column.name in rows.names else None,
            target=column.type,
            exact=column.name not in merge.inexact,
        )
        for column in schema.arrow
    )
    return Reconciled(schema=schema if changed else table, columns=plans, changed=changed)


def _unchanged(before: pa.Schema, column: pa.Field) -> bool:
    return bool(before.field(column.name).equals(column))


class _Merge:
    """Merges fields by name, level by level; collects what can't be merged."""

    def __init__(self, set_null_for_missing: bool) -> None:
        self.set_null_for_missing = set_null_for_missing
        self.problems: list[str] = []
        self.missing = False
        self.inexact: set[str] = set()

    def fields(self, table: list[pa.Field], rows: list[pa.Field], where: str) -> list[pa.Field]:
        found: list[pa.Field] = []
        theirs = {column.name: column for column in rows}
        for column in table:
            path = f"{where}.{column.name}" if where else column.name
            match = theirs.pop(column.name, None)
            found.append(
                self.absent(column, path, theirs) if match is None else self.field(column, match, path)
            )
        for column in theirs.values():
            path = f"{where}.{column.name}" if where else column.name
            if not column.nullable:
                self.problems.append(f"{path}: a new column must be nullable, the rows have it as required")
            found.append(column)
        return found

    def absent(self, column: pa.Field, path: str, others: dict[str, pa.Field]) -> pa.Field:
        alike = [name for name in others if name.lower() == column.name.lower()]
        if alike:
            self.problems.append(f"{path}: the rows have {alike[0]!r}, which differs in case")
            del others[alike[0]]
        elif not self.set_null_for_missing:
            self.missing = True
            self.problems.append(f"{path}: missing in the rows")
        return column.with_nullable(True)

    def field(self, table: pa.Field, rows: pa.Field, path: str) -> pa.Field:
        kind = self.kind(table.type, rows.type, path)
        return pa.field(table.name, kind, table.nullable or rows.nullable)

    def kind(self, table: pa.DataType, rows: pa.DataType, path: str) -> pa.DataType:
        types = pa.types
        if types.is_struct(table) and types.is_struct(rows):
            return pa.struct(self.fields(_parts(table), _parts(rows), path))
        if types.is_list(table) and types.is_list(rows):
            return pa.list_(self.field(table.value_field, rows.value_field, f"{path}.element"))
        if types.is_map(table) and types.is_map(rows):
            return pa.map_(pa.string(), self.field(table.item_field, rows.item_field, f"{path}.value"))
        if table.equals(rows):
            return table
        wider = _wider(table, rows)
        if wider is None:
            self.problems.append(
                f"{path}: {_spelled(rows)} can't be written as the table's {_spelled(table)}"
            )
            return table
        if not _is_exact(rows, wider):
            self.inexact.add(path.split(".", 1)[0])
        return wider


def _parts(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]


def _spelled(kind: pa.DataType) -> str:
    name = "struct" if pa.types.is_struct(kind) else str(kind)
    return name if len(name) <= 60 else f"{name[:60]}…"


def _wider(table: pa.DataType, rows: pa.DataType) -> pa.DataType | None:
    """The type that holds both, as Hudi has it; ``None`` if there is none."""
    types = pa.types
    text, raw = pa.string(), pa.binary()
    if {table, rows} == {text, raw}:
        return table
    if rows in _NUMBERS and (table in _NUMBERS or table == text):
        return table if table == text else _NUMBERS[max(_NUMBERS.index(table), _NUMBERS.index(rows))]
    if table in _NUMBERS and rows == text:
        return text
    if types.is_decimal(table):
        if types.is_decimal(rows):
            return _wider_decimal(table, rows)
        return table if rows in _NUMBERS or rows == text else None
    if types.is_decimal(rows):
        return text if table == text else None
    if {str(table), str(rows)} == {"date32[day]", "string"}:
        return table
    if types.is_timestamp(table) and types.is_timestamp(rows) and (table.tz is None) == (rows.tz is None):
        return table
    return None


def _wider_decimal(table: pa.DataType, rows: pa.DataType) -> pa.DataType | None:
    if table.scale != rows.scale:
        return None
    if rows.precision <= table.precision:
        return table
    same_bytes = bytes_of_decimal(table.precision) == bytes_of_decimal(rows.precision)
    return rows if same_bytes else None


def _is_exact(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if source.equals(target):
        return True
    if target == pa.string():
        return not types.is_binary(source)
    if target == pa.binary():
        return True
    if types.is_decimal(target):
        return bool(types.is_decimal(source))
    return (str(source), str(target)) in _EXACT
