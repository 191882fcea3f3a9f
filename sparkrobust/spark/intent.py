"""What a write is to do: the meaning of its operation and options for one table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkrobust.coordinator.sizing import record_bytes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.file_ids import SizeLimits
from sparkrobust.core.names import IS_DELETED
from sparkrobust.core.redo import Reads
from sparkrobust.core.write_status import OperationType
from sparkrobust.handles.plan import FileOptions, Rules
from sparkrobust.options import (
    ConcurrencyMode,
    DuplicatePolicy,
    KeyConflictCheck,
    Mode,
    Operation,
    WriteOptions,
)
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.direct import DirectStorage


@dataclass(frozen=True, kw_only=True)
class Intent:
    """One write's operation on one table."""

    table: HudiTable
    options: WriteOptions
    replacing: bool
    """All that the table holds is replaced."""

    @property
    def bulk(self) -> bool:
        """The rows go to files as they come, unseen before."""
        return self.options.operation is Operation.BULK_INSERT and not self.options.combine_before_insert

    @property
    def looks_up(self) -> bool:
        """Whether the incoming keys are looked up in the table."""
        if self.replacing or self.options.operation is Operation.BULK_INSERT:
            return False
        if self.options.operation is Operation.INSERT:
            return self.options.duplicate_policy is not DuplicatePolicy.NONE
        return True

    @property
    def tells_new_keys(self) -> bool:
        """Whether the keys that are inserted are held against those of other writers."""
        if self.options.concurrency_mode is not ConcurrencyMode.OPTIMISTIC:
            return False
        if self.options.key_conflict_check is not None:
            return self.options.key_conflict_check is KeyConflictCheck.EXACT
        return self.looks_up and self.options.operation is not Operation.DELETE

    def reads(self, schema: pa.Schema) -> Reads:
        """What rows of this schema go by besides the files that are rewritten."""
        options = self.options
        shared = options.concurrency_mode is ConcurrencyMode.OPTIMISTIC
        if not shared or self.replacing or options.mode is Mode.DIRECT:
            return Reads.MORE
        if options.operation is Operation.INSERT and not self.looks_up:
            return Reads.NOTHING
        # A row that deletes its key goes nowhere if the table has it not, and nobody looks at that again.
        if options.operation is Operation.UPSERT and self.tells_new_keys and IS_DELETED not in schema.names:
            return Reads.WHICH_KEYS_ARE_NEW
        return Reads.MORE

    @property
    def mode(self) -> str:
        """How files become visible."""
        direct = self.options.mode is Mode.DIRECT
        return Mode.DIRECT.value if direct else self.table.storage.staging.value

    def storage_of_tasks(self) -> Storage:
        """The table's store, as the tasks write to it."""
        storage = self.table.storage
        return DirectStorage(storage) if self.options.mode is Mode.DIRECT else storage

    def rules(self) -> Rules:
        """What the handles do with the rows of one key."""
        options, operation = self.options, self.options.operation
        if operation is Operation.DELETE:
            return Rules(combine=False, match=True, delete=True)
        ordering = self.table.config.ordering_fields if self.table.config.event_time else ()
        if operation is Operation.UPSERT:
            # Rows of one key that are not combined take effect one after the other: the same one stays.
            return Rules(combine=True, match=True, delete=False, ordering=ordering)
        return Rules(
            combine=options.combine_before_insert,
            match=operation is Operation.INSERT and not options.merge_allow_duplicate_on_inserts,
            delete=False,
            ordering=ordering,
        )

    def size_limits(self) -> SizeLimits:
        """How many rows go to which files."""
        options = self.options
        fills = not self.replacing and options.operation is not Operation.BULK_INSERT
        return SizeLimits(
            max_file_bytes=options.max_file_size,
            small_file_bytes=options.small_file_limit if fills else 0,
            record_bytes=record_bytes(self.table, options.record_size_estimate),
            records_per_new_file=None if options.insert_auto_split else options.insert_split_size,
        )

    def file_options(self) -> FileOptions:
        """How the files are written."""
        options = self.options
        return FileOptions(
            codec=options.codec.value if options.codec.value != "uncompressed" else "none",
            max_file_bytes=options.max_file_size,
            # Files end at row groups: with four to a file none grows much beyond its size.
            row_group_bytes=max(1 << 14, min(options.block_size, options.max_file_size // 4)),
            page_bytes=options.page_size,
            dictionary=options.dictionary,
        )

    def operation_type(self) -> OperationType:
        """The operation that the commit records."""
        if self.replacing:
            return OperationType.INSERT_OVERWRITE_TABLE
        return OperationType[self.options.operation.name]
