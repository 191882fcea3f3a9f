"""Whether another writer has inserted a key that this write inserts too.

No file group tells: each put its row into one of its own.  So a write's completion markers carry the
hashes of its new keys, and the files of those who were faster are read for theirs, before the lock is
taken as far as they are there by then.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkrobust.coordinator.conflicts import Plan, completed_since, conflict
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Instant, InstantTime
from sparkrobust.core.write_status import OperationType
from sparkrobust.core.written import WrittenFile
from sparkrobust.formats.new_keys import KeyHashes
from sparkrobust.storage.contract import NotFoundError

_MOVES_ROWS = frozenset({OperationType.CLUSTER, OperationType.COMPACT, OperationType.LOG_COMPACT})
"""Operations that insert nothing that was not there."""


class KeyCheck:
    """The new keys of a write, held against those of the writes that were completed meanwhile, each once."""

    def __init__(self, table: HudiTable, files: Iterable[WrittenFile]) -> None:
        self._table = table
        self._checked: set[InstantTime] = set()
        hashes: dict[str, list[bytes]] = {}
        for file in files:
            if file.new_keys:
                hashes.setdefault(file.stat.partition_path or "", []).append(file.new_keys)
        self._mine = {partition: KeyHashes(b"".join(found)) for partition, found in hashes.items()}

    def refuse_beforehand(self, plan: Plan) -> None:
        """The same as of now, since under the lock reading would keep others waiting."""
        if self._mine:
            self._table.reload()
            self.refuse(plan)

    def refuse(self, plan: Plan) -> None:
        """``ConflictError`` if another write, as of the last reload, has one of the keys."""
        if not self._mine:
            return
        for other in completed_since(self._table, plan):
            if other.time not in self._checked:
                self._refuse(other, plan)
                self._checked.add(other.time)

    def _refuse(self, other: Instant, plan: Plan) -> None:
        metadata = self._table.commit(other)
        if metadata.operation_type in _MOVES_ROWS:
            return
        for stat in metadata.write_stats:
            mine = self._mine.get(stat.partition_path or "")
            if mine is None or not stat.num_inserts or stat.path is None:
                continue
            try:
                with self._table.storage.open(stat.path) as source:
                    both = mine.count_in(source, path=stat.path, instant=other.time)
            except NotFoundError:
                raise conflict(
                    self._table, plan, other, metadata, f"wrote {stat.path}, which was cleaned since"
                ) from None
            if both:
                said = f"inserted {both} of the keys that it inserts too, into {stat.path}"
                raise conflict(self._table, plan, other, metadata, said)
