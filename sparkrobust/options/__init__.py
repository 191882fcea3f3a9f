"""Options: one table of keys, and what becomes of a pipeline's options under it."""

from __future__ import annotations

from sparkrobust.options.option import Kind, Option, Refusal
from sparkrobust.options.parsing import Given, ReadOptions, WriteOptions, parse, parse_read
from sparkrobust.options.refusals import REFUSED
from sparkrobust.options.table import OPTIONS, READ_OPTIONS, SECTIONS
from sparkrobust.options.values import (
    Codec,
    ConcurrencyMode,
    ConflictStrategy,
    DuplicatePolicy,
    FailedWritesPolicy,
    FileFormat,
    IndexType,
    KeyConflictCheck,
    KeyGenerator,
    LockProvider,
    MergeMode,
    Mode,
    OnFinalized,
    Operation,
    PinInput,
    Progress,
    QueryType,
    SortMode,
    TableType,
    TimelineZone,
    UnknownOptions,
)

__all__ = [
    "OPTIONS",
    "READ_OPTIONS",
    "REFUSED",
    "SECTIONS",
    "Codec",
    "ConcurrencyMode",
    "ConflictStrategy",
    "DuplicatePolicy",
    "FailedWritesPolicy",
    "FileFormat",
    "Given",
    "IndexType",
    "KeyConflictCheck",
    "KeyGenerator",
    "Kind",
    "LockProvider",
    "MergeMode",
    "Mode",
    "OnFinalized",
    "Operation",
    "Option",
    "PinInput",
    "Progress",
    "QueryType",
    "ReadOptions",
    "Refusal",
    "SortMode",
    "TableType",
    "TimelineZone",
    "UnknownOptions",
    "WriteOptions",
    "parse",
    "parse_read",
]
