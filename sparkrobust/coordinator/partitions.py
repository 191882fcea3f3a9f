"""No partition lies in another: readers, Hudi's too, stop at the first partition file on their way down.

Rows below it would be committed, and seen by nobody.  It takes values with a slash in them (``a`` and
``a/b``), or a table that was replaced by one of other partition fields.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timezone

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.names import HOODIE, PARTITION_METADATA, joined
from sparkrobust.errors import UnsafePathError
from sparkrobust.formats.partition_metadata import PartitionMetadata
from sparkrobust.storage.contract import AlreadyExistsError

_MOST_AT_ONCE = 16


def folders_above(partition: str) -> Iterator[str]:
    """The folders that a partition lies in; the last one is the table's own, ``""``."""
    while partition:
        partition = partition.rpartition("/")[0]
        yield partition


def make_room(table: HudiTable, partitions: Collection[str], *, replacing: bool) -> list[str]:
    """See that files may be put into these partitions; the folders that are none yet.

    Parameters
    ----------
    replacing
        Everything that lies in the table now goes with the commit.

    Raises
    ------
    UnsafePathError
        One lies in another one, where no reader would find it.
    """
    refuse_nested(partitions)
    if not replacing:
        uncover(table, partitions)

    def is_new(partition: str) -> bool:
        if table.storage.stat(joined(partition, PARTITION_METADATA)) is not None:
            return False
        for folder in {partition, *folders_above(partition)} - {""}:
            if table.storage.stat(folder) is not None:
                raise UnsafePathError(f"there is a file where the partition {partition!r} is to be: {folder}")
        if not replacing:
            refuse_to_cover(table, partition)
        return True

    wanted = sorted(partitions)
    looks = table.hands.map(is_new, wanted, most=_MOST_AT_ONCE)
    return [partition for partition, new in zip(wanted, looks, strict=True) if new]


def make_partitions(table: HudiTable, new: Iterable[str], instant: InstantTime) -> None:
    """Make these folders partitions."""
    now = datetime.fromtimestamp(table.clock.now_ms() / 1000, timezone.utc)

    def make(partition: str) -> None:
        content = PartitionMetadata.of_partition(partition, instant).render(now)
        with contextlib.suppress(AlreadyExistsError):  # another writer's says the same
            table.storage.put_if_absent(joined(partition, PARTITION_METADATA), content)

    wanted = list(new)
    table.storage.make_folders(wanted)
    table.hands.map(make, wanted, most=_MOST_AT_ONCE)


def refuse_nested(partitions: Collection[str]) -> None:
    """``UnsafePathError`` if one of these partitions lies in another one of them."""
    for partition in partitions:
        for above in folders_above(partition):
            if above in partitions:
                _refuse(partition, above)


def uncover(table: HudiTable, partitions: Collection[str]) -> None:
    """Remove partition files above these partitions; ``UnsafePathError`` where rows lie beside one."""
    for above in sorted({folder for partition in partitions for folder in folders_above(partition)}):
        marker = joined(above, PARTITION_METADATA)
        if table.storage.stat(marker) is None:
            continue
        if table.base_files([above]):
            _refuse(next(p for p in partitions if above in folders_above(p)), above)
        table.storage.delete(marker)


def refuse_to_cover(table: HudiTable, partition: str) -> None:
    """``UnsafePathError`` if a partition with rows lies below this one, which is new."""
    below = table.storage.list(partition)[1] if partition else []
    while below:
        folder = below.pop()
        files, folders = table.storage.list(folder)
        below += [path for path in folders if path != HOODIE]
        if any(info.path == joined(folder, PARTITION_METADATA) for info in files) and table.base_files(
            [folder]
        ):
            _refuse(folder, partition)


def _refuse(inner: str, outer: str) -> None:
    raise UnsafePathError(
        f"the partition {inner!r} would lie in the partition {outer!r}, where no reader finds it",
        hint="set hoodie.datasource.write.partitionpath.urlencode=true, or write values without slashes",
    )
