"""Ending the writes of drivers that are gone, without writing any data again.

A write whose commit is decided is finished.  So is one whose slots are all done: the completion
markers say everything that its driver knew, and the gate said what the write was to be.  Any other
is rolled back.  It is safe while such a driver only sleeps: both then go by one decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from sparkrobust.coordinator.conflicts import refuse_while_restoring
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.heartbeat import seconds_since
from sparkrobust.coordinator.history import UNREADABLE
from sparkrobust.coordinator.leftovers import control_folders
from sparkrobust.coordinator.rollback import (
    finish_decided,
    left_to_the_next_write,
    roll_back,
    roll_back_failed_writes,
)
from sparkrobust.coordinator.rollback_plans import pending_targets
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier, find_write
from sparkrobust.core.conflicts import Work
from sparkrobust.core.instant import Instant, InstantTime
from sparkrobust.core.lock_name import options_for
from sparkrobust.core.names import WRITE_ID, heartbeat_file
from sparkrobust.core.outcome import WriteResult
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    FencedError,
    IndeterminateInputError,
    LockError,
    RobustWriteError,
)
from sparkrobust.formats.commit_metadata import CompletedWrite
from sparkrobust.options import FailedWritesPolicy
from sparkrobust.storage.contract import NotFoundError
from sparkrobust.storage.locks import LOCK_LOST

OTHER_LOCK = "other-lock"
"""The kind of the error for a write that goes by a lock which this driver does not share."""


class Fate(Enum):
    """What a recovery made of a write."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    ALIVE = "alive"
    """Its driver's heartbeat has not expired: it was left alone."""
    UNKNOWN = "unknown"
    """It is not ours and has no heartbeat, as a living single writer of Hudi's: it was left alone."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """A write that was pending, and what became of it."""

    instant: InstantTime
    fate: Fate


def recover(table: HudiTable, *, even_alive: bool = False) -> list[Recovered]:
    """End every pending write, oldest first.

    Parameters
    ----------
    even_alive
        Also those whose driver was alive a short while ago, and may have died since, and those of
        which nothing says whether it lives.

    Raises
    ------
    LockError
        A write is all there, and goes by a lock that this driver does not share: it was left as it is,
        after the others were ended.  Or the lock could not be had.
    CorruptTableError
        A write is all there, and whether an earlier run has committed it the archived timeline can't tell,
        since it can't be read; it was left in the same way.
    """
    table.reload()
    refuse_while_restoring(table)
    folders = control_folders(table.storage)
    found, left = list[Recovered](), list[RobustWriteError]()
    for instant in pending_writes(table):
        controls = [Control(table, folder) for folder in folders if folder.instant == instant.time]
        try:
            fate = _ended(table, instant, controls, even_alive=even_alive)
        except (LockError, CorruptTableError) as error:
            if error.kind not in (OTHER_LOCK, UNREADABLE):
                raise
            left.append(error)
        else:
            found.append(Recovered(instant=instant.time, fate=fate))
    if left:
        raise left[0]
    return found


def pending_writes(table: HudiTable) -> list[Instant]:
    """The writes that have not ended, oldest first."""
    return [instant for instant in table.timeline.pending if table.work_of(instant) is Work.INGESTION]


def roll_back_writes(table: HudiTable, writes: Iterable[Instant]) -> list[Recovered]:
    """Roll these back, alive or not, and finish what rollbacks others have begun.

    A write whose commit is decided is finished instead.
    """
    table.reload()
    refuse_while_restoring(table)
    found = [Recovered(instant=one.time, fate=_rolled_back(table, one, "it was asked for")) for one in writes]
    undone = roll_back_failed_writes(_by_policy(table, FailedWritesPolicy.NEVER))
    return found + [Recovered(instant=one.time, fate=Fate.ROLLED_BACK) for one in undone]


def roll_back_as_a_write_would(table: HudiTable) -> list[Instant]:
    """Roll back the writes that have failed, but no living ones of those who share a lock.

    Returns
    -------
    The writes that were rolled back; those whose commit was decided are finished instead.
    """
    undone = []
    if table.coordination.failed_writes is FailedWritesPolicy.EAGER:
        table.reload()
        single = [one for one in pending_writes(table) if not table.lock_name and _is_single(table, one)]
        undone = [one for one in single if roll_back(table, one, "a single writer has begun")]
        # Whoever is left may be one of several, and whoever has begun meanwhile.
        table = _by_policy(table, FailedWritesPolicy.LAZY)
    table.reload()
    return undone + roll_back_failed_writes(table)


def _is_single(table: HudiTable, write: Instant) -> bool:
    """Whether the write is certainly not by one of several who share a lock."""
    folders = [folder for folder in control_folders(table.storage) if folder.instant == write.time]
    try:
        gates = [Control(table, folder).gate() for folder in folders]
    except CorruptTableError:
        return False
    return bool(gates) and all(gate is not None and not gate.lock for gate in gates)


def _by_policy(table: HudiTable, policy: FailedWritesPolicy) -> HudiTable:
    return replace(table, coordination=replace(table.coordination, failed_writes=policy))


def _rolled_back(table: HudiTable, write: Instant, reason: str) -> Fate:
    return Fate.ROLLED_BACK if roll_back(table, write, reason) else Fate.COMMITTED


def _ended(table: HudiTable, instant: Instant, controls: list[Control], *, even_alive: bool) -> Fate:
    if finish_decided(table, controls):
        return Fate.COMMITTED
    if not even_alive and seconds_since(table, instant.time) is not None:
        return Fate.ALIVE
    if not even_alive and not controls and _may_be_at_work(table, instant):
        return Fate.UNKNOWN
    if any(_completed(table, one) for one in controls):
        return Fate.COMMITTED
    return _rolled_back(table, instant, "its driver is gone")


def _may_be_at_work(table: HudiTable, instant: Instant) -> bool:
    """Whether nothing says that the writer of a write without a control folder is dead.

    Hudi's single writer has no heartbeat.  One of ours without either has ended since it was seen.
    """
    if table.storage.stat(heartbeat_file(instant.time)) is not None:
        return False
    table.reload()
    now = table.timeline.find(instant.time, instant.action)
    return now is not None and now.pending and instant.time not in pending_targets(table)


def earlier_result(table: HudiTable, write_id: str, operation: str) -> WriteResult | None:
    """What an earlier run of a write came to, if it is durable, or can be made so without writing.

    Raises
    ------
    LockError
        It is all there, and goes by a lock that this driver does not share.
    CorruptTableError
        It may have been archived, and the archived timeline can't be read.
    """
    committed = _committed_now(table, write_id)
    try:
        if committed is not None:
            table.reload()
        done = find_write(table, write_id)
        return None if done is None else result_of(table, done, operation)
    except Exception as error:
        if committed is None:
            raise
        raise result_unread(table, committed, error) from error


def _committed_now(table: HudiTable, write_id: str) -> InstantTime | None:
    """The instant of a write with this id that was left pending, and is committed by this call."""
    pending = {instant.time for instant in table.timeline.pending}
    for folder in control_folders(table.storage):
        control = Control(table, folder)
        gate = control.gate() if folder.instant in pending else None
        if gate is None or gate.terms.extra.get(WRITE_ID) != write_id:
            continue
        try:
            if finish_decided(table, [control]) or _completed(table, control):
                return folder.instant
        except RobustWriteError as error:
            error.outcome = CommitOutcome.UNKNOWN  # it is this write, and others may still finish it
            raise
    return None


def result_unread(table: HudiTable, time: InstantTime, error: Exception) -> CommitUnknownError:
    """What is said of a write that is durable, and whose result can't be read: not that it failed."""
    return CommitUnknownError(
        f"another driver has committed the write {time}; its result can't be read: {error}",
        instant=time,
        path=table.storage.url,
        hint="it is durable if the timeline still has it: look there before you write it again",
    )


