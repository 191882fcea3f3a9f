"""Slots, the rows that come for them, and the files they had."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkrobust.core.control_object import Kind
from sparkrobust.core.file_ids import Slot
from sparkrobust.core.instant import Action, InstantTime
from sparkrobust.core.markers import Gate, Terms
from sparkrobust.core.names import (
    META_COLUMNS,
    BaseFileName,
    ControlFolder,
    marker_folder,
)
from sparkrobust.core.view import BaseFile
from sparkrobust.core.write_status import OperationType
from sparkrobust.formats.schema import with_meta_columns
from sparkrobust.handles.plan import (
    KEY,
    PATH,
    SEQUENCE,
    SLOT,
    Attempt,
    FileOptions,
    Rules,
    SlotResult,
    WritePlan,
)
from sparkrobust.handles.work import run
from sparkrobust.storage.local import LocalStorage

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("ts", pa.int64()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
NOW = InstantTime("20240102000000000")
BEFORE = InstantTime("20240101000000000")
Row = dict[str, Any]

UPSERT = Rules(combine=True, match=True, delete=False, ordering=("ts",))
LAST_WINS = Rules(combine=True, match=True, delete=False)
INSERT = Rules(combine=False, match=False, delete=False)
DELETE = Rules(combine=False, match=True, delete=True)


def row(key: int, v: str | None = "v", ts: int = 1) -> Row:
    return {"id": key, "v": v, "ts": ts, "tags": [v]}


def incoming(
    rows: list[Row], slot: int | None = 0, path: str = "p", schema: pa.Schema = SCHEMA
) -> pa.RecordBatch:
    table = pa.Table.from_pylist(rows, schema=schema)
    count = len(rows)
    table = table.append_column(KEY, pa.array([str(r["id"]) for r in rows], pa.string()))
    table = table.append_column(PATH, pa.array([r.get("path", path) for r in rows], pa.string()))
    table = table.append_column(SEQUENCE, pa.array(range(count), pa.int64()))
    if slot is not None:
        table = table.append_column(SLOT, pa.array([r.get("slot", slot) for r in rows], pa.int32()))
    return table.combine_chunks().to_batches()[0]


def plan(
    storage: LocalStorage,
    rules: Rules,
    slots: tuple[Slot, ...] = (),
    tasks: tuple[int, ...] | None = None,
    **files: Any,
) -> WritePlan:
    control = ControlFolder(instant=NOW, nonce="ab")
    storage.make_staging(control.staging)
    storage.make_marks(marker_folder(NOW))
    storage.make_folder(control.completions)
    terms = Terms(action=Action.COMMIT, operation=OperationType.UPSERT, schema="{}")
    storage.put(control.gate, Gate(terms=terms, slots=None).render(Kind.GATE, "ab"))
    options = {"codec": "snappy", "max_file_bytes": 1 << 20, "row_group_bytes": 1 << 18, **files}
    return WritePlan(
        storage=storage,
        control=control,
        schema=SCHEMA,
        rules=rules,
        files=FileOptions(**options),
        slots=slots,
        tasks=tasks if tasks is not None else tuple(range(len(slots))),
        seed="00000000-0000-0000-0000-000000000000",
    )


def attempt(number: int = 1) -> Attempt:
    return Attempt(task=0, token=f"0-0-{number}")


def stored(
    storage: LocalStorage, rows: list[Row], schema: pa.Schema = SCHEMA, group: int | None = None
) -> BaseFile:
    """A base file as an earlier commit left it, written by pyarrow alone."""
    name = BaseFileName(file_id="f-0", write_token="9-9-9", instant=BEFORE)
    table = pa.Table.from_pylist(rows, schema=schema)
    meta = {
        "_hoodie_commit_time": [str(BEFORE)] * len(rows),
        "_hoodie_commit_seqno": [f"{BEFORE}_0_{i}" for i in range(len(rows))],
        "_hoodie_record_key": [str(r["id"]) for r in rows],
        "_hoodie_partition_path": ["p"] * len(rows),
        "_hoodie_file_name": [str(name)] * len(rows),
    }
    columns = [pa.array(meta[m], pa.string()) for m in META_COLUMNS]
    whole = pa.Table.from_arrays(columns + table.columns, schema=with_meta_columns(schema))
    sink = io.BytesIO()
    pq.write_table(whole, sink, row_group_size=group)
    storage.make_folder("p")
    storage.put(f"p/{name}", sink.getvalue())
    return BaseFile(partition="p", name=name, size=len(sink.getvalue()))


def publish(storage: LocalStorage, result: SlotResult) -> list[pa.Table]:
    """The rows of a slot's files, through plain pyarrow, once they are published."""
    assert result.problem is None, result.problem
    tables = []
    for file in SlotResult.from_json(result.to_json(), ControlFolder(instant=NOW, nonce="ab")).files:
        storage.publish(file.staged)
        assert file.stat.path is not None
        tables.append(pq.read_table(io.BytesIO(storage.read(file.stat.path))))
        assert file.stat.num_writes == tables[-1].num_rows
        assert file.stat.file_size_in_bytes == len(storage.read(file.stat.path))
    return tables


def values(table: pa.Table) -> list[tuple[int, str, int]]:
    return [(r["id"], r["v"], r["ts"]) for r in table.select(["id", "v", "ts"]).to_pylist()]


def merged(
    storage: LocalStorage, rules: Rules, old: list[Row], new: list[Row]
) -> tuple[pa.Table, SlotResult]:
    base = stored(storage, old)
    slot = Slot(index=0, partition="p", base=base, prefix="f-0")
    (result,) = run(plan(storage, rules, (slot,)), attempt(), iter([incoming(new)]))
    (table,) = publish(storage, result)
    return table, result
