"""An archived timeline as Hudi makes it: what is archived, merged and cleaned away, without Hudi.

The bytes that Hudi itself wrote are in the fixture ``cow_archived``; these have the same columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkrobust.core.instant import Instant, State
from sparkrobust.core.names import HISTORY, instant_file
from sparkrobust.storage.contract import Storage

SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
Row = dict[str, Any]


def row(time: str, metadata: bytes | str | None, **more: Any) -> Row:
    """A line of a history's file."""
    plain = {"instantTime": time, "completionTime": time, "action": "commit", "plan": None, "version": 1}
    return {**plain, "metadata": metadata, **more}


def parquet(rows: Iterable[Row], schema: pa.Schema = SCHEMA, **settings: Any) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(list(rows), schema=schema)
    pq.write_table(table, sink, compression="gzip", store_schema=False, **settings)
    return bytes(sink.getvalue())


def take_off_timeline(storage: Storage, completed: Instant) -> None:
    """Delete the files of a completed instant from the active timeline, in Hudi's order."""
    for state in (State.REQUESTED, State.INFLIGHT, State.COMPLETED):
        storage.delete(instant_file(replace(completed, state=state)))


class Archiver:
    """Moves instants from a table's active timeline to its history, in Hudi's order."""

    def __init__(self, storage: Storage, folder: str = HISTORY) -> None:
        self._storage, self._folder = storage, folder
        self._rows: dict[str, list[Row]] = {}
        self._version = 0

    @property
    def files(self) -> list[str]:
        """The paths of what the newest manifest lists."""
        return [f"{self._folder}/{name}" for name in self._rows]

    @property
    def manifest(self) -> str:
        return f"{self._folder}/manifest_{self._version}"

    @property
    def version(self) -> str:
        return f"{self._folder}/_version_"

    def archive(self, *instants: Instant) -> None:
        """The files, the manifest and the version; only then the active timeline loses them."""
        self._storage.make_folder(self._folder)
        self._put([self._row(instant) for instant in instants], level=0)
        self._list()
        for instant in instants:
            take_off_timeline(self._storage, instant)

    def merge(self) -> list[str]:
        """All files become one of the next level; those that so count no more are returned, and stay."""
        old = self.files
        rows = [one for rows in self._rows.values() for one in rows]
        self._rows.clear()
        self._put(rows, level=1)
        self._list()
        return old

    def merge_and_clean(self) -> None:
        """The same, and what counts no more goes away: Hudi waits three versions for that."""
        manifest = self.manifest
        for path in [*self.merge(), manifest]:
            self._storage.delete(path)

    def _row(self, instant: Instant) -> Row:
        data = self._storage.read(instant_file(instant))
        action = instant.action.when_complete.value
        return row(instant.time, data, completionTime=instant.completion, action=action)

    def _put(self, rows: list[Row], level: int) -> None:
        name = f"{rows[0]['instantTime']}_{rows[-1]['instantTime']}_{level}.parquet"
        self._storage.put(f"{self._folder}/{name}", parquet(rows))
        self._rows[name] = rows

    def _list(self) -> None:
        self._version += 1
        files = [{"fileName": name, "fileLen": 1} for name in self._rows]
        self._storage.put(self.manifest, json.dumps({"files": files}, indent=2).encode())
        self._storage.put(self.version, str(self._version).encode())