def result_of(table: HudiTable, done: CompletedWrite, operation: str, *, earlier: bool = True) -> WriteResult:
    """The result of a write that another driver has committed; what it says lasts longer than its instant.

    Parameters
    ----------
    earlier
        By an earlier run of the same job.
    """
    return WriteResult.of_stats(
        list(done.metadata.write_stats),
        path=table.storage.url,
        operation=operation,
        instant=done.instant.time,
        completion=done.instant.completion,
        earlier=earlier,
    )


def _completed(table: HudiTable, control: Control) -> bool:
    """Commit a write whose slots are all done, if it is one; ``False`` only if nobody can."""
    if control.decision() is not None:
        return False
    gate = control.gate()
    if gate is not None and gate.counted and not control.is_compared():
        return False  # whether its rows are all there only its driver could tell
    if gate is None or gate.slots is None:
        return False
    if len(control.completions(gate.standing)) < gate.slots - len(gate.superseded):
        return False
    _refuse_other_lock(table, control, gate.lock)
    transaction = Transaction.of_another(table, control.folder, gate)
    try:
        transaction.commit(transaction.finalize(gate.slots))
    except CorruptTableError as error:
        if error.kind == UNREADABLE:
            raise  # it may be what an earlier run has committed, and may be not
        return False
    except (ConflictError, IndeterminateInputError, NotFoundError, WrittenEarlier):
        return False  # what it needs is not there any more, or others came first
    except FencedError as error:
        if error.kind == LOCK_LOST:
            raise
        return False
    with left_to_the_next_write():
        transaction.clean_up()
    return True


def _refuse_other_lock(table: HudiTable, control: Control, lock: str) -> None:
    """``LockError`` for a write beside which others could commit another, under its lock."""
    if lock in ("", table.lock_name):
        return
    time = control.folder.instant
    raise LockError(
        f"the write {time} is all there, and goes by the lock {lock}; this driver, which goes by "
        f"{table.lock_name or 'none that others share'}, can't commit it: another writer may be at it too",
        kind=OTHER_LOCK,
        instant=time,
        path=table.storage.url,
        hint=f"give the lock's options ({options_for(lock)}), or roll the write back",
    )
