"""What became of one data file: the value that a task hands to the driver.

It crosses from executors to the driver and stands in completion markers, so it has a plain form of
a fixed, versioned schema beside the Avro one that ``formats/commit_metadata`` writes for Hudi.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, NoReturn

from sparkrobust.core import strict_json
from sparkrobust.core.fields import is_text
from sparkrobust.errors import CorruptTableError

NEW_FILE_GROUP = "null"
"""What Hudi writes as ``prev_commit`` of a file group's first file: the word, not a null."""

JSON_VERSION = 1
MAX_JSON_BYTES = 1 << 20

_MAX_LONG = (1 << 63) - 1


class OperationType(Enum):
    """The operation that a commit records; the value is Hudi's spelling."""

    INSERT = "INSERT"
    INSERT_PREPPED = "INSERT_PREPPED"
    UPSERT = "UPSERT"
    UPSERT_PREPPED = "UPSERT_PREPPED"
    BULK_INSERT = "BULK_INSERT"
    BULK_INSERT_PREPPED = "BULK_INSERT_PREPPED"
    DELETE = "DELETE"
    DELETE_PREPPED = "DELETE_PREPPED"
    BOOTSTRAP = "BOOTSTRAP"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    CLUSTER = "CLUSTER"
    DELETE_PARTITION = "DELETE_PARTITION"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    COMPACT = "COMPACT"
    INDEX = "INDEX"
    ALTER_SCHEMA = "ALTER_SCHEMA"
    LOG_COMPACT = "LOG_COMPACT"
    BUCKET_RESCALE = "BUCKET_RESCALE"
    UNKNOWN = "UNKNOWN"

    @property
    def may_change_schema(self) -> bool:
        """Whether a commit of this operation counts when the table's schema is looked for."""
        return self not in _SERVICES


_SERVICES = frozenset(
    (OperationType.CLUSTER, OperationType.COMPACT, OperationType.INDEX, OperationType.LOG_COMPACT)
)


@dataclass(frozen=True, kw_only=True)
class RuntimeStats:
    """Milliseconds that a file took."""

    total_scan_time: int = 0
    total_create_time: int = 0
    total_upsert_time: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteStat:
    """One data file of a write, in Hudi's terms.

    A field of another type than ``int`` that is ``None`` is null on disk; so are counts whose
    default is ``None``.  An update counts in ``num_update_writes``; Hudi leaves ``num_updates`` at 0.
    """

    file_id: str
    path: str | None
    """Relative to the table's base path."""
    partition_path: str | None
    prev_commit: str | None = NEW_FILE_GROUP
    prev_base_file: str | None = None
    num_writes: int = 0
    """All rows of the new file, those that were only carried over too."""
    num_deletes: int = 0
    num_update_writes: int = 0
    num_inserts: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    file_size_in_bytes: int = 0
    total_log_records: int = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_block: int = 0
    total_rollback_blocks: int = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int = 0
    total_log_read_time_ms: int = 0
    total_log_size_compacted: int = 0
    temp_path: str | None = None
    num_updates: int = 0

    def to_plain(self) -> dict[str, Any]:
        """The versioned form, of nothing but dictionaries, lists, text and integers."""
        plain: dict[str, Any] = {"version": JSON_VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, RuntimeStats):
                value = {part.name: getattr(value, part.name) for part in fields(value)}
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = dict(value)
            plain[field.name] = value
        return plain

    @classmethod
    def from_plain(cls, plain: object, *, path: str | None = None) -> WriteStat:
        """Read the versioned form; anything that isn't exactly it raises ``CorruptTableError``."""
        if not isinstance(plain, dict):
            _wrong(path, "an object", plain)
        version = plain.get("version")
        if type(version) is not int or version != JSON_VERSION:
            _wrong(path, f"version {JSON_VERSION}", version)
        if plain.keys() != _NAMES:
            missing, unknown = _NAMES - plain.keys(), plain.keys() - _NAMES
            _wrong(path, "the fields of version 1", f"{sorted(missing)} missing, {sorted(unknown)} unknown")
        # A commit may have very many of these: what most fields hold is told without a call.
        values: dict[str, Any] = {}
        for name in _PLAIN_COUNTS:
            value = values[name] = plain[name]
            if type(value) is not int or not 0 <= value <= _MAX_LONG:
                _wrong(path, f"a count as {name}", value)
        for name, read in _OTHERS.items():
            value = plain[name]
            values[name] = None if value is None and name in _NULLABLE else read(value, name, path)
        return cls(**values)

    def to_json(self) -> str:
        """The versioned form as compact JSON; equal values give equal text."""
        plain = self.to_plain()
        if plain["cdc_stats"] is not None:
            plain["cdc_stats"] = dict(sorted(plain["cdc_stats"].items()))
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, *, path: str | None = None) -> WriteStat:
        """Read :meth:`to_json`'s text; anything that isn't exactly it raises ``CorruptTableError``."""
        if len(text) > MAX_JSON_BYTES:
            _wrong(path, f"at most {MAX_JSON_BYTES} bytes", f"{len(text)} bytes")
        try:
            plain = strict_json.loads(text)
        except ValueError as error:
            raise CorruptTableError(
                f"{_called(path)}: expected the JSON of a write status ({str(error)[:100]})", path=path
            ) from error
        return cls.from_plain(plain, path=path)


def _called(path: str | None) -> str:
    return path or "a write status"


def _wrong(path: str | None, expected: str, found: object) -> NoReturn:
    raise CorruptTableError(
        f"{_called(path)}: expected {expected}, found {strict_json.shown(found)}", path=path
    )


# -- readers of one field each ---------------------------------------------------------------------------


def _text(value: object, name: str, path: str | None) -> str:
    if not is_text(value):
        _wrong(path, f"text as {name}", value)
    return str(value)


def _count(value: object, name: str, path: str | None) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_LONG:
        _wrong(path, f"a count as {name}", value)
    return value


def _time(value: object, name: str, path: str | None) -> int:
    if type(value) is not int or not -_MAX_LONG <= value <= _MAX_LONG:
        _wrong(path, f"a time as {name}", value)
    return value


def _texts(value: object, name: str, path: str | None) -> tuple[str, ...]:
    if not isinstance(value, list):
        _wrong(path, f"a list as {name}", value)
    return tuple(_text(item, name, path) for item in value)


def _sizes(value: object, name: str, path: str | None) -> dict[str, int]:
    if not isinstance(value, dict):
        _wrong(path, f"an object as {name}", value)
    return {_text(key, name, path): _count(size, name, path) for key, size in value.items()}


def _runtime(value: object, name: str, path: str | None) -> RuntimeStats:
    names = [part.name for part in fields(RuntimeStats)]
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        _wrong(path, f"{', '.join(names)} as {name}", value)
    return RuntimeStats(**{part: _count(value[part], part, path) for part in names})


_BY_TYPE = {
    "str": _text,
    "int": _count,
    "tuple[str, ...]": _texts,
    "Mapping[str, int]": _sizes,
    "RuntimeStats": _runtime,
}
_NULL = " | None"
_NULLABLE = frozenset(field.name for field in fields(WriteStat) if str(field.type).endswith(_NULL))
_READERS = {field.name: _BY_TYPE[str(field.type).removesuffix(_NULL)] for field in fields(WriteStat)} | {
    "min_event_time": _time,
    "max_event_time": _time,
}
_NAMES = _READERS.keys() | {"version"}
_PLAIN_COUNTS = [name for name, read in _READERS.items() if read is _count and name not in _NULLABLE]
_OTHERS = {name: read for name, read in _READERS.items() if name not in _PLAIN_COUNTS}
