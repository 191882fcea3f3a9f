"""What must hold of a table, and of what callers were told, whatever the writers of it met with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action, State
from sparkrobust.core.names import NONCE, TIMELINE, instant_file, parse_instant_file
from sparkrobust.formats.rollback import RollbackMetadata
from tests.coordinator.writes import data_files


@dataclass(kw_only=True)
class Write:
    """A write, the slices that it was planned from, and what its caller was told."""

    transaction: Transaction
    saw: dict[str, str]
    group: str | None = None
    """The file group that it makes a new version of."""
    told: str = "nothing"
    """``committed``, ``failed``, ``unknown``; ``nothing`` if its driver died, or has not ended."""

    @property
    def key(self) -> tuple[str, str]:
        return self.transaction.time, self.transaction.folder.nonce


def slices(table: HudiTable) -> dict[str, str]:
    """The newest instant of each file group."""
    return {f"{base.partition}/{base.file_id}": base.name.instant for base in table.base_files()}


def is_as_told(table: HudiTable, writes: Iterable[Write]) -> None:
    """Callers know what became of their writes, none has lost another's, and no file is no commit's."""
    known = {write.key: write for write in writes}
    completed = {(i.time, table.commit(i).extra_metadata[NONCE]): i for i in table.timeline.completed_writes}
    for write in known.values():
        assert write.told != "unknown", "it could have been found out"
        if write.told != "nothing":
            assert (write.key in completed) is (write.told == "committed")
    now: dict[str, str] = {}
    named = []
    for key, instant in sorted(completed.items(), key=lambda item: item[1].completion or ""):
        write = known[key]
        assert write.told == "nothing" or write.transaction.done == instant
        if instant.action is Action.REPLACE_COMMIT:
            assert write.saw == now, "it replaced what it had not seen"
            now.clear()
        if write.group is not None:
            assert now[write.group] == write.saw[write.group], "an update is lost"
        for stat in table.commit(instant).write_stats:
            now[f"{stat.partition_path}/{stat.file_id}"] = instant.time
            named.append(stat.path or "")
    assert slices(table) == now and data_files(table.storage) == sorted(named)


def ends(table: HudiTable) -> tuple[list[str], list[str]]:
    """The instants that were committed, and those that were rolled back; no time stands there twice."""
    found = [parse_instant_file(name) for name in table.storage.names(TIMELINE)]
    done = [one for one in found if one is not None and one.state is State.COMPLETED]
    times = [time for one in done for time in (one.time, one.completion)]
    assert len(times) == len(set(times)), "a time was taken twice"
    committed = [str(one.time) for one in done if one.action is not Action.ROLLBACK]
    records = [table.read(instant_file(one)) for one in done if one.action is Action.ROLLBACK]
    undone = [
        time for data in records for time in RollbackMetadata.from_bytes(data, path="").commits_rollback
    ]
    assert not set(committed) & set(undone)
    return committed, undone
