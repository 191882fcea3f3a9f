"""One data file after the other: begin marker, staged bytes, statistics.

Nothing that is written here can be seen by a reader: a file lies in the write's staging until the
driver publishes it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.key_hashes import hashes_of
from sparkrobust.core.names import (
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    BaseFileName,
    MarkerType,
    begin_marker,
    joined,
    marker_folder,
)
from sparkrobust.core.write_status import NEW_FILE_GROUP, WriteStat
from sparkrobust.core.written import WrittenFile
from sparkrobust.formats.parquet import BaseFileWriter, WriteSettings
from sparkrobust.handles.plan import Attempt, WritePlan
from sparkrobust.handles.rows import LEADING, bytes_of, constant
from sparkrobust.probe import Point, reached
from sparkrobust.storage.contract import AlreadyExistsError, StagedWriter

_SAMPLE_ROWS = 4096
_DISTINCT_TEXTS, _DISTINCT_NUMBERS = 0.9, 0.5
_TEXT_CONSTANT = pa.dictionary(pa.int32(), pa.string())


def _on_disk(schema: pa.Schema) -> pa.Schema:
    """The schema of a file: five meta columns, then the data."""
    meta = [pa.field(name, pa.string()) for name in LEADING]
    meta += [pa.field(name, _TEXT_CONSTANT) for name in (PARTITION_PATH, FILE_NAME)]
    return pa.schema(meta + list(schema))


class DataFile:
    """A base file that is being written: rows come in, row groups go out.

    Parameters
    ----------
    file_id, partition
        Where the file belongs.
    kind
        What the begin marker says: a new file group, or a new version of one.
    """

    def __init__(
        self, plan: WritePlan, attempt: Attempt, *, file_id: str, partition: str, kind: MarkerType
    ) -> None:
        self._plan = plan
        self.file_id = file_id
        self.partition = partition
        self.name = str(
            BaseFileName(file_id=file_id, write_token=attempt.token, instant=plan.control.instant)
        )
        self.path = joined(partition, self.name)
        self.rows = 0
        self._new_keys: list[bytes] = []
        self._waiting: list[pa.Table] = []
        self.waiting_bytes = 0
        self._schema = _on_disk(plan.schema)
        self._sink = begin_file(plan, self.path, kind)
        self._opened: BaseFileWriter | None = None

    @property
    def size(self) -> int:
        """Bytes written so far; rows that wait for their row group are not in it."""
        return self._sink.tell()

    def write(self, table: pa.Table, *, new: bool = False) -> None:
        """Add rows: commit time, sequence number, key, then the data columns; ``new`` ones are inserted."""
        if not table.num_rows:
            return
        if new and self._plan.key_hashes:
            self._new_keys.append(hashes_of(table[RECORD_KEY].to_pylist()))
        self._waiting.append(table)
        self.waiting_bytes += bytes_of(table)
        self.rows += table.num_rows
        if self.waiting_bytes >= self._plan.files.row_group_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a row group."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting, self.waiting_bytes = [], 0
        count, lead = table.num_rows, len(LEADING)
        columns = [
            *table.columns[:lead],
            pa.chunked_array([constant(self.partition, count)]),
            pa.chunked_array([constant(self.name, count)]),
            *table.columns[lead:],
        ]
        self._writer(table).write(pa.Table.from_arrays(columns, schema=self._schema))

    def _writer(self, table: pa.Table) -> BaseFileWriter:
        """The file's writer, whose settings depend on what the first rows are like."""
        if self._opened is None:
            settings = WriteSettings(
                compression=self._plan.files.codec,
                row_group_rows=1 << 30,
                page_bytes=self._plan.files.page_bytes,
                dictionary=_repeating(table, self._plan.schema) if self._plan.files.dictionary else False,
            )
            self._opened = BaseFileWriter(self._sink, self._schema, settings)
        return self._opened

    def finish(
        self, *, inserts: int = 0, updates: int = 0, deletes: int = 0, slot: Slot | None = None
    ) -> WrittenFile:
        """Close the file and make it durable; its statistics go with it."""
        base = slot.base if slot else None
        self.flush()
        self._writer(self._schema.empty_table()).close()
        staged = self._sink.finish()
        stat = WriteStat(
            file_id=self.file_id,
            path=self.path,
            partition_path=self.partition,
            prev_commit=base.name.instant if base else NEW_FILE_GROUP,
            prev_base_file=str(base.name) if base else None,
            num_writes=self.rows,
            num_inserts=inserts,
            num_update_writes=updates,
            num_deletes=deletes,
            total_write_bytes=staged.size,
            file_size_in_bytes=staged.size,
        )
        return WrittenFile(stat=stat, staged=staged, new_keys=b"".join(self._new_keys))

    def discard(self) -> None:
        """Throw the file away; its begin marker stays, and names nothing."""
        if self._opened is not None:
            self._opened.abandon()
        self._sink.discard()


