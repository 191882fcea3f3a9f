"""Layouts of tables, rows for them, and a model of what each write must make of them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro

Row = dict[str, Any]

META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
OPERATION = "hoodie.datasource.write.operation"
KEYS = "hoodie.datasource.write.recordkey.field"
PARTITIONS = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.datasource.write.precombine.field"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
METADATA = "hoodie.metadata.enable"

COLUMNS = {
    "id": "int",
    "part": "string",
    "name": "string",
    "price": "double",
    "ts": "bigint",
    "region": "string",
    "day": "date",
    "shard": "int",
}


def options(
    keys: str = "id", partitions: str = "region", ordering: str | None = "ts", **more: str
) -> dict[str, str]:
    """The options of a table, Hudi's metadata table off; ``__`` in a name stands for a dot."""
    chosen = {"hoodie.table.name": "t", KEYS: keys, METADATA: "false"}
    if partitions:
        chosen[PARTITIONS] = partitions
    if ordering:
        chosen[ORDERING] = ordering
    return {**chosen, **{name.replace("__", "."): value for name, value in more.items()}}


def row(number: int, region: str | None = "eu", *, ts: int = 10, **values: Any) -> Row:
    """One row; what is not given follows from its number."""
    made = {
        "id": number,
        "part": f"k{number}",
        "name": f"name {number}",
        "price": number / 4,
        "ts": ts,
        "region": region,
        "day": datetime.date(2024, 1, 1 + number % 3),
        "shard": number % 2,
    }
    return {**made, **values}


