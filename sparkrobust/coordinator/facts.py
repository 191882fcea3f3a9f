"""What stands in a table, as plain values for whoever wants to see it; nothing is changed.

A table with many writers is looked at while they are at work: what goes away between two looks is left
out, and what can't be read says so in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.leftovers import begin_markers, control_folders, heartbeats, marked_instants
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import Commit
from sparkrobust.core.instant import WRITES, Instant
from sparkrobust.core.names import LOCK_FILE, WRITE_ID, heartbeat_file, instant_file
from sparkrobust.core.outcome import WriteResult
from sparkrobust.errors import InvalidInputError, RobustWriteError
from sparkrobust.storage.contract import NotFoundError
from sparkrobust.storage.locks import FileSystemLock, TableLock, time_of
from sparkrobust.storage.storage_lock import StorageLock

Fact: TypeAlias = dict[str, object]


def of_timeline(table: HudiTable) -> list[Fact]:
    """Every active instant, oldest first."""
    table.reload()
    return [_of_instant(table, instant) for instant in table.timeline.instants]


def _of_instant(table: HudiTable, instant: Instant) -> Fact:
    fact: Fact = {
        "instant": instant.time,
        "action": instant.action.value,
        "state": instant.state.name.lower(),
        "completion": instant.completion,
    }
    if not instant.pending and instant.action in WRITES:
        fact |= _read(lambda: _of_commit(table, instant))
    return fact


def _of_commit(table: HudiTable, instant: Instant) -> Fact:
    metadata = table.commit(instant)
    operation = metadata.operation_type.value.lower() if metadata.operation_type else ""
    result = WriteResult.of_stats(list(metadata.write_stats), path="", operation=operation)
    wanted = ("operation", "inserted", "updated", "deleted", "files_created", "files_rewritten", "partitions")
    return {name: getattr(result, name) for name in wanted}


def of_instant(table: HudiTable, time: str) -> Fact:
    """All that is known of one instant, pending or completed.

    Raises
    ------
    InvalidInputError
        There is none of this time.
    """
    table.reload()
    found = [instant for instant in table.timeline.instants if instant.time == time]
    if not found:
        raise InvalidInputError(
            f"there is no instant {time} on the active timeline of {table.storage.url}",
            path=table.storage.url,
            hint="`sparkrobust timeline` lists those that there are",
        )
    instant = found[0]
    fact = {**_of_instant(table, instant), "file": instant_file(instant)}
    if instant.pending:
        beats = of_heartbeats(table, only=time)
        fact["writes"] = of_writes(table, only=time)
        fact["heartbeat_seconds"] = beats[0]["seconds"] if beats else None
    elif instant.action in WRITES:
        fact |= _read(lambda: _details_of_commit(table, instant))
    return fact


def _details_of_commit(table: HudiTable, instant: Instant) -> Fact:
    metadata = table.commit(instant)
    extra = {key: value for key, value in metadata.extra_metadata.items() if key != "schema"}
    files = [
        {
            "path": stat.path,
            "bytes": stat.file_size_in_bytes,
            "rows": stat.num_writes,
            "inserted": stat.num_inserts,
            "updated": stat.num_update_writes,
            "deleted": stat.num_deletes,
            "instead_of": stat.prev_base_file,
        }
        for stat in metadata.write_stats
    ]
    return {"write_id": extra.get(WRITE_ID), "extra_metadata": extra, "files": files}


def of_writes(table: HudiTable, *, only: str | None = None) -> list[Fact]:
    """Markers and decisions, of the writes that are under way and of dead ones, or of one of them."""
    storage = table.storage
    folders = {str(folder.instant): folder for folder in control_folders(storage)}
    there = folders.keys() | set(marked_instants(storage))
    found = []
    for time in sorted(there if only is None else there & {only}):
        fact: Fact = {"instant": time, "begin_markers": _count(partial(begin_markers, storage, time))}
        if time in folders:
            control = Control(table, folders[time])
            fact |= {"nonce": folders[time].nonce} | _read(partial(_of_control, control))
        found.append(fact)
    return found


def _of_control(control: Control) -> Fact:
    gate, decision = control.gate(), control.decision()
    names = control.storage.names(control.folder.completions)
    return {
        "operation": gate.terms.operation.value.lower() if gate else None,
        "slots": gate.slots if gate else None,
        "slots_done": sum(name.isdigit() for name in names),
        "tasks_may_write": control.storage.stat(control.folder.gate) is not None,
        "decision": None if decision is None else "COMMIT" if isinstance(decision, Commit) else "ABORT",
    }


def of_heartbeats(table: HudiTable, *, only: str | None = None) -> list[Fact]:
    """The heartbeat of every write that has one, or of one write; its age by the store's clock."""
    times = sorted(time for time in heartbeats(table.storage) if only in (None, time))
    if not times:
        return []
    now, pulse = _now_ms(table), table.coordination.pulse
    found = []
    for time in times:
        info = table.storage.stat(heartbeat_file(time))
        if info is not None:
            alive = pulse.is_alive(info.modified_ms, now)
            seconds = max(0, now - info.modified_ms) / 1000
            found.append({"instant": time, "seconds": round(seconds, 1), "alive": alive})
    return found


def _now_ms(table: HudiTable) -> int:
    try:
        return time_of(table.storage, table.ids)
    except RobustWriteError:
        return table.clock.now_ms()  # who may only read can't ask the store


def of_locks(table: HudiTable) -> list[Fact]:
    """The locks that lie in the table, and the one that the options name; a free one has no ``holder``."""
    storage = table.storage
    named = table.coordination.lock
    locks: dict[str, TableLock] = {
        str(lock): lock
        for lock in (
            FileSystemLock(storage, LOCK_FILE, clock=table.clock, ids=table.ids),
            StorageLock(storage, clock=table.clock, ids=table.ids),
        )
    }
    if named.shared:
        locks[str(named)] = named  # which knows for how long it counts
    return [{"lock": name} | _read(partial(_of_lock, lock)) for name, lock in locks.items()]


def _of_lock(lock: TableLock) -> Fact:
    holder = lock.holder()
    if holder is None:
        return {"holder": None, "seconds": None}
    return {"holder": holder.name, "seconds": round(holder.seconds, 1)}


def _read(look: Callable[[], Fact]) -> Fact:
    try:
        return look()
    except NotFoundError:
        return {}  # it has ended meanwhile
    except RobustWriteError as error:
        return {"problem": str(error)}


def _count(look: Callable[[], Iterable[object]]) -> object:
    try:
        return sum(1 for _ in look())
    except RobustWriteError as error:
        return str(error)