def begin_file(plan: WritePlan, path: str, kind: MarkerType) -> StagedWriter:
    """Mark a data file that is going to be, and open it where nobody looks."""
    storage = plan.storage
    marker = begin_marker(plan.control.instant, path, kind)
    staged_name = f"{path.rpartition('/')[2]}.{plan.control.nonce}"
    if storage.staging.needs_its_token:
        # The upload first: its id, in the marker, is how a sweep finds it.
        sink = storage.stage(plan.control.staging, staged_name, path)
        _mark(plan, marker, sink.token.encode())
    else:
        _mark(plan, marker, b"")
        sink = storage.stage(plan.control.staging, staged_name, path)
    reached(Point.FILE_BEGUN, path=path)
    return sink


def _repeating(table: pa.Table, schema: pa.Schema) -> list[str]:
    """The columns that gain from a dictionary; one of distinct values only pays for its making."""
    found = [COMMIT_TIME, PARTITION_PATH, FILE_NAME]
    for item in schema:
        if not pa.types.is_nested(item.type):
            sample = table[item.name].slice(0, _SAMPLE_ROWS)
            # A text is long beside its number in a dictionary; a number is not.
            most = _DISTINCT_TEXTS if _is_text(item.type) else _DISTINCT_NUMBERS
            if pc.count_distinct(sample, mode="all").as_py() <= most * len(sample):
                found.append(item.name)
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _mark(plan: WritePlan, marker: str, content: bytes) -> None:
    # The name holds the attempt's random token: it can be there already only if an answer was lost.
    with contextlib.suppress(AlreadyExistsError):
        plan.storage.mark(marker, content, under=marker_folder(plan.control.instant))


class GrowingFiles:
    """The files of a new file group's slot: when one has reached its size the next one begins."""

    def __init__(
        self, plan: WritePlan, attempt: Attempt, slot: Slot, sequence: Iterator[int] | None = None
    ) -> None:
        self._plan, self._attempt, self._slot = plan, attempt, slot
        self._sequence = sequence or itertools.count()
        self._open: DataFile | None = None
        self._done: list[WrittenFile] = []

    def write(self, table: pa.Table) -> None:
        limits = self._plan.files
        # In pieces of a row group, so that a file ends close to its size and not a table later.
        piece = max(1, table.num_rows * limits.row_group_bytes // max(1, bytes_of(table)))
        for start in range(0, table.num_rows, piece):
            self._write(table.slice(start, piece))

    def _write(self, table: pa.Table) -> None:
        if self._open is not None and self._open.size >= self._plan.files.max_file_bytes:
            self.end_file()
        if self._open is None:
            self._open = DataFile(
                self._plan,
                self._attempt,
                file_id=self._slot.file_id(next(self._sequence)),
                partition=self._slot.partition,
                kind=MarkerType.CREATE,
            )
        self._open.write(table, new=True)

    def finish(self) -> list[WrittenFile]:
        self.end_file()
        return self._done

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def waiting_bytes(self) -> int:
        """What the open file holds in memory."""
        return self._open.waiting_bytes if self._open else 0

    def relieve(self) -> None:
        """Write out what waits, as a row group of its own."""
        if self._open is not None:
            self._open.flush()

    def end_file(self) -> None:
        """Close the open file; further rows begin another one."""
        if self._open is not None:
            self._done.append(self._open.finish(inserts=self._open.rows))
            self._open = None

    def discard(self) -> None:
        if self._open is not None:
            self._open.discard()
        for file in self._done:
            self._plan.storage.discard(file.staged.token)