def literal(value: Any) -> str:
    """A value as Spark SQL writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, float, datetime.date)):
        return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


def query(rows: Iterable[Row], columns: dict[str, str] = COLUMNS) -> str:
    """The rows as a query that any Spark session answers alike, in this order."""
    lines = ["(" + ", ".join(literal(row[name]) for name in columns) + ")" for row in rows]
    given = ", ".join(lines or ["(" + ", ".join("NULL" for _ in columns) + ")"])
    typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in columns.items())
    return f"SELECT {typed} FROM VALUES {given} AS t({', '.join(columns)}) WHERE {str(bool(lines)).lower()}"


def comparable(value: Any) -> Any:
    """A value that is equal to another just when the two cells hold the same."""
    if isinstance(value, dict):
        return {name: comparable(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and all(isinstance(inner, tuple) for inner in value):
        value = sorted(value)  # a map, as pyarrow gives it: its entries have no order
    if isinstance(value, (list, tuple)):
        return [comparable(inner) for inner in value]
    return repr(value) if isinstance(value, float) else value


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order of their own, meta columns left out, to compare two lists of them."""
    plain = [{name: comparable(value) for name, value in row.items() if name not in META} for row in rows]
    return sorted(plain, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def differences(found: Iterable[Row], wanted: Iterable[Row], key: str = "id") -> list[tuple[Any, ...]]:
    """The cells in which two tables differ, small enough to read: key, column, found, wanted."""
    absent = "no such row"
    left, right = ({row[key]: row for row in ordered(rows)} for rows in (found, wanted))
    return [
        (which, name, left.get(which, {}).get(name, absent), right.get(which, {}).get(name, absent))
        for which in sorted({*left, *right})
        for name in {**left.get(which, {}), **right.get(which, {})}
        if left.get(which, {}).get(name, absent) != right.get(which, {}).get(name, absent)
    ]


# -- what a table must hold ----------------------------------------------------------------------------


@dataclass
class Model:
    """The rows that a table must hold: Hudi's rules for one key, in a dict."""

    keys: tuple[str, ...] = ("id",)
    partitions: tuple[str, ...] = ("region",)
    ordering: str | None = "ts"
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def _place(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in (*self.partitions, *self.keys))

    def put(self, rows: Iterable[Row]) -> None:
        """An upsert: of two rows the later wins, unless its ordering value is the lower one."""
        for row in rows:
            held = self.rows.get(self._place(row))
            late = held is not None and self.ordering is not None and row[self.ordering] < held[self.ordering]
            if not late:
                self.rows[self._place(row)] = row

    def remove(self, rows: Iterable[Row]) -> None:
        """The operation delete: whatever the ordering values say."""
        for row in rows:
            self.rows.pop(self._place(row), None)

    def expected(self) -> list[Row]:
        """The rows, for :func:`ordered`; an empty partition value is read back as null."""
        return ordered(
            {**row, **{name: None for name in self.partitions if row[name] == ""}}
            for row in self.rows.values()
        )


def model_of(*batches: list[Row]) -> list[Row]:
    """What a table must hold after these upserts."""
    model = Model()
    for batch in batches:
        model.put(batch)
    return model.expected()


# -- what lies on the disk, read without our own code -------------------------------------------------

_COMPLETED = re.compile(r"(\d{17})_(\d{17})\.([a-z]+)")


@dataclass(frozen=True, order=True)
class Done:
    """One completed instant."""

    requested: str
    completed: str
    action: str
    file: Path


def completed(table: Path, *actions: str) -> list[Done]:
    """The completed instants of the active timeline, oldest first; of these actions, if any is given."""
    found = []
    for file in (table / ".hoodie" / "timeline").iterdir():
        match = _COMPLETED.fullmatch(file.name)
        if match and (not actions or match[3] in actions):
            found.append(Done(match[1], match[2], match[3], file))
    return sorted(found)


def pending(table: Path) -> set[str]:
    """The names of instant files whose instant never completed."""
    done = {(instant.requested, _family(instant.action)) for instant in completed(table)}
    names = {file.name for file in (table / ".hoodie" / "timeline").iterdir() if file.is_file()}
    open_files = {name for name in names if name.endswith((".requested", ".inflight"))}
    return {name for name in open_files if (name.split(".")[0], _family(name.split(".")[1])) not in done}


def _family(action: str) -> str:
    return {"inflight": "commit", "clustering": "replacecommit"}.get(action, action)


def avro(file: Path) -> dict[str, Any]:
    """The one record of an instant's file."""
    with file.open("rb") as opened:
        (record,) = fastavro.reader(opened)
    assert isinstance(record, dict)
    return record


def properties(table: Path) -> dict[str, str]:
    """``hoodie.properties``, for values that need no unescaping."""
    lines = (table / ".hoodie" / "hoodie.properties").read_text("latin-1").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def base_files(table: Path) -> set[str]:
    """Every base file that lies in the table, old versions too, relative to it."""
    found = (file.relative_to(table) for file in table.rglob("*.parquet"))
    return {str(file) for file in found if ".hoodie" not in file.parts}


def begin_marks(table: Path, instant: str) -> list[str]:
    """A write's begin markers, relative to their folder: files, or lines as of Hudi's timeline server."""
    folder = table / ".hoodie" / ".temp" / instant
    lines = [line for file in folder.glob("MARKERS[0-9]*") for line in file.read_text().splitlines()]
    return [*lines, *(str(file.relative_to(folder)) for file in folder.rglob("*.marker.*"))]


def nothing_lies_about(table: Path) -> bool:
    """No file of a write that never was, no marker, no staged byte, no open instant."""
    done = {instant.requested for instant in completed(table)}
    strays = {file for file in base_files(table) if file.split("_")[-1].split(".")[0] not in done}
    hoodie = table / ".hoodie"
    left = [
        str(file.relative_to(table))
        for folder in (hoodie / ".temp", hoodie / ".robust")
        if folder.exists()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(".crc")
    ]
    assert (strays, left, pending(table)) == (set(), [], set())
    return True


def stats(table: Path) -> list[dict[str, Any]]:
    """The write stats of the newest commit."""
    record = avro(completed(table, "commit", "replacecommit")[-1].file)
    return [stat for of_partition in record["partitionToWriteStats"].values() for stat in of_partition]


def assert_sane_meta(table: Path, rows: Iterable[Row]) -> None:
    """The five meta columns of every row agree with each other, the timeline and the disk."""
    seen: set[str] = set()
    committed = {done.requested for done in completed(table)}
    for row in rows:
        instant, number, key, partition, file = (row[name] for name in META)
        assert instant in committed, row
        assert re.fullmatch(rf"{instant}_\d+_\d+", number), row
        assert number not in seen, f"two rows with the number {number}"
        seen.add(number)
        assert key, row
        assert (table / partition / file).is_file(), row
        assert (table / partition / ".hoodie_partition_metadata").is_file(), row
        assert file.split("_")[2].split(".")[0] in committed, row
