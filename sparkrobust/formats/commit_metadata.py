"""Commit metadata: what a completed write says about itself on the timeline.

``commit``, and the inflight file of an upsert, hold a :class:`CommitMetadata`; ``replacecommit``
a :class:`ReplaceCommitMetadata`, which also names the file groups that the write replaced.
Extra metadata is everybody's: what we don't know is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sparkrobust.core.instant import Action, Instant
from sparkrobust.core.write_status import OperationType, RuntimeStats, WriteStat
from sparkrobust.errors import CorruptTableError
from sparkrobust.formats import avro

SCHEMA_KEY = "schema"
"""The key of the table's Avro schema in the extra metadata."""


@dataclass(frozen=True, kw_only=True)
class CommitMetadata:
    """One write: its files by partition, and what its writer wanted to remember.

    Parameters
    ----------
    partition_to_write_stats
        By partition path (``""`` in a table without partitions), in the order written.
    extra_metadata
        Text by key; the table's schema stands under :data:`SCHEMA_KEY`.
    operation_type
        ``None`` only in files that say nothing.
    """

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    operation_type: OperationType | None = None
    compacted: bool = False
    version: int | None = None

    @property
    def write_stats(self) -> Iterator[WriteStat]:
        """The statistics of all files."""
        return (stat for stats in self.partition_to_write_stats.values() for stat in stats)

    @property
    def schema(self) -> str | None:
        """The table's Avro schema as of this write, if the commit carries one."""
        return self.extra_metadata.get(SCHEMA_KEY) or None

    def to_bytes(self) -> bytes:
        """The content of the file on the timeline."""
        return avro.encode("HoodieCommitMetadata", self._to_record())

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> CommitMetadata:
        """Read a file of the timeline; one without content is a write without files."""
        record = avro.decode(data, "HoodieCommitMetadata", path=path)
        return cls() if record is None else cls(**_common_fields(record, path))

    def _to_record(self) -> dict[str, Any]:
        return {
            "partitionToWriteStats": {
                partition: _Records(stats) for partition, stats in self.partition_to_write_stats.items()
            },
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra_metadata),
            "version": self.version,
            "operationType": self.operation_type.value if self.operation_type else None,
        }


@dataclass(frozen=True, kw_only=True)
class ReplaceCommitMetadata(CommitMetadata):
    """A write that also replaced whole file groups: their ids by partition."""

    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The content of the file on the timeline."""
        replaced = {key: list(ids) for key, ids in self.partition_to_replace_file_ids.items()}
        return avro.encode(
            "HoodieReplaceCommitMetadata", {**self._to_record(), "partitionToReplaceFileIds": replaced}
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> ReplaceCommitMetadata:
        """Read a file of the timeline; one without content is a write without files."""
        record = avro.decode(data, "HoodieReplaceCommitMetadata", path=path)
        if record is None:
            return cls()
        replaced = record["partitionToReplaceFileIds"] or {}
        return cls(
            **_common_fields(record, path),
            partition_to_replace_file_ids={key: tuple(ids) for key, ids in replaced.items()},
        )


@dataclass(frozen=True, kw_only=True)
class CompletedWrite:
    """A write that is durable, and what it says about itself."""

    instant: Instant
    metadata: CommitMetadata

    @classmethod
    def from_bytes(cls, instant: Instant, data: bytes, *, path: str) -> CompletedWrite:
        """Read what the instant's completed file holds, wherever it is kept."""
        replacing = instant.action.when_complete is Action.REPLACE_COMMIT
        kind = ReplaceCommitMetadata if replacing else CommitMetadata
        return cls(instant=instant, metadata=kind.from_bytes(data, path=path))


def _common_fields(record: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {
        "partition_to_write_stats": {
            partition: tuple(_stat_from_record(stat) for stat in stats)
            for partition, stats in (record["partitionToWriteStats"] or {}).items()
        },
        "extra_metadata": record["extraMetadata"] or {},
        "operation_type": _operation_type(record["operationType"], path),
        "compacted": bool(record["compacted"]),
        "version": record["version"],
    }


def _operation_type(text: str | None, path: str) -> OperationType | None:
    if text is None:
        return None
    try:
        return OperationType(text.upper())
    except ValueError:
        raise CorruptTableError(
            f"{path}: expected an operation that Hudi 1.1 knows, found {text[:60]!r}", path=path
        ) from None


# -- one file's statistics ---------------------------------------------------------------------------------


def _camel_case(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


_STAT_FIELDS = {item.name: _camel_case(item.name) for item in fields(WriteStat)}
_COUNTS = frozenset(item.name for item in fields(WriteStat) if item.type == "int")
_RUNTIME_FIELDS = {item.name: _camel_case(item.name) for item in fields(RuntimeStats)}


class _Records:
    """The records of some files, each made when it is written: there may be very many of them."""

    def __init__(self, stats: Sequence[WriteStat]) -> None:
        self._stats = stats

    def __len__(self) -> int:
        return len(self._stats)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(_stat_to_record, self._stats)


def _stat_to_record(stat: WriteStat) -> dict[str, Any]:
    record = {theirs: getattr(stat, ours) for ours, theirs in _STAT_FIELDS.items()}
    if stat.log_files is not None:
        record["logFiles"] = list(stat.log_files)
    if stat.cdc_stats is not None:
        record["cdcStats"] = dict(stat.cdc_stats)
    if stat.runtime_stats is not None:
        runtime = stat.runtime_stats
        record["runtimeStats"] = {theirs: getattr(runtime, ours) for ours, theirs in _RUNTIME_FIELDS.items()}
    return record


def _stat_from_record(record: Mapping[str, Any]) -> WriteStat:
    values = {ours: record[theirs] for ours, theirs in _STAT_FIELDS.items()}
    for name in _COUNTS:
        values[name] = values[name] or 0
    values["file_id"] = values["file_id"] or ""
    if values["log_files"] is not None:
        values["log_files"] = tuple(values["log_files"])
    if values["runtime_stats"] is not None:
        runtime = values["runtime_stats"]
        values["runtime_stats"] = RuntimeStats(
            **{ours: runtime[theirs] or 0 for ours, theirs in _RUNTIME_FIELDS.items()}
        )
    return WriteStat(**values)
