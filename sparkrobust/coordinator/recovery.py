"""Ending the writes of drivers that are gone, without writing any data again.

A write whose commit is decided is finished.  So is one whose slots are all done: the completion
markers say everything that its driver knew, and the gate said what the write was to be.  Any other
is rolled back.  It is safe while such a driver only sleeps: both then go by one decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparkrobust.coordinator.conflicts import refuse_while_restoring
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.heartbeat import seconds_since
from sparkrobust.coordinator.leftovers import control_folders
from sparkrobust.coordinator.rollback import finish_decided, roll_back
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.coordinator.write_ids import WrittenEarlier, find_write
from sparkrobust.core.conflicts import Work
from sparkrobust.core.instant import Instant, InstantTime
from sparkrobust.core.names import WRITE_ID
from sparkrobust.core.outcome import WriteResult
from sparkrobust.errors import CommitUnknownError, RobustWriteError, UnavailableError


class Fate(Enum):
    """What a recovery made of a write."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    ALIVE = "alive"
    """Its driver's heartbeat has not expired: it was left alone."""


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
        Also those whose driver was alive a short while ago, and may have died since.
    """
    table.reload()
    refuse_while_restoring(table)
    folders = control_folders(table.storage)
    found = []
    for instant in [i for i in table.timeline.pending if table.work_of(i) is Work.INGESTION]:
        controls = [Control(table, folder) for folder in folders if folder.instant == instant.time]
        committed = finish_decided(table, controls)
        if not committed and not even_alive and seconds_since(table, instant.time) is not None:
            found.append(Recovered(instant=instant.time, fate=Fate.ALIVE))
            continue
        committed = committed or any(_completed(table, one) for one in controls)
        if not committed:
            committed = not roll_back(table, instant, "its driver is gone")
        found.append(Recovered(instant=instant.time, fate=Fate.COMMITTED if committed else Fate.ROLLED_BACK))
    return found


def earlier_result(table: HudiTable, write_id: str, operation: str) -> WriteResult | None:
    """What an earlier run of a write came to, if it is durable, or can be made so without writing."""
    pending = {instant.time for instant in table.timeline.pending}
    for folder in control_folders(table.storage):
        control = Control(table, folder)
        gate = control.gate() if folder.instant in pending else None
        is_it = gate is not None and gate.terms.extra.get(WRITE_ID) == write_id
        if is_it and (finish_decided(table, [control]) or _completed(table, control)):
            table.reload()
    done = find_write(table, write_id)
    return None if done is None else result_of(table, done, operation)


def result_of(table: HudiTable, done: Instant, operation: str) -> WriteResult:
    """The result of a write that another run has committed."""
    return WriteResult.of_stats(
        list(table.commit(done).write_stats),
        path=table.storage.url,
        operation=operation,
        instant=done.time,
        completion=done.completion,
        earlier=True,
    )


def _completed(table: HudiTable, control: Control) -> bool:
    """Commit a write whose slots are all done, if it is one."""
    if control.decision() is not None:
        return False
    gate = control.gate()
    if gate is not None and gate.counted and not control.is_compared():
        return False  # whether its rows are all there only its driver could tell
    if gate is None or gate.slots is None:
        return False
    if len(control.completions(gate.standing)) < gate.slots - len(gate.superseded):
        return False
    transaction = Transaction.of_another(table, control.folder, gate)
    try:
        transaction.commit(transaction.finalize(gate.slots))
    except (UnavailableError, CommitUnknownError):
        raise
    except (RobustWriteError, WrittenEarlier):
        return False  # it can't be committed, or another one was: it is rolled back
    transaction.clean_up()
    return True
