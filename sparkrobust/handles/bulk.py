"""The bulk handle: the rows of one Spark partition, as they come, into new files.

Nobody has looked at the rows before, so which table partitions there are shows only here; a task
keeps a file open for each, within limits of memory and of open files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pyarrow as pa

from sparkrobust.core.file_ids import Slot, prefix_of
from sparkrobust.core.written import WrittenFile
from sparkrobust.handles.files import GrowingFiles
from sparkrobust.handles.plan import PATH, Attempt, WritePlan
from sparkrobust.handles.rows import check_keys, check_ordering, check_path, split, stamped

_MOST_WAITING_BYTES = 256 << 20
_MOST_OPEN_FILES = 128
_FINISHING_THREADS = 4


class _Partitions:
    """The growing files of one task, by table partition, the one written last at the end."""

    def __init__(self, plan: WritePlan, attempt: Attempt) -> None:
        self._plan, self._attempt = plan, attempt
        self._prefix = prefix_of(plan.seed, attempt.task)
        self._sequence = itertools.count()
        self._files: dict[str, GrowingFiles] = {}
        self._rows = 0

    def write(self, path: str, table: pa.Table) -> None:
        files = self._files.pop(path, None)
        if files is None:
            check_path(path)
            slot = Slot(index=self._attempt.task, partition=path, prefix=self._prefix)
            files = GrowingFiles(self._plan, self._attempt, slot, self._sequence)
        self._files[path] = files
        instant = self._plan.control.instant
        files.write(stamped(table, self._plan.schema, instant, self._attempt.task, self._rows))
        self._rows += table.num_rows
        self._relieve()

    def _relieve(self) -> None:
        if sum(files.waiting_bytes for files in self._files.values()) > _MOST_WAITING_BYTES:
            max(self._files.values(), key=lambda files: files.waiting_bytes).relieve()
        opened = [files for files in self._files.values() if files.is_open]
        for files in opened[: max(0, len(opened) - _MOST_OPEN_FILES)]:
            files.end_file()

    def finish(self) -> list[WrittenFile]:
        # Much of it is waiting for the store: what one file waits, another one writes.
        written = self._attempt.hands.map(GrowingFiles.finish, self._files.values(), most=_FINISHING_THREADS)
        return [file for files in written for file in files]

    def discard(self) -> None:
        for files in self._files.values():
            files.discard()


def bulk(plan: WritePlan, attempt: Attempt, tables: Iterable[pa.Table]) -> list[WrittenFile]:
    """Write every row of a Spark partition."""
    partitions = _Partitions(plan, attempt)
    try:
        for table in tables:
            check_keys(table)
            check_ordering(table, plan.rules.ordering)
            for path, rows in split(table, PATH):
                partitions.write(path, rows)
        return partitions.finish()
    except BaseException:
        partitions.discard()
        raise
