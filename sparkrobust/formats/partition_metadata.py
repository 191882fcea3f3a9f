"""``.hoodie_partition_metadata``: the file that makes a folder a partition of a Hudi table.

Without it Hudi does not see the partition: it reads nothing there, and an upsert into it inserts
duplicates.  A table without partitions has one in its base path.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sparkrobust.errors import CorruptTableError
from sparkrobust.formats import properties

FILE_NAME = ".hoodie_partition_metadata"

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"


@dataclass(frozen=True, kw_only=True)
class PartitionMetadata:
    """Who made a partition, and how many levels it lies below the table's base path."""

    commit_time: str
    partition_depth: int

    @classmethod
    def of_partition(cls, partition_path: str, commit_time: str) -> PartitionMetadata:
        """What stands in a partition's folder, given its path relative to the base path."""
        depth = partition_path.count("/") + 1 if partition_path else 0
        return cls(commit_time=commit_time, partition_depth=depth)

    def render(self, moment: datetime) -> bytes:
        """The file's content; ``moment`` only stands in a comment."""
        values = {_COMMIT_TIME: self.commit_time, _DEPTH: str(self.partition_depth)}
        return properties.render(values, ("partition metadata", properties.comment_date(moment)))

    @classmethod
    def parse(cls, data: bytes, *, path: str) -> PartitionMetadata:
        """Read the file's content."""
        values = properties.parse(data, path=path)
        depth = values.get(_DEPTH, "")
        if not (depth.isascii() and depth.isdigit() and len(depth) <= 4):
            raise CorruptTableError(f"{path}: expected a number as {_DEPTH}, found {depth[:40]!r}", path=path)
        if not values.get(_COMMIT_TIME):
            raise CorruptTableError(f"{path}: expected {_COMMIT_TIME}, found none", path=path)
        return cls(commit_time=values[_COMMIT_TIME], partition_depth=int(depth))
